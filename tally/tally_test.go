package tally

import (
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// world has settings that a test changes.
type world struct {
	t      *testing.T
	state  *core.State
	values *settings.Values
	*Tally
}

func newWorld(t *testing.T) *world {
	w := &world{t: t, state: core.New(settings.Family{})}
	w.values = settings.Of(w.state.View()).Values()
	w.Tally = New(func() *settings.Values { return w.values })
	return w
}

func (w *world) set(name string, value int64) {
	w.t.Helper()
	results := make([]core.Result, 1)
	w.state.Apply([][]byte{settings.Command{Name: name, Value: value}.Encode(core.Meta{})}, results)
	if results[0].Err != nil {
		w.t.Fatal(results[0].Err)
	}
	w.values = settings.Of(w.state.View()).Values()
}

func agent(name string) auth.Principal { return auth.Principal{Kind: auth.Agent, Name: name} }

// takes asks for one place more, and says what should come of it.
func (w *world) takes(p auth.Principal, scope string, want incumbent.Kind) Place {
	w.t.Helper()
	got, err := w.Take(settings.OpenAgents, p, scope)
	if incumbent.KindOf(err) != want {
		w.t.Errorf("%v in %q: %v, want %v", p, scope, err, want)
	}
	return got
}

// Each has as many as the setting says for it, nobody's have to do with anybody
// else's, and what has ended makes room.
func TestEachHasWhatTheSettingsSay(t *testing.T) {
	w := newWorld(t)
	w.set("quota.juju-connections", 1)
	w.set("quota.juju-connections@agent:fleet-*", 2)
	w.takes(agent("a"), "one", incumbent.OK)
	w.takes(agent("a"), "one", incumbent.TooLarge)
	w.takes(agent("a"), "two", incumbent.OK)
	w.takes(agent("b"), "one", incumbent.OK)
	first := w.takes(agent("fleet-1"), "", incumbent.OK)
	w.takes(agent("fleet-1"), "", incumbent.OK)
	w.takes(agent("fleet-1"), "", incumbent.TooLarge)
	if n := w.Over(settings.OpenAgents); n != 2 {
		t.Errorf("%d were over the quota, not two", n)
	}
	who, has, most, found := w.Fullest(settings.OpenAgents)
	if !found || who.String() != "agent:a (one)" || has != 1 || most != 1 {
		t.Errorf("the fullest is %v with %d of %d", who, has, most)
	}
	first.Give()
	first.Give()
	w.takes(agent("fleet-1"), "", incumbent.OK)
	w.takes(agent("fleet-1"), "", incumbent.TooLarge)
	w.set("quota.juju-connections@agent:fleet-*", 1)
	w.takes(agent("fleet-1"), "", incumbent.TooLarge) // what is open stays
	w.set("quota.juju-connections", 0)
	w.takes(agent("a"), "one", incumbent.OK)
}

// Operators are let in, and so is everybody where quotas are not enforced; what is
// observed is counted.
func TestWhoIsNotRefused(t *testing.T) {
	w := newWorld(t)
	w.set("quota.juju-connections", 1)
	for range 3 {
		w.takes(auth.Principal{Kind: auth.Operator, Name: "a"}, "", incumbent.OK)
	}
	if _, _, _, found := w.Fullest(settings.OpenAgents); found {
		t.Error("an operator is counted")
	}
	w.set("quota.mode", int64(core.Observe))
	places := []Place{w.takes(agent("a"), "", incumbent.OK), w.takes(agent("a"), "", incumbent.OK)}
	if n := w.Over(settings.OpenAgents); n != 1 {
		t.Errorf("%d observed, not one", n)
	}
	w.set("quota.mode", int64(core.Off))
	places = append(places, w.takes(agent("a"), "", incumbent.OK))
	if n := w.Over(settings.OpenAgents); n != 1 {
		t.Errorf("%d observed while it is off", n)
	}
	for i := range places {
		places[i].Give()
	}
	if _, _, _, found := w.Fullest(settings.OpenAgents); found {
		t.Error("what has ended is still counted")
	}
	var none *Tally
	p, err := none.Take(settings.OpenWatches, agent("a"), "")
	if err != nil {
		t.Error(err)
	}
	p.Give()
}

// An address counts as one, however it is written, and a network of IPv6 as one.
func TestAddressesAreSources(t *testing.T) {
	w := newWorld(t)
	w.set("quota.source.juju-connections@192.0.2.*", 1)
	w.set("quota.source.juju-connections@2001:db8::", 1)
	for _, c := range []struct {
		from string
		want incumbent.Kind
	}{
		{"192.0.2.1", incumbent.OK},
		{"::ffff:192.0.2.1", incumbent.TooLarge},
		{"192.0.2.2", incumbent.OK},
		{"2001:db8::1", incumbent.OK},
		{"2001:db8::ffff:1", incumbent.TooLarge},
		{"2001:db8:0:1::1", incumbent.OK},
		{"2001:db8:0:1::2", incumbent.OK},
	} {
		_, err := w.TakeFrom(settings.OpenAgentsOfOne, netip.MustParseAddr(c.from))
		if incumbent.KindOf(err) != c.want {
			t.Errorf("%s: %v, want %v", c.from, err, c.want)
		}
		if c.want != incumbent.OK && !strings.Contains(err.Error(), "quota.source.juju-connections") {
			t.Errorf("%s: %v does not name the setting", c.from, err)
		}
	}
}

// Whatever comes and goes at once, there are never more than there may be, and nothing
// is left in the end.
func TestPlacesAreNeverMoreThanTheQuota(t *testing.T) {
	w := newWorld(t)
	w.set("quota.watches", 5)
	var mu sync.Mutex
	held := 0
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for range 500 {
				p, err := w.Take(settings.OpenWatches, agent("a"), "")
				if err != nil {
					continue
				}
				mu.Lock()
				if held++; held > 5 {
					t.Errorf("%d are open", held)
				}
				mu.Unlock()
				mu.Lock()
				held--
				mu.Unlock()
				p.Give()
			}
		})
	}
	all.Wait()
	if _, has, _, found := w.Fullest(settings.OpenWatches); found {
		t.Errorf("%d are left", has)
	}
}

