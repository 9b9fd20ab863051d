package lease

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// A frame whose sender vouches for the leader needs no round, and does not wait
// for the one that is under way.
func TestAFrameVouchesForTheLeader(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.vouching = true
	c.lead(1)
	token := c.at(3).claim("a", "h", ttl)
	own := c.at(1).claim("b", "h", ttl)
	c.auto = false
	_, ownDone := c.at(1).extend(Extension{Token: own})
	b, done := c.at(3).extend(Extension{Token: token})
	c.deliver(0)
	if n := len(c.at(1).vouched); n != 1 {
		t.Fatalf("%d confirmations of what members vouch for", n)
	}
	c.at(1).confirmFor()
	if n := len(c.packets); n != 1 {
		t.Fatalf("%d packets: the answer waits", n)
	}
	c.deliver(0)
	if !*done || b.Items[0].Kind != incumbent.OK || b.Items[0].Held != ttl {
		t.Errorf("done %v: %+v", *done, b.Items[0])
	}
	if *ownDone {
		t.Error("nobody vouches for what the leader's own clients ask, and it is answered without a round")
	}
	c.settle()
	if !*ownDone {
		t.Error("the leader's own client is not answered")
	}
	if got := c.at(1).e.Stats(); got.Vouched != 1 || got.Rounds == 0 {
		t.Errorf("%d vouched for, %d rounds", got.Vouched, got.Rounds)
	}
}

// What is vouched for is judged on a state that has reached what the leader knew
// to be committed.
func TestG02_WhatIsVouchedForWaitsForTheState(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.vouching = true
	c.lead(1)
	token := c.at(3).claim("a", "h", ttl)
	c.auto = false
	c.at(2).call(leases.ReleaseCommand{Name: leaseName("a"), Token: token})
	c.at(2).appendAll()
	b, done := c.at(3).extend(Extension{Token: token})
	c.deliver(0)
	if c.at(1).confirmFor(); *done || c.at(1).confirmFor() {
		t.Fatal("judged on a state without the release")
	}
	c.settle()
	if !*done || b.Items[0].Kind != incumbent.NotHolder {
		t.Errorf("done %v: %+v", *done, b.Items[0])
	}
}

// The node of a member knows of a newer term before the lease loop does, which
// learns it with the applied entries. In between the member does not vouch: the
// leader that it writes to may be deposed, and another one counts the lease's time.
func TestG02_OnlyWhoKnowsOfNoNewerTermVouches(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.vouching = true
	c.lead(1)
	token := c.at(3).claim("a", "h", ttl)
	c.auto = false
	c.elect(2) // with the vote of member 3; neither its lease loop nor member 1 knows
	c.now += int64(2 * time.Second)
	_, done := c.at(3).extend(Extension{Token: token})
	if n := len(c.packets); n != 1 || c.packets[0].to != 1 {
		t.Fatalf("packets %+v: the test tests nothing", c.packets)
	}
	c.deliver(0)
	if n := len(c.at(1).vouched); n != 0 {
		t.Fatal("a member has vouched for a leader whose successor it voted for")
	}
	c.at(1).confirm()
	if n := len(c.packets); n != 0 || *done {
		t.Errorf("answered: %d packets", n)
	}
	c.auto = true
	c.tell(1)
	c.tell(3)
	if !*done {
		t.Error("not answered by the new leader")
	}
}

// A frame that is sent again is vouched for anew: the first one may have left
// before what its sender knows now.
func TestAFrameSentAgainVouchesAnew(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.lead(1)
	token := c.at(3).claim("a", "h", ttl)
	c.auto = false
	c.at(3).extend(Extension{Token: token})
	for _, vouching := range []bool{true, false} {
		c.packets, c.vouching = nil, vouching
		c.now += int64(resendAfter)
		c.at(3).step(nil)
		var f frame
		if len(c.packets) != 1 || !f.decode(c.packets[0].data) {
			t.Fatalf("%d packets", len(c.packets))
		}
		if f.vouched != vouching {
			t.Errorf("vouched %v, want %v", f.vouched, vouching)
		}
	}
}

