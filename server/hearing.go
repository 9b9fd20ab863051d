package server

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
	heardWithin = time.Second            // who answered nothing that was asked since counts as out of reach
	askWait     = 500 * time.Millisecond // so long answers are waited for
	askLook     = 5 * time.Millisecond   // between two looks for them
)

// hearing is what a member has heard, and how old that is.
type hearing struct {
	alone     bool                  // it has no other members, and nothing to hear
	links     map[uint64]peers.Link // with the other members, by id
	confirmed time.Duration         // since the question was put that the leader and a majority confirmed last
}

// confirmations remembers when a question was put that was confirmed.
type confirmations struct {
	newest atomic.Int64 // nanoseconds since the member began; 0: none yet
}

// confirm asks for a confirmation, and calls done when there is an answer.
func (s *Server) confirm(done func(error)) {
	asked := int64(time.Since(s.begun))
	s.node.Confirm(func(_ uint64, err error) {
		if err == nil {
			s.confirmed.at(asked)
		}
		done(err)
	})
}

func (c *confirmations) at(asked int64) {
	for {
		last := c.newest.Load()
		if asked <= last || c.newest.CompareAndSwap(last, asked) {
			return
		}
	}
}

// hear asks the other members whether they are there, and the leader and a majority
// whether this one still belongs to them; it waits for answers, though not long.
func (s *Server) hear(ctx context.Context) hearing {
	if s.peers == nil || len(s.roster.look.Load().others) == 0 {
		return hearing{alone: true}
	}
	ctx, cancel := context.WithTimeout(ctx, askWait)
	defer cancel()
	asked := time.Now()
	var answered atomic.Bool
	s.confirm(func(error) { answered.Store(true) })
	s.peers.Ping()
	tick := time.NewTicker(askLook)
	defer tick.Stop()
	for ctx.Err() == nil && !(answered.Load() && s.allAnswered(time.Since(asked))) {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
	return s.hearingNow()
}

// hearingNow is what was heard without asking anybody.
func (s *Server) hearingNow() hearing {
	if s.peers == nil {
		return hearing{alone: true}
	}
	h := hearing{links: map[uint64]peers.Link{}, confirmed: time.Since(s.begun) - time.Duration(s.confirmed.newest.Load())}
	for _, l := range s.peers.Links() {
		h.links[l.Member.ID] = l
	}
	return h
}

// allAnswered reports whether everybody who is connected answered what was asked
// within that time.
func (s *Server) allAnswered(within time.Duration) bool {
	for _, l := range s.peers.Links() {
		if l.Connected && l.Silence > within {
			return false
		}
	}
	return true
}

// reaches reports whether a member was heard of within the last second.
func (h *hearing) reaches(id uint64) bool {
	l, ok := h.links[id]
	return ok && l.Connected && l.Silence <= heardWithin
}

// age is how old all that is said at most: of the members that can be reached, and
// of this one's being one of them. 0 for a member that is alone.
func (h *hearing) age() time.Duration {
	oldest := h.confirmed
	for id, l := range h.links {
		if h.reaches(id) {
			oldest = max(oldest, l.Silence)
		}
	}
	return oldest
}