// wire is a connection that holds one thing.
type wire struct {
	give func()
	over bool
}

func (w *wire) Holds() bool { return false } // somebody else is just about to have it hold something

func (w *wire) Hold(give func()) bool {
	if w.over || w.give != nil {
		return false
	}
	w.give = give
	return true
}

// A connection over which requests come at once, or that has ended meanwhile, has no place
// too much.
func TestAConnectionIsCountedOnce(t *testing.T) {
	w := newWorld(t)
	w.set("quota.connections@agent:a", 3)
	has := func(want int64) {
		t.Helper()
		if _, n, _, _ := w.Fullest(settings.OpenConnections); n != want {
			t.Errorf("%d are counted, not %d", n, want)
		}
	}
	c := &wire{}
	for range 5 {
		if err := w.Count(c, agent("a"), "native"); err != nil {
			t.Fatal(err)
		}
		has(1)
	}
	if err := w.Count(&wire{over: true}, agent("a"), "native"); err != nil {
		t.Fatal(err)
	}
	has(1)
	for range 2 {
		if err := w.Count(&wire{}, agent("a"), "native"); err != nil {
			t.Fatal(err)
		}
	}
	has(3)
	if err := w.Count(&wire{}, agent("a"), "native"); incumbent.KindOf(err) != incumbent.TooLarge {
		t.Errorf("a fourth: %v", err)
	}
	if err := w.Count(&wire{}, agent("a"), "consul"); err != nil {
		t.Errorf("at another listener: %v", err)
	}
	c.give()
	if err := w.Count(&wire{}, agent("a"), "native"); err != nil {
		t.Errorf("in the place of one that has ended: %v", err)
	}
}
