package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

const ttl = 10 * time.Second

// slack is how long after its deadline a lease may be freed when nothing is in
// the way.
const slack = Bucket + tickEvery

// Until its holder's own deadline, counted from the last acknowledged send, a
// lease goes to nobody else; also if every clock differs as much as allowed.
func TestG02_NoGrantBeforeTheHoldersDeadline(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	for range 7 {
		w.advance(9 * time.Second)
		if b, done := w.extend(Extension{Token: token}); !*done || b.Items[0].Kind != incumbent.OK || b.Items[0].Held != ttl {
			t.Fatalf("extension: %+v", b.Items[0])
		}
	}
	sent := w.now
	for w.now < sent+int64(ttl+ttl/100) {
		r := *w.call(leases.ClaimCommand{Name: leaseName("a"), Holder: "other", TTL: ttl})
		if r == nil || incumbent.KindOf(r.Err) != incumbent.Held {
			t.Fatalf("%v after the extension: %+v", time.Duration(w.now-sent), r)
		}
		w.advance(100 * time.Millisecond)
	}
	w.advance(DefaultGrace + slack)
	if r := *w.call(leases.ClaimCommand{Name: leaseName("a"), Holder: "other", TTL: ttl}); r == nil || !leases.AnswerOf(*r).Granted {
		t.Fatalf("after the deadline: %+v", r)
	}
}

func TestG04_ALostLeaseIsNotHeld(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	w.advance(hold(ttl) + slack)
	for range 3 {
		if b, _ := w.extend(Extension{Token: token}); b.Items[0].Kind != incumbent.NotHolder {
			t.Fatalf("after expiry: %+v", b.Items[0])
		}
		w.lead()
	}
	second := w.claim("a", "h", ttl)
	b, _ := w.extend(Extension{Token: token}, Extension{Token: second},
		Extension{Named: &Named{leaseName("a"), "h"}}, Extension{Named: &Named{leaseName("a"), "x"}},
		Extension{Named: &Named{leaseName("a"), "h"}, Session: sessionID(1)})
	want := []incumbent.Kind{incumbent.NotHolder, incumbent.OK, incumbent.OK, incumbent.NotHolder, incumbent.NotHolder}
	for i, k := range want {
		if b.Items[i].Kind != k {
			t.Errorf("item %d: %v, want %v", i, b.Items[i].Kind, k)
		}
	}
}

// NotHolder is said only of a token that the applied state has reached.
func TestG04_AnUnknownTokenIsNotJudged(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	b, _ := w.extend(Extension{Token: 1000})
	if b.Items[0].Kind != incumbent.Unavailable {
		t.Fatalf("a token from the future: %v", b.Items[0].Kind)
	}
}

// An extension is acknowledged only once a confirmation begun after it arrived
// has succeeded, and not by one that was under way.
func TestG04_AnExtensionWaitsForALaterConfirmation(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	w.auto = false
	_, first := w.extend(Extension{Token: token})
	_, second := w.extend(Extension{Token: token})
	if *first || len(w.confirms) != 1 {
		t.Fatalf("acknowledged %v with %d confirmations asked for", *first, len(w.confirms))
	}
	w.confirm(nil)
	if !*first || *second || len(w.confirms) != 1 {
		t.Fatalf("after the first round: %v %v, %d asked for", *first, *second, len(w.confirms))
	}
	w.confirm(nil)
	if !*second {
		t.Fatal("the second round answers nothing")
	}
}

// A claim or extension that was acknowledged is in the log or confirmed by a
// quorum: while neither is there, nothing is.
func TestG05_NothingIsAcknowledgedWithoutAQuorum(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	w.auto = false
	b, extended := w.extend(Extension{Token: token}, Extension{Token: token, TTL: 2 * ttl})
	claimed := w.call(leases.ClaimCommand{Name: leaseName("b"), Holder: "h", TTL: ttl})
	denied := w.call(leases.ClaimCommand{Name: leaseName("a"), Holder: "x", TTL: ttl})
	w.advance(3 * time.Second)
	if *extended || *claimed != nil || *denied != nil {
		t.Fatalf("acknowledged without a quorum: %v %v %v", *extended, *claimed, *denied)
	}
	w.confirm(nil)
	if *extended || b.Items[0].Kind != incumbent.OK {
		t.Fatalf("the longer ttl is acknowledged before it is logged: %+v", b.Items)
	}
	w.auto = true
	w.turn(nil)
	if !*extended || b.Items[1].Held != 2*ttl || w.lease("a").TTL != 2*ttl {
		t.Fatalf("the longer ttl: %+v, logged %v", b.Items[1], w.lease("a").TTL)
	}
	if *claimed == nil || !leases.AnswerOf(*(*claimed)).Granted || *denied == nil || (*denied).Err.Kind != incumbent.Held {
		t.Fatalf("claims: %+v %+v", *claimed, *denied)
	}
}

