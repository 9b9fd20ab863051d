// Package enginetest runs an engine for tests of what stands on it: a real node
// with its log in memory, the real state, leader's clock and hub. Only what
// passes between them and the node can be held up, counted and refused.
package enginetest

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

// patience is how long a member may take to lead itself, and to end.
const patience = time.Minute

// Group is a running group of one member.
type Group struct {
	*engine.Engine
	tb    testing.TB
	gate  *gate
	close func()
}

// Start returns a group that leads itself. It ends with the test, or with Stop.
func Start(tb testing.TB, cfg engine.Config) *Group {
	tb.Helper()
	g := &Group{tb: tb}
	cfg.Between = func(r lease.Raft) lease.Raft {
		g.gate = newGate(r)
		return g.gate
	}
	var err error
	if g.Engine, err = engine.New(cfg); err != nil {
		tb.Fatal(err)
	}
	err = g.Open(node.Config{FS: vfs.NewMem(), Dir: "data", Schema: core.SchemaVersion, SegmentBytes: node.MinSegmentBytes, DiskReserve: -1})
	if err != nil {
		tb.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- g.Run(context.Background()) }()
	g.close = sync.OnceFunc(func() {
		g.gate.end()
		ctx, done := context.WithTimeout(context.Background(), patience)
		defer done()
		if err := g.Engine.Close(ctx); err != nil {
			tb.Errorf("engine: %v", err)
		}
		if err := <-ended; err != nil {
			tb.Errorf("engine: %v", err)
		}
	})
	tb.Cleanup(g.close)
	select {
	case <-g.Node().Ready():
	case <-time.After(patience):
		tb.Fatalf("not ready after %v", patience)
	}
	return g
}

// Stop ends the group. It may be called again.
func (g *Group) Stop() { g.close() }

// Hold keeps everything from passing to the node until Release.
func (g *Group) Hold() { g.gate.held.Lock() }

// Release lets everything pass again.
func (g *Group) Release() { g.gate.held.Unlock() }

// Proposed is how many commands have been handed in.
func (g *Group) Proposed() int64 { return g.gate.proposed.Load() }

// Refuse makes the group refuse everything, as a member without a leader does,
// or ends that.
func (g *Group) Refuse(on bool) { g.gate.refuse.Store(on) }

// Do applies a command as if somebody else had sent it.
func (g *Group) Do(cmd core.Command) core.Result {
	g.tb.Helper()
	type outcome struct {
		result any
		err    error
	}
	c := make(chan outcome, 1)
	g.Node().Propose(node.Proposal{Command: cmd.Encode(core.Meta{}), Done: func(r any, err error) { c <- outcome{r, err} }})
	o := <-c
	if o.err != nil {
		g.tb.Fatal(o.err)
	}
	r, ok := o.result.(*core.Result)
	if !ok {
		g.tb.Fatalf("the result of a command is %T", o.result)
	}
	return *r
}

// gate passes on to the node what is handed in, in order, on a goroutine of its
// own: whoever hands in is never held up.
type gate struct {
	raft     lease.Raft
	in       chan func()
	ended    chan struct{}
	held     sync.Mutex // who holds it stops everything
	proposed atomic.Int64
	refuse   atomic.Bool
}

func newGate(r lease.Raft) *gate {
	g := &gate{raft: r, in: make(chan func(), 1<<16), ended: make(chan struct{})}
	go g.run()
	return g
}

func (g *gate) run() {
	for {
		select {
		case f := <-g.in:
			g.held.Lock()
			f()
			g.held.Unlock()
		case <-g.ended:
			return
		}
	}
}

// end passes on nothing more: the node is about to close.
func (g *gate) end() { close(g.ended) }

// pass hands f on, or what is to be told if everything is refused.
func (g *gate) pass(f func(), refused func(error)) {
	g.in <- func() {
		if g.refuse.Load() {
			refused(incumbent.Errorf(incumbent.Unavailable, "no leader is known"))
			return
		}
		f()
	}
}

// Propose implements [lease.Raft].
func (g *gate) Propose(ps ...node.Proposal) {
	ps = append([]node.Proposal(nil), ps...) // the slice is the caller's
	g.proposed.Add(int64(len(ps)))
	g.pass(func() { g.raft.Propose(ps...) }, func(err error) {
		for i := range ps {
			if ps[i].Done != nil {
				ps[i].Done(nil, err)
			}
		}
	})
}

// Confirm implements [lease.Raft].
func (g *gate) Confirm(done func(uint64, error)) {
	g.pass(func() { g.raft.Confirm(done) }, func(err error) { done(0, err) })
}

// ConfirmAhead implements [lease.Raft].
func (g *gate) ConfirmAhead(ahead func(node.Ahead), done func(uint64, error)) {
	g.pass(func() { g.raft.ConfirmAhead(ahead, done) }, func(err error) { done(0, err) })
}

// ConfirmFor implements [lease.Raft].
func (g *gate) ConfirmFor(member, term uint64, ahead func(node.Ahead), done func(uint64, error)) {
	g.pass(func() { g.raft.ConfirmFor(member, term, ahead, done) }, func(err error) { done(0, err) })
}

// Leader implements [lease.Raft].
func (g *gate) Leader() (leader, term uint64) { return g.raft.Leader() }
