package lease

import (
	"slices"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

func errUnknown() error { return incumbent.Errorf(incumbent.Unknown, "not seen applied in time") }

// lostSight has the node answer Unknown to all that waits for the log. It stays
// there, as what nobody waits for.
func (w *world) lostSight() {
	for i := range w.log {
		t := w.log[i].Ticket
		w.log[i].Ticket = Ticket{}
		w.step(func() { w.e.Proposed(t, core.Result{}, errUnknown()) })
	}
}

// probes counts the probes among what waits for the log.
func (w *world) probes() (n int) {
	for _, p := range w.log {
		if p.Ticket.probe {
			n++
		}
	}
	return n
}

func kindOf(t *testing.T, r *core.Result) incumbent.Kind {
	t.Helper()
	if r == nil {
		t.Fatal("not answered")
	}
	if r.Err == nil {
		return incumbent.OK
	}
	return r.Err.Kind
}

// What may end a holding, and is answered Unknown, may be applied later: what its
// client is told of the lease meanwhile must be true then.
func TestG02_NothingIsToldBehindAnUnknownEnd(t *testing.T) {
	x, s := leaseName("x"), sessionID(1)
	ends := map[string]struct {
		cmd     core.Command
		session incumbent.SessionID // that owns the lease
	}{
		"release":  {leases.ReleaseCommand{Name: x, Holder: "a"}, incumbent.SessionID{}},
		"by token": {leases.ReleaseCommand{Name: x, Token: 3}, incumbent.SessionID{}},
		"revoke":   {leases.RevokeCommand{Name: x}, incumbent.SessionID{}},
		"transfer": {leases.TransferCommand{Name: x, Holder: "a", ToSession: sessionID(2), ToHolder: "b"}, incumbent.SessionID{}},
		"close":    {core.CloseSessionCommand{ID: s}, s},
	}
	for what, end := range ends {
		for _, how := range []string{"claim", "extend", "extend by name"} {
			t.Run(what+", "+how, func(t *testing.T) {
				w := newWorld(t, Config{})
				w.lead()
				w.open(s, ttl)
				w.open(sessionID(2), ttl)
				claim := leases.ClaimCommand{Name: x, Holder: "a", Session: end.session}
				if claim.Session.IsZero() {
					claim.TTL = ttl
				}
				token := leases.AnswerOf(*(*w.call(claim))).Lease.Token
				if token != 3 {
					t.Fatalf("the token is %d", token)
				}
				w.auto = false
				ended := w.call(end.cmd)
				w.lostSight()
				if k := kindOf(t, *ended); k != incumbent.Unknown {
					t.Fatalf("answered %v", k)
				}
				var told func() bool
				switch how {
				case "claim":
					got := w.call(claim)
					told = func() bool { return *got != nil && (*got).Err == nil }
				default:
					ext := Extension{Token: token}
					if how == "extend by name" {
						ext = Extension{Named: &Named{Name: x, Holder: "a"}, Session: claim.Session}
					}
					b, done := w.extend(ext)
					told = func() bool { return *done && b.Items[0].Kind == incumbent.OK }
				}
				for len(w.confirms) > 0 {
					w.confirm(nil)
				}
				if told() {
					t.Fatal("told that the lease is held, in front of what ends it")
				}
				w.auto = true
				w.turn(nil)
				if held := !w.lease("x").Free() && w.lease("x").Holder == "a"; told() != held {
					t.Errorf("told %v, held %v", told(), held)
				}
				if len(w.e.names)+len(w.e.unnamed)+len(w.e.undecided.calls)+w.e.heldWaiting != 0 {
					t.Error("something is left when all is decided")
				}
			})
		}
	}
}

// A release that is lost for good lets its client go on, once a later command
// proves it.
func TestAnUnknownReleaseThatIsLost(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("x", "a", ttl)
	w.auto = false
	w.call(leases.ReleaseCommand{Name: leaseName("x"), Holder: "a"})
	w.lostSight()
	w.log = nil // also the probe, which the node refuses
	b, done := w.extend(Extension{Token: token})
	w.confirm(nil)
	w.step(func() {
		w.e.Proposed(Ticket{probe: true}, core.Result{}, incumbent.Errorf(incumbent.Unavailable, "no leader"))
	})
	if *done || w.probes() != 0 {
		t.Fatalf("done %v, %d probes at once", *done, w.probes())
	}
	w.advance(2 * retryRoundAfter)
	if w.probes() != 1 {
		t.Fatalf("%d probes follow the one that was refused", w.probes())
	}
	w.lostSight() // of the probe
	w.advance(2 * retryRoundAfter)
	if w.probes() != 1 || *done {
		t.Fatalf("%d probes follow the one that became unknown, done %v", w.probes(), *done)
	}
	w.apply()
	if !*done || b.Items[0].Kind != incumbent.OK {
		t.Errorf("done %v: %v", *done, b.Items[0].Kind)
	}
}

// A probe decides what was unknown when it was proposed, and nothing else.
func TestAProbeDecidesWhatIsInFrontOfIt(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	tokens := []incumbent.Token{w.claim("x", "a", ttl), w.claim("y", "b", ttl)}
	w.auto = false
	w.call(leases.ReleaseCommand{Name: leaseName("x"), Holder: "a"})
	w.call(leases.ReleaseCommand{Name: leaseName("x"), Holder: "a"})
	w.lostSight()
	if w.probes() != 1 {
		t.Fatalf("%d probes for two at once", w.probes())
	}
	first := w.log
	w.log = nil
	w.call(leases.ReleaseCommand{Name: leaseName("y"), Holder: "b"})
	w.lostSight()
	late := w.log // waits behind the probe
	w.log = first
	b, done := w.extend(Extension{Token: tokens[0]}, Extension{Token: tokens[1]})
	w.confirm(nil)
	w.apply()
	if b.Items[0].Kind != incumbent.NotHolder || *done {
		t.Fatalf("the first is answered %v, all %v", b.Items[0].Kind, *done)
	}
	if w.probes() != 1 {
		t.Fatalf("%d probes behind the second", w.probes())
	}
	w.log = append(late, w.log...)
	w.apply()
	if !*done || b.Items[1].Kind != incumbent.NotHolder {
		t.Errorf("done %v: %v", *done, b.Items[1].Kind)
	}
}

// What is undecided stays so in another role, on both sides.
func TestG02_AnUnknownReleaseOutlivesARole(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	token := c.at(1).claim("x", "a", ttl)
	c.auto = false
	for _, id := range []uint64{1, 2} { // one leads, one does not
		c.at(id).call(leases.ReleaseCommand{Name: leaseName("x"), Token: token})
		c.at(id).lostSight(t)
	}
	c.lead(2) // what they have proposed is still on its way
	_, done1 := c.at(1).extend(Extension{Token: token})
	_, done2 := c.at(2).extend(Extension{Token: token})
	for range 10 {
		c.at(2).confirm()
		for len(c.packets) > 0 {
			c.deliver(0)
		}
	}
	if *done1 || *done2 {
		t.Fatalf("answered at the member that followed %v, at the one that leads now %v", *done1, *done2)
	}
	c.auto = true
	c.settle()
	if !*done1 || !*done2 || !leases.Of(c.newest.View()).Lease(leaseName("x")).Free() {
		t.Errorf("answered %v and %v", *done1, *done2)
	}
}

// A release that a leader has taken, and that nobody else knows of, is marked
// anew when it follows another: an extension behind it waits here.
func TestG02_AReleaseOfADeposedLeaderIsMarked(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	token := c.at(1).claim("x", "a", ttl)
	c.auto = false
	c.at(1).call(leases.ReleaseCommand{Name: leaseName("x"), Token: token})
	c.at(1).lostSight(t)
	c.lead(2) // what it has proposed is still on its way
	_, done := c.at(1).extend(Extension{Token: token})
	for range 10 {
		c.at(2).confirm()
		for len(c.packets) > 0 {
			c.deliver(0)
		}
	}
	if *done {
		t.Fatal("answered in front of its own release")
	}
	c.auto = true
	c.settle()
	if !*done || !leases.Of(c.newest.View()).Lease(leaseName("x")).Free() {
		t.Errorf("answered %v", *done)
	}
}

// lostSight has the node of a member answer Unknown to all it has proposed.
func (p *peer) lostSight(t failer) {
	t.Helper()
	if len(p.proposed) == 0 {
		t.Fatal("nothing is proposed")
	}
	for i := range p.proposed {
		p.loseSight(&p.proposed[i])
	}
}

func (p *peer) loseSight(x *Proposal) {
	ticket := x.Ticket
	x.Ticket = Ticket{}
	p.step(func() { p.e.Proposed(ticket, core.Result{}, errUnknown()) })
}

// A release that its client has sent behind a claim may end what the claim begins.
func TestG02_AReleaseBehindItsClaimIsMarked(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	w.auto = false
	claimed := w.call(leases.ClaimCommand{Name: leaseName("x"), Holder: "a", TTL: ttl})
	w.call(leases.ReleaseCommand{Name: leaseName("x"), Holder: "a"})
	claim, release := w.log[:1:1], w.log[1:]
	w.log = claim
	w.apply()
	b, done := w.extend(Extension{Token: leases.AnswerOf(*(*claimed)).Lease.Token})
	w.confirm(nil)
	if *done {
		t.Fatalf("answered %v with the release under way", b.Items[0].Kind)
	}
	w.log = release
	w.apply()
	if !*done || b.Items[0].Kind != incumbent.NotHolder {
		t.Errorf("done %v: %v", *done, b.Items[0].Kind)
	}
}

// A member learns of a grant by a snapshot only: the release that it has sent on
// stays in front of what its client sends behind it.
func TestG02_AReleaseOfWhatASnapshotBrings(t *testing.T) {
	for what, byToken := range map[string]bool{"by holder": false, "by token": true} {
		t.Run(what, func(t *testing.T) {
			c := newCluster(t, Config{}, 3)
			c.lead(1)
			c.auto = false
			c.at(1).call(leases.ClaimCommand{Name: leaseName("x"), Holder: "a", TTL: ttl})
			c.at(1).appendAll()
			c.at(1).applyOne()
			token := leases.Of(c.newest.View()).Lease(leaseName("x")).Token
			p := c.at(2)
			asked := []*bool{}
			extend := func() {
				_, done := p.extend(Extension{Token: token})
				asked = append(asked, done)
			}
			if byToken {
				p.call(leases.ReleaseCommand{Name: leaseName("x"), Token: token})
				extend()
			} else {
				p.call(leases.ReleaseCommand{Name: leaseName("x"), Holder: "a"})
			}
			p.applied = len(c.log)
			p.state.Apply(c.log, make([]core.Result, len(c.log)))
			p.step(func() { p.e.Restored(p.state.View()) })
			extend()
			for range 2 {
				for len(c.packets) > 0 {
					c.deliver(0)
				}
				c.at(1).confirm()
			}
			for i, done := range asked {
				if *done {
					t.Errorf("extension %d is answered in front of the release", i)
				}
			}
			c.settle()
			for i, done := range asked {
				if !*done {
					t.Errorf("extension %d is not answered behind it", i)
				}
			}
		})
	}
}

// Nobody can fill the memory with what is undecided; what ends nothing is
// answered as ever.
func TestUndecidedIsBounded(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("x", "a", ttl)
	w.claim("y", "b", ttl)
	w.auto = false
	for range MaxUndecided {
		w.call(leases.ReleaseCommand{Name: leaseName("x"), Holder: "b"})
		probes := slices.DeleteFunc(slices.Clone(w.log), func(p Proposal) bool { return !p.Ticket.probe })
		w.log = slices.DeleteFunc(w.log, func(p Proposal) bool { return p.Ticket.probe })
		w.lostSight()
		w.log = append(probes, w.log[1:]...) // the release is lost for good
	}
	got := w.call(leases.ReleaseCommand{Name: leaseName("y"), Holder: "b"})
	if k := kindOf(t, *got); k != incumbent.Overloaded || (*got).Err.RetryAfter == 0 {
		t.Fatalf("answered %v", (*got).Err)
	}
	b, done := w.extend(Extension{Token: token})
	w.confirm(nil)
	if !*done || b.Items[0].Kind != incumbent.OK {
		t.Errorf("the extension: done %v, %v", *done, b.Items[0].Kind)
	}
	w.auto = true
	w.turn(nil)
	if n := len(w.e.undecided.calls); n != 0 {
		t.Errorf("%d are left", n)
	}
	if k := kindOf(t, *w.call(leases.ReleaseCommand{Name: leaseName("y"), Holder: "b"})); k != incumbent.OK {
		t.Errorf("answered %v when all is decided", k)
	}
}

// An expiry whose outcome is unknown stays marked: the term is over, and Follow
// is on its way.
func TestG02_AnUnknownExpiryStaysMarked(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	token := w.claim("x", "a", ttl)
	w.auto = false
	w.advance(hold(ttl) + slack)
	w.confirm(nil)
	w.pass()
	b, done := w.extend(Extension{Token: token})
	w.confirm(nil)
	if len(w.log) != 1 || *done {
		t.Fatalf("%d proposed, done %v", len(w.log), *done)
	}
	w.lostSight()
	if *done {
		t.Fatalf("answered %v in front of the expiry", b.Items[0].Kind)
	}
	w.follow(0)
	if !*done || b.Items[0].Kind != incumbent.Unavailable {
		t.Errorf("done %v: %v", *done, b.Items[0].Kind)
	}
}

// Who stops tells nobody twice.
func TestAnUndecidedCallIsAnsweredOnce(t *testing.T) {
	w := newWorld(t, Config{})
	w.lead()
	w.open(sessionID(1), ttl)
	w.auto = false
	got := []**core.Result{
		w.call(leases.ReleaseCommand{Name: leaseName("x"), Holder: "a"}), w.call(core.CloseSessionCommand{ID: sessionID(1)}),
	}
	w.lostSight()
	w.step(func() { w.e.Stop() })
	for _, r := range got {
		if k := kindOf(t, *r); k != incumbent.Unknown {
			t.Errorf("answered %v", k)
		}
	}
}
