package cluster

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent/node/peers"
)

// What a member says of how the cluster is comes from what it heard within the
// last second: it asks when it is asked. A connection alone shows nothing, for it
// takes ten seconds of silence until it counts as dead.
const (
	// HeardWithin: who answered nothing that was asked since counts as out of reach.
	HeardWithin = time.Second

	askWait = 500 * time.Millisecond // so long answers are waited for
	askLook = 5 * time.Millisecond   // between two looks for them
)

// Hearing is what a member has heard, and how old that is.
type Hearing struct {
	Alone     bool                  // it has no other members, and nothing to hear
	Links     map[uint64]peers.Link // with the other members, by id
	Confirmed time.Duration         // since the question was put that the leader and a majority confirmed last
}

// Confirm asks for a confirmation, and calls done when there is an answer.
func (c *Cluster) Confirm(done func(error)) {
	asked := int64(time.Since(c.begun))
	c.node.Confirm(func(_ uint64, err error) {
		for last := c.confirmed.Load(); err == nil && asked > last && !c.confirmed.CompareAndSwap(last, asked); {
			last = c.confirmed.Load()
		}
		done(err)
	})
}

// Hear asks the other members whether they are there, and the leader and a majority
// whether this one still belongs to them; it waits for answers, though not long.
func (c *Cluster) Hear(ctx context.Context) Hearing {
	if c.peers == nil || len(c.Roster().Others) == 0 {
		return Hearing{Alone: true}
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	asked := time.Now()
	var answered atomic.Bool
	c.Confirm(func(error) { answered.Store(true) })
	c.peers.Ping()
	tick := time.NewTicker(askLook)
	defer tick.Stop()
	for ctx.Err() == nil && !(answered.Load() && c.allAnswered(time.Since(asked))) {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return c.Heard()
}

// Heard is what was heard without asking anybody.
func (c *Cluster) Heard() Hearing {
	if c.peers == nil {
		return Hearing{Alone: true}
	}
	h := Hearing{Links: map[uint64]peers.Link{}, Confirmed: time.Since(c.begun) - time.Duration(c.confirmed.Load())}
	for _, l := range c.peers.Links() {
		h.Links[l.Member.ID] = l
	}
	return h
}

// allAnswered reports whether everybody who is connected answered what was asked
// within that time.
func (c *Cluster) allAnswered(within time.Duration) bool {
	for _, l := range c.peers.Links() {
		if l.Connected && l.Silence > within {
			return false
		}
	}
	return true
}

// reaches reports whether a member was heard of within the last second.
func (h *Hearing) reaches(id uint64) bool {
	l, ok := h.Links[id]
	return ok && l.Connected && l.Silence <= HeardWithin
}

// Age is how old all that is said at most: of the members that can be reached, and
// of this one's being one of them. 0 for a member that is alone.
func (h *Hearing) Age() time.Duration {
	oldest := h.Confirmed
	for id, l := range h.Links {
		if h.reaches(id) {
			oldest = max(oldest, l.Silence)
		}
	}
	return oldest
}
