package client

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// waitFor claims beside the test, with a place in line.
func (s *Session) waitFor(t testing.TB, name string) <-chan *Lease {
	ctx, out := testContext(t), make(chan *Lease, 1)
	go func() {
		l, err := s.Claim(ctx, named(name), ClaimOptions{Wait: true})
		if err != nil {
			t.Error(err)
		}
		out <- l
	}()
	return out
}

// What a run holds that is cut off is nobody's because a later one resumes its session: not
// before it has stopped believing that it holds it. Then, unclaimed, it is given back.
func TestG02_WhatAFormerRunHoldsIsNotGivenBackAtOnce(t *testing.T) {
	s := startServer(t, serverConfig(t))
	r, direct := newRelay(t, s.URL()), clientOf(t, s.URL())
	a := openSession(t, clientOf(t, r.url()), SessionConfig{TTL: shortTTL})
	held := mustClaim(t, a, "db")
	c := openSession(t, direct, SessionConfig{TTL: longTTL})
	next := c.waitFor(t, "db")
	c.awaitQueued(t, direct, "db", 1)
	r.stall()
	resumed := time.Now()
	b := openSession(t, direct, SessionConfig{TTL: shortTTL, ID: a.ID()})
	b.mu.Lock()
	b.formersEnd -= maxApart // a is attached all the time, and extends nothing apart from that
	b.mu.Unlock()
	_, err := b.Claim(testContext(t), named("db"), ClaimOptions{})
	var typed *incumbent.Error
	if (!errors.As(err, &typed) || typed.Kind != incumbent.Held || typed.RetryAfter <= 0 || typed.RetryAfter > 2*shortTTL) && b.formersLeft() > 0 {
		t.Errorf("claimed by the later run: %v", err)
	}
	l := <-next
	if held.Held() {
		t.Error("two hold it at once")
	}
	if l == nil || l.Token() <= held.Token() || time.Since(resumed) < shortTTL {
		t.Errorf("handed on as %v after %v", l, time.Since(resumed))
	}
	if b.Context().Err() != nil {
		t.Errorf("the later run ended with %v", context.Cause(b.Context()))
	}
}

