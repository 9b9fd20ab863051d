package client

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

const keptTTL = 15 * time.Second

// keptSession is one that holds a lease, and has lost its link. It has another to a member at
// which it has not begun.
func keptSession(t *testing.T) (*Session, *Lease, *link, *scripted) {
	t.Helper()
	s, l, m := unbegunSession(t)
	s.ttl = keptTTL
	lease := s.take(named("db"), 7, s.clock()+s.margin(uint32(keptTTL.Milliseconds())))
	s.isAttached(s.clock())
	return s, lease, l, m
}

// busyMember counts what a member is asked while it is slow to begin a session.
type busyMember struct {
	*scripted
	mu       sync.Mutex // guards the counts, and one answer at a time
	starts   int
	extends  int
	releases int
	beats    int
}

func (b *busyMember) say(to *apiv1.ClientFrame, a *apiv1.ServerFrame) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer(to, a)
}

// counted answers what keeps leases, and has begin answer starts, beside it.
func (b *busyMember) counted(begin func(start *apiv1.ClientFrame), more func(*apiv1.ClientFrame) *apiv1.ServerFrame) {
	b.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case f.GetStart() != nil:
			b.starts++
			go begin(f)
			return nil
		case f.GetOperation().GetRelease() != nil:
			b.releases++
		case f.GetBeat() != nil:
			b.beats++
		case f.GetExtendTokens() != nil:
			b.extends++
		}
		if a := more(f); a != nil {
			b.answer(f, a)
		}
		return nil
	})
}

func extendedFrame() *apiv1.ServerFrame {
	return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_TokensExtended{TokensExtended: &apiv1.TokensExtended{HeldMs: uint32(keptTTL.Milliseconds())}}}
}

func startedWith(a *apiv1.Attached) *apiv1.ServerFrame {
	return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Started{Started: &apiv1.Started{Attached: a}}}
}

func waitingFrame() *apiv1.ServerFrame {
	return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Waiting{Waiting: &apiv1.Waiting{Ahead: 7}}}
}

// holdingOf is what a member says that the session has.
func holdingOf(l *Lease) *apiv1.Attached {
	return &apiv1.Attached{Index: 9, HeldMs: uint32(keptTTL.Milliseconds()), Leases: []*apiv1.Lease{{Name: apiName(l.Name()), Token: uint64(l.Token())}}}
}

// TestG43_WhatIsHeldIsExtendedWhileTheSessionWaits: leases stay held while their session waits in
// line at a member, or is refused by it, for longer than they last.
func TestG43_WhatIsHeldIsExtendedWhileTheSessionWaits(t *testing.T) {
	const busy = 25 * time.Second
	for name, wait := range map[string]func(b *busyMember, start *apiv1.ClientFrame, until time.Time) (begins bool){
		"in line": func(b *busyMember, start *apiv1.ClientFrame, until time.Time) bool {
			for ; time.Now().Before(until); time.Sleep(5 * time.Second) {
				b.say(start, waitingFrame())
			}
			return true
		},
		"refused": func(b *busyMember, start *apiv1.ClientFrame, until time.Time) bool {
			if time.Now().Before(until) {
				b.say(start, refused(time.Second))
				return false
			}
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, lease, l, m := keptSession(t)
				b, began := &busyMember{scripted: m}, time.Now()
				b.counted(func(start *apiv1.ClientFrame) {
					if wait(b, start, began.Add(busy)) {
						b.say(start, startedWith(holdingOf(lease)))
					}
				}, func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
					if f.GetExtendTokens() == nil {
						return nil
					}
					return extendedFrame()
				})
				if err := s.attach(t.Context(), l, false, time.Second); err != nil || time.Since(began) < busy {
					t.Fatalf("begun after %v: %v", time.Since(began), err)
				}
				synctest.Wait()
				b.mu.Lock()
				defer b.mu.Unlock()
				if !lease.Held() || s.givenBack(lease.Token()) || b.releases > 0 || b.beats > 0 {
					t.Errorf("held %v, %d releases, %d beats: %v", lease.Held(), b.releases, b.beats, context.Cause(lease.Context()))
				}
				if took := time.Since(began); b.extends < int(took/(keptTTL/beatsPerTTL)) || b.extends > 1+int(took/(keptTTL/beatsPerTTL)) {
					t.Errorf("extended %d times in %v", b.extends, took)
				}
				l.close()
			})
		})
	}
}

// What is answered to be not held may be being revoked: its holder is to stop at once, and has
// until its deadline. What could not be confirmed is asked for again soon, and stands.
func TestG02_WhatIsRevokedWhileTheSessionWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lease, l, m := keptSession(t)
		other := s.take(named("other"), 8, s.clock()+s.margin(uint32(keptTTL.Milliseconds())))
		b := &busyMember{scripted: m}
		b.counted(func(start *apiv1.ClientFrame) { b.say(start, waitingFrame()) }, func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
			a := &apiv1.TokensExtended{NotHeld: []uint64{uint64(lease.Token())}, Unavailable: []uint64{uint64(other.Token())}, RetryAfterMs: 100}
			if b.extends > 1 {
				a = &apiv1.TokensExtended{HeldMs: uint32(keptTTL.Milliseconds())}
			}
			return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_TokensExtended{TokensExtended: a}}
		})
		done := make(chan error, 1)
		go func() { done <- s.attach(t.Context(), l, false, time.Second) }()
		time.Sleep(keptTTL/beatsPerTTL + time.Second)
		synctest.Wait()
		left := s.margin(uint32(keptTTL.Milliseconds())) - keptTTL/beatsPerTTL - time.Second
		if lease.Held() || lease.Context().Err() == nil || lease.Remaining() != left || s.givenBack(lease.Token()) {
			t.Errorf("being revoked: held %v, %v left, want %v", lease.Held(), lease.Remaining(), left)
		}
		if b.extends != 2 || !other.Held() || other.Remaining() < keptTTL-2*time.Second {
			t.Errorf("the other has %v left after %d extensions", other.Remaining(), b.extends)
		}
		l.close()
		<-done
	})
}

