package node

import (
	"strings"
	"testing"
	"testing/cryptotest"

	pb "go.etcd.io/raft/v3/raftpb"
)

// three returns a cluster whose member 1 leads and has applied something.
func three(t *testing.T) *cluster {
	t.Helper()
	cryptotest.SetGlobalRandom(t, 1)
	c := newCluster(3)
	if err := c.members[1].Campaign(); err != nil {
		t.Fatal(err)
	}
	c.settle()
	c.propose(1, Proposal{Command: []byte("a")})
	c.settle()
	c.log.Reset()
	return c
}

// until delivers messages until one of type typ is next, and returns it without
// delivering it.
func (c *cluster) until(t *testing.T, to uint64, typ pb.MessageType) Message {
	t.Helper()
	for range 100 {
		for _, id := range c.ids() {
			c.ready(id)
			for c.append(id) {
				c.ready(id)
			}
		}
		if len(c.network) == 0 {
			break
		}
		if m := c.network[0]; m.To == to && m.Raft.GetType() == typ {
			c.network = c.network[1:]
			return m
		}
		c.deliver()
	}
	t.Fatalf("no %v came for member %d", typ, to)
	return Message{}
}

// TestG22_LateAnswerConfirmsNothing holds back the answer to one read until
// another is asked for: it must not answer that one.
func TestG22_LateAnswerConfirmsNothing(t *testing.T) {
	c := three(t)
	c.confirm(3, "first")
	c.ready(3)
	late := c.until(t, 3, pb.MsgReadIndexResp)
	for range roundTicks { // the first read asks again, under another id
		c.now = c.now.Add(DefaultTick)
		c.members[3].Tick(c.now)
	}
	c.settle()
	if !strings.Contains(c.log.String(), "confirm first") {
		t.Fatalf("the second attempt was not answered: %s", c.log.String())
	}
	c.propose(1, Proposal{Command: []byte("b")})
	c.settle()
	c.cut[1] = true // from here on nobody can confirm
	c.confirm(3, "second")
	c.ready(3)
	c.members[3].Step(late)
	c.settle()
	if strings.Contains(c.log.String(), "confirm second") {
		t.Errorf("a late answer confirmed a newer read: %s", c.log.String())
	}
}

// TestG22_LateComerWaitsForTheNextRound asks for a read while the round before
// is under way: that round began too early for it.
func TestG22_LateComerWaitsForTheNextRound(t *testing.T) {
	c := three(t)
	c.confirm(3, "early")
	c.ready(3)
	answer := c.until(t, 3, pb.MsgReadIndexResp)
	c.propose(1, Proposal{Command: []byte("b")})
	c.cut[3] = true
	c.settle()
	if !strings.Contains(c.log.String(), "1: b -> 2") {
		t.Fatalf("b was not acknowledged: %s", c.log.String())
	}
	c.confirm(3, "late")
	c.ready(3)
	c.members[3].Step(answer)
	c.ready(3)
	if got := c.log.String(); !strings.Contains(got, "confirm early") || strings.Contains(got, "confirm late") {
		t.Errorf("want early confirmed and late waiting: %s", got)
	}
}

// TestForwardedFrameNamesItsTerm hands a leader frames of other terms.
func TestForwardedFrameNamesItsTerm(t *testing.T) {
	c := three(t)
	term := c.members[1].Status().Term
	entry := encodeEntry(entryHeader{Member: 2, Incarnation: 1, First: 7, Count: 1}, [][]byte{[]byte("x")})
	for _, wrong := range []uint64{term - 1, term + 1} {
		c.members[1].Step(Message{From: 2, To: 1, Forward: &Forward{Term: wrong, First: 7, Entry: entry}})
		c.ready(1)
		if len(c.network) != 1 || c.network[0].Refuse == nil || *c.network[0].Refuse != (Refuse{Term: wrong, First: 7}) {
			t.Errorf("frame of term %d in term %d: got %+v, want a refusal", wrong, term, c.network)
		}
		c.network = nil
	}
	c.members[1].Step(Message{From: 2, To: 1, Forward: &Forward{Term: term, First: 7, Entry: entry}})
	c.settle()
	if !strings.Contains(c.log.String(), "apply 4: x") {
		t.Errorf("frame of this term was not applied: %s", c.log.String())
	}
}

// TestForgedRefusalIsIgnored refuses a batch that this member appended itself.
func TestForgedRefusalIsIgnored(t *testing.T) {
	c := three(t)
	c.propose(1, Proposal{Command: []byte("b")})
	c.ready(1)
	c.members[1].Step(Message{From: 2, To: 1, Refuse: &Refuse{Term: 2, First: c.members[1].proposals.next - 1}})
	c.settle()
	if got := strings.Count(c.log.String(), "1: apply"); got != 1 {
		t.Errorf("applied %d times: %s", got, c.log.String())
	}
}
