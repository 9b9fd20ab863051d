package lease

import (
	"slices"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// The claim of a session on a member that does not lead stands in the log right
// before the expiry of the session, which the leader has proposed without
// knowing of it. Whoever is told that it holds the lease counts on the session.
func TestG02_AClaimElsewhereIsASignOfLife(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	c.at(2).must(core.OpenSessionCommand{ID: sessionID(1), TTL: ttl})
	c.auto = false
	c.advance(hold(ttl) + slack)
	c.at(1).confirm()
	c.at(1).barrier()
	if len(c.at(1).proposed) != 1 {
		t.Fatalf("%d expiries are proposed", len(c.at(1).proposed))
	}
	got := c.at(2).call(leases.ClaimCommand{Name: leaseName("a"), Holder: "h", Session: sessionID(1)})
	c.at(2).appendAll()
	c.at(1).appendAll()
	c.settle()
	if r := *got; r == nil || r.Err != nil || !leases.AnswerOf(*r).Granted {
		t.Fatalf("the claim: %+v", r)
	}
	if c.newest.View().Session(sessionID(1)) == nil {
		t.Fatal("the session of a claim that was granted has ended right behind it")
	}
	c.auto = true
	c.at(2).must(core.OpenSessionCommand{ID: sessionID(2), TTL: ttl})
	c.advance(ttl)
	c.at(2).must(leases.ClaimCommand{Name: leaseName("b"), Holder: "h", Session: sessionID(2)})
	c.advance(ttl)
	if c.newest.View().Session(sessionID(2)) == nil {
		t.Fatal("a session whose claim was answered has ended within its ttl")
	}
}

// A leader that steps down refuses what is to go through the log before it
// knows: who asked by way of another member is not told NotLeader, but served
// by the next leader.
func TestG04_ARaisedTTLOutlivesAChangeOfLeader(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	token := c.at(2).claim("a", "h", ttl)
	c.auto = false
	b, done := c.at(2).extend(Extension{Token: token, TTL: 2 * ttl}) // raises the logged ttl
	c.deliver(0)
	c.at(1).confirm()
	c.win(3)
	c.at(1).appendAll() // refused: bound to the old term
	for len(c.packets) > 0 {
		c.deliver(0)
	}
	if *done {
		t.Fatalf("answered %v", b.Items[0].Kind)
	}
	c.begin(3)
	c.auto = true
	c.tell(1)
	c.tell(2)
	if !*done || b.Items[0].Kind != incumbent.OK || b.Items[0].Held != 2*ttl {
		t.Fatalf("done %v: %+v", *done, b.Items[0])
	}
}

// A member that has won its election hears of its candidacy's term as of one in
// which nobody leads yet: frames for that term wait until it leads. Those for a
// term that it has led are turned away.
func TestAFrameInFrontOfTheTermWaits(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	token := c.at(1).claim("x", "a", ttl)
	c.win(2)
	c.at(2).turn(func() { c.at(2).e.Follow(0, c.term) })
	c.tell(3)
	c.auto = false
	_, done := c.at(3).extend(Extension{Token: token})
	ask := c.packets[0]
	c.deliver(0)
	if n := len(c.packets); n != 0 {
		t.Fatalf("%d packets: it was turned away", n)
	}
	c.auto = true
	c.begin(2)
	if !*done {
		t.Error("not answered when member 2 began to lead")
	}
	c.auto = false
	c.at(2).step(func() { c.at(2).e.Follow(0, c.term) })
	c.packets = nil
	c.hand(ask)
	if n := len(c.packets); n != 1 {
		t.Errorf("%d packets for a frame of the term that is over", n)
	}
	c.tell(1)
	c.packets = nil
	c.at(1).step(func() { c.at(1).e.Follow(2, c.term) })
	c.hand(packet{from: 3, to: 1, data: ask.data})
	if n := len(c.packets); n != 1 {
		t.Errorf("%d packets from a member that follows another in that term", n)
	}
}

// An extension that raises the ttl of a session is applied behind a revocation
// that came by way of another member: it extends the session, but not the lease,
// which ends at the deadline that it had.
func TestG04_ARaiseBehindARevocationExtendsNoLease(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	id := sessionID(1)
	c.at(1).must(core.OpenSessionCommand{ID: id, TTL: ttl})
	token := leases.AnswerOf(c.at(1).must(leases.ClaimCommand{Name: leaseName("a"), Holder: "h", Session: id})).Lease.Token
	c.auto = false
	named := &Named{Name: leaseName("a"), Holder: "h"}
	b, done := c.at(1).extend(Extension{Token: token, TTL: 4 * ttl}, Extension{Session: id, Named: named, TTL: 4 * ttl}, Extension{Session: id, TTL: 4 * ttl})
	c.at(1).confirm()
	revoked := c.at(2).call(leases.RevokeCommand{Name: leaseName("a"), By: "people", AtDeadline: true})
	c.at(2).appendAll()
	c.at(1).appendAll()
	c.settle()
	if r := *revoked; !*done || r == nil || r.Err != nil {
		t.Fatalf("extended: %v, revoked: %+v", *done, r)
	}
	for i := range 2 {
		if it := b.Items[i]; it.Kind != incumbent.NotHolder {
			t.Errorf("a lease that is being revoked is extended: %+v", it)
		}
	}
	if it := b.Items[2]; it.Kind != incumbent.OK || it.Held != 4*ttl || !it.Revoking || !slices.Equal(it.RevokingTokens, []incumbent.Token{token}) {
		t.Errorf("the session: %+v, want it extended and told of the revocation", it)
	}
}