// A failed confirmation acknowledges nothing and expires nothing.
func TestG05_AFailedConfirmationAcknowledgesNothing(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	w.auto = false
	b, done := w.extend(Extension{Token: token})
	w.confirm(incumbent.Errorf(incumbent.Unavailable, "no quorum"))
	if !*done || b.Items[0].Kind != incumbent.Unavailable || b.RetryAfter == 0 {
		t.Fatalf("after a failed round: %+v, retry after %v", b.Items[0], b.RetryAfter)
	}
	barriers := 0
	for end := w.now + int64(3*ttl); w.now < end; {
		w.now += int64(tickEvery)
		w.step(nil)
		if len(w.confirms) > 0 {
			w.confirm(incumbent.Errorf(incumbent.Unavailable, "no quorum"))
		}
		for len(w.barriers) > 0 {
			w.pass()
			barriers++
		}
	}
	if barriers == 0 {
		t.Fatal("nothing is due: the test tests nothing")
	}
	if len(w.log) > 0 {
		t.Fatal("an expiry was proposed without a confirmation")
	}
}

func TestG06_ANewLeaderStartsAtFullTTL(t *testing.T) {
	for _, returns := range []time.Duration{0, time.Minute} {
		w := newWorld(t, Config{Return: returns})
		w.lead()
		w.advance(2 * time.Minute) // the return time of the first term passes
		w.open(sessionID(1), 2*ttl)
		w.claim("alone", "h", ttl)
		w.own("owned", "h", sessionID(1))
		w.advance(ttl)
		w.follow(0)
		w.advance(time.Hour)
		w.lead()
		since := w.now
		w.advance(3*time.Minute + time.Second)
		for name, d := range map[string]time.Duration{"alone": hold(ttl), "owned": hold(2 * ttl)} {
			d = max(d, returns)
			if got := time.Duration(w.freed[leaseName(name)] - since); got <= d || got > d+slack {
				t.Errorf("return time %v: %s is freed %v after the change of leader, want %v", returns, name, got, d)
			}
		}
	}
}

// The first thing a server hears after it was stopped are the extensions that
// waited in its sockets: the barrier stands for them. Nobody loses, although
// every deadline is long past, and although no stall is noticed.
func TestG07_StoppedForThreeTTLs(t *testing.T) {
	for _, noticed := range []bool{true, false} {
		w := newWorld(t, Config{})
		w.lead()
		var tokens []incumbent.Token
		for i := range 100 {
			tokens = append(tokens, w.claim(fmt.Sprint(i), "h", ttl))
		}
		w.advance(ttl / 2)
		w.now += int64(3 * ttl)
		if !noticed {
			w.e.book.last = w.now
		}
		w.auto = false
		w.step(nil)
		for len(w.confirms) > 0 { // the sockets are read slowly: confirmations come first
			w.confirm(nil)
			w.now += int64(tickEvery)
			w.step(nil)
		}
		if !noticed && len(w.barriers) == 0 {
			t.Fatal("nothing is due: the test tests nothing")
		}
		var items []Extension
		for _, token := range tokens {
			items = append(items, Extension{Token: token})
		}
		b, done := w.batch(items...)
		w.step(func() { w.e.Extend(b) })
		w.auto = true
		w.turn(nil)
		w.advance(ttl / 2)
		if !*done {
			t.Fatal("the extensions are not answered")
		}
		for i, it := range b.Items {
			if it.Kind != incumbent.OK || w.lease(fmt.Sprint(i)).Token != tokens[i] {
				t.Fatalf("noticed %v: lease %d is lost: %v", noticed, i, it.Kind)
			}
		}
	}
}

