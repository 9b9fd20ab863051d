package bench

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// What a fleet goes through last: its members are restarted, what it follows changes once
// more, and some of its agents fall silent.

const (
	agentsPerSilent = 100              // one of so many agents falls silent
	returnTime      = 10 * time.Second // of the servers, by default: no session ends sooner under a new leader
)

// restarts ends and starts the members, one after the other and then all at once, and
// changes something of what all follow then: a watch that did not come back is seen only
// by that.
func (f *agentFleet) restarts(ctx context.Context) error {
	members, ok := f.cluster.(Members)
	if !ok || f.sc.Fault == "" {
		return nil
	}
	was := f.tally()
	if n := len(members.Servers()); n > 1 {
		for i := range n {
			if err := f.restartOne(ctx, members, i); err != nil {
				return err
			}
		}
	}
	if err := f.restartAll(ctx, members); err != nil {
		return err
	}
	reread := int64(0)
	for i, is := range f.tally() {
		reread += is - was[i]
	}
	f.fact("reread", float64(reread))
	n := len(f.stops)
	if err := f.tellAll(ctx, "charm_after_restart", ToldCharm, n, func() error { return f.sys.Charm(ctx, 2) }); err != nil {
		return err
	}
	return f.tellAll(ctx, "relation_after_restart", ToldRelations, n, func() error { return f.sys.Relate(ctx, n) })
}

