package node

import (
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
)

// A joint change whose second half was proposed during a hand-over that fails is
// left all the same, without anybody writing.
func TestJointChangeIsLeftAfterAFailedTransfer(t *testing.T) {
	c := three(t)
	c.join(4)
	c.join(5)
	told := false
	// 3 is replaced by 4 and 5 in one joint change
	c.members[1].ChangeMembers([]MemberChange{{ID: 4, Role: Learner}}, func(err error) { t.Log("learner", err) })
	c.settle()
	c.members[1].ChangeMembers([]MemberChange{{ID: 4, Role: Voter}, {ID: 3, Role: Gone}}, func(err error) { told = true; t.Log("change", err) })
	// until the entry is committed and handed to the applier of 1
	for range 200 {
		for _, id := range c.ids() {
			c.ready(id)
			for c.append(id) {
				c.ready(id)
			}
		}
		if len(c.members[1].applies) > 0 && slices.ContainsFunc(c.members[1].applies, func(a *Apply) bool {
			return slices.ContainsFunc(a.Entries, func(e Committed) bool { return e.conf != nil })
		}) {
			break
		}
		if !c.deliver() {
			break
		}
	}
	c.cut[2] = true
	c.members[1].TransferLeader(2, func(err error) { t.Log("transfer", err) })
	c.settle()
	c.cut[2] = false
	for range 200 { // 10 s
		c.now = c.now.Add(DefaultTick)
		for _, id := range c.ids() {
			c.members[id].Tick(c.now)
		}
		c.settle()
	}
	for _, id := range c.ids() {
		t.Logf("%d: %v conf %v", id, c.members[id].Status().Role, c.members[id].conf)
	}
	if !told {
		t.Error("the change is not complete after 10 s")
		c.propose(1, Proposal{Command: []byte("x")})
		c.settle()
		t.Log("after a write:", told)
	}
}

// Every member has synced that a change of members is committed once it is: who
// forgot, with its power, that it had become a voter would not campaign, even
// where nobody else can win.
func TestG35_AChangeOfMembersIsNotForgotten(t *testing.T) {
	c := three(t)
	c.join(4)
	for _, change := range []MemberChange{{ID: 4, Role: Learner}, {ID: 4, Role: Voter}, {ID: 3, Role: Gone}} {
		c.members[1].ChangeMembers([]MemberChange{change}, func(err error) {
			if err != nil {
				t.Errorf("%v: %v", change, err)
			}
		})
		for range 20 {
			c.settle()
			c.now = c.now.Add(DefaultTick)
			for _, id := range c.ids() {
				c.members[id].Tick(c.now)
			}
		}
		c.settle()
		last := uint64(0)
		for _, e := range c.members[1].entries {
			if e.GetType() != pb.EntryNormal {
				last = e.GetIndex()
			}
		}
		for _, id := range []uint64{1, 2, 4} {
			if got := c.members[id].Status().DurableCommit; got < last {
				t.Errorf("after %v member %d has synced that %d is committed, the change is %d", change, id, got, last)
			}
		}
	}
}
