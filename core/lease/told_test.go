package lease

import (
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// wrongIndex says what is wrong with the indexes that changes are told under:
// they lie behind those of the commands before and never fall, and the record
// of a change has its index.
func wrongIndex(changes []core.Change, before, after incumbent.Index) error {
	last := before + 1
	for i := range changes {
		c := &changes[i]
		l, _ := ChangeOf(c)
		switch {
		case c.Index < last:
			return fmt.Errorf("change %d (%v) has index %d, after %d", i, c.What, c.Index, last)
		case c.Index > after:
			return fmt.Errorf("change %d (%v) has index %d, newest is %d", i, c.What, c.Index, after)
		case l.Lease != nil && l.Lease.Modified != c.Index:
			return fmt.Errorf("change %d (%v) has index %d, its lease was modified at %d", i, c.What, c.Index, l.Lease.Modified)
		case l.Lease != nil && newestOf(l.Lease.History()) > c.Index:
			return fmt.Errorf("change %d (%v) has index %d, its history is ahead", i, c.What, c.Index)
		case (l.What == Granted || l.What == Offered) && l.Lease.Token != incumbent.Token(c.Index):
			return fmt.Errorf("change %d (%v) has index %d, its token is %d", i, c.What, c.Index, l.Lease.Token)
		}
		last = c.Index
	}
	return nil
}

// However a session ends, and whoever waits for which of its leases: what
// follows a further grant is told under the index of that grant.
func TestG15_IndexesOfOneCommandNeverFall(t *testing.T) {
	const leases = 4
	for waited := range 1 << leases {
		for _, end := range []struct {
			name string
			cmd  func(*core.Session) core.Command
		}{
			{"closed", func(s *core.Session) core.Command { return core.CloseSessionCommand{ID: s.ID} }},
			{"expired", func(s *core.Session) core.Command { return core.ExpireSessionCommand{ID: s.ID, Renewal: s.Renewal} }},
		} {
			t.Run(fmt.Sprintf("%s/%04b", end.name, waited), func(t *testing.T) {
				s := New()
				run := func(c core.Command) []core.Change {
					t.Helper()
					before, results := s.Index(), make([]core.Result, 1)
					changes := s.Apply([][]byte{c.Encode(core.Meta{})}, results)
					if results[0].Err != nil {
						t.Fatalf("%#v: %v", c, results[0].Err)
					}
					if results[0].Index != before+1 {
						t.Errorf("%#v: answered with index %d, after %d", c, results[0].Index, before)
					}
					if err := wrongIndex(changes, before, s.Index()); err != nil {
						t.Errorf("%#v: %v", c, err)
					}
					return changes
				}
				holder, waiter := sessionID("s1"), sessionID("s2")
				run(core.OpenSessionCommand{ID: holder, TTL: time.Minute})
				run(core.OpenSessionCommand{ID: waiter, TTL: time.Minute})
				want := 0
				for i := range leases {
					name := parseName(string(rune('a' + i)))
					run(ClaimCommand{Name: name, Holder: "one", Session: holder})
					if waited&(1<<i) != 0 {
						run(ClaimCommand{Name: name, Holder: "two", Session: waiter, Wait: true})
						want++
					}
				}
				got := 0
				for _, c := range run(end.cmd(s.View().Session(holder))) {
					l, _ := ChangeOf(&c)
					got += one(l.What == Offered)
				}
				if got != want {
					t.Errorf("%d leases handed over, want %d", got, want)
				}
			})
		}
	}
}

// The same of random commands that meet, keys and free leases that are
// forgotten included.
func TestG15_IndexesOfALogNeverFall(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		s.limit(drawLimits(t))
		for _, b := range drawLog(t, s.limits) {
			before := s.Index()
			changes := s.Apply([][]byte{b}, make([]core.Result, 1))
			if err := wrongIndex(changes, before, s.Index()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// newestOf is the index of the newest change of a history, 0 if there is none.
func newestOf(h []LeaseChange) incumbent.Index {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1].Index
}
