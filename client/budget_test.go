package client

import (
	"context"
	"errors"
	"maps"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// refused is a member's answer to what it has no room for.
func refused(after time.Duration) *apiv1.ServerFrame {
	return &apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Overloaded.String(), RetryAfterMs: uint32(after.Milliseconds())}}
}

// answerAll answers all that is sent from now on, until the test is over. nil: not yet.
func (m *scripted) answerAll(with func(*apiv1.ClientFrame) *apiv1.ServerFrame) {
	over := m.t.Context().Done()
	go func() {
		for {
			select {
			case f := <-m.frames:
				if a := with(f); a != nil {
					m.answer(f, a)
				}
			case <-over:
				return
			}
		}
	}()
}

// However much is refused, a session sends a tenth more of it, with what its reserve and
// the time have room for.
func TestG42_ATenthIsRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		sent := 0
		m.answerAll(func(*apiv1.ClientFrame) *apiv1.ServerFrame { sent++; return refused(time.Millisecond) })
		const requests = 1000
		began := time.Now()
		for range requests {
			_, err := s.request(t.Context(), func() *apiv1.ClientFrame { return s.lookup(nil, 1) })
			var typed *incumbent.Error
			if !errors.As(err, &typed) || typed.Kind != incumbent.Overloaded || typed.RetryAfter != time.Millisecond {
				t.Fatalf("the caller is told %v", err)
			}
		}
		repeated, most := sent-requests, requests/10+repeatReserve+1+int(time.Since(began)/repeatEvery)
		if repeated > most || repeated < requests/20 {
			t.Errorf("%d of %d refused requests were repeated in %v, want up to %d", repeated, requests, time.Since(began), most)
		}
	})
}

// Whoever sends little is not held back: one request at a time is repeated until it is
// served.
func TestARequestIsRepeatedUntilItIsServed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		began := time.Now()
		m.answerAll(func(*apiv1.ClientFrame) *apiv1.ServerFrame {
			if time.Since(began) < time.Minute {
				return refused(2 * time.Second)
			}
			return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_GetSession{GetSession: &apiv1.GetSessionResponse{Index: 7}}}
		})
		a, err := s.request(t.Context(), func() *apiv1.ClientFrame { return s.lookup(nil, 1) })
		if err != nil || a.GetGetSession().GetIndex() != 7 || time.Since(began) > time.Minute+3*time.Second {
			t.Errorf("after %v: %v, %v", time.Since(began), a, err)
		}
	})
}

// unbegunSession is one that has begun at no member, with a link to one.
func unbegunSession(t *testing.T) (*Session, *link, *scripted) {
	t.Helper()
	s, other := scriptedSession(t)
	s.drop()
	other.conn.Close()
	s.ttl = time.Minute
	l, m := s.scriptedMember(t)
	return s, l, m
}

// A session that a member refuses to begin asks again over the same stream, when it is
// told to, for a while; what it follows, and was refused before it had begun, is asked for
// once it has, and not besides.
func TestG42_ARefusedSessionBeginsOverTheSameStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, m := unbegunSession(t)
		keys := NewKeyCache("", WatchKeysOptions{Key: "app"})
		s.follows = append(s.follows, &followed{s: s, of: keys})
		began, until := time.Now(), 10*time.Second
		starts, watches, early := 0, 0, 0
		var last time.Time
		m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
			serves := time.Since(began) > until
			if f.GetStart() == nil {
				watches++
				if !serves {
					return refused(time.Second)
				}
				return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_WatchKeys{WatchKeys: &apiv1.WatchKeysResponse{}}}
			}
			if starts++; time.Since(last) < time.Second {
				early++
			}
			last = time.Now()
			if !serves {
				return refused(time.Second)
			}
			return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Started{Started: &apiv1.Started{Attached: &apiv1.Attached{Index: 9}}}}
		})
		if err := s.attach(t.Context(), l, false, 5*time.Second); err != nil || s.current() != l {
			t.Fatalf("after %v: %v", time.Since(began), err)
		}
		// From a pause of a second and a half on it waits for half of what it has waited.
		if took := time.Since(began); took > until+until/2+3*time.Second/2 || starts < 3 || starts > 10 || early > 0 {
			t.Errorf("begun after %v and %d attempts, %d of them too early", took, starts, early)
		}
		late := NewKeyCache("", WatchKeysOptions{Key: "late"})
		s.Follow(late)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if watches != 3 {
			t.Errorf("what it follows was asked for %d times in %d attempts, want once with the first, once behind the last, and what it follows since once", watches, starts)
		}

		// A member that refuses for longer is left.
		began, until = time.Now(), time.Hour
		l, m = s.scriptedMember(t)
		m.answerAll(func(*apiv1.ClientFrame) *apiv1.ServerFrame { return refused(time.Minute) })
		err := s.attach(t.Context(), l, false, 5*time.Second)
		if took := time.Since(began); incumbent.KindOf(err) != incumbent.Overloaded || took < busyStay || took > busyStay+s.ttl/beatsPerTTL {
			t.Errorf("left after %v: %v", took, err)
		}
		synctest.Wait() // the member answers what was sent with the last attempt
		l.close()
	})
}

