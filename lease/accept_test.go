package lease

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// handOver hands lease a over to the session of a waiter, which accepts nothing yet.
func (w *world) handOver(id incumbent.SessionID) incumbent.Token {
	w.t.Helper()
	w.open(id, ttl)
	token := w.claim("a", "h", ttl)
	w.call(leases.ClaimCommand{Name: leaseName("a"), Holder: "next", Session: id, Wait: true})
	w.call(leases.ReleaseCommand{Name: leaseName("a"), Token: token})
	l := w.lease("a")
	if l.Free() || !l.Offered || l.Session != id {
		w.t.Fatalf("not offered: %+v", l)
	}
	return l.Token
}

// accept extends an offer: nothing goes through the log.
func (w *world) accept(token incumbent.Token) {
	w.t.Helper()
	b, done := w.extend(Extension{Token: token})
	if !*done || b.Items[0].Kind != incumbent.OK || b.Items[0].Held != ttl || !w.lease("a").Offered {
		w.t.Fatalf("done %v: %+v, %+v", *done, b.Items[0], w.lease("a"))
	}
}

// holds fails the test unless a is held under a token.
func (w *world) holds(token incumbent.Token) {
	w.t.Helper()
	if l := w.lease("a"); l.Free() || l.Token != token {
		w.t.Fatalf("token %d is over at %v: %+v", token, time.Duration(w.now), l)
	}
}

// Whether an offer was accepted a new leader does not know: it is held for as long
// as its session, though nobody names it again, and the log says so at last.
func TestG06_ANewLeaderTakesAnOfferForAHolding(t *testing.T) {
	for name, accepts := range map[string]bool{"accepted": true, "not known to be": false} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.lead()
			id := sessionID(1)
			token := w.handOver(id)
			if accepts {
				w.accept(token)
			}
			w.lead()
			w.advance(ttl - time.Second)
			w.holds(token)
			w.extend(Extension{Session: id})
			w.advance(ttl - time.Second)
			w.holds(token)
			if w.lease("a").Offered {
				t.Error("the log still has it as an offer")
			}
			w.advance(time.Second + hold(0) + ttl/100 + slack)
			if l := w.lease("a"); !l.Free() {
				t.Errorf("its session is silent, and it is held: %+v", l)
			}
		})
	}
}

// What was accepted and is then revoked ends when its session would, not with the
// window in which it was to be accepted.
func TestG02_ARevocationOfAnAcceptedOfferWaitsForItsHolder(t *testing.T) {
	for name, again := range map[string]bool{"same leader": false, "another leader": true} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, Config{})
			w.lead()
			token := w.handOver(sessionID(1))
			w.accept(token)
			if again {
				w.lead()
			}
			w.call(leases.RevokeCommand{Name: leaseName("a"), Token: token, AtDeadline: true})
			w.advance(ttl)
			w.holds(token)
			w.advance(hold(0) + ttl/100 + slack)
			if l := w.lease("a"); !l.Free() {
				t.Errorf("revoked, and held: %+v", l)
			}
		})
	}
}

// Whoever leaves a queue late gives up nothing that it was handed.
func TestG02_LeavingAQueueEndsNoHolding(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	id := sessionID(1)
	token := w.handOver(id)
	w.accept(token)
	for _, holder := range []string{"next", ""} {
		if r := *w.call(leases.LeaveQueueCommand{Name: leaseName("a"), Session: id, Holder: holder}); r.Err != nil {
			t.Fatal(r.Err)
		}
		w.holds(token)
	}
}

// A pin keeps what was accepted, whether the log knows of it or not: pinned before
// the hand-over or after, and under another leader.
func TestG13_AnAcceptedOfferIsKeptByItsPin(t *testing.T) {
	pin := leases.PinCommand{Name: leaseName("a"), Entity: "e"}
	for name, before := range map[string]bool{"pinned before": true, "pinned after": false} {
		for leader, again := range map[string]bool{"same leader": false, "another leader": true} {
			t.Run(name+", "+leader, func(t *testing.T) {
				w := newWorld(t, Config{})
				w.lead()
				if before {
					w.call(pin)
				}
				id := sessionID(1)
				token := w.handOver(id)
				w.advance(DefaultOfferWindow - Bucket) // and its window ends soon
				w.accept(token)
				w.call(pin)
				if again {
					w.lead()
				}
				w.advance(3 * ttl)
				w.holds(token)
				if w.e.view.Session(id) == nil {
					t.Error("its session has ended")
				}
				w.call(leases.UnpinCommand{Name: leaseName("a"), Entity: "e"})
				w.advance(ttl)
				w.holds(token)
				w.advance(hold(0) + ttl/100 + slack)
				if l := w.lease("a"); !l.Free() {
					t.Errorf("unpinned, and held: %+v", l)
				}
			})
		}
	}
}

// An offer whose end is on its way through the log is not accepted in front of it.
func TestG04_AnOfferThatLapsesIsNotAccepted(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.handOver(sessionID(1))
	w.auto = false
	w.advance(DefaultOfferWindow + 2*Bucket)
	w.confirm(nil)
	w.pass()
	if len(w.log) != 1 {
		t.Fatalf("%d proposed, want the end of the offer", len(w.log))
	}
	b, done := w.extend(Extension{Token: token})
	w.confirm(nil)
	if *done {
		t.Fatalf("answered in front of it: %+v", b.Items[0])
	}
	w.apply()
	if !*done || b.Items[0].Kind != incumbent.NotHolder {
		t.Errorf("done %v: %+v", *done, b.Items[0])
	}
}

// A claim of whom the lease is offered to accepts it, without the log.
func TestAClaimAcceptsAnOffer(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	id := sessionID(1)
	token := w.handOver(id)
	w.auto = false
	r := w.call(leases.ClaimCommand{Name: leaseName("a"), Holder: "next", Session: id})
	if len(w.log) != 0 {
		t.Fatalf("%d proposed", len(w.log))
	}
	w.confirm(nil)
	if *r == nil || (*r).Err != nil || leases.AnswerOf(*(*r)).Lease.Token != token {
		t.Fatalf("%+v", *r)
	}
	w.auto = true
	w.advance(DefaultOfferWindow + time.Second)
	w.holds(token)
}

// The log is told of an acceptance once, a while later, and again if it was not taken.
func TestTheLogIsToldOfAnAcceptance(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.handOver(sessionID(1))
	w.accept(token)
	w.auto = false
	told := func() Proposal {
		t.Helper()
		if w.advance(acceptanceLoggedAfter - tickEvery); len(w.log) != 0 {
			t.Fatalf("%d proposed too early", len(w.log))
		}
		if w.advance(2 * tickEvery); len(w.log) != 1 {
			t.Fatalf("%d proposed, want one", len(w.log))
		}
		return w.log[0]
	}
	p := told()
	w.log = nil
	w.step(func() { w.e.Proposed(p.Ticket, core.Result{}, incumbent.Errorf(incumbent.Overloaded, "full")) })
	told()
	w.apply()
	if l := w.lease("a"); l.Token != token || l.Offered {
		t.Errorf("%+v", l)
	}
	w.advance(3 * acceptanceLoggedAfter)
	if len(w.log) != 0 {
		t.Errorf("%d proposed again", len(w.log))
	}
}
