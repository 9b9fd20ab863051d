package engine_test

import (
	"runtime"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/engine/enginetest"
)

const checksTimeout = time.Minute

// answered waits for what call hands to its callback.
func answered(t *testing.T, call func(done func(core.Result))) core.Result {
	t.Helper()
	got := make(chan core.Result, 1)
	call(func(r core.Result) { got <- r })
	select {
	case r := <-got:
		return r
	case <-time.After(checksTimeout):
		t.Fatalf("no answer after %v", checksTimeout)
		return core.Result{}
	}
}

// update is what says that the check of register is so.
func update(id string, s catalog.Status) catalog.Command {
	return catalog.Command{
		Verb: catalog.UpdateCheck, Status: s, StatusOnly: true,
		Target: catalog.Target{Kind: catalog.CheckKind, Namespace: "default", Node: "n", ID: id},
	}
}

func startChecks(t *testing.T) *enginetest.Group {
	t.Helper()
	g := enginetest.Start(t, engine.Config{})
	register := catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: "n"}, Node: &catalog.Node{},
		Checks: []*catalog.Check{{ID: "ttl", TTL: 24 * time.Hour}, {ID: "none"}},
	}
	if r := answered(t, func(done func(core.Result)) { g.Execute(engine.Call{}, register, done) }); r.Err != nil {
		t.Fatal(r.Err)
	}
	return g
}

// Only a change of status is an entry of the log: all else is an extension of the ttl,
// or nothing at all.
func TestPassesThatChangeNothingAreNoEntries(t *testing.T) {
	g := startChecks(t)
	pass := func(id string, s catalog.Status) core.Result {
		t.Helper()
		return answered(t, func(done func(core.Result)) { g.Pass(engine.Call{}, update(id, s), done) })
	}
	for _, id := range []string{"ttl", "none"} {
		for _, s := range []catalog.Status{catalog.Passing, catalog.Critical} {
			before := g.View().Index()
			for range 5 {
				r := pass(id, s)
				if c, ok := r.Record.(*catalog.Check); r.Err != nil || !ok || c.Status != s {
					t.Fatalf("%s as %v: %+v", id, s, r)
				}
			}
			if n := g.View().Index() - before; n != 1 {
				t.Errorf("%s as %v: %d entries", id, s, n)
			}
		}
	}
	if r := pass("other", catalog.Passing); incumbent.KindOf(r.Err) != incumbent.NotFound {
		t.Errorf("of no check: %+v", r)
	}
	for until := time.Now().Add(checksTimeout); g.Leases().Stats().Extensions != 4; runtime.Gosched() { // they are shown with the next tick
		if time.Now().After(until) {
			t.Fatalf("%d extensions, want 4", g.Leases().Stats().Extensions)
		}
	}
}

// While growth is refused another status is written, and an output alone is not; the ttl of
// the check that it is of goes on.
func TestG31_AnotherStatusIsWrittenWithoutSpace(t *testing.T) {
	g := startChecks(t)
	g.Node().RefuseGrowth(func() error { return incumbent.Errorf(incumbent.Overloaded, "there is no space") })
	pass := func(id string, s catalog.Status, output string) core.Result {
		t.Helper()
		cmd := update(id, s)
		cmd.StatusOnly, cmd.Output = false, output
		return answered(t, func(done func(core.Result)) { g.Pass(engine.Call{}, cmd, done) })
	}
	for _, id := range []string{"ttl", "none"} {
		for _, s := range []catalog.Status{catalog.Passing, catalog.Critical, catalog.Warning} {
			if r := pass(id, s, s.String()); r.Err != nil {
				t.Errorf("%s as %v: %v", id, s, r.Err)
			}
			r := pass(id, s, "another output")
			_, kept := r.Record.(*catalog.Check)
			if want := id == "ttl" && s != catalog.Critical; incumbent.KindOf(r.Err) != incumbent.Overloaded || kept != want {
				t.Errorf("another output of %s as %v: %+v, its ttl extended: %v, want %v", id, s, r, kept, want)
			}
		}
	}
	g.Node().RefuseGrowth(nil)
	if r := pass("ttl", catalog.Warning, "another output"); r.Err != nil || catalog.Of(g.View()).Check("default", "n", "ttl").Output != "another output" {
		t.Errorf("with space: %+v", r)
	}
}

// A deadline that has begun again is another, and one that may not be extended is none.
func TestG04_ADeadlineIsExtendedUnderItsGeneration(t *testing.T) {
	g := startChecks(t)
	answered(t, func(done func(core.Result)) { g.Pass(engine.Call{}, update("ttl", catalog.Passing), done) })
	d := catalog.Of(g.View()).Check("default", "n", "ttl").Deadline()
	extend := func(d *core.Deadline) incumbent.Kind {
		t.Helper()
		got := make(chan error, 1)
		g.Extend(d, func(err error) { got <- err })
		select {
		case err := <-got:
			return incumbent.KindOf(err)
		case <-time.After(checksTimeout):
			t.Fatalf("no answer after %v", checksTimeout)
			return 0
		}
	}
	if k := extend(d); k != incumbent.OK {
		t.Errorf("extended: %v", k)
	}
	answered(t, func(done func(core.Result)) { g.Pass(engine.Call{}, update("ttl", catalog.Warning), done) })
	if k := extend(d); k != incumbent.NotFound {
		t.Errorf("extended under an old generation: %v", k)
	}
}
