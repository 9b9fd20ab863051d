package core

import (
	"fmt"
	"testing"

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
func (t ruledTables) EndSession(*Exec, *Ending)                                   {}
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
	want := [NumCounted]Fullest{Sessions: {"agent:a", 3, 1}}
	if all := s.View().Usage().Fullest(terms, ScopePrincipal); all != want {
		t.Errorf("fullest are %v", all)
	}
}

// Of each kind whoever comes nearest to what they may have, not who has most.
func TestFullest(t *testing.T) {
	u := newUsage()
	for name, n := range map[string][NumCounted]int64{
		"agent:a": {Leases: 7, Keys: 1}, "agent:b": {Leases: 5}, "agent:free": {Leases: 100}, "operator:o": {Leases: 1000, Places: 1},
	} {
		for k, n := range n {
			u.principals.get(name).Add(Counted(k), n)
		}
	}
	u.principals.publish()
	terms := &Terms{}
	leases := &terms.Principals[Leases]
	leases.Each = 10
	leases.Set("agent:b", 6)
	leases.Set("agent:f*", 0)
	if all, want := u.Fullest(terms, ScopePrincipal), ([NumCounted]Fullest{Leases: {"agent:b", 5, 6}}); all != want {
		t.Errorf("fullest are %v, want %v", all, want)
	}
}

// Whoever comes and goes leaves nothing behind for ever.
func TestNamesThatHaveNothingAreDropped(t *testing.T) {
	u := newUsage()
	for i := range 10 * minSweep {
		c := u.principals.get(fmt.Sprint(i))
		c.Add(Leases, 1)
		if i%4 > 0 {
			c.Add(Leases, -1)
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