// An extension for less than what was acknowledged before shortens nothing, be it
// of a lease or of a session.
func TestG04_AShorterExtensionShortensNothing(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	w.call(core.OpenSessionCommand{ID: sessionID(1), TTL: ttl})
	w.advance(ttl / 2) // they are looked at when the claim's ttl has passed
	for _, it := range []Extension{{Token: token}, {Session: sessionID(1)}} {
		w.extend(it)
		it.TTL = ttl / 5
		if b, done := w.extend(it); !*done || b.Items[0].Kind != incumbent.OK || b.Items[0].Held != ttl/5 {
			t.Fatalf("a shorter extension: %+v", b.Items[0])
		}
	}
	w.advance(ttl)
	if w.lease("a").Token != token || w.state.View().Session(sessionID(1)) == nil {
		t.Error("a shorter extension shortened what was acknowledged before it")
	}
}

// An extension is stored when it is read: an expiry that has its confirmation and
// its barrier behind it is not proposed, although the extension still waits for
// its own confirmation.
func TestG07_AnExtensionCountsBeforeItIsConfirmed(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	w.auto = false
	w.advance(hold(ttl) + slack)
	w.confirm(nil)
	if len(w.barriers) != 1 {
		t.Fatal("nothing is due: the test tests nothing")
	}
	b, done := w.extend(Extension{Token: token})
	w.pass()
	if len(w.log) != 0 || *done {
		t.Fatalf("%d expiries are proposed, answered: %v", len(w.log), *done)
	}
	for len(w.confirms) > 0 {
		w.confirm(nil)
	}
	if !*done || b.Items[0].Kind != incumbent.OK {
		t.Fatalf("answered %v: %+v", *done, b.Items[0])
	}
}

// An expiry takes a confirmation begun after the lease was due, and it is bound
// to the term: a deposed leader expires nothing.
func TestG07_ADeposedLeaderExpiresNothing(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	w.auto = false
	_, extended := w.extend(Extension{Token: token}) // a round is under way before the lease is due
	w.advance(hold(ttl) + slack)
	if len(w.confirms) != 1 {
		t.Fatalf("%d confirmations", len(w.confirms))
	}
	w.confirm(nil)
	w.confirm(nil)
	w.pass()
	if len(w.log) != 0 {
		t.Fatal("the silence of the quorum did not move the deadline")
	}
	if !*extended {
		t.Fatal("not extended")
	}
	w.advance(hold(ttl) + slack)
	w.confirm(nil)
	if len(w.log) != 0 || len(w.barriers) != 1 {
		t.Fatalf("before the barrier: %d proposed, %d barriers", len(w.log), len(w.barriers))
	}
	w.pass()
	if len(w.log) != 1 || w.log[0].Term != w.term || !w.log[0].Reserve {
		t.Fatalf("proposed: %+v", w.log)
	}
	b, done := w.extend(Extension{Token: token})
	for len(w.confirms) > 0 {
		w.confirm(nil)
	}
	if *done {
		t.Fatal("an extension is answered while the expiry is under way")
	}
	w.step(func() { w.e.Follow(2, w.term+1) })
	if !*done || b.Items[0].Kind != incumbent.NotLeader || b.Leader != 2 {
		t.Fatalf("deposed: %+v, leader %d", b.Items[0], b.Leader)
	}
	w.term++
	w.apply()
	if l := w.lease("a"); l.Token != token {
		t.Fatal("a deposed leader expired a lease")
	}
}

// An expiry that was appended may be overtaken by a command that touches the
// lease; then it is void and the extensions that waited are acknowledged.
func TestG07_AnOvertakenExpiryIsVoid(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	w.auto = false
	w.advance(hold(ttl) + slack)
	w.confirm(nil)
	w.pass()
	expiry := w.log
	w.log = nil
	b, done := w.extend(Extension{Token: token})
	for len(w.confirms) > 0 {
		w.confirm(nil)
	}
	w.call(leases.ClaimCommand{Name: leaseName("a"), Holder: "h", TTL: ttl})
	if *done || len(w.log) != 1 {
		t.Fatalf("answered %v, %d proposed: the claim must take the log", *done, len(w.log))
	}
	w.log = append(w.log, expiry...)
	w.apply()
	if !*done || b.Items[0].Kind != incumbent.OK || w.lease("a").Token != token {
		t.Fatalf("done %v %+v, lease %+v", *done, b.Items[0], w.lease("a"))
	}
	w.auto = true
	w.advance(hold(ttl) + slack)
	if !w.lease("a").Free() {
		t.Fatal("the mark of the void expiry stayed")
	}
}

