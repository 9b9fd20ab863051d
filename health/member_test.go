package health

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
)

// TestWhoRunsWhat: a check is its own member's while that is there. Else it is another's,
// each has its share, and when one more goes only that one's checks move.
func TestWhoRunsWhat(t *testing.T) {
	shares := map[uint64]int{}
	for i := range 9_000 {
		c := &Check{Key: Key{"default", "n", fmt.Sprint(i)}, Member: 1}
		if got := memberOf(c, []uint64{1, 2, 3, 4}); got != 1 {
			t.Fatalf("check %d is run by %d, and its member is there", i, got)
		}
		was := memberOf(c, []uint64{2, 3, 4})
		if again := memberOf(c, []uint64{4, 3, 2}); again != was {
			t.Fatalf("check %d is run by %d or %d, as the others are listed", i, was, again)
		}
		shares[was]++
		if is := memberOf(c, []uint64{2, 3}); was != 4 && is != was {
			t.Fatalf("check %d moved from %d to %d when 4 went", i, was, is)
		}
		if memberOf(c, nil) != 0 {
			t.Fatal("nobody is there")
		}
	}
	for m := uint64(2); m <= 4; m++ {
		if shares[m] < 2_700 || shares[m] > 3_300 {
			t.Errorf("member %d has %d of 9,000 checks", m, shares[m])
		}
	}
}

// TestTakeover: a member runs the checks that fall to it while theirs is gone, and
// none while its own lease is not there.
func TestTakeover(t *testing.T) {
	running(t, Config{}, func(t *testing.T, s *state, web *fleet) {
		own, other := check("a", time.Second), check("b", time.Second)
		web.is("a:80", "200 OK")
		web.is("b:80", "200 OK")
		s.runner.Members([]uint64{1, 2})
		s.put(own)
		c := Check{Key: other.Key, Member: 2, Definition: other.Encode()}
		s.mu.Lock()
		s.checks[c.Key] = &c
		s.mu.Unlock()
		s.runner.Changed(c.Key, &c)
		runs := func(who string) int { return len(web.times(who + ":80")) }
		for _, step := range []struct {
			members []uint64
			a, b    int
		}{{[]uint64{1, 2}, 10, 0}, {[]uint64{1}, 10, 10}, {[]uint64{2}, 0, 0}, {[]uint64{1, 2}, 10, 0}, {[]uint64{}, 0, 0}} {
			s.runner.Members(step.members)
			synctest.Wait()
			a, b := runs("a"), runs("b")
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if a, b = runs("a")-a, runs("b")-b; a < step.a-1 || a > step.a || b < step.b-1 || b > step.b {
				t.Errorf("with %v: %d and %d runs in 10 s, want about %d and %d", step.members, a, b, step.a, step.b)
			}
		}
	})
}

// TestAFailureMakesNothingBetter: a check that is critical is no warning while it fails, though
// whoever runs it now has not seen enough failures for it to be critical.
func TestAFailureMakesNothingBetter(t *testing.T) {
	for what, was := range map[string]string{"taken over": "found before", "registered": ""} {
		t.Run(what, func(t *testing.T) {
			running(t, Config{OutputEvery: -1}, func(t *testing.T, s *state, web *fleet) {
				web.is("a:80", "500 Broken")
				d := check("a", time.Second)
				d.Thresholds = Thresholds{FailuresBeforeWarning: 1, FailuresBeforeCritical: 3}
				c := Check{Key: d.Key, Member: 2, Definition: d.Encode(), Status: Critical, Output: was}
				s.mu.Lock()
				s.checks[c.Key] = &c
				s.mu.Unlock()
				s.runner.Members([]uint64{1, 2})
				s.runner.Changed(c.Key, &c)
				time.Sleep(10 * time.Second)
				s.runner.Members([]uint64{1})
				time.Sleep(10 * time.Second)
				synctest.Wait()
				want := []string{}
				if was == "" { // what it found is not known yet
					want = append(want, "a critical")
				}
				wantEqual(t, "reports while it fails", s.told(), want)
				web.is("a:80", "200 OK")
				time.Sleep(10 * time.Second)
				web.is("a:80", "500 Broken")
				time.Sleep(10 * time.Second)
				synctest.Wait()
				wantEqual(t, "reports", s.told(), append(want, "a passing", "a warning", "a critical"))
			})
		})
	}
}