// restartOne restarts a member. Who was there is at another before it has ended, so who has
// begun is counted from before; and the time until the last has, from when the member was told
// to end.
func (f *agentFleet) restartOne(ctx context.Context, members Members, i int) error {
	f.setPhase("restart of member %d", i+1)
	name, began := fmt.Sprintf("restart_%d", i+1), f.now()
	there := f.streamsAt(ctx, i)
	before, attaches := f.startRequests(ctx), f.allAway()
	if err := f.restartMember(ctx, members, i); err != nil {
		return err
	}
	for f.back() < there && f.now()-began < agentPatience {
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	if err := sleep(ctx, agentLull); err != nil {
		return err
	}
	if away := there - f.back(); away > 0 {
		f.check.Violate("%d of %d agents of member %d were not back in time", away, there, i+1)
	}
	if before != nil {
		before[i] = 0 // it counts anew
	}
	moved := f.back()
	f.noteStartRequests(ctx, name, before, moved)
	f.fact(name+"_moved", float64(moved))
	if moved > 0 {
		f.fact(name+"_resumed_seconds", (f.lastBack() - began).Seconds())
		f.fact(name+"_starts_per_agent", float64(f.attaches.Load()-attaches)/float64(moved))
	}
	f.fact(name+"_seconds", (f.now() - began).Seconds())
	return nil
}

// streamsAt is how many streams a member has, which is one for each of its agents; 0 where it
// does not say.
func (f *agentFleet) streamsAt(ctx context.Context, i int) int {
	res, err := f.clients[i].Cluster().Status(ctx, connect.NewRequest(&apiv1.StatusRequest{}))
	if err != nil {
		return 0
	}
	for _, l := range res.Msg.Limits {
		if l.Name == "streams" {
			return int(l.Used)
		}
	}
	return 0
}

// restartAll restarts all members at once. Who begins before the last of them has ended has
// done so in vain.
func (f *agentFleet) restartAll(ctx context.Context, members Members) error {
	f.setPhase("restart of all")
	n, all, began := len(members.Servers()), len(f.stops), f.now()
	if err := inParallel(ctx, n, func(i int) error { return members.Kill(i, syscall.SIGTERM) }); err != nil {
		return err
	}
	down, before := f.now(), f.allAway()
	f.fact("restart_all_stopped_seconds", (down - began).Seconds())
	if err := inParallel(ctx, n, func(i int) error { return members.Start(ctx, i, Start{}) }); err != nil {
		return err
	}
	first := time.Duration(0)
	for {
		back := f.back()
		if back > 0 && first == 0 {
			first = f.now()
			f.fact("restart_all_first_seconds", (first - down).Seconds())
		}
		if back >= all {
			f.fact("restart_all_resumed_seconds", (f.now() - down).Seconds())
			break
		}
		if f.now()-down > agentPatience {
			f.check.Violate("%d of %d agents were not back in time", all-back, all)
			break
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	if err := sleep(ctx, agentLull); err != nil {
		return err
	}
	f.fact("restart_all_starts_per_agent", float64(f.attaches.Load()-before)/float64(all))
	f.noteStartRequests(ctx, "restart_all", make([]float64, n), all)
	return nil
}

// startSeries is how many requests to begin a session again a member has had, as it counts
// what comes in the lane of that. While agents only come back nothing else does, but what is
// repeated alone of who is there. One that is refused and waits in line then is counted
// twice; one that is refused after it has waited is not counted, for lines count no refusals.
var startSeries = [...]string{
	`incumbent_admitted_total{lane="small"}`,
	`incumbent_refused_total{lane="small",reason="delay"}`,
	`incumbent_refused_total{lane="small",reason="memory"}`,
	`incumbent_refused_total{lane="small",reason="order"}`,
}

// startRequests is that for each member; nil: not all of them say it.
func (f *agentFleet) startRequests(ctx context.Context) (sums []float64) {
	for _, url := range f.urls {
		sum := 0.0
		for _, name := range startSeries {
			n, ok := seriesOf(ctx, url, name)
			if !ok {
				return nil
			}
			sum += n
		}
		sums = append(sums, sum)
	}
	return sums
}

// noteStartRequests notes how often each of so many agents has asked to begin again since the
// members had had so many requests for it; nothing where they do not say it. Unlike the agents'
// own count of when they have begun, it has those that were refused.
func (f *agentFleet) noteStartRequests(ctx context.Context, name string, before []float64, agents int) {
	now := f.startRequests(ctx)
	if len(now) != len(before) || len(now) == 0 || agents == 0 {
		return
	}
	sum := 0.0
	for i := range now {
		sum += now[i] - before[i]
	}
	f.fact(name+"_start_requests_per_agent", sum/float64(agents))
}

// restartMember returns once the member serves again, so that never two are away.
func (f *agentFleet) restartMember(ctx context.Context, members Members, i int) error {
	if err := members.Kill(i, syscall.SIGTERM); err != nil {
		return err
	}
	if err := members.Start(ctx, i, Start{}); err != nil {
		return err
	}
	for began := f.now(); f.now()-began < agentPatience; {
		res, err := f.clients[i].Cluster().Members(ctx, connect.NewRequest(&apiv1.MembersRequest{}))
		if err == nil && slices.ContainsFunc(res.Msg.Members, func(m *apiv1.Member) bool { return m.Self && m.Ready }) {
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return incumbent.Errorf(incumbent.Unavailable, "member %d did not serve again within %v", i+1, agentPatience)
}

// silence has some agents fall silent, and one of them followed at once by another of its
// name. Those are called down once their ttl is over, and nobody else is: not for this, nor
// for the restarts, whose new leader has given all a whole ttl before. The successor begins at
// once, but for its name, which is not free yet: that is asked for alone until it is.
func (f *agentFleet) silence(ctx context.Context) error {
	if f.sys.Silence == nil {
		return nil
	}
	f.setPhase("silence")
	ttl, succeeded, silent := time.Duration(f.sc.TTL), 0, 0
	for unit := 0; unit < len(f.stops); unit += agentsPerSilent {
		silent++
		f.fallsSilent(unit)
		if err := f.sys.Silence(ctx, unit); err != nil {
			return err
		}
	}
	began, before := f.now(), f.attaches.Load()
	stop, err := f.start(ctx, succeeded)
	if err != nil {
		return fmt.Errorf("a successor whose name is not free yet: %w", err)
	}
	f.stops[succeeded] = stop // the one before does nothing any more
	f.fact("successor_start_ms", (f.now()-began).Seconds()*1000)
	latest := max(time.Duration(float64(ttl)*(1+drift))+grace, returnTime) + f.check.late
	if err := sleep(ctx, latest-(f.now()-began)); err != nil {
		return err
	}
	if missed := silent - f.calledDownSoFar(); missed > 0 {
		f.check.Violate("%d of %d agents that fell silent were not called down within %v", missed, silent, latest)
	}
	if err := f.awaitAlive(ctx, succeeded, ttl); err != nil {
		return err
	}
	f.fact("silence_starts", float64(f.attaches.Load()-before))
	return nil
}

// awaitAlive waits until somebody is alive under the name of a unit's agent.
func (f *agentFleet) awaitAlive(ctx context.Context, unit int, patience time.Duration) error {
	for began := f.now(); ; {
		alive, err := f.sys.Alive(ctx, unit)
		if err != nil || alive {
			return err
		}
		if f.now()-began > patience {
			f.check.Violate("the agent of unit %d lives, and was not called alive within %v after another of its name was called down", unit, patience)
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// fallsSilent notes that a unit's agent is not heard from now on.
func (f *agentFleet) fallsSilent(unit int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.silent[unit] = f.now()
}

// calledDownSoFar is how many of those that fell silent were called down.
func (f *agentFleet) calledDownSoFar() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.down)
}

// calledDown takes who was called down: right only of who fell silent, once, and not before
// half of the ttl is over. The last beat may have been a third of it before.
func (f *agentFleet) calledDown(name string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unit := unitOf(name)
	since, silent := f.silent[unit]
	if !silent || f.down[unit] {
		f.check.Violate("%s was called down, and lived", name)
		return
	}
	f.down[unit] = true
	if after := f.now() - since; after < time.Duration(f.sc.TTL)/2 {
		f.check.Violate("%s was called down %v after it fell silent, and its ttl is %v", name, after, time.Duration(f.sc.TTL))
	}
}

// unitOf is the unit of the agent that is called so; -1: of none.
func unitOf(name string) int {
	n, err := strconv.Atoi(name[strings.LastIndexByte(name, '/')+1:])
	if err != nil {
		return -1
	}
	return n
}
