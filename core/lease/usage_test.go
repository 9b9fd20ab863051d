package lease

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// ruled is a family without records that says what the terms are.
type ruled struct{ terms *core.Terms }

func (ruled) Number() wire.Number { return 62 }
func (ruled) Schema() uint32      { return 5 }
func (ruled) Name() string        { return "ruled" }
func (r ruled) New() core.Tables  { return ruledTables(r) }

type ruledTables struct{ terms *core.Terms }

func (t ruledTables) Apply(*core.Exec, []byte) core.Result                        { return core.Result{} }
func (t ruledTables) EndSession(*core.Exec, *core.Ending)                         {}
func (t ruledTables) View() core.FamilyView                                       { return t }
func (t ruledTables) Records() int                                                { return 0 }
func (t ruledTables) Write(func([]byte) bool)                                     {}
func (t ruledTables) ReadRecord([]byte) bool                                      { return false }
func (t ruledTables) Check(func(incumbent.SessionID) bool, incumbent.Index) error { return nil }
func (t ruledTables) Terms() *core.Terms                                          { return t.terms }

// by is a command of a principal.
func by(principal string, c core.Command) []byte {
	return c.Encode(core.Meta{Origin: core.Origin{Principal: principal}})
}

// applyOne executes one command, and checks the state.
func applyOne(t interface{ Fatalf(string, ...any) }, s *state, b []byte) core.Result {
	results := make([]core.Result, 1)
	s.Apply([][]byte{b}, results)
	if err := s.Check(); err != nil {
		t.Fatalf("broken invariant: %v", err)
	}
	return results[0]
}

func bounds(each ...int64) (q core.Quotas) {
	for k, n := range each {
		q[k].Each = n
	}
	return q
}

func enforced(each ...int64) *core.Terms {
	return &core.Terms{Quotas: core.Enforce, Principals: bounds(each...)}
}

// What principals and namespaces have is what a naive count of the records says,
// whatever was done: Check counts anew after each command. Nobody gets over a quota
// but by hand-overs, which are asked for when a place is taken.
func TestG39_CountsFollowFromRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := enforced(rapid.Int64Range(0, 3).Draw(t, "sessions"), rapid.Int64Range(0, 4).Draw(t, "leases"), rapid.Int64Range(0, 3).Draw(t, "places"))
		terms.Namespaces = bounds(0, rapid.Int64Range(0, 3).Draw(t, "in a namespace"), rapid.Int64Range(0, 3).Draw(t, "waiting there"))
		terms.Quotas = rapid.SampledFrom([]core.Mode{core.Off, core.Observe, core.Enforce, core.Enforce}).Draw(t, "mode")
		s := New(ruled{terms})
		for range rapid.IntRange(1, 60).Draw(t, "commands") {
			who := rapid.SampledFrom([]string{"agent:a", "agent:b", "operator:o", ""}).Draw(t, "who")
			c := drawCommand(t, s.View())
			if rapid.IntRange(0, 4).Draw(t, "several") == 0 {
				c = core.TxnCommand{Then: []core.Command{drawClaim(t), drawClaim(t), drawClaim(t)}}
			}
			before := countsOf(s)
			over := s.View().OverQuota(who, c)
			b := by(who, c)
			r := applyOne(t, s, b)
			if over != nil && r.Err == nil {
				t.Fatalf("%s: %T was executed, although its view says %v", who, c, over)
			}
			if _, transfer := c.(TransferCommand); !transfer {
				checkBounds(t, s, terms, who, before)
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				s = reborn(t, s, terms)
			}
		}
	})
}

func drawClaim(t *rapid.T) core.Command {
	return ClaimCommand{
		Name: rapid.SampledFrom(someNames).Draw(t, "name"), Holder: rapid.SampledFrom(someHolders).Draw(t, "holder"), TTL: time.Minute,
	}
}

// counted are the names under which the commands that are drawn count.
var counted = [core.NumScopes][]string{{"", "agent:a", "agent:b", "operator:o"}, {"n"}}

func countOf(s *state, scope core.Scope, name string) *core.Count {
	if scope == core.ScopeNamespace {
		return s.View().Usage().Namespace(name)
	}
	return s.View().Usage().Principal(name)
}

func countsOf(s *state) map[string]int64 {
	list := map[string]int64{}
	for scope, names := range counted {
		for _, name := range names {
			for k := range core.NumCounted {
				list[fmt.Sprint(scope, name, k)] = countOf(s, core.Scope(scope), name).Of(k)
			}
		}
	}
	return list
}

// checkBounds verifies that what has grown has not grown beyond a quota.
func checkBounds(t *rapid.T, s *state, terms *core.Terms, asks string, before map[string]int64) {
	if terms.Quotas != core.Enforce || core.Privileged(asks) {
		return
	}
	for scope, names := range counted {
		quotas := &terms.Principals
		if core.Scope(scope) == core.ScopeNamespace {
			quotas = &terms.Namespaces
		}
		for _, name := range names {
			if core.Scope(scope) == core.ScopePrincipal && core.Privileged(name) {
				continue
			}
			for k := range core.NumCounted {
				most := quotas[k].Of(name)
				if n := countOf(s, core.Scope(scope), name).Of(k); most > 0 && n > most && n > before[fmt.Sprint(scope, name, k)] {
					t.Fatalf("%v %s has %d of %d %v", core.Scope(scope), name, n, most, k)
				}
			}
		}
	}
}

func reborn(t *rapid.T, s *state, terms *core.Terms) *state {
	var b bytes.Buffer
	if err := s.View().WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	n, err := Restore(&b, ruled{terms})
	if err != nil {
		t.Fatal(err)
	}
	if err := n.Check(); err != nil {
		t.Fatalf("after a restart: %v", err)
	}
	return n
}