// TestPresenceIsOfANamespace: a member counts for the namespace alone whose checks it runs,
// whatever the name of that is.
func TestPresenceIsOfANamespace(t *testing.T) {
	s := engine.NewState()
	held := map[string][]uint64{
		"default": {1, 0x1a, math.MaxUint64}, "b": {2, 0x1a}, "1a": {3}, "default/b": {4}, "a/default": {5}, "1": {6, 7},
		strings.Repeat("n", incumbent.MaxNamespaceBytes): {math.MaxUint64},
	}
	for namespace, ids := range held {
		for _, id := range ids {
			c := leases.ClaimCommand{Name: PresenceLease(id, namespace), Holder: "h", TTL: time.Minute}
			results := make([]core.Result, 1)
			if s.Apply([][]byte{c.Encode(core.Meta{})}, results); results[0].Err != nil {
				t.Fatalf("%x of %s: %v", id, namespace, results[0].Err)
			}
		}
	}
	if got := PresenceLease(0x1a, "default").Lease; got != "checks/1a" { // members of before know no other
		t.Errorf("the lease for the default namespace is %s", got)
	}
	held["c"] = nil
	for namespace, want := range held {
		got := Present(s.View(), namespace)
		slices.Sort(got)
		wantEqual(t, "members of "+namespace, got, want)
	}
}

// book keeps the leases of members.
type book struct {
	mu      sync.Mutex
	until   map[uint64]time.Time
	cut     bool // nothing reaches it
	claims  []time.Duration
	release int
	begun   time.Time
}

func (b *book) present() (out []uint64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for id, until := range b.until {
		if time.Now().Before(until) {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

func (b *book) call(_ context.Context, c core.Command) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.cut {
		return errors.New("no leader")
	}
	switch c := c.(type) {
	case leases.ClaimCommand:
		b.claims = append(b.claims, time.Since(b.begun))
		b.until[1] = time.Now().Add(c.TTL)
	case leases.ReleaseCommand:
		b.release++
		delete(b.until, 1)
	}
	return nil
}

// TestPresence: a member claims at once where nobody else runs checks, and after a
// while where others do; when it was away, again after a while.
func TestPresence(t *testing.T) {
	const returnAfter = returns * DefaultPresence
	for _, alone := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			b := &book{until: map[uint64]time.Time{}, begun: time.Now()}
			if !alone {
				b.until[2] = time.Now().Add(24 * time.Hour)
			}
			p := Presence{Self: 1, Namespace: "default", Present: b.present, Call: b.call}
			ctx, stop := context.WithCancel(t.Context())
			ended := make(chan struct{})
			go func() { p.Run(ctx); close(ended) }()
			time.Sleep(time.Minute)
			synctest.Wait()
			if first := b.claims[0]; alone != (first == 0) || !alone && (first < returnAfter || first > 2*returnAfter) {
				t.Errorf("alone %v: claimed after %v", alone, first)
			}
			if len(b.present()) == 0 || !slices.Contains(b.present(), 1) {
				t.Error("the lease ran out")
			}
			b.mu.Lock()
			b.cut = true
			b.mu.Unlock()
			time.Sleep(20 * time.Second)
			synctest.Wait()
			b.mu.Lock()
			n := len(b.claims)
			b.cut = false
			b.mu.Unlock()
			time.Sleep(2 * returnAfter)
			synctest.Wait()
			wait := b.claims[n] - 80*time.Second
			if alone && wait > DefaultPresence/claims || !alone && wait < returnAfter/2 {
				t.Errorf("alone %v: back after %v", alone, wait)
			}
			stop()
			<-ended
			p.Leave(t.Context())
			p.Leave(t.Context())
			if b.release != 1 {
				t.Errorf("given up %d times", b.release)
			}
		})
	}
}