func TestG42_ARefusedClaimIsNotRepeated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		done := s.claimBeside(t.Context(), "x")
		m.answer(m.next(), refused(1500*time.Millisecond))
		var typed *incumbent.Error
		if err := (<-done).err; !errors.As(err, &typed) || typed.Kind != incumbent.Overloaded || typed.RetryAfter != 1500*time.Millisecond {
			t.Errorf("the caller is told %v", err)
		}
		time.Sleep(time.Minute)
		m.nothing()
	})
}

// An attempt that nobody answered may have been granted: that another was refused does
// not make it a failure.
func TestG25_AClaimRefusedAfterOneWithoutAnswerIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		for s.budget.repeat(s.clock()) { // nothing is left to ask with
		}
		done := s.claimBeside(t.Context(), "x")
		m.next()
		m.conn.Close()
		m = s.scriptedLink(t)
		m.answer(m.next(), refused(time.Millisecond))
		for s.budget.repeat(s.clock()) {
		}
		undone := false
		m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
			switch {
			case f.GetOperation().GetLeaveQueue() != nil:
				undone = true
				return left()
			case f.GetGetSession() != nil:
				return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_GetSession{GetSession: &apiv1.GetSessionResponse{}}}
			}
			return refused(time.Millisecond)
		})
		if err := (<-done).err; incumbent.KindOf(err) != incumbent.Unknown || !undone {
			t.Errorf("undone %v, and the caller is told %v", undone, err)
		}
	})
}

// Whoever campaigns comes back, no sooner than the member asked for.
func TestACampaignComesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		const after = 3 * time.Second
		var sent []time.Time
		m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
			if f.GetGetSession() != nil { // its index has become too old for a key
				return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_GetSession{GetSession: &apiv1.GetSessionResponse{Index: 8}}}
			}
			if f.GetOperation().GetClaim() == nil {
				return (&beats{}).answer(f)
			}
			if sent = append(sent, time.Now()); len(sent) < 40 {
				return refused(after)
			}
			claim := &apiv1.ClaimResponse{Index: 9, Lease: &apiv1.Lease{Name: f.GetOperation().GetClaim().GetName(), Token: 9}}
			return resultFrame(&apiv1.OperationResult{Result: &apiv1.OperationResult_Claim{Claim: claim}})
		})
		l, err := s.Campaign(t.Context(), named("x"))
		if err != nil || l.Token() != 9 {
			t.Fatalf("got %v, %v", l, err)
		}
		for i := range sent[1:] {
			if d := sent[i+1].Sub(sent[i]); d < after || d > after+after/2+time.Millisecond {
				t.Errorf("claim %d follows after %v", i+1, d)
			}
		}
	})
}

// An extension that is refused is sent again until the local deadline, whatever else was
// repeated, and before the next beat would be due.
func TestG04_ExtensionsAreRepeatedUntilTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := scriptedSession(t)
		s.ttl = 30 * time.Second
		for s.budget.repeat(s.clock()) {
		}
		extensions, last := 0, time.Time{}
		m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
			if f.GetExtendTokens() == nil {
				return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{HeldMs: 30_000}}}
			}
			if extensions, last = extensions+1, time.Now(); extensions%2 == 0 {
				return refused(500 * time.Millisecond)
			}
			return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_TokensExtended{TokensExtended: &apiv1.TokensExtended{Unavailable: []uint64{5}, RetryAfterMs: 500}}}
		})
		began := time.Now()
		l := s.take(named("x"), 5, s.clock()+s.ttl)
		go s.run()
		<-l.Context().Done()
		synctest.Wait() // whoever answers has noted it
		if held := time.Since(began); held != s.ttl {
			t.Errorf("it was held for %v", held)
		}
		if left := s.ttl - last.Sub(began); left > time.Second || extensions < 35 {
			t.Errorf("%d extensions, the last %v before the deadline", extensions, left)
		}
	})
}

// Who is refused for long asks seldom, and is back soon after there is room: after half as
// long again as there was none.
func TestG42_ASessionThatIsRefusedForLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, room := range []time.Duration{2 * time.Second, 5 * time.Second, 12 * time.Second} {
			s, l, m := unbegunSession(t)
			began, starts := time.Now(), 0
			m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
				if starts++; time.Since(began) < room {
					return refused(100 * time.Millisecond)
				}
				return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Started{Started: &apiv1.Started{Attached: &apiv1.Attached{Index: 9}}}}
			})
			if err := s.attach(t.Context(), l, false, 5*time.Second); err != nil {
				t.Fatal(err)
			}
			// At a tenth of a second it would have asked up to a hundred times.
			if took := time.Since(began); took > room+room/2+150*time.Millisecond || starts > 18 {
				t.Errorf("refused for %v: begun after %v and %d attempts", room, took, starts)
			}
			l.close()
		}
	})
}

