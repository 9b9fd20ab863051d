// Package engine composes one replicated group: what is committed is applied
// to the replicated state, shown as a view, told to the leader's clock, and
// published to the hub of watches, always in this order.
//
//	node ─ Apply ─▶ core.State ─▶ View swapped in ─▶ lease loop ─▶ hub ─▶ answers to who proposed
//
// It is the only composition there is. The server runs it ([Open], Run), the
// simulator drives it turn by turn ([OpenManual]), and the tests of the doors
// stand on it (engine/enginetest). What is tested is what runs.
//
// # Invariants
//
//   - Whoever gets an answer finds view, deadlines and history at least as new as
//     that answer: the node resolves proposals after [Engine.Apply] has returned.
//   - The changes of one batch are published together, under indexes that never
//     fall.
//
// # Concurrency
//
// Apply, Restore, Lead and Follow are called by the node's apply goroutine, one
// after the other. Everything else may be called from any goroutine.
package engine

import (
	"context"
	"io"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/credential"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/parts"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/trust"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/watch"
)

// families are the kinds of state that a group keeps beside sessions and members,
// by number. A new one is a folder below core, and a line here.
func families() []core.Family {
	return []core.Family{
		leases.Family{},
		kv.Family{},
		parts.Family{},
		policy.Family{},
		settings.Family{},
		credential.Family{},
		trust.Family{},
		catalog.Family{},
		table.Family{},
	}
}

// NewState returns the empty state of a group.
func NewState() *core.State { return core.New(families()...) }

// RestoreState reads a snapshot of a group's state. See [core.Restore] for errors.
func RestoreState(r io.Reader) (*core.State, error) { return core.Restore(r, families()...) }

// commutes says of a command that goes in parts what the last of them says: see
// [core.Commutes].
func commutes(cmd []byte) bool { return core.Commutes(kinds, cmd) }

var kinds = families()

// Config is what a group is made of besides its node. The zero value is usable.
type Config struct {
	Lease lease.Options
	Watch watch.Config

	// Applied is told of each batch, Restored of a state that came in the place of
	// the old one, Leading of a term in which this member leads and has applied the
	// first entry: each after everybody else. They are called on the apply goroutine
	// and must not block. nil: nobody is told.
	Applied  func(*Applied)
	Restored func(*core.View)
	Leading  func(term uint64)

	// Between stands between everybody and the node, where a test or a simulation
	// wants to see or to hold up what passes. nil: nothing does.
	Between func(lease.Raft) lease.Raft
	// Tamper may change commands before they are applied, as broken memory would.
	// For tests; nil: nothing does.
	Tamper func(cmds [][]byte)
}

// Applied is what one batch of commands did. It is the callee's to read until
// it returns; Results, Changes and View for as long as it likes.
type Applied struct {
	Before   incumbent.Index // of the state until then
	Commands [][]byte
	Results  []core.Result // of each command
	Changes  []core.Change // in order
	View     *core.View    // of the state after it
}

// Engine is one group on one member.
type Engine struct {
	cfg    Config
	state  *core.State // the apply goroutine's
	view   atomic.Pointer[core.View]
	leases *lease.Service
	hub    *watch.Hub
	shared *watch.Queries[*core.View]
	node   *node.Node
	raft   lease.Raft // the node, or what stands before it
	self   uint64     // this member
	large  largeCommands
}

var _ node.Machine = (*Engine)(nil)

// New returns a group with the empty state and no node: what [Engine.Open] then
// recovers. The error is Invalid. [Engine.CloseWatches] lets go of a group that
// is not opened.
func New(cfg Config) (*Engine, error) {
	leases, err := lease.New(cfg.Lease)
	if err != nil {
		return nil, err
	}
	return compose(cfg, leases)
}

func compose(cfg Config, leases *lease.Service) (*Engine, error) {
	if err := cfg.Watch.Validate(); err != nil {
		return nil, err
	}
	e := &Engine{cfg: cfg, state: NewState(), leases: leases}
	view := e.state.View()
	e.view.Store(view)
	cfg.Watch.Differences = newDifferences()
	e.hub = watch.New(cfg.Watch, view.Index())
	e.shared = watch.NewQueries(e.hub, e.View)
	return e, nil
}

// Open recovers the state from the node's files. cfg.Machine is the engine's to
// set. The errors are those of [node.Open]; the group is let go then.
func (e *Engine) Open(cfg node.Config) error {
	cfg.Machine = e
	n, err := node.Open(cfg)
	if err != nil {
		e.hub.Close()
		return err
	}
	e.attach(n, n)
	return nil
}

