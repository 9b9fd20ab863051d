package engine

import (
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
)

// Manual is a group without goroutines: whoever drives it says when each part
// takes a turn. It is the same code as a running group's, in an order that a
// seed decides: for simulation.
type Manual struct {
	*Engine
	Replica *node.Manual  // the node
	Clock   *lease.Manual // the leader's clock; the hub's turn is Hub().Turn
}

// OpenManual composes a group that the caller drives and recovers its state, as
// [New] and [Engine.Open] do. Run and Close must not be called.
func OpenManual(cfg Config, replica node.Config) (*Manual, error) {
	var m Manual
	clock, err := lease.NewManual(cfg.Lease, behind{&m})
	if err != nil {
		return nil, err
	}
	m.Clock = clock
	cfg.Watch.Manual = true
	if m.Engine, err = compose(cfg, clock.Service); err != nil {
		return nil, err
	}
	replica.Machine = m.Engine
	if m.Replica, err = node.OpenManual(replica); err != nil {
		return nil, err
	}
	m.attach(m.Replica.Node, m.Replica)
	return &m, nil
}

// behind breaks the circle of construction: the leader's clock is made before
// the node.
type behind struct{ m *Manual }

// Propose implements [lease.Raft].
func (b behind) Propose(ps ...node.Proposal) { b.m.raft.Propose(ps...) }

// Confirm implements [lease.Raft].
func (b behind) Confirm(done func(uint64, error)) { b.m.raft.Confirm(done) }

// ConfirmAhead implements [lease.Raft].
func (b behind) ConfirmAhead(ahead func(node.Ahead), done func(uint64, error)) {
	b.m.raft.ConfirmAhead(ahead, done)
}

// ConfirmFor implements [lease.Raft].
func (b behind) ConfirmFor(member, term uint64, ahead func(node.Ahead), done func(uint64, error)) {
	b.m.raft.ConfirmFor(member, term, ahead, done)
}

// Leader implements [lease.Raft].
func (b behind) Leader() (leader, term uint64) { return b.m.raft.Leader() }
