package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// timelineWait is how long all members are waited for before what they keep of
// their timelines is printed in order; with -f what comes later is printed as it
// comes.
const timelineWait = 2 * time.Second

// With -f members that stopped are asked again, and those that joined too.
const (
	askAgain     = time.Second
	membersEvery = 5 * time.Second
)

// followSilence is how long a member that is followed may say nothing: it says something every ten
// seconds, if only that it is there.
const followSilence = 30 * time.Second

func eventsCommand(env *environment) *cobra.Command {
	c := &cobra.Command{
		Use:   "events",
		Short: "the timeline: elections, leases lost and why, refusals",
		Long: `Events prints what the member that answers keeps of its timeline, oldest first, and
with -f what happens from now on. With -o json, too, each event is one line.

--all-members asks every member of the cluster at its own address, puts their
timelines in one order, by their clocks, and says on standard error who did not
answer within two seconds. Exit code 5: nobody did. With -f it asks again who did
not answer or has stopped, and those who join. Without --all-members -f ends with exit
code 5 if the member says nothing for thirty seconds: it stands still or is cut off.`,
		Example: `  incumbent events
  incumbent events --all-members
  incumbent events -f -o jsonl`,
		Args: exactArgs(),
		RunE: func(c *cobra.Command, _ []string) error {
			form := formOf(c)
			req := &apiv1.EventsRequest{}
			req.Follow, _ = c.Flags().GetBool("follow")
			req.Limit, _ = c.Flags().GetUint32("limit")
			p := eventPrinter{env: env, form: form}
			if all, _ := c.Flags().GetBool("all-members"); all {
				p.member = true
				return untilInterrupted(c, allEvents(c, p, req))
			}
			return untilInterrupted(c, oneTimeline(c, p, req))
		},
	}
	c.Flags().BoolP("follow", "f", false, "go on with what happens")
	c.Flags().Uint32("limit", 100, "how many of those kept, of each member")
	c.Flags().Bool("all-members", false, "of all members of the cluster")
	addServerFlags(c)
	addOutput(c)
	return c
}

// eventPrinter prints events in one form, with the member's name if there are
// several.
type eventPrinter struct {
	env    *environment
	form   string
	member bool
}

func (p eventPrinter) print(events []*apiv1.Event) error {
	for _, e := range events {
		if p.form != formTable {
			if err := printProto(p.env.stdout, formJSONL, e); err != nil {
				return err
			}
			continue
		}
		member := ""
		if p.member {
			member = fmt.Sprintf("%-12s ", orDash(e.Member))
		}
		if err := say(p.env.stdout, "%s  %s%-18s %s  %s", wallTime(e.AtUnixMs), member, e.What, orDash(e.Subject), e.Detail); err != nil {
			return err
		}
	}
	return nil
}

// oneTimeline prints the timeline of the first member that answers. A stream stays at its
// member, so another call finds one that is there.
func oneTimeline(c *cobra.Command, p eventPrinter, req *apiv1.EventsRequest) error {
	limit, _ := c.Flags().GetDuration("timeout")
	return withClient(c, func(cl *client.Client) error {
		_, err := cl.Cluster().Members(c.Context(), connect.NewRequest(&apiv1.MembersRequest{}))
		if err := wrong(err); err != nil {
			return err
		}
		return eventsWithin(c.Context(), cl, req, patienceWith(req, limit), context.DeadlineExceeded, p.print)
	})
}

// patience is how long a member is waited for: before its first answer, and between two. 0: for ever.
type patience struct{ first, between time.Duration }

// patienceWith is the patience with the answers to req, of which the first is to come within limit.
func patienceWith(req *apiv1.EventsRequest, limit time.Duration) patience {
	if req.Follow {
		return patience{limit, followSilence}
	}
	return patience{limit, limit}
}