func (e *Engine) attach(n *node.Node, raft lease.Raft) {
	e.node, e.raft = n, raft
	e.self = n.Status().Member
	e.large.e = e
	e.leases.SetSelf(e.self)
	if e.cfg.Between != nil {
		e.raft = e.cfg.Between(raft)
	}
}

// Run drives leader's clock and node until ctx ends, Close is called or
// something fatal happens, and returns nil or what was fatal. It may be called
// once.
func (e *Engine) Run(ctx context.Context) error {
	loop, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		e.leases.Run(loop, e.raft)
	}()
	err := e.node.Run(ctx)
	stop() // after the node, which has answered what the loop proposed
	<-ended
	return err
}

// Close ends the node, which first hands leadership over if it can, and then the
// watches. See [node.Node.Close] for ctx and errors. Close the doors before.
func (e *Engine) Close(ctx context.Context) error {
	err := e.node.Close(ctx)
	e.hub.Close()
	return err
}

// CloseWatches ends the watches of a group without a node.
func (e *Engine) CloseWatches() { e.hub.Close() }

// View is the newest state this member has applied.
func (e *Engine) View() *core.View { return e.view.Load() }

// Check verifies the invariants of the state. It is the apply goroutine's to
// call, or that of whoever drives a [Manual].
func (e *Engine) Check() error { return e.state.Check() }

// Leases is the leader's clock and the calls on leases.
func (e *Engine) Leases() *lease.Service { return e.leases }

// Hub is where changes are published: see [FamilyTopic].
func (e *Engine) Hub() *watch.Hub { return e.hub }

// Queries are the queries on views of this group that many callers share. See
// [Reading] for what they evaluate.
func (e *Engine) Queries() *watch.Queries[*core.View] { return e.shared }

// Node is the group's replica; nil before [Engine.Open].
func (e *Engine) Node() *node.Node { return e.node }

// Confirm calls done when this member has applied everything that was committed
// when it was called, or with the reason why that cannot be known. It never
// blocks; neither must done.
func (e *Engine) Confirm(done func(error)) {
	e.raft.Confirm(func(_ uint64, err error) { done(err) })
}

// Propose hands commands to the node; see [node.Node.Propose].
func (e *Engine) Propose(ps ...node.Proposal) { e.raft.Propose(ps...) }

// Apply implements [node.Machine].
func (e *Engine) Apply(cmds [][]byte, results []any) {
	if e.cfg.Tamper != nil {
		e.cfg.Tamper(cmds)
	}
	// The results outlive the call: those who proposed get pointers into them.
	a := Applied{Before: e.state.Index(), Commands: cmds, Results: make([]core.Result, len(cmds))}
	a.Changes = e.state.Apply(cmds, a.Results)
	a.View = e.state.View()
	e.view.Store(a.View)
	e.leases.Applied(a.View, a.Changes)
	e.hub.Publish(a.View.Index(), eventsOf(a.Changes))
	if !core.SameHistory(a.Before, a.View.Index()) {
		// A member goes on without the others: what these had behind what it knows is lost,
		// and who was told of that resumes from an index in between.
		e.hub.Reset(a.View.Index())
	}
	for i := range a.Results {
		results[i] = &a.Results[i]
	}
	if e.cfg.Applied != nil {
		e.cfg.Applied(&a)
	}
}

// ApplyAll gives commands to a group without a node. The error is that of the first that
// was refused.
func (e *Engine) ApplyAll(cmds [][]byte) error {
	results := make([]any, len(cmds))
	e.Apply(cmds, results)
	for _, r := range results {
		if err := r.(*core.Result).Err; err != nil {
			return err
		}
	}
	return nil
}

// Snapshot implements [node.Machine].
func (e *Engine) Snapshot() func(io.Writer) error { return e.View().WriteSnapshot }

// Restore implements [node.Machine].
func (e *Engine) Restore(r io.Reader) error {
	state, err := RestoreState(r)
	if err != nil {
		return err
	}
	e.state = state
	v := state.View()
	e.view.Store(v)
	e.leases.Restored(v)
	e.hub.Reset(v.Index())
	if e.cfg.Restored != nil {
		e.cfg.Restored(v)
	}
	return nil
}

// Lead implements [node.Machine].
func (e *Engine) Lead(term uint64) {
	e.leases.Lead(term)
	if e.cfg.Leading != nil {
		e.cfg.Leading(term)
	}
}

// Follow implements [node.Machine].
func (e *Engine) Follow(leader, term uint64) { e.leases.Follow(leader, term) }