// Leadership does not move because a leader's process is restarted in order.
func TestWhatWasLeftIsHeldByTheNextRun(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	a := openSession(t, c, SessionConfig{TTL: longTTL, Holder: "a"})
	held := mustClaim(t, a, "db")
	other := openSession(t, c, SessionConfig{TTL: longTTL, Holder: "c"})
	next := other.waitFor(t, "db")
	other.awaitQueued(t, c, "db", 1)
	a.Detach()
	if held.Held() {
		t.Error("held by the run that left it")
	}
	b := openSession(t, c, SessionConfig{TTL: longTTL, ID: a.ID(), Holder: "b", Alone: true})
	l := mustClaim(t, b, "db")
	if l.Token() != held.Token() || !l.Held() {
		t.Errorf("token %d after %d, held %v", l.Token(), held.Token(), l.Held())
	}
	b.drop() // begun again, it holds it still, and by the same name
	if again := mustClaim(t, b, "db"); again != l || !l.Held() {
		t.Errorf("claimed again, it is %v", again)
	}
	if got := lookUp(t, c, "db"); got.Holder != "a" || len(got.Queue) != 1 || len(next) != 0 {
		t.Errorf("at the server %v", got)
	}
	if err := l.Release(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if got := <-next; got == nil || got.Token() <= l.Token() {
		t.Errorf("handed on as %v", got)
	}
	if b.holderOf(named("db")) != "b" {
		t.Error("what was released is claimed for the former holder")
	}
}

const formerTTL = 30 * time.Second

// formerEnd is when no former run believes any more that it holds something.
const formerEnd = (formerTTL + maxApart) + (formerTTL+maxApart)/100

// resumedSession is a session that was resumed, and holds this at the server.
func resumedSession(t *testing.T, cfg SessionConfig, leases ...*apiv1.Lease) (*Session, *scripted) {
	began := time.Now()
	c := clientOf(t, "http://member")
	c.clock = func() time.Duration { return time.Since(began) }
	c.saw(1)
	cfg.ID, cfg.TTL, cfg.Holder = incumbent.NewSessionID(), formerTTL, "new"
	s := c.newSession(cfg)
	t.Cleanup(func() { s.finish(errors.New("the test is over")); synctest.Wait() })
	return s, s.resumedLink(t, leases...)
}

// resumedLink gives the session another link, at which it holds this.
func (s *Session) resumedLink(t *testing.T, leases ...*apiv1.Lease) *scripted {
	l, m := s.scriptedMember(t)
	s.adopt(l, &apiv1.Attached{HeldMs: uint32(formerTTL.Milliseconds()), Index: 100, Leases: leases})
	return m
}

func formerLease(name string, token uint64) *apiv1.Lease {
	return &apiv1.Lease{Name: apiName(named(name)), Token: token, Holder: "old"}
}

// beats are answers to what a session sends by itself, and to claims; it notes the rest.
type beats struct {
	notHeld []uint64
	sent    []*apiv1.ClientFrame // but beats
	at      []time.Time
}

func (b *beats) answer(f *apiv1.ClientFrame) *apiv1.ServerFrame {
	if f.GetBeat() != nil {
		return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{HeldMs: uint32(formerTTL.Milliseconds())}}}
	}
	b.sent, b.at = append(b.sent, f), append(b.at, time.Now())
	switch op := f.GetOperation(); {
	case f.GetExtendTokens() != nil:
		a := &apiv1.TokensExtended{HeldMs: 20_000}
		for _, token := range f.GetExtendTokens().Tokens {
			if slices.Contains(b.notHeld, token) {
				a.NotHeld = append(a.NotHeld, token)
			}
		}
		return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_TokensExtended{TokensExtended: a}}
	case f.GetGetSession() != nil:
		return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_GetSession{GetSession: &apiv1.GetSessionResponse{Index: 101}}}
	case op.GetRelease() != nil:
		return resultFrame(&apiv1.OperationResult{Result: &apiv1.OperationResult_Release{Release: &apiv1.ReleaseResponse{}}})
	case op.GetClaim() != nil:
		token := uint64(7)
		if op.GetClaim().Holder != "old" {
			token = 200
		}
		claim := &apiv1.ClaimResponse{Index: 200, Lease: &apiv1.Lease{Name: op.GetClaim().GetName(), Token: token}}
		return resultFrame(&apiv1.OperationResult{Result: &apiv1.OperationResult_Claim{Claim: claim}})
	case op.GetCloseSession() != nil:
		return resultFrame(&apiv1.OperationResult{Result: &apiv1.OperationResult_CloseSession{CloseSession: &apiv1.CloseSessionResponse{}}})
	}
	return left()
}

// whats says in words what was sent.
func (b *beats) whats() (out []string) {
	for _, f := range b.sent {
		switch op := f.GetOperation(); {
		case f.GetExtendTokens() != nil:
			out = append(out, "extend")
		case op.GetRelease() != nil:
			out = append(out, "release")
		case op.GetClaim() != nil:
			out = append(out, "claim for "+op.GetClaim().Holder)
		case op.GetCloseSession() != nil:
			out = append(out, "close")
		default:
			out = append(out, "another")
		}
	}
	return out
}