// Another run may have the session, of which a member says nothing that extends leases: who has
// not been attached for long extends nothing any more.
func TestG02_WhoIsNotAttachedExtendsForABoundedTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lease, l, m := keptSession(t)
		var ended time.Duration
		context.AfterFunc(lease.Context(), func() { ended = s.clock() })
		for s.clock() < maxApart+2*keptTTL {
			b := &busyMember{scripted: m}
			b.counted(func(start *apiv1.ClientFrame) { b.say(start, waitingFrame()) }, func(*apiv1.ClientFrame) *apiv1.ServerFrame { return extendedFrame() })
			if s.attach(t.Context(), l, false, time.Second) == nil {
				t.Fatal("it has begun")
			}
			l.close()
			l, m = s.scriptedMember(t)
		}
		synctest.Wait()
		if lease.Held() || ended < maxApart || ended > maxApart+keptTTL || !s.givenBack(lease.Token()) {
			t.Errorf("held %v, it ended after %v", lease.Held(), ended)
		}
		l.close()
	})
}

// TestG43_APageThatIsRefusedIsAskedForAlone: a session with more than an answer holds begins once,
// though its member refuses reads for longer than it lives, and keeps what it has meanwhile.
func TestG43_APageThatIsRefusedIsAskedForAlone(t *testing.T) {
	const busy = 20 * time.Second
	for name, held := range map[string]bool{"a lease": true, "places in queues": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, lease, l, m := keptSession(t)
				first := holdingOf(lease)
				if !held {
					lease.end(errors.New("it was released before"))
					first.Leases = nil
				}
				first.Next = apiName(named("m"))
				b, began, early := &busyMember{scripted: m}, time.Now(), 0
				last, pages := began, 0
				b.counted(func(start *apiv1.ClientFrame) { b.say(start, startedWith(first)) }, func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
					switch {
					case f.GetBeat() != nil:
						return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{HeldMs: uint32(keptTTL.Milliseconds())}}}
					case f.GetExtendTokens() != nil:
						return extendedFrame()
					case f.GetGetSession().GetAfter().GetName() != "m":
						return nil
					case time.Since(began) < busy:
						if time.Since(last) < time.Second && pages > 0 {
							early++
						}
						last = time.Now()
						pages++
						return refused(time.Second)
					}
					return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_GetSession{GetSession: &apiv1.GetSessionResponse{Waits: []*apiv1.LeaseName{apiName(named("z"))}}}}
				})
				if err := s.attach(t.Context(), l, false, time.Second); err != nil || time.Since(began) < busy || s.current() != l {
					t.Fatalf("begun after %v: %v", time.Since(began), err)
				}
				b.mu.Lock()
				defer b.mu.Unlock()
				if b.starts != 1 || b.releases > 0 || early > 0 || pages < 3 {
					t.Errorf("%d starts, %d releases, %d pages refused, %d asked for too early", b.starts, b.releases, pages, early)
				}
				if least := int(busy / (keptTTL / beatsPerTTL)); b.beats < least || held != lease.Held() || held != (b.extends >= least) {
					t.Errorf("held %v, %d beats, %d extensions", lease.Held(), b.beats, b.extends)
				}
				l.close()
			})
		})
	}
}

// What is extended while a beat keeps no session is another run's: it has attached the session
// since, and this one is about to be told.
func TestG02_WhatIsExtendedForAnotherRunIsNotHeldLonger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lease, l, m := keptSession(t)
		first := holdingOf(lease)
		first.Next = apiName(named("m"))
		b := &busyMember{scripted: m}
		b.counted(func(start *apiv1.ClientFrame) { b.say(start, startedWith(first)) }, func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
			switch {
			case f.GetBeat() != nil:
				return &apiv1.ServerFrame{Answer: &apiv1.ServerFrame_Beaten{Beaten: &apiv1.Beaten{}}}
			case f.GetExtendTokens() != nil:
				return extendedFrame()
			}
			return refused(time.Second)
		})
		deadline := s.clock() + lease.Remaining()
		done := make(chan error, 1)
		go func() { done <- s.attach(t.Context(), l, false, time.Second) }()
		time.Sleep(keptTTL / 2)
		synctest.Wait()
		if b.extends == 0 || s.clock()+lease.Remaining() != deadline {
			t.Errorf("%d extensions, held until %v, want %v", b.extends, s.clock()+lease.Remaining(), deadline)
		}
		l.close()
		<-done
	})
}

// An extension counts only with the answer to the beat beside it: without one another run may
// have the session.
func TestG02_AnExtensionBesideASilentBeatIsNotCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, lease, l, m := keptSession(t)
		l.begun.Store(true)
		extended := 0
		m.answerAll(func(f *apiv1.ClientFrame) *apiv1.ServerFrame {
			if f.GetExtendTokens() == nil {
				return nil
			}
			extended++
			return extendedFrame()
		})
		deadline := s.clock() + lease.Remaining()
		time.Sleep(time.Second)
		sent := s.clock()
		if wait := s.keepOnce(t.Context(), l); wait != 0 || s.clock()-sent != keptTTL/beatsPerTTL {
			t.Errorf("again in %v, after %v", wait, s.clock()-sent)
		}
		if extended != 1 || s.clock()+lease.Remaining() != deadline {
			t.Errorf("%d extensions, held until %v, want %v", extended, s.clock()+lease.Remaining(), deadline)
		}
		l.close()
	})
}
