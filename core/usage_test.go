package core

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// ruled is a family without records that says what the terms are.
type ruled struct{ terms *Terms }

func (ruled) Number() wire.Number { return 62 }
func (ruled) Schema() uint32      { return quotaSchema }
func (ruled) Name() string        { return "ruled" }
func (r ruled) New() Tables       { return ruledTables(r) }

type ruledTables struct{ terms *Terms }

func (t ruledTables) Apply(*Exec, []byte) Result                                  { return Result{} }
func (t ruledTables) EndSession(*Exec, *Session)                                  {}
func (t ruledTables) View() FamilyView                                            { return t }
func (t ruledTables) Records() int                                                { return 0 }
func (t ruledTables) Write(func([]byte) bool)                                     {}
func (t ruledTables) ReadRecord([]byte) bool                                      { return false }
func (t ruledTables) Check(func(incumbent.SessionID) bool, incumbent.Index) error { return nil }
func (t ruledTables) Terms() *Terms                                               { return t.terms }

// by is a command of a principal.
func by(principal string, c Command) []byte {
	return c.Encode(Meta{Origin: Origin{Principal: principal}})
}

// applyOne executes one command, and checks the state.
func applyOne(t interface{ Fatalf(string, ...any) }, s *State, b []byte) Result {
	results := make([]Result, 1)
	s.Apply([][]byte{b}, results)
	if err := s.Check(); err != nil {
		t.Fatalf("broken invariant: %v", err)
	}
	return results[0]
}

func bounds(each ...int64) (q Quotas) {
	for k, n := range each {
		q[k].Each = n
	}
	return q
}

func enforced(each ...int64) *Terms { return &Terms{Quotas: Enforce, Principals: bounds(each...)} }

// What principals and namespaces have is what a naive count of the records says,
// whatever was done: Check counts anew after each command. Nobody gets over a quota
// but by hand-overs, which are asked for when a place is taken.
func TestG39_CountsFollowFromRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		terms := enforced(rapid.Int64Range(0, 3).Draw(t, "sessions"), rapid.Int64Range(0, 4).Draw(t, "leases"), rapid.Int64Range(0, 3).Draw(t, "places"))
		terms.Namespaces = bounds(0, rapid.Int64Range(0, 3).Draw(t, "in a namespace"), rapid.Int64Range(0, 3).Draw(t, "waiting there"))
		terms.Quotas = rapid.SampledFrom([]Mode{Off, Observe, Enforce, Enforce}).Draw(t, "mode")
		s := New(ruled{terms})
		for range rapid.IntRange(1, 60).Draw(t, "commands") {
			who := rapid.SampledFrom([]string{"agent:a", "agent:b", "operator:o", ""}).Draw(t, "who")
			c := drawCommand(t, s.View())
			if rapid.IntRange(0, 4).Draw(t, "several") == 0 {
				c = TxnCommand{Then: []Command{drawClaim(t), drawClaim(t), drawClaim(t)}}
			}
			before := countsOf(s)
			over := s.View().OverQuota(who, c)
			b := by(who, c)
			r := applyOne(t, s, b)
			if over != nil && r.Err == nil {
				t.Fatalf("%s: %T was executed, although its view says %v", who, c, over)
			}
			if _, transfer := c.(TransferCommand); !transfer {
				checkBounds(t, s, terms, before)
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				s = reborn(t, s, terms)
			}
		}
	})
}

func drawClaim(t *rapid.T) Command {
	return ClaimCommand{
		Name: rapid.SampledFrom(someNames).Draw(t, "name"), Holder: rapid.SampledFrom(someHolders).Draw(t, "holder"), TTL: time.Minute,
	}
}

func countsOf(s *State) map[string]int64 {
	list := map[string]int64{}
	for scope := range NumScopes {
		s.usage.names(scope).tree.Scan(func(c *Count) bool {
			for k := range NumCounted {
				list[fmt.Sprint(scope, c.name, k)] = c.Of(k)
			}
			return true
		})
	}
	return list
}