func TestG41_WhoWasRefusedTogetherComesBackSpread(t *testing.T) {
	for _, hint := range []time.Duration{time.Millisecond, 250 * time.Millisecond, 3 * time.Second} {
		err := &incumbent.Error{Kind: incumbent.Overloaded, RetryAfter: hint}
		least, most := time.Hour, time.Duration(0)
		for range 200 {
			d := jitter(minPause, err)
			least, most = min(least, d), max(most, d)
		}
		if least < hint || most > max(hint+hint/2, minPause) || most-least < hint/5 {
			t.Errorf("asked for %v, they come back after %v to %v", hint, least, most)
		}
	}
}

// A member that is silent is not left for another by everybody at once.
func TestG42_CallsThatGoOnElsewhereAreCounted(t *testing.T) {
	first, second := silentServer(t), silentServer(t)
	c := newClient(t, Config{Servers: []string{first, second}, SilentTimeout: time.Millisecond})
	c.clock = func() time.Duration { return 0 } // nothing comes back into the budget
	for c.budget.repeat(c.clock()) {
	}
	ctx, cancel := context.WithCancel(testContext(t))
	defer cancel()
	before, _ := c.members.current()
	if err := c.learn(ctx); incumbent.KindOf(err) != incumbent.Unavailable {
		t.Errorf("got %v", err)
	}
	if after, _ := c.members.current(); after == before {
		t.Error("later calls go to the silent member")
	}
}

// TestG42_WhatWasRefusedBeforeTheSessionBeganIsAskedForOnceItHas: the session begins, though what it
// follows is refused; so is what it is to follow while it has not begun.
func TestG42_WhatWasRefusedBeforeTheSessionBeganIsAskedForOnceItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, m := unbegunSession(t)
		s.follows = append(s.follows, &followed{s: s, of: NewKeyCache("", WatchKeysOptions{Key: "first"})})
		var mu sync.Mutex // protects the counts
		began, starts, asked, served := time.Now(), 0, map[string]int{}, map[string]int{}
		counts := func() (int, map[string]int, map[string]int) {
			mu.Lock()
			defer mu.Unlock()
			return starts, maps.Clone(asked), maps.Clone(served)
		}
		m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
			mu.Lock()
			defer mu.Unlock()
			if w := f.GetWatchKeys(); w != nil {
				if asked[w.Key]++; time.Since(began) < 20*time.Second {
					return refused(time.Second)
				}
				served[w.Key]++
				return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_WatchKeys{WatchKeys: &apiv1.WatchKeysResponse{}}}
			}
			if starts++; starts == 1 {
				s.Follow(NewKeyCache("", WatchKeysOptions{Key: "meanwhile"}))
			}
			if starts < 3 {
				return refused(time.Second)
			}
			return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Started{Started: &apiv1.Started{Attached: &apiv1.Attached{Index: 9}}}}
		})
		err := s.attach(t.Context(), l, false, 5*time.Second)
		synctest.Wait()
		if n, asked, _ := counts(); err != nil || n != 3 || asked["first"] != 2 || asked["meanwhile"] != 1 {
			t.Errorf("%d attempts, asked for %v: %v", n, asked, err)
		}
		time.Sleep(40 * time.Second)
		if _, asked, served := counts(); served["first"] != 1 || served["meanwhile"] != 1 {
			t.Errorf("asked for %v, served %v", asked, served)
		}
	})
}

// Who is present is said with each attempt to begin. What was refused with one of them is
// said no more: the next has said it, and a name that another has is asked for once at a time.
func TestG42_PresenceIsSaidByTheNewestAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, l, m := unbegunSession(t)
		s.present = Presence{Name: "unit/0"}
		began := make(chan error, 1)
		go func() { began <- s.attach(t.Context(), l, false, 5*time.Second) }()
		held := &apiv1.ServerFrame{Error: &apiv1.Error{Kind: incumbent.Held.String()}}
		for attempt := range 4 {
			f := m.next()
			if f.GetStart() == nil || len(f.GetStart().Then) != 1 {
				t.Fatalf("attempt %d: %v", attempt, f)
			}
			if attempt < 3 {
				m.answer(f, refused(time.Second))
				m.answer(f.GetStart().Then[0], refused(time.Second))
				continue
			}
			m.answer(f, &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Started{Started: &apiv1.Started{Attached: &apiv1.Attached{Index: 9}}}})
			m.answer(f.GetStart().Then[0], held)
		}
		if err := <-began; err != nil {
			t.Fatal(err)
		}
		for range 3 {
			time.Sleep(s.ttl/beatsPerTTL - time.Second)
			m.nothing()
			m.answer(m.next(), held)
		}
		l.close()
		synctest.Wait()
	})
}