// eventsWithin is [followEvents] of a member that may stand still: the error is late if it does not
// tell in time what it keeps, and [incumbent.Unavailable] if one that is followed says nothing later.
func eventsWithin(ctx context.Context, cl *client.Client, req *apiv1.EventsRequest, p patience, late error, take func([]*apiv1.Event) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	wait := func(limit time.Duration, err error) (stop func() bool) {
		if limit == 0 {
			limit = math.MaxInt64
		}
		return time.AfterFunc(limit, func() { cancel(err) }).Stop
	}
	silent := late
	if req.Follow {
		silent = incumbent.Errorf(incumbent.Unavailable, "the member has said nothing for %v", p.between)
	}
	stop := wait(p.first, late)
	defer func() { stop() }()
	err := followEvents(ctx, cl, req, func(events []*apiv1.Event) error {
		stop() // to print them may take longer
		if err := take(events); err != nil {
			return err
		}
		stop = wait(p.between, silent)
		return nil
	})
	if cause := context.Cause(ctx); err != nil && cause != nil {
		return cause
	}
	return err
}

// followEvents gives what a member says of its timeline to take, until it has said
// all or take fails.
func followEvents(ctx context.Context, cl *client.Client, req *apiv1.EventsRequest, take func([]*apiv1.Event) error) error {
	stream, err := cl.Cluster().Events(ctx, connect.NewRequest(req))
	if err != nil {
		return err
	}
	defer stream.Close()
	for stream.Receive() {
		if err := take(stream.Msg().Events); err != nil {
			return err
		}
	}
	return stream.Err()
}

// allEvents prints the timelines of all members.
func allEvents(c *cobra.Command, p eventPrinter, req *apiv1.EventsRequest) error {
	var members []*apiv1.Member
	err := withClient(c, func(cl *client.Client) error {
		res, err := cl.Cluster().Members(c.Context(), connect.NewRequest(&apiv1.MembersRequest{}))
		if err == nil {
			members = res.Msg.Members
		}
		return err
	})
	if err != nil {
		return err
	}
	m := &merger{print: p.print}
	if req.Follow {
		return followAll(c, m, members, req)
	}
	var all sync.WaitGroup
	for _, one := range members {
		all.Go(func() {
			if err := eventsAt(c.Context(), c, one, req, m.take); err != nil && c.Context().Err() == nil {
				m.silent(c, one, err)
			}
		})
	}
	all.Wait()
	m.inOrder()
	if m.err == nil && m.answered == 0 {
		return incumbent.Errorf(incumbent.Unavailable, "no member answered")
	}
	return m.err
}

// followAll prints what happens on all members until it is interrupted, or cannot print: one
// that is restarted is asked again, one that joins is asked too. Only if nobody answers when it
// begins is that an error.
func followAll(c *cobra.Command, m *merger, members []*apiv1.Member, req *apiv1.EventsRequest) error {
	ctx, cancel := context.WithCancel(c.Context())
	asked := map[string]context.CancelFunc{} // by id
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	early := time.NewTimer(timelineWait)
	defer early.Stop()
	again := time.NewTicker(membersEvery)
	defer again.Stop()
	for {
		now := map[string]bool{}
		for _, one := range members {
			now[one.Id] = true
			if asked[one.Id] == nil {
				asking, stop := context.WithCancel(ctx)
				asked[one.Id] = stop
				all.Go(func() { followOne(asking, c, m, one, req) })
			}
		}
		for id, stop := range asked {
			if !now[id] {
				stop()
				delete(asked, id)
			}
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-early.C:
			m.inOrder()
			if m.answers() == 0 {
				return incumbent.Errorf(incumbent.Unavailable, "no member answered")
			}
		case <-again.C:
			if err := m.failed(); err != nil {
				return err
			}
			_ = withClient(c, func(cl *client.Client) error { // who cannot be asked now is asked again
				res, err := cl.Cluster().Members(ctx, connect.NewRequest(&apiv1.MembersRequest{}))
				if err == nil {
					members = res.Msg.Members
				}
				return err
			})
		}
	}
}

