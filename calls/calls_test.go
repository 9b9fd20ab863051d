package calls

import (
	"slices"
	"testing"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
)

// Every call says who may make it, when that is judged, by which lane it goes and how
// it is made; the doors' own tests look for calls without a row.
func TestG12_EveryRowIsWhole(t *testing.T) {
	seen := map[string]bool{}
	for c := range NumCalls {
		r := c.Row()
		if r.Judged == unjudged || r.Lane > NoLane || r.Stale > NoLane || len(r.Ways) == 0 {
			t.Errorf("call %d is not whole: %+v", c, r)
		}
		if r.Action != 0 && r.Judged != First && r.Judged != Named {
			t.Errorf("%v: an action that nobody judges", r.Ways)
		}
		for _, w := range r.Ways {
			if seen[w] {
				t.Errorf("%s has two rows", w)
			}
			seen[w] = true
			if got, ok := Of(w); !ok || got != c {
				t.Errorf("%s leads to %d, want %d", w, got, c)
			}
		}
	}
	if _, ok := Of("/incumbent.v1.LeaseService/Steal"); ok {
		t.Error("a call that does not exist has a row")
	}
}

// Who is nobody can make no call but those for everybody and those that bring what
// they are judged by; an operator all.
func TestG12_NobodyAndOperators(t *testing.T) {
	var none *auth.Rules
	nobody, operator := none.Of(auth.Principal{}), none.Of(auth.Principal{Name: "o", Kind: auth.Operator})
	for c := range NumCalls {
		r := c.Row()
		open := r.Judged == Everyone || r.Judged == Token || r.Judged == Own
		if err := c.Allowed(nobody); (err == nil) != open {
			t.Errorf("%v: nobody: %v", r.Ways, err)
		}
		if err := c.Allowed(operator); err != nil {
			t.Errorf("%v: an operator: %v", r.Ways, err)
		}
	}
}

func TestLanesOfReads(t *testing.T) {
	if got := ConsulWriteKey.LaneOfRead(true); got != admit.Small {
		t.Errorf("a write that says it may be stale goes by %v", got)
	}
	if GetLease.LaneOfRead(true) != admit.Small || GetLease.LaneOfRead(false) != admit.Reads || Claim.Lane() != admit.Claims {
		t.Error("lanes are not those of the table")
	}
}

// All lanes that a call may turn out to be of are known before its message is read, and
// none where it may be of one that is never refused.
func TestG41_LanesBeforeTheMessage(t *testing.T) {
	for c, want := range map[Call][]admit.Lane{
		Claim:    {admit.Claims},
		Txn:      {admit.Transactions, admit.Claims, admit.Releases},
		GetLease: {admit.Reads, admit.Small},
		ListKeys: {admit.Reads, admit.Watches},
		GetKey:   {admit.Small, admit.Watches},
		Extend:   nil, // of a critical lease
		Batch:    nil,
		Settings: nil,
		Status:   nil,
	} {
		if got := c.Lanes(); !slices.Equal(got, want) {
			t.Errorf("%v: %v, want %v", c.Row().Ways, got, want)
		}
	}
	for c := range NumCalls {
		if l := c.Lanes(); len(l) > 0 && l[0] != c.Lane() {
			t.Errorf("%v: %v does not begin with its own, %v", c.Row().Ways, l, c.Lane())
		}
	}
}