// Where the leader and one more member are no quorum, frames wait for rounds, and
// are not tried without one again for a while.
func TestVouchingIsNotEnoughForFive(t *testing.T) {
	c := newCluster(t, Config{}, 5)
	c.vouching = true
	c.lead(1)
	token := c.at(3).claim("a", "h", ttl)
	c.advance(2 * vouchAgainAfter) // what the claim has learnt is forgotten
	c.auto = false
	extend := func() (vouched int, done *bool) {
		_, done = c.at(3).extend(Extension{Token: token})
		c.deliver(0)
		return len(c.at(1).vouched), done
	}
	vouched, done := extend()
	if vouched != 1 {
		t.Fatalf("%d confirmations of what members vouch for: the test tests nothing", vouched)
	}
	c.settle()
	if !*done {
		t.Error("not answered after a round")
	}
	if vouched, done = extend(); vouched != 0 {
		t.Error("tried again at once")
	}
	if c.settle(); !*done {
		t.Error("the second is not answered")
	}
	c.now += int64(vouchAgainAfter)
	if vouched, _ = extend(); vouched != 1 {
		t.Error("not tried again later: the members may be others")
	}
}

// That one member's word is not enough, a learner's, says nothing of another's.
func TestEachMemberVouchesForItself(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.vouching, c.learner = true, 3
	c.lead(1)
	a, b := c.at(2).claim("a", "h", ttl), c.at(3).claim("b", "h", ttl)
	c.advance(2 * vouchAgainAfter)
	c.auto = false
	_, learners := c.at(3).extend(Extension{Token: b})
	c.deliver(0)
	c.at(1).confirmFor()
	_, voters := c.at(2).extend(Extension{Token: a})
	c.deliver(0)
	if n := len(c.at(1).vouched); n != 1 {
		t.Fatalf("%d confirmations of what members vouch for", n)
	}
	c.at(1).confirmFor()
	c.deliver(0)
	if !*voters || *learners {
		t.Errorf("without a round: the voter's %v, the learner's %v", *voters, *learners)
	}
	if c.settle(); !*learners {
		t.Error("the learner's is not answered after a round")
	}
}

// Frames to the leader leave at least the round gap apart, so that extensions of
// many connections share them.
func TestFramesWaitForCompany(t *testing.T) {
	c := newCluster(t, Config{RoundGap: 2 * time.Millisecond}, 3)
	c.lead(1)
	token := c.at(3).claim("a", "h", ttl)
	c.advance(time.Second)
	c.auto = false
	c.at(3).extend(Extension{Token: token})
	if n := len(c.packets); n != 1 {
		t.Fatalf("%d packets: an idle member waits", n)
	}
	c.at(3).extend(Extension{Token: token})
	c.now += int64(time.Millisecond)
	c.at(3).extend(Extension{Token: token})
	if n := len(c.packets); n != 1 {
		t.Fatalf("%d packets within the gap", n)
	}
	c.now += int64(time.Millisecond)
	c.at(3).step(nil)
	var f frame
	if len(c.packets) != 2 || !f.decode(c.packets[1].data) || len(f.items) != 2 {
		t.Errorf("%d packets, %d extensions in the last", len(c.packets), len(f.items))
	}
}

// A round that fails, where nobody asks for another, is no silence for as long as members
// vouch for the leader: what a silent holder has is free in time.
func TestG08_WhatIsVouchedForEndsASilence(t *testing.T) {
	c := newCluster(t, Config{}, 3)
	c.vouching = true
	c.lead(1)
	token := c.at(3).claim("a", "h", ttl)
	c.at(3).claim("silent", "h", ttl)
	c.auto = false
	denied := c.at(1).call(leases.ClaimCommand{Name: leaseName("a"), Holder: "other", TTL: ttl})
	if len(c.at(1).confirms) != 1 {
		t.Fatal("a claim of what is held asks for no round: the test tests nothing")
	}
	c.leader = 0
	c.at(1).confirm()
	c.leader = 1
	if *denied == nil {
		t.Fatal("the claim waits for another round: the test tests nothing")
	}
	c.auto = true
	for range 12 {
		if b, done := c.at(3).extend(Extension{Token: token}); !*done || b.Items[0].Kind != incumbent.OK {
			t.Fatalf("done %v: %+v", *done, b.Items[0])
		}
		c.advance(ttl / 8)
	}
	if !leases.Of(c.at(1).state.View()).Lease(leaseName("silent")).Free() {
		t.Error("what the silent holder has is not free")
	}
	if st := c.at(1).e.Stats(); st.Stalls != 0 || st.Vouched == 0 {
		t.Errorf("deadlines moved %d times, by %v; %d vouched for", st.Stalls, st.StalledFor, st.Vouched)
	}
}
