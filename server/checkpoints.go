package server

import (
	"context"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node"
)

// openConsistency begins to compare this member's state with the others'. It
// comes before the node runs.
func (s *Server) openConsistency() {
	s.consistency = newConsistency(consistencyConfig{
		self:   s.id,
		voters: func() []uint64 { return s.roster.look.Load().voters() },
		members: func() (ids []uint64) {
			for _, m := range s.roster.look.Load().others {
				ids = append(ids, m.ID)
			}
			return ids
		},
		send: s.courier.SendApp, differs: s.stateDiffers, split: s.statesDiffer, logger: s.log,
	})
	s.observer.compare = func(v *core.View) {
		if oneSchema(v) {
			s.consistency.checkpoint(v)
		}
	}
}

// oneSchema reports whether all members write the same bytes for the same state:
// in the middle of an upgrade they may not. It is decided on the state that is to
// be compared, so by all alike.
func oneSchema(v *core.View) bool {
	for _, m := range v.Members() {
		if m.Schema != core.SchemaVersion {
			return false
		}
	}
	return true
}

// keepComparing has the leader write a checkpoint now and then.
func (s *Server) keepComparing(ctx context.Context) {
	tick := time.NewTicker(s.cfg.CheckpointInterval)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
		if !s.wantsCheckpoint() {
			continue
		}
		if err := s.writeCheckpoint(ctx); err != nil && ctx.Err() == nil {
			s.log.Info("no checkpoint written", "cause", err)
		}
	}
}

// wantsCheckpoint reports whether this member leads others, and commands were
// applied since the last checkpoint.
func (s *Server) wantsCheckpoint() bool {
	st := s.node.Status()
	return st.State == node.Leader && st.Ready && len(s.roster.look.Load().counted) > 1 &&
		uint64(s.engine.View().Index()) > s.observer.comparedAt.Load()
}

func (s *Server) writeCheckpoint(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, keepTimeout)
	defer cancel()
	_, err := s.checkpoint(ctx)
	return err
}

// stateDiffers stops this member: a majority has another state. Until its process
// ends it grants nothing more.
func (s *Server) stateDiffers(err error) {
	s.growth.splitBy(s.node, err)
	s.fail(incumbent.Errorf(incumbent.Corrupt, "%w", err).
		WithHint("look at this machine's memory and disk; keep a copy of the data directory; then empty it and start with --join TOKEN: the member comes back under a new id"))
}

// statesDiffer alarms: nobody knows who is right, so nobody grants any more.
func (s *Server) statesDiffer(err error) {
	s.growth.splitBy(s.node, err)
	s.events.add(Event{What: "states differ", Subject: s.cfg.Name, Detail: err.Error()})
	s.log.Error("states differ: no grants from here on", "cause", err)
}