// The answer to an expiry that a later command made void must not clear the
// mark of the next expiry.
func TestG07_AMarkBelongsToItsExpiry(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	w.auto = false
	w.advance(hold(ttl) + slack)
	w.confirm(nil)
	w.pass()
	first := w.log
	w.log = nil
	w.call(leases.RevokeCommand{Name: leaseName("a"), Token: token, AtDeadline: true})
	w.apply() // touches the lease, restarts nothing: it is due again
	w.advance(slack)
	w.confirm(nil)
	w.pass()
	second := w.log
	w.log = first
	w.apply()
	i, _ := w.e.book.byToken.get(token)
	if w.e.book.leases[i].flags&expiring == 0 {
		t.Fatal("the first expiry's answer cleared the mark of the second")
	}
	w.log = second
	w.apply()
	if !w.lease("a").Free() {
		t.Fatal("the second expiry is void")
	}
}

// A proposal that was certainly not appended is tried again.
func TestG08_ARefusedExpiryIsTriedAgain(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	w.claim("a", "h", ttl)
	w.auto = false
	w.advance(hold(ttl) + slack)
	w.confirm(nil)
	w.pass()
	p := w.log[0]
	w.log = nil
	w.step(func() { w.e.Proposed(p.Ticket, core.Result{}, incumbent.Errorf(incumbent.Overloaded, "full")) })
	if len(w.log) != 0 {
		t.Fatal("tried again at once")
	}
	w.auto = true
	w.advance(2 * slack)
	if !w.lease("a").Free() {
		t.Fatal("not tried again")
	}
}

// 100,000 leases whose holders vanish in the same second are all free within
// ttl + grace, give or take a bucket; those of sessions and those on their own.
func TestG08_Avalanche(t *testing.T) {
	const n = 100_000
	w := newWorld(t, Config{})
	w.lead()
	freed, latest := 0, time.Duration(0)
	w.watch = func(c core.Change) {
		if l, ok := leases.ChangeOf(&c); ok && l.What == leases.Expired {
			freed++
			latest = max(latest, l.Late())
		}
	}
	w.auto = false
	for i := range n {
		cmd := leases.ClaimCommand{Name: leaseName(fmt.Sprint(i)), Holder: "h", TTL: ttl}
		q, _ := w.request(Call{}, 0, cmd)
		w.step(func() { w.e.Submit(q) })
		if i%500 == 499 {
			w.now += int64(time.Second) * 500 / n
			w.apply()
		}
	}
	since := w.now - int64(time.Second)
	if got := leases.Of(w.e.view).HeldCount(); got != n {
		t.Fatalf("%d held", got)
	}
	var cpu time.Duration
	for leases.Of(w.e.view).HeldCount() > 0 {
		w.now += int64(tickEvery)
		began := time.Now()
		w.step(nil)
		for len(w.confirms)+len(w.barriers) > 0 {
			if len(w.confirms) > 0 {
				w.confirm(nil)
			} else {
				w.pass()
			}
		}
		cpu += time.Since(began)
		for len(w.log) > 0 {
			w.apply()
		}
		if d := time.Duration(w.now - since); d > time.Second+hold(ttl)+slack {
			t.Fatalf("%d are held %v after the last extension", leases.Of(w.e.view).HeldCount(), d-time.Second)
		}
	}
	if freed != n || latest > slack {
		t.Errorf("%d of %d were freed, the latest %v after its deadline", freed, n, latest)
	}
	t.Logf("%v of CPU to propose %d expiries; latest %v after its deadline", cpu, n, latest)
}