// A claim takes over what a former run held once that is safe, for the holder that it has.
func TestG02_AClaimOfWhatAFormerRunHeld(t *testing.T) {
	for name, c := range map[string]struct {
		alone   bool
		opts    ClaimOptions
		notHeld []uint64
		sent    []string
		token   incumbent.Token
	}{
		"taken over":                 {sent: []string{"extend"}, token: 7},
		"of its holder":              {opts: ClaimOptions{Holder: "old"}, sent: []string{"extend"}, token: 7},
		"alone":                      {alone: true, sent: []string{"extend"}, token: 7},
		"for another":                {opts: ClaimOptions{Holder: "mine"}, sent: []string{"release", "claim for mine", "extend"}, token: 200},
		"for another, alone":         {alone: true, opts: ClaimOptions{Holder: "mine"}, sent: []string{"release", "claim for mine", "extend"}, token: 200},
		"lost meanwhile":             {notHeld: []uint64{7}, sent: []string{"extend", "claim for new", "extend"}, token: 200},
		"critical, which it was not": {opts: ClaimOptions{Critical: true}, sent: []string{"extend", "claim for old", "extend"}, token: 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := resumedSession(t, SessionConfig{Alone: c.alone}, formerLease("db", 7))
				b := &beats{notHeld: c.notHeld}
				m.answerAll(b.answer)
				began := time.Now()
				c.opts.Wait = true
				l, err := s.Claim(t.Context(), named("db"), c.opts)
				if err != nil || l.Token() != c.token || !l.Held() {
					t.Fatalf("claimed: %v, %v", l, err)
				}
				synctest.Wait()
				sent := slices.DeleteFunc(b.whats(), func(w string) bool { return w == "another" })
				want := formerEnd
				if c.alone {
					want = 0
				}
				if took := time.Since(began); took != want || !slices.Equal(sent, c.sent) {
					t.Errorf("after %v, want %v, by %q, want %q", took, want, sent, c.sent)
				}
				if want := time.Duration(19.8 * float64(time.Second)); len(c.sent) == 1 && l.Remaining() != want {
					t.Errorf("%v left, want %v: what was acknowledged, less the drift", l.Remaining(), want)
				}
			})
		})
	}
}

// What nobody claims is given back once it is safe, and no sooner; what is being claimed is
// not, nor what the next link says is over.
func TestWhatFormerRunsHeldIsGivenBackAtLast(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, m := resumedSession(t, SessionConfig{Alone: alone}, formerLease("db", 7), formerLease("gone", 8), formerLease("claimed", 9))
			s.drop()
			m.conn.Close()
			m = s.resumedLink(t, formerLease("db", 7), formerLease("late", 11), formerLease("claimed", 9))
			b := &beats{}
			m.answerAll(b.answer)
			began := time.Now()
			claimed := make(chan *Lease, 1)
			go func() {
				l, _ := s.Claim(t.Context(), named("claimed"), ClaimOptions{Wait: true})
				claimed <- l
			}()
			go s.run()
			time.Sleep(3*formerTTL + maxApart)
			synctest.Wait()
			if l := <-claimed; l == nil || l.Token() != 9 || !l.Held() {
				t.Errorf("claimed: %v", l)
			}
			var released []uint64
			for i, f := range b.sent {
				if r := f.GetOperation().GetRelease(); r != nil {
					released = append(released, r.Token)
					if after := b.at[i].Sub(began); after < formerEnd || after > formerEnd+formerTTL/beatsPerTTL {
						t.Errorf("alone %v: released after %v", alone, after)
					}
				}
			}
			if slices.Sort(released); !slices.Equal(released, []uint64{7, 11}) {
				t.Errorf("alone %v: released %v", alone, released)
			}
		})
	}
}

// A claim that waits for a former run to be over ends with its caller, and undoes nothing; or
// goes on as soon as the server says that it has nothing any more.
func TestAClaimThatWaitsForAFormerRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m := resumedSession(t, SessionConfig{}, formerLease("db", 7))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Claim(ctx, named("db"), ClaimOptions{Wait: true}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("the claim ended with %v", err)
		}
		m.nothing()
		began := time.Now()
		done := make(chan *Lease, 1)
		go func() {
			l, _ := s.Claim(t.Context(), named("db"), ClaimOptions{Wait: true})
			done <- l
		}()
		time.Sleep(time.Second)
		s.drop()
		m = s.resumedLink(t)
		m.answerAll((&beats{}).answer)
		if l := <-done; l == nil || l.Token() != 200 || time.Since(began) > 2*time.Second {
			t.Errorf("claimed %v after %v", l, time.Since(began))
		}
	})
}