// A quota refuses what makes more, by name; never what extends, lets go or deletes,
// nor an operator.
func TestG39_AQuotaRefusesOnlyWhatMakesMore(t *testing.T) {
	s := New(ruled{enforced(1, 2, 1)})
	open := func(who, id string) core.Result {
		return applyOne(t, s, by(who, core.OpenSessionCommand{ID: sessionID(id), TTL: time.Minute}))
	}
	claim := func(who, name, session string, wait bool) core.Result {
		return applyOne(t, s, by(who, ClaimCommand{Name: parseName(name), Holder: session, Session: sessionID(session), Wait: wait}))
	}
	fine := func(what string, r core.Result) {
		t.Helper()
		if r.Err != nil {
			t.Errorf("%s: %v", what, r.Err)
		}
	}
	refused := func(what, quota string, r core.Result) {
		t.Helper()
		if r.Err == nil || r.Err.Kind != incumbent.TooLarge || !strings.Contains(r.Err.Message, quota) || !strings.Contains(r.Err.Hint, quota) {
			t.Errorf("%s: %v", what, r.Err)
		}
	}
	fine("a session", open("agent:a", "a"))
	refused("a second one", "quota.sessions", open("agent:a", "a2"))
	fine("the same again", open("agent:a", "a"))
	fine("another's", open("agent:b", "b"))
	fine("two leases", claim("agent:a", "x", "a", false))
	fine("two leases", claim("agent:a", "y", "a", false))
	refused("a third", "quota.leases", claim("agent:a", "z", "a", false))
	fine("an extension", claim("agent:a", "x", "a", false))
	fine("a place in a queue", claim("agent:b", "x", "b", true))
	refused("a second place", "quota.places", claim("agent:b", "y", "b", true))
	fine("the same place", claim("agent:b", "x", "b", true))
	fine("a release", applyOne(t, s, by("agent:a", ReleaseCommand{Name: parseName("x"), Holder: "a", Session: sessionID("a")})))
	fine("a lease in its place", claim("agent:a", "z", "a", false))
	for _, id := range []string{"o1", "o2"} {
		fine("an operator", open("operator:o", id))
	}
	fine("an end", applyOne(t, s, by("agent:a", core.CloseSessionCommand{ID: sessionID("a")})))
	fine("a session after it", open("agent:a", "a2"))
}

// Leases that nobody claims and nothing forgets, for they are pinned, are bounded, whatever
// came first: the pin, or a claim that was released since.
func TestG39_PinnedLeasesAreBounded(t *testing.T) {
	s := New()
	limits := s.limits
	limits.pinned = 2
	s.limit(limits)
	pin := func(name, entity string) core.Result {
		return applyOne(t, s, by("agent:a", PinCommand{Name: parseName(name), Entity: entity}))
	}
	fine := func(what string, r core.Result) {
		t.Helper()
		if r.Err != nil {
			t.Errorf("%s: %v", what, r.Err)
		}
	}
	refused := func(what, name string) {
		t.Helper()
		before := Of(s.View()).Len()
		if r := pin(name, "e"); r.Err == nil || r.Err.Kind != incumbent.TooLarge || !strings.Contains(r.Err.Message, "MaxPinned") {
			t.Errorf("%s: %v", what, r.Err)
		}
		if n := Of(s.View()).Len(); n != before {
			t.Errorf("%s: it leaves %d records, there were %d", what, n, before)
		}
	}
	fine("a lease that nobody claims", pin("a", "e"))
	claim := ClaimCommand{Name: parseName("b"), Holder: "h", TTL: time.Minute}
	fine("a claim", applyOne(t, s, by("agent:a", claim)))
	fine("a lease that is held", pin("b", "e"))
	fine("its release", applyOne(t, s, by("agent:a", ReleaseCommand{Name: claim.Name, Holder: "h"})))
	refused("a third", "c")
	claim.Name = parseName("c")
	fine("a claim", applyOne(t, s, by("agent:a", claim)))
	refused("a third that is held", "c")
	fine("another pin of the same", pin("a", "f"))
	s = restart(t, s)
	refused("a third after a restart", "c")
	unpin := UnpinCommand{Name: parseName("a"), Entity: "e"}
	fine("one pin of two less", applyOne(t, s, by("agent:a", unpin)))
	refused("a third while one has a pin left", "c")
	unpin.Entity = "f"
	fine("its last pin less", applyOne(t, s, by("agent:a", unpin)))
	fine("one in its place", pin("c", "e"))
	if n := Of(s.View()).PinnedCount(); n != 2 {
		t.Errorf("%d are pinned, two are", n)
	}
}

// While a member does not know the bound, none is refused for it: all decide alike.
func TestG49_PinnedLeasesAreBoundedOnceAllMembersBoundThem(t *testing.T) {
	s := New()
	limits := s.limits
	limits.pinned = 0
	s.limit(limits)
	old := core.Member{ID: 1, Name: "old", Schema: pinnedSchema - 1}
	for _, kind := range []incumbent.Kind{incumbent.OK, incumbent.TooLarge} {
		if r := applyOne(t, s, core.PutMemberCommand{Member: old}.Encode(core.Meta{})); r.Err != nil {
			t.Fatal(r.Err)
		}
		r := applyOne(t, s, by("agent:a", PinCommand{Name: parseName(fmt.Sprint("l", old.Schema)), Entity: "e"}))
		got := incumbent.OK
		if r.Err != nil {
			got = r.Err.Kind
		}
		if got != kind {
			t.Errorf("while it knows %d: %v", old.Schema, r.Err)
		}
		old.Schema = pinnedSchema
	}
}