func TestG08_ExpiryOfASessionFreesItsLeases(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	for s := 1; s <= 20; s++ {
		w.open(sessionID(s), ttl)
		for i := range 100 {
			w.own(fmt.Sprint(s, ".", i), "h", sessionID(s))
		}
	}
	w.advance(hold(ttl) + slack)
	if n := leases.Of(w.e.view).HeldCount(); n != 0 || w.e.book.byToken.len() != 0 || len(w.e.book.byID) != 0 {
		t.Fatalf("%d held, book has %d leases, %d sessions", n, w.e.book.byToken.len(), len(w.e.book.byID))
	}
}

func TestG09_ReleaseIsIdempotent(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	first := w.claim("a", "h", ttl)
	release := leases.ReleaseCommand{Name: leaseName("a"), Holder: "h", Token: first}
	for range 2 {
		if r := *w.call(release); r == nil || r.Err != nil {
			t.Fatalf("release: %+v", r)
		}
	}
	second := w.claim("a", "h", ttl)
	if r := *w.call(release); r == nil || r.Err != nil || w.lease("a").Token != second {
		t.Fatalf("release with an old token: %+v", r)
	}
	if w.freed[leaseName("a")] != w.now || len(w.e.names) != 0 {
		t.Fatal("release is not immediate, or something is left")
	}
}

func TestG13_PinnedDoesNotExpire(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	w.open(sessionID(1), ttl)
	w.claim("alone", "h", ttl)
	w.own("owned", "h", sessionID(1))
	for _, name := range []string{"alone", "owned"} {
		w.call(leases.PinCommand{Name: leaseName(name), Entity: "m0"})
		w.call(leases.PinCommand{Name: leaseName(name), Entity: "m1"})
	}
	w.advance(10 * ttl)
	w.lead()
	w.advance(10 * ttl)
	for _, name := range []string{"alone", "owned"} {
		w.call(leases.UnpinCommand{Name: leaseName(name), Entity: "m1"})
	}
	w.advance(10 * ttl)
	if len(w.freed) != 0 {
		t.Fatalf("freed while pinned: %v", w.freed)
	}
	since := w.now
	for _, name := range []string{"alone", "owned"} {
		w.call(leases.UnpinCommand{Name: leaseName(name), Entity: "m0"})
	}
	w.advance(2 * ttl)
	for _, name := range []string{"alone", "owned"} {
		if got := time.Duration(w.freed[leaseName(name)] - since); got <= hold(ttl) || got > hold(ttl)+slack {
			t.Errorf("%s is freed %v after it was unpinned, want %v", name, got, hold(ttl))
		}
	}
}

// A loop or a quorum that is slow, without being silent for longer than the grace, keeps
// nobody's lease longer, however long it is slow: a silent holder's is free in time.
func TestG08_SlownessMovesNoDeadline(t *testing.T) {
	const slow = DefaultGrace - Bucket
	for what, turn := range map[string]time.Duration{"quorum": tickEvery, "loop": slow} {
		w := newWorld(t, Config{})
		w.lead()
		w.claim("silent", "h", ttl)
		token, began := w.claim("a", "h", ttl), w.now
		w.auto = false
		for w.now < began+int64(3*ttl) {
			w.extend(Extension{Token: token})
			for range slow / turn {
				w.now += int64(turn)
				w.step(nil)
			}
			for w.passOne() {
			}
		}
		// Once it is due, a round is under way, and one must begin and end.
		freed, ok := w.freed[leaseName("silent")]
		if late := time.Duration(freed-began) - hold(ttl); !ok || late < 0 || late > slack+3*slow {
			t.Errorf("slow %s: freed %v, %v late", what, ok, late)
		}
		if w.lease("a").Free() {
			t.Errorf("slow %s: who extends has lost its lease", what)
		}
		if st := w.e.Stats(); st.Stalls != 0 {
			t.Errorf("slow %s: deadlines moved %d times, by %v", what, st.Stalls, st.StalledFor)
		}
	}
}