// While this run had no link a former one may have come back, and been told again that it
// holds what it held: its time begins anew.
func TestG02_AFormerRunThatMayHaveComeBack(t *testing.T) {
	for _, accepting := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, m := resumedSession(t, SessionConfig{}, formerLease("db", 7))
			done := make(chan *Lease, 1)
			go func() {
				l, _ := s.Claim(t.Context(), named("db"), ClaimOptions{Wait: true})
				done <- l
			}()
			if accepting { // and the link breaks before this is answered
				time.Sleep(formerTTL)
				if beat, f := m.next(), m.next(); beat.GetBeat() == nil || f.GetExtendTokens() == nil {
					t.Fatalf("not taken over, but %v and %v", beat, f)
				}
			} else {
				time.Sleep(formerTTL / 2)
			}
			s.drop()
			time.Sleep(time.Second)
			began := time.Now()
			m = s.resumedLink(t, formerLease("db", 7))
			m.answerAll((&beats{}).answer)
			if l := <-done; l == nil || l.Token() != 7 || !l.Held() || time.Since(began) != formerEnd {
				t.Errorf("taken over %v after %v", l, time.Since(began))
			}
		})
	}
}

// A session that is closed frees what a former run may believe that it holds: later.
func TestG02_CloseWaitsForFormerRuns(t *testing.T) {
	for _, alone := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, m := resumedSession(t, SessionConfig{Alone: alone}, formerLease("db", 7))
			b := &beats{}
			m.answerAll(b.answer)
			go s.run()
			own := mustClaim(t, s, "own")
			began := time.Now()
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			want := formerEnd
			if alone {
				want = 0
			}
			if took := time.Since(began); took != want || own.Held() || b.whats()[len(b.sent)-1] != "close" {
				t.Errorf("alone %v: closed after %v, by %q", alone, took, b.whats())
			}
			for i, f := range b.sent {
				if r := f.GetOperation().GetRelease(); r != nil && (r.Token != uint64(own.Token()) || b.at[i] != began) {
					t.Errorf("alone %v: released %d after %v", alone, r.Token, b.at[i].Sub(began))
				}
			}
		})
	}
}

// Over a stream that has lost the session nothing is extended any more, nor granted, whatever it
// says of the leases: the run that has the session counts on that.
func TestG02_ABeatWithoutTheSessionExtendsNothing(t *testing.T) {
	beaten := func(b *apiv1.Beaten) *apiv1.ServerFrame {
		return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Beaten{Beaten: b}}
	}
	refused := func(k incumbent.Kind) *apiv1.ServerFrame {
		return &apiv1.ServerFrame{Error: &apiv1.Error{Kind: k.String()}}
	}
	for _, c := range []struct {
		answer *apiv1.ServerFrame
		since  time.Duration // it was attached for certain
		counts bool
	}{
		{answer: beaten(&apiv1.Beaten{HeldMs: 30_000}), counts: true},
		{answer: beaten(&apiv1.Beaten{})},
		{answer: refused(incumbent.Conflict)}, // the leader knows of another run, this member not yet
		{answer: refused(incumbent.Overloaded), since: maxApart, counts: true},
		{answer: refused(incumbent.Overloaded), since: maxApart + time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			s, m := scriptedSession(t)
			s.isAttached(s.clock())
			time.Sleep(c.since)
			l := s.take(named("db"), 5, s.clock()+10*time.Second)
			m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
				if f.GetBeat() != nil {
					return c.answer
				}
				return (&beats{}).answer(f)
			})
			if _, ok := s.beat(10*time.Second, time.Second); !ok || l.Remaining() > 10*time.Second != c.counts {
				t.Errorf("%v after %v: %v left", c.answer, c.since, l.Remaining())
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			granted, err := s.Claim(ctx, named("other"), ClaimOptions{})
			if c.counts != (err == nil && granted.Held()) || !c.counts && !errors.Is(err, context.DeadlineExceeded) || s.givenBack(200) {
				t.Errorf("%v after %v: claimed %v, %v", c.answer, c.since, granted, err)
			}
			s.drop()
		})
	}
}

