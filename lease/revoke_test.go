package lease

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// What of a session is being revoked is looked for once for each state, however
// many of its leases are extended: one batch that names each of them, or the
// session again and again, must not sort them each time.
func TestRevocationsAreLookedForOnce(t *testing.T) {
	const owned, most = 2000, 8 << 20 // bytes; to look each time takes 100 times as much
	w := newWorld(t, Config{})
	w.lead()
	id := sessionID(1)
	w.open(id, ttl)
	items := make([]Extension, 0, 2*owned)
	for i := range owned {
		items = append(items, Extension{Token: w.own(fmt.Sprint("a", i), "h", id)}, Extension{Session: id})
	}
	w.call(leases.RevokeCommand{Name: leaseName("a0"), AtDeadline: true})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	b, done := w.extend(items...)
	runtime.ReadMemStats(&after)
	if !*done || !b.Items[1].Revoking || len(b.Items[2*owned-1].RevokingTokens) != 1 {
		t.Fatalf("done %v, %+v", *done, b.Items[1])
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > most {
		t.Errorf("%d extensions took %d bytes", len(items), took)
	}
	// It is what is being revoked now.
	w.call(leases.RevokeCommand{Name: leaseName("a1"), AtDeadline: true})
	if b, _ := w.extend(Extension{Session: id}); len(b.Items[0].RevokingTokens) != 2 {
		t.Errorf("after another revocation: %+v", b.Items[0])
	}
}

// A session is not said to be held for as long as some of its leases are being revoked of which
// its client is not told: it would count on them.
func TestG02_MoreRevocationsThanAreTold(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	id := sessionID(1)
	w.open(id, ttl)
	token := w.own("kept", "h", id)
	for i := range MaxRevokingTokens + 1 {
		w.own(fmt.Sprint("a", i), "h", id)
		w.call(leases.RevokeCommand{Name: leaseName(fmt.Sprint("a", i)), AtDeadline: true})
		want := ttl
		if i == MaxRevokingTokens {
			want = 0
		}
		b, _ := w.extend(Extension{Session: id}, Extension{Token: token})
		if got := b.Items[0]; got.Kind != incumbent.OK || got.Held != want || len(got.RevokingTokens) != min(i+1, MaxRevokingTokens) {
			t.Errorf("%d are being revoked: %+v", i+1, got)
		}
		if got := b.Items[1]; got.Kind != incumbent.OK || got.Held != ttl {
			t.Errorf("another lease of the session: %+v", got)
		}
	}
	if b, _ := w.extend(Extension{Session: id, TTL: 2 * ttl}); b.Items[0].Held != 0 || len(b.Items[0].RevokingTokens) != MaxRevokingTokens {
		t.Errorf("for longer than is logged: %+v", b.Items[0])
	}
	w.advance(2 * hold(ttl) / 3)
	w.extend(Extension{Session: id})
	w.advance(2 * hold(ttl) / 3)
	if b, _ := w.extend(Extension{Session: id}); b.Items[0].Held != 2*ttl {
		t.Errorf("when they are over: %+v", b.Items[0])
	}
}

// expiresIn is what the leader says of a lease.
func (w *world) expiresIn(token incumbent.Token) (left time.Duration, running bool) {
	q := &Inspection{Items: []Inspected{{Token: token}}, Done: func(*Inspection) {}}
	w.turn(func() { w.e.Inspect(q) })
	return q.Items[0].ExpiresIn, q.Items[0].Running
}

// A lease that is revoked at its deadline ends then: no extension, pin or unpin
// moves that, and what is shown is that deadline.
func TestG08_ARevocationIsNotProlonged(t *testing.T) {
	id := sessionID(1)
	for name, claim := range map[string]func(*world) incumbent.Token{
		"of its own":   func(w *world) incumbent.Token { return w.claim("a", "h", ttl) },
		"of a session": func(w *world) incumbent.Token { w.open(id, ttl); return w.own("a", "h", id) },
	} {
		for when, pinned := range map[string]bool{"pinned before": true, "pinned after": false} {
			t.Run(name+", "+when, func(t *testing.T) {
				w := newWorld(t, Config{})
				w.lead()
				token := claim(w)
				pin := leases.PinCommand{Name: leaseName("a"), Entity: "e"}
				if pinned {
					w.call(pin)
				}
				w.advance(ttl / 2)
				w.call(leases.RevokeCommand{Name: leaseName("a"), Token: token, AtDeadline: true})
				left, running := w.expiresIn(token)
				if !running || left <= 0 || left > hold(ttl) {
					t.Fatalf("revoked: runs %v, expires in %v", running, left)
				}
				ends := w.now + int64(left)
				w.call(pin)
				w.advance(time.Second)
				w.extend(Extension{Session: id})
				w.extend(Extension{Token: token})
				w.call(leases.UnpinCommand{Name: leaseName("a"), Entity: "e"})
				if again, running := w.expiresIn(token); !running || w.now+int64(again) != ends {
					t.Errorf("pinned, extended and unpinned: runs %v, expires %v later", running, time.Duration(w.now+int64(again)-ends))
				}
				w.call(pin)
				w.extend(Extension{Session: id})
				for w.now < ends+int64(slack) {
					w.advance(Bucket)
					w.extend(Extension{Session: id})
				}
				if l := w.lease("a"); !l.Free() {
					t.Errorf("%v after its deadline it is held: %+v", slack, l)
				}
			})
		}
	}
}

// A pin that is taken away does not give an offer more time either.
func TestG13_UnpinningDoesNotProlongAnOffer(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	id := sessionID(1)
	w.open(id, 10*ttl)
	token := w.claim("a", "h", ttl)
	w.call(leases.ClaimCommand{Name: leaseName("a"), Holder: "next", Session: id, Wait: true})
	w.call(leases.ReleaseCommand{Name: leaseName("a"), Token: token})
	offer := w.lease("a")
	if !offer.Offered {
		t.Fatalf("not offered: %+v", offer)
	}
	w.advance(DefaultOfferWindow / 2)
	before, _ := w.expiresIn(offer.Token)
	w.call(leases.PinCommand{Name: leaseName("a"), Entity: "e"})
	w.call(leases.UnpinCommand{Name: leaseName("a"), Entity: "e"})
	if after, running := w.expiresIn(offer.Token); !running || after > before {
		t.Errorf("runs %v, expires in %v, before that in %v", running, after, before)
	}
}