// What became due while others were under way needs a barrier of its own, begun after it was
// due; and one that began with a round that failed is of nothing.
func TestG07_ABarrierIsOfItsRound(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("a", "h", ttl)
	w.auto = false
	w.advance(hold(ttl) + slack)
	if len(w.barriers) != 1 || len(w.confirms) != 1 {
		t.Fatalf("%d barriers, %d confirmations", len(w.barriers), len(w.confirms))
	}
	first := w.barriers[0]
	w.barriers = nil
	w.confirm(incumbent.Errorf(incumbent.Unavailable, "no quorum"))
	w.step(func() { w.e.BarrierPassed(first) })
	w.now += int64(time.Second)
	w.step(nil)
	if len(w.barriers) != 1 || len(w.confirms) != 1 {
		t.Fatalf("after a failed round: %d barriers, %d confirmations", len(w.barriers), len(w.confirms))
	}
	w.confirm(nil)
	if len(w.log) > 0 {
		t.Fatal("the expiry relies on the barrier of the round before")
	}
	b, done := w.batch(Extension{Token: token}) // it had arrived, and is heard before the barrier passes
	w.step(func() { w.e.Extend(b) })
	w.pass()
	w.auto = true
	w.turn(nil)
	if len(w.log) > 0 || !*done || b.Items[0].Kind != incumbent.OK {
		t.Errorf("%d proposed, extended: %v, %v", len(w.log), *done, b.Items[0].Kind)
	}
}

// What was claimed for long and given up at once leaves nothing behind for long.
func TestG39_WhatIsGivenUpEarlyIsForgotten(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	const claims, every = 3000, Bucket
	for range claims {
		token := w.claim("a", "h", incumbent.MaxTTL)
		r := *w.call(leases.ReleaseCommand{Name: leaseName("a"), Token: token})
		if r == nil || r.Err != nil {
			t.Fatalf("released with %+v", r)
		}
		w.advance(every)
	}
	entries := 0
	for _, s := range w.e.book.buckets.slots {
		entries += len(s)
	}
	if entries > 3*farBuckets {
		t.Errorf("%d entries of %d claims that were given up at once, want %d at the most", entries, claims, 3*farBuckets)
	}
}

// An offer that nobody accepts, of a lease with a pin, keeps a session that has died no longer.
func TestG13_AnOfferPinnedKeepsNoSession(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	w.open(sessionID(1), ttl)
	w.own("own", "dead", sessionID(1))
	held := w.claim("pinned", "h", 10*ttl)
	w.call(leases.PinCommand{Name: leaseName("pinned"), Entity: "p"})
	w.call(leases.ClaimCommand{Name: leaseName("pinned"), Holder: "dead", Session: sessionID(1), Wait: true})
	w.advance(hold(ttl) - DefaultOfferWindow/2)
	w.call(leases.ReleaseCommand{Name: leaseName("pinned"), Token: held})
	if l := w.lease("pinned"); !l.Offered {
		t.Fatalf("it is not offered: %+v", l)
	}
	w.advance(DefaultOfferWindow + slack)
	w.advance(slack)
	if l := w.lease("own"); !l.Free() {
		t.Error("what a dead session owns is held on, for what it was offered")
	}
}

// A lease that is unpinned is held for a whole ttl from then on, whatever else its session was
// offered meanwhile.
func TestG13_UnpinnedWhileAnotherIsOffered(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	w.open(sessionID(1), ttl)
	w.own("own", "h", sessionID(1))
	w.call(leases.PinCommand{Name: leaseName("own"), Entity: "p"})
	held := w.claim("other", "x", incumbent.MaxTTL)
	w.call(leases.PinCommand{Name: leaseName("other"), Entity: "p"})
	w.call(leases.ClaimCommand{Name: leaseName("other"), Holder: "h", Session: sessionID(1), Wait: true})
	w.advance(3 * ttl) // it is kept by its pin alone
	w.call(leases.ReleaseCommand{Name: leaseName("other"), Token: held})
	if l := w.lease("other"); !l.Offered {
		t.Fatalf("it is not offered: %+v", l)
	}
	w.call(leases.UnpinCommand{Name: leaseName("own"), Entity: "p"})
	w.advance(DefaultOfferWindow + slack)
	w.advance(ttl - DefaultOfferWindow - 2*slack)
	if l := w.lease("own"); l.Free() {
		t.Error("it was freed before a ttl had passed since it was unpinned")
	}
	w.advance(hold(ttl) - ttl + 4*slack)
	w.advance(slack)
	if l := w.lease("own"); !l.Free() {
		t.Error("it is held on, and nobody extends")
	}
}