// A claim that is under way, or was, takes nothing over that it cannot have been granted: it was
// not sent, or for another holder. It has its turn once no former run can believe that it holds it.
func TestG02_AClaimOfWhatAnotherRunClaimedMeanwhile(t *testing.T) {
	for name, c := range map[string]struct {
		sent  bool // before the link broke
		whose string
		asks  bool // it was not sent because the link broke over which it asked for its key's base
		waits bool // it has its place in line still
		gone  bool // its caller is, before there is another link
		token incumbent.Token
	}{
		"not sent":                 {whose: "old", token: 7},
		"not sent, and asks":       {whose: "old", asks: true, token: 7},
		"not sent, and gone":       {whose: "old", gone: true},
		"without a holder":         {sent: true, token: 7},
		"for another":              {sent: true, whose: "mine", token: 200},
		"for another, and waits":   {sent: true, whose: "mine", waits: true, token: 200},
		"for another, and is gone": {sent: true, whose: "mine", gone: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, m := resumedSession(t, SessionConfig{})
				if c.asks {
					time.Sleep(maxIndexAge + time.Second)
				} else if !c.sent {
					s.drop()
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan *Lease, 1)
				go func() {
					l, _ := s.Claim(ctx, named("db"), ClaimOptions{Wait: true, Holder: c.whose})
					done <- l
				}()
				if c.sent {
					m.answer(m.next(), resultFrame(&apiv1.OperationResult{Result: &apiv1.OperationResult_Claim{Claim: &apiv1.ClaimResponse{Queued: true}}}))
				}
				synctest.Wait()
				s.drop()
				if c.gone {
					cancel()
					if <-done != nil || c.sent != (s.leaving[named("db")] != nil) {
						t.Fatalf("claimed, or to be undone: %v", s.leaving)
					}
				}
				began, b := time.Now(), &beats{}
				var released atomic.Int64 // after so many nanoseconds
				l, m := s.scriptedMember(t)
				m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
					if f.GetOperation().GetRelease() != nil {
						released.Store(int64(time.Since(began)))
						m.answer(&apiv1.ClientFrame{}, &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Offer{Offer: &apiv1.Offer{Lease: &apiv1.Lease{Name: apiName(named("db")), Token: 200}}}})
					}
					if claim := f.GetOperation().GetClaim(); claim != nil && claim.Holder != "old" && released.Load() == 0 {
						return resultFrame(&apiv1.OperationResult{Result: &apiv1.OperationResult_Claim{Claim: &apiv1.ClaimResponse{Queued: true}}})
					}
					return b.answer(f)
				})
				a := &apiv1.Attached{HeldMs: uint32(formerTTL.Milliseconds()), Index: 100, Leases: []*apiv1.Lease{formerLease("db", 7)}}
				if c.waits {
					a.Waits = []*apiv1.LeaseName{apiName(named("db"))}
				}
				s.adopt(l, a)
				go s.run()
				time.Sleep(formerEnd - time.Second)
				synctest.Wait()
				if len(done) > 0 || released.Load() > 0 {
					t.Errorf("too early: claimed %d, released after %v", len(done), time.Duration(released.Load()))
				}
				time.Sleep(formerTTL)
				synctest.Wait()
				if c.gone {
					if after := time.Duration(released.Load()); after < formerEnd {
						t.Errorf("released after %v", after)
					}
				} else if got := <-done; got == nil || got.Token() != c.token || !got.Held() {
					t.Errorf("claimed: %v", got)
				}
			})
		})
	}
}