// followOne hands on what happens on one member until ctx ends. What it keeps is told once,
// however often it is asked; that it does not answer is said once, until it does.
func followOne(ctx context.Context, c *cobra.Command, m *merger, one *apiv1.Member, req *apiv1.EventsRequest) {
	var told tail
	silent := false
	for ctx.Err() == nil {
		seen := true // of what this answer has said so far
		err := eventsAt(ctx, c, one, req, func(events []*apiv1.Event) error {
			silent = false
			for seen && len(events) > 0 {
				if seen = told.has(events[0]); seen {
					events = events[1:]
				}
			}
			told.add(events)
			return m.take(events)
		})
		if ctx.Err() == nil && !silent {
			silent = true
			m.silent(c, one, cmp.Or(err, errors.New("it ended")))
		}
		select {
		case <-ctx.Done():
		case <-time.After(askAgain):
		}
	}
}

// tail is the end of a timeline: the newest events, all of one time.
type tail []*apiv1.Event

// has says whether the event is at the end, or was before it.
func (t tail) has(e *apiv1.Event) bool {
	if len(t) == 0 || e.AtUnixMs != t[0].AtUnixMs {
		return len(t) > 0 && e.AtUnixMs < t[0].AtUnixMs
	}
	return slices.ContainsFunc(t, func(of *apiv1.Event) bool { return proto.Equal(of, e) })
}

// add adds what came behind.
func (t *tail) add(events []*apiv1.Event) {
	for _, e := range events {
		if len(*t) > 0 && (*t)[0].AtUnixMs != e.AtUnixMs {
			*t = nil
		}
		*t = append(*t, e)
	}
}

// eventsAt asks one member at its own address.
func eventsAt(ctx context.Context, c *cobra.Command, m *apiv1.Member, req *apiv1.EventsRequest, take func([]*apiv1.Event) error) error {
	if m.Address == "" {
		return errors.New("its address is not known")
	}
	return withServers(c, []string{m.Address}, func(cl *client.Client) error {
		return eventsWithin(ctx, cl, req, patienceWith(req, timelineWait), fmt.Errorf("no answer within %v", timelineWait), take)
	})
}

// merger puts what several members say into one order, until inOrder is called:
// from then on it is printed as it comes.
type merger struct {
	print func([]*apiv1.Event) error

	mu       sync.Mutex // guards what follows, and the output
	kept     []*apiv1.Event
	live     bool
	answered int // members' answers, of one or more events
	err      error
}

func (m *merger) take(events []*apiv1.Event) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answered++
	if len(events) == 0 {
		return m.err
	}
	if !m.live {
		m.kept = append(m.kept, events...)
		return nil
	}
	return m.say(events)
}

// say prints. mu is held.
func (m *merger) say(events []*apiv1.Event) error {
	if m.err == nil {
		m.err = m.print(events)
	}
	return m.err
}

// inOrder prints what has come so far, by time, the events of one member in their own
// order.
func (m *merger) inOrder() {
	m.mu.Lock()
	defer m.mu.Unlock()
	slices.SortStableFunc(m.kept, func(a, b *apiv1.Event) int {
		if a.AtUnixMs != b.AtUnixMs {
			return cmp.Compare(a.AtUnixMs, b.AtUnixMs)
		}
		return strings.Compare(a.Member, b.Member)
	})
	_ = m.say(m.kept) // m.err has it
	m.kept, m.live = nil, true
}

// answers is how many have come, of all members.
func (m *merger) answers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.answered
}

// failed is why nothing more can be printed.
func (m *merger) failed() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.err
}

// silent says that a member did not answer, or not to the end.
func (m *merger) silent(c *cobra.Command, who *apiv1.Member, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_ = say(c.ErrOrStderr(), "incumbent: member %s at %s did not answer: %v", orDash(who.Name), orDash(who.Address), client.AsError(err)) // nobody is left to tell
}