// checkBounds verifies that what has grown has not grown beyond a quota.
func checkBounds(t *rapid.T, s *State, terms *Terms, before map[string]int64) {
	if terms.Quotas != Enforce {
		return
	}
	asks := s.lastOrigin.Principal
	for scope := range NumScopes {
		s.usage.names(scope).tree.Scan(func(c *Count) bool {
			if exempt(asks) || scope == ScopePrincipal && exempt(c.name) {
				return true
			}
			for k := range NumCounted {
				most := terms.quotas(scope)[k].Of(c.name)
				if n := c.Of(k); most > 0 && n > most && n > before[fmt.Sprint(scope, c.name, k)] {
					t.Fatalf("%v %s has %d of %d %v", scope, c.name, n, most, k)
				}
			}
			return true
		})
	}
}

func reborn(t *rapid.T, s *State, terms *Terms) *State {
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
	open := func(who, id string) Result {
		return applyOne(t, s, by(who, OpenSessionCommand{ID: sessionID(id), TTL: time.Minute}))
	}
	claim := func(who, name, session string, wait bool) Result {
		return applyOne(t, s, by(who, ClaimCommand{Name: parseName(name), Holder: session, Session: sessionID(session), Wait: wait}))
	}
	fine := func(what string, r Result) {
		t.Helper()
		if r.Err != nil {
			t.Errorf("%s: %v", what, r.Err)
		}
	}
	refused := func(what, quota string, r Result) {
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
	fine("an end", applyOne(t, s, by("agent:a", CloseSessionCommand{ID: sessionID("a")})))
	fine("a session after it", open("agent:a", "a2"))
}

// Until all members know quotas nothing is refused: one that does not would execute
// it.
func TestG28_QuotasWaitForTheLastMember(t *testing.T) {
	s := New(ruled{enforced(1)})
	member := func(schema uint32) {
		t.Helper()
		if r := applyOne(t, s, PutMemberCommand{Member{ID: 1, Name: "m1", Schema: schema}}.Encode(Meta{})); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	open := func(id string) *incumbent.Error {
		return applyOne(t, s, by("agent:a", OpenSessionCommand{ID: sessionID(id)})).Err
	}
	member(quotaSchema - 1)
	for _, id := range []string{"a", "b"} {
		if err := open(id); err != nil {
			t.Errorf("%s: %v", id, err)
		}
	}
	if s.View().Terms().Principals[Sessions].Each != 0 {
		t.Error("the view has terms that do not hold")
	}
	member(quotaSchema)
	if err := open("c"); err == nil {
		t.Error("nothing is refused")
	}
}

// What is over a quota that only observes is executed, and counted.
func TestObservingCounts(t *testing.T) {
	terms := enforced(1)
	terms.Quotas = Observe
	s := New(ruled{terms})
	for _, id := range []string{"a", "b", "c"} {
		if r := applyOne(t, s, by("agent:a", OpenSessionCommand{ID: sessionID(id)})); r.Err != nil {
			t.Error(r.Err)
		}
	}
	if n := s.View().Usage().Over(ScopePrincipal, Sessions); n != 2 {
		t.Errorf("%d are counted", n)
	}
	name, has, most, found := s.View().Usage().Fullest(terms, ScopePrincipal, Sessions)
	if name != "agent:a" || has != 3 || most != 1 || !found {
		t.Errorf("%s has %d of %d, %v", name, has, most, found)
	}
}

// Whoever comes and goes leaves nothing behind for ever.
func TestNamesThatHaveNothingAreDropped(t *testing.T) {
	u := newUsage()
	for i := range 10 * minSweep {
		c := u.principals.get(fmt.Sprint(i))
		c.add(Leases, 1)
		if i%4 > 0 {
			c.add(Leases, -1)
		}
	}
	if n := len(u.principals.byName); n > 8*minSweep || n != u.principals.tree.Len() {
		t.Errorf("%d names, %d for readers", n, u.principals.tree.Len())
	}
	for i := 0; i < 10*minSweep; i += 4 {
		if u.Principal(fmt.Sprint(i)).Of(Leases) != 1 {
			t.Fatalf("%d is gone", i)
		}
	}
}

func TestAQuotaIsTheMostSpecific(t *testing.T) {
	q := Quota{Each: 1}
	for pattern, n := range map[string]int64{"agent:*": 2, "agent:a*": 3, "agent:ab": 4, "*": 5, "agent:abcd*": 6} {
		q.Set(pattern, n)
	}
	for name, want := range map[string]int64{"agent:x": 2, "agent:a": 3, "agent:ab": 4, "agent:abc": 3, "agent:abcde": 6, "observer:x": 5} {
		if got := q.Of(name); got != want {
			t.Errorf("%s: %d, want %d", name, got, want)
		}
	}
}
