package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// A member may be cut off in a way that raft does not notice: it hears a leader,
// or believes that it leads, and yet confirms nothing, for what it sends is lost.
// Nothing can be extended or read there, and clients that beat find that out and
// leave. Others, such as Juju's agents, leave only when their connection closes:
// so the member sends them to the others, and takes nobody until it can confirm
// again.
//
// A member that knows no leader keeps its clients. As far as it can tell, nobody
// has one: to go elsewhere would help nobody, and all of them would come back at
// once when there is one again, in the moment that has most to do.
const (
	// DefaultCutOffAfter is twice as long as a call waits for the leader.
	DefaultCutOffAfter = 4 * time.Second

	minCutOffAfter = time.Second // a few rounds of confirmation on a bad day
	maxCutOffAfter = time.Hour

	cutOffLooks = 8 // within that time

	// Clients are sent away at this pace, 2,000 a second, in an order of no
	// meaning: each of them costs another member a handshake.
	sendAwayAtOnce = 100
	sendAwayPause  = 50 * time.Millisecond
)

// silence is how long a member that knows a leader has confirmed nothing, as far
// as it was awake meanwhile: a process that was stopped was not cut off by that.
type silence struct {
	after  time.Duration // counts as cut off
	leader uint64
	lasted time.Duration
}

// look is told, some time after the last look, who leads (0: nobody known),
// whether a confirmation has succeeded since, and whether this member can be cut
// off at all. It reports whether it is.
func (s *silence) look(since time.Duration, leader uint64, confirmed, possible bool) bool {
	if leader == 0 || leader != s.leader || confirmed || !possible {
		s.leader, s.lasted = leader, 0
		return false
	}
	s.lasted += min(since, 2*s.after/cutOffLooks)
	return s.lasted >= s.after
}

// cutOff is what the others see of it.
type cutOff struct {
	now  atomic.Bool
	stop context.CancelFunc // ends the sending away; owned by keepConfirming
}

// err is why nobody is served here; nil if this member is not cut off.
func (c *cutOff) err() error {
	if !c.now.Load() {
		return nil
	}
	e := incumbent.Errorf(incumbent.Unavailable, "this member is cut off: it hears of a leader and can confirm nothing").
		WithHint("connect to another member")
	e.RetryAfter = time.Second
	return e
}

// keepConfirming asks for a confirmation again and again until ctx ends, and draws
// the consequences when none succeeds.
func (s *Server) keepConfirming(ctx context.Context) {
	quiet := silence{after: s.cfg.CutOffAfter}
	tick := time.NewTicker(quiet.after / cutOffLooks)
	defer tick.Stop()
	var asking, confirmed atomic.Bool
	for last := time.Now(); ; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		now := time.Now()
		possible := s.node.Status().Ready && len(s.cluster.Roster().Others) > 0
		s.cutOffIs(ctx, quiet.look(now.Sub(last), s.cluster.Leader(), confirmed.Swap(false), possible))
		last = now
		if !asking.Swap(true) {
			s.cluster.Confirm(func(err error) {
				if err == nil {
					confirmed.Store(true)
				}
				asking.Store(false)
			})
		}
	}
}

// cutOffIs takes the last look's result.
func (s *Server) cutOffIs(ctx context.Context, cut bool) {
	if s.cutOff.now.Swap(cut) == cut {
		return
	}
	if !cut {
		s.cutOff.stop()
		s.events.add(Event{What: "confirming again", Subject: s.cfg.Name})
		s.log.Info("not cut off any more")
		return
	}
	detail := fmt.Sprintf("%s leads and nothing was confirmed for %v: clients are sent to other members", s.cluster.NameOf(s.cluster.Leader()), s.cfg.CutOffAfter)
	s.events.add(Event{What: "cut off", Subject: s.cfg.Name, Detail: detail})
	s.log.Warn("cut off", "detail", detail)
	ctx, s.cutOff.stop = context.WithCancel(ctx)
	s.sendingAway(ctx, s.door.SendAway)
	for _, o := range s.opened {
		s.sendingAway(ctx, o.serving.SendAway)
	}
}

// sendingAway has a door send its clients away until ctx ends: those who were
// being let in when it began, too.
func (s *Server) sendingAway(ctx context.Context, sendAway func(next func() bool)) {
	s.running.Go(func() {
		for ctx.Err() == nil {
			sendAway(pace(ctx))
			rest(ctx, s.cfg.CutOffAfter/cutOffLooks)
		}
	})
}

// pace returns what makes a door wait now and then between two clients. It
// reports whether there is to be a next one.
func pace(ctx context.Context) func() bool {
	n := 0
	return func() bool {
		if n++; n%sendAwayAtOnce == 0 {
			rest(ctx, sendAwayPause/2+rand.N(sendAwayPause))
		}
		return ctx.Err() == nil
	}
}

// rest waits, or until ctx ends.
func rest(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
