package release

import (
	"bytes"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// world is a group without a node: the test's goroutine applies.
type world struct {
	t       *testing.T
	group   *engine.Engine
	src     Source
	confirm error
	ended   chan error
}

var name = incumbent.Name{Namespace: "n", Model: "m", Lease: "l"}

func newWorld(t *testing.T, limits watch.Limits) *world {
	w := &world{t: t, ended: make(chan error, 10)}
	var err error
	if w.group, err = engine.New(engine.Config{Watch: watch.Config{Limits: limits}}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.group.CloseWatches)
	w.src = Source{Engine: w.group, Confirm: func(done func(error)) { done(w.confirm) }, Run: func(f func()) { f() }}
	return w
}

func (w *world) apply(cmd core.Command) *leases.Lease {
	w.t.Helper()
	results := make([]any, 1)
	w.group.Apply([][]byte{cmd.Encode(core.Meta{})}, results)
	if r := results[0].(*core.Result); r.Err != nil {
		w.t.Fatal(r.Err)
	}
	return leases.Of(w.group.View()).Lease(name)
}

func (w *world) begin(token incumbent.Token) *Wait {
	return w.src.Begin(name, token, func(err error) { w.ended <- err })
}

func (w *world) wants(kind incumbent.Kind) {
	w.t.Helper()
	select {
	case err := <-w.ended:
		if incumbent.KindOf(err) != kind {
			w.t.Errorf("ended with %v, want %v", err, kind)
		}
	case <-time.After(time.Minute):
		w.t.Error("it still waits")
	}
}

func (w *world) waits(n int) {
	w.t.Helper()
	if got := w.group.Hub().Stats().Waiters; got != n || len(w.ended) != 0 {
		w.t.Errorf("%d wait and %d have ended, want %d and none", got, len(w.ended), n)
	}
}

func TestG10_EndsWithTheHolding(t *testing.T) {
	w := newWorld(t, watch.Limits{})
	w.begin(0)
	w.wants(incumbent.OK) // nobody holds it
	claim := leases.ClaimCommand{Name: name, Holder: "a", TTL: time.Minute}
	l := w.apply(claim)
	if token := w.begin(0).Token(); token != l.Token {
		t.Errorf("waits for the end of %v, not of %v", token, l.Token)
	}
	w.begin(l.Token)
	w.apply(claim) // an extension
	other := claim
	other.Name.Lease = "other"
	w.apply(other)
	w.waits(2)
	w.apply(leases.ReleaseCommand{Name: name, Token: l.Token})
	w.wants(incumbent.OK)
	w.wants(incumbent.OK)
	next := w.apply(claim)
	w.begin(l.Token)
	w.wants(incumbent.OK) // another holding
	w.begin(next.Token + 1)
	w.wants(incumbent.Invalid)
	w.waits(0)
}

func TestCancelIsTheEnd(t *testing.T) {
	w := newWorld(t, watch.Limits{})
	l := w.apply(leases.ClaimCommand{Name: name, Holder: "a", TTL: time.Minute})
	x := w.begin(0)
	w.waits(1)
	if !x.Cancel() || x.Cancel() {
		t.Error("a wait is cancelled once")
	}
	w.apply(leases.ReleaseCommand{Name: name, Token: l.Token})
	w.waits(0)

	// Before the state is confirmed.
	var confirmed func(error)
	w.src.Confirm = func(done func(error)) { confirmed = done }
	x = w.begin(0)
	x.Cancel()
	confirmed(nil)
	w.waits(0)
}

// A look may be through with the hub, and its waiter have fired, before it keeps that: what
// a later look waits with meanwhile is not lost.
func TestALateLookTakesNothingAway(t *testing.T) {
	w := newWorld(t, watch.Limits{})
	w.apply(leases.ClaimCommand{Name: name, Holder: "a", TTL: time.Minute})
	first, err := w.group.Hub().Wait(watch.Exact(engine.FamilyTopic(leases.Number, leases.TopicOf(name))), w.group.View().Index(), nil, func(watch.Fired) {})
	if err != nil {
		t.Fatal(err)
	}
	x := &Wait{src: &w.src, name: name, done: func(err error) { w.ended <- err }}
	late := x.beginLook()
	x.look()
	w.waits(2)
	x.keep(late, first)
	w.waits(1)
	if !x.Cancel() {
		t.Error("it cannot be cancelled")
	}
	w.waits(0)
}

// Whatever keeps it from going on ends it with that error.
func TestSaysWhyItCannotWait(t *testing.T) {
	w := newWorld(t, watch.Limits{MaxListeners: 1})
	w.apply(leases.ClaimCommand{Name: name, Holder: "a", TTL: time.Minute})
	w.confirm = incumbent.Errorf(incumbent.Unavailable, "no leader")
	w.begin(0)
	w.wants(incumbent.Unavailable)
	w.confirm = nil
	w.begin(0)
	w.waits(1)
	w.begin(0)
	w.wants(incumbent.Overloaded)
	// The state jumps: what happened is looked up, on a goroutine of the hub's.
	ahead := newWorld(t, watch.Limits{})
	ahead.apply(leases.ClaimCommand{Name: name, Holder: "a", TTL: time.Minute})
	ahead.apply(core.CheckpointCommand{})
	var snapshot bytes.Buffer
	if err := ahead.group.View().WriteSnapshot(&snapshot); err != nil {
		t.Fatal(err)
	}
	looked := make(chan struct{}, 1)
	w.src.Run = func(look func()) { look(); looked <- struct{}{} }
	if err := w.group.Restore(&snapshot); err != nil {
		t.Fatal(err)
	}
	<-looked
	w.waits(1)
	w.group.Hub().Close()
	w.wants(incumbent.Unavailable)
}
