package node

import (
	"strings"
	"testing"
	"testing/cryptotest"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
)

// outcome is what a confirmation was answered.
type outcome struct {
	answered bool
	term     uint64
	err      error
	ahead    []Ahead // told before
}

func (c *cluster) confirmFor(on, member, term uint64) *outcome {
	o := &outcome{}
	c.members[on].ConfirmFor(member, term, func(a Ahead) { o.ahead = append(o.ahead, a) }, func(term uint64, err error) {
		o.answered, o.term, o.err = true, term, err
	})
	c.ready(on)
	return o
}

// of counts the messages of a type that are on their way.
func (c *cluster) of(t pb.MessageType) (n int) {
	for _, m := range c.network {
		if m.Raft.GetType() == t {
			n++
		}
	}
	return n
}

// A leader confirms without a round what a voter asks that follows it in its term.
func TestG22_WhoAsksVouches(t *testing.T) {
	c := three(t)
	term := c.members[1].Status().Term
	for _, member := range []uint64{2, 3} {
		if o := c.confirmFor(1, member, term); !o.answered || o.err != nil || o.term != term {
			t.Errorf("for %v: %+v", member, o)
		}
	}
	if len(c.network) != 0 {
		t.Errorf("%d messages", len(c.network))
	}
	for _, x := range []struct {
		what             string
		on, member, term uint64
	}{
		{"in an earlier term", 1, 2, term - 1},
		{"in a later term", 1, 2, term + 1},
		{"by nobody known", 1, 9, term},
		{"by itself", 1, 1, term},
		{"of a follower", 2, 3, term},
	} {
		if o := c.confirmFor(x.on, x.member, x.term); !o.answered || incumbent.KindOf(o.err) != incumbent.Unavailable {
			t.Errorf("asked %s: %+v", x.what, o)
		}
	}
}

// What is committed and not applied yet is waited for.
func TestG22_WhatIsVouchedForWaitsForTheMachine(t *testing.T) {
	c := three(t)
	term := c.members[1].Status().Term
	c.propose(1, Proposal{Command: []byte("b")})
	for n := rounds(0); c.members[1].Status().Commit < 4; n.next() {
		for _, id := range c.ids() {
			c.ready(id)
			c.append(id)
			c.ready(id)
		}
		c.deliver()
	}
	o := c.confirmFor(1, 2, term)
	if o.answered {
		t.Fatalf("answered with %d applied", c.members[1].Status().Applied)
	}
	c.settle()
	if !o.answered || o.err != nil {
		t.Errorf("after b was applied: %+v", o)
	}
}

// A learner's word does not count, and of five voters two are no quorum.
func TestG22_WhoDoesNotMakeAQuorumDoesNotVouch(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	five := newCluster(5)
	if err := five.members[1].Campaign(); err != nil {
		t.Fatal(err)
	}
	five.settle()
	term := five.members[1].Status().Term
	if o := five.confirmFor(1, 2, term); incumbent.KindOf(o.err) != incumbent.Unavailable {
		t.Errorf("two of five: %+v", o)
	}
	five.confirm(2, "read")
	five.ready(2)
	five.deliver()
	five.ready(1)
	if n := five.of(pb.MsgHeartbeat); n != 4 {
		t.Errorf("%d heartbeats for a read in a cluster of five, want 4", n)
	}
	if five.settle(); !strings.Contains(five.log.String(), "2: confirm read -> term") {
		t.Errorf("not confirmed: %s", five.log.String())
	}

	c := three(t)
	c.join(4)
	c.members[1].ChangeMembers([]MemberChange{{ID: 4, Role: Learner}}, func(err error) {
		if err != nil {
			t.Error(err)
		}
	})
	c.settle()
	if n := len(c.members[1].Status().Learners); n != 1 {
		t.Fatalf("%d learners", n)
	}
	term = c.members[1].Status().Term
	if o := c.confirmFor(1, 4, term); incumbent.KindOf(o.err) != incumbent.Unavailable {
		t.Errorf("a learner: %+v", o)
	}
}

// A follower of three reads with one question and one answer.
func TestG22_AFollowersReadNeedsNoRound(t *testing.T) {
	c := three(t)
	c.confirm(3, "read")
	c.ready(3)
	if n := c.of(pb.MsgReadIndex); n != 1 || len(c.network) != 1 {
		t.Fatalf("%d questions among %d messages", n, len(c.network))
	}
	c.deliver()
	c.ready(1)
	if n := c.of(pb.MsgReadIndexResp); n != 1 || len(c.network) != 1 {
		t.Fatalf("%d answers among %d messages", n, len(c.network))
	}
	c.deliver()
	c.ready(3)
	if got := c.log.String(); !strings.Contains(got, "3: confirm read -> term 2, 3 applied") {
		t.Errorf("not confirmed: %s", got)
	}
}

// A question of another term does not vouch: it was put by one who may have voted
// for another since, or who has yet to hear of this leader.
func TestG22_AQuestionOfAnotherTermDoesNotVouch(t *testing.T) {
	c := three(t)
	c.confirm(3, "read")
	c.ready(3)
	question := c.network[0]
	c.network = nil
	term := question.Raft.GetTerm()
	if term != c.members[1].Status().Term {
		t.Fatalf("the question is put in term %d", term)
	}
	for _, other := range []*uint64{nil, new(term - 1), new(term + 1)} {
		question.Raft.Term = other
		c.members[1].Step(question)
		c.ready(1)
		if n := c.of(pb.MsgReadIndexResp); n != 0 {
			t.Errorf("answered at once in term %v", other)
		}
		c.network = nil
	}
	if st := c.members[1].Status(); st.State == Leader {
		t.Error("a leader that hears of a later term goes on to lead")
	}
}

// A leader that is deposed and asked in the same turn, before it has drawn its
// conclusions, drops the question.
func TestADeposedLeaderHandsNoQuestionOn(t *testing.T) {
	c := three(t)
	c.confirm(3, "read")
	c.ready(3)
	question := c.network[0]
	c.network = nil
	later := question.Raft.GetTerm() + 1
	question.Raft.Term = &later
	c.members[1].Step(Message{From: 2, To: 1, Raft: &pb.Message{
		Type: pb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: &later,
	}})
	c.members[1].Step(question)
	c.ready(1)
	if n := c.of(pb.MsgReadIndex) + c.of(pb.MsgReadIndexResp); n != 0 {
		t.Errorf("%d questions or answers", n)
	}
}

// A new leader does not know what its predecessors committed before it has
// committed something itself: nobody can vouch for that.
func TestG22_NobodyVouchesForALeaderThatHasCommittedNothing(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	c := newCluster(3)
	if err := c.members[2].Campaign(); err != nil {
		t.Fatal(err)
	}
	for n := rounds(0); c.members[2].Status().State != Leader; n.next() {
		for _, id := range c.ids() {
			c.ready(id)
			c.append(id)
			c.ready(id)
		}
		c.deliver()
	}
	if o := c.confirmFor(2, 3, c.members[2].Status().Term); incumbent.KindOf(o.err) != incumbent.Unavailable {
		t.Errorf("before its first entry is committed: %+v", o)
	}
	c.settle()
	if o := c.confirmFor(2, 3, c.members[2].Status().Term); o.err != nil || !o.answered {
		t.Errorf("afterwards: %+v", o)
	}
}
