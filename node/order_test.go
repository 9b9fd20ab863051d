package node

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// TestABoundCommandEndsWithItsTerm has a member lead again: what was bound to its
// earlier term is refused all the same.
func TestABoundCommandEndsWithItsTerm(t *testing.T) {
	c := three(t)
	before := c.members[1].Status().Term
	for _, hand := range []struct{ from, to uint64 }{{1, 2}, {2, 1}} {
		c.members[hand.from].TransferLeader(hand.to, func(error) {})
		c.settle()
	}
	st := c.members[1].Status()
	if st.State != Leader || st.Term == before {
		t.Fatalf("member 1 is %+v, led term %d before", st.Role, before)
	}
	c.log.Reset()
	c.propose(1, Proposal{Command: []byte("old"), Term: before})
	c.propose(1, Proposal{Command: []byte("new"), Term: st.Term})
	c.settle()
	if got := c.log.String(); !strings.Contains(got, "old -> not_leader") || c.count("old") != 0 || c.count("new") != 1 {
		t.Errorf("applied %v: %s", c.members[1].machine.commands, got)
	}
}

// TestG22_AFollowerReadsWhatTheLeaderCommitted confirms a read on a member that
// has not heard of the last commit: it waits for that, not for its own.
func TestG22_AFollowerReadsWhatTheLeaderCommitted(t *testing.T) {
	c := three(t)
	c.propose(1, Proposal{Command: []byte("b")})
	c.settleBut(3)
	if !strings.Contains(c.log.String(), "1: b -> 2") {
		t.Fatalf("b was not acknowledged: %s", c.log.String())
	}
	c.network = nil // what member 3 was told of it is lost
	c.confirm(3, "read")
	c.ready(3)
	c.members[3].Step(c.until(t, 3, pb.MsgReadIndexResp))
	c.ready(3)
	if got := c.log.String(); strings.Contains(got, "confirm read") {
		t.Fatalf("confirmed with %d applied: %s", c.members[3].Status().Applied, got)
	}
	c.settle()
	c.members[1].Tick(c.now.Add(DefaultTick)) // its heartbeat shows that member 3 is behind
	c.settle()
	if got := c.log.String(); !strings.Contains(got, "confirm read -> term 2, 4 applied") {
		t.Errorf("not confirmed afterwards: %s", got)
	}
}

// TestG22_AnAnswerOfAnEarlierLifeConfirmsNothing restarts a member that has asked
// for a read: the answer must not confirm what it asks in its new life.
func TestG22_AnAnswerOfAnEarlierLifeConfirmsNothing(t *testing.T) {
	c := three(t)
	c.confirm(3, "first")
	c.ready(3)
	late := c.until(t, 3, pb.MsgReadIndexResp)
	c.start(3)
	c.propose(1, Proposal{Command: []byte("b")})
	c.settle()
	c.cut[1] = true // from here on nobody can confirm
	c.confirm(3, "second")
	c.ready(3)
	if n := c.members[3].reads.round.id; n != 1 {
		t.Fatalf("the first attempt of the new life has id %d: the test tests nothing", n)
	}
	c.members[3].Step(late)
	c.settle()
	if got := c.log.String(); strings.Contains(got, "confirm second") {
		t.Errorf("an answer to an earlier life confirmed a read: %s", got)
	}
}

// TestG26_NotReadyBeforeAConfirmation starts one member of three: it opens no
// door, however long it waits, before a quorum has confirmed what is committed.
func TestG26_NotReadyBeforeAConfirmation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTrio(t)
		first := g.start(1, nil)
		time.Sleep(time.Minute) // virtual
		if first.Status().Ready {
			t.Error("ready without a quorum")
		}
		g.start(2, nil)
		if err := first.WaitReady(t.Context()); err != nil {
			t.Error(err)
		}
		g.stopAll()
	})
}

// TestALostMembersMessagesComeFirst hears a last message of the leader and its
// loss in one turn: the message must not bring the leader back.
func TestALostMembersMessagesComeFirst(t *testing.T) {
	l := newLone(t)
	beat := Message{From: 2, To: 1, Raft: &pb.Message{
		Type: pb.MsgHeartbeat.Enum(), From: new(uint64(2)), To: new(uint64(1)), Term: new(uint64(6)), Commit: new(uint64(0)),
	}}
	l.Step(beat)
	l.settle()
	if got := l.Status().Leader; got != 2 {
		t.Fatalf("the leader is %d", got)
	}
	l.Step(beat)
	l.PeerLost(2)
	l.settle()
	if got := l.Status().Leader; got != 0 {
		t.Errorf("the leader is %d, whose connections have closed", got)
	}
}

// TestMembersOfASnapshotAreTakenOnce has a change of members wait for the machine
// when a later snapshot arrives, in which it was undone again.
func TestMembersOfASnapshotAreTakenOnce(t *testing.T) {
	c := three(t)
	c.members[1].ChangeMembers([]MemberChange{{4, Learner}}, func(error) {})
	waits := func() bool {
		return slices.ContainsFunc(c.members[3].applies, func(a *Apply) bool {
			return slices.ContainsFunc(a.Entries, func(e Committed) bool { return e.conf != nil })
		})
	}
	for range 100 {
		if waits() {
			break
		}
		for _, id := range c.ids() {
			c.ready(id)
			for c.append(id) {
				c.ready(id)
			}
		}
		c.apply(1)
		c.deliver()
	}
	if !waits() {
		t.Fatal("the change did not reach member 3")
	}
	meta := SnapshotMeta{Index: 50, Term: 2, ConfState: pb.EnsureConfState(&pb.ConfState{Voters: []uint64{1, 2, 3}})}
	m := snapshotMessage(meta, c.members[3].Status().Term)
	m.From, m.To = new(uint64(1)), new(uint64(3))
	if !c.members[3].StepSnapshot(m) {
		t.Fatal("raft did not take the snapshot")
	}
	c.cut[3] = true
	for c.ready(3); c.append(3) || c.apply(3); c.ready(3) {
	}
	if st := c.members[3].Status(); len(st.Learners) != 0 || st.Applied != meta.Index {
		t.Errorf("learners %v at index %d: a change of before the snapshot was made again", st.Learners, st.Applied)
	}
}

// TestOnlyWhatIsSyncedIsShown has members know of a commit index that they have not
// synced: it may be gone after a loss of power, so it is no part of what they show of
// themselves.
func TestOnlyWhatIsSyncedIsShown(t *testing.T) {
	c := three(t)
	c.propose(1, Proposal{Command: []byte("b")})
	unsynced := 0
	for range 100 {
		for _, id := range c.ids() {
			m := c.members[id]
			before := m.Status().DurableCommit
			c.ready(id)
			for len(m.appends) > 0 {
				synced := m.appends[0].MustSync
				c.append(id)
				if synced {
					before = m.Status().DurableCommit
				}
				c.ready(id)
			}
			c.apply(id)
			st := m.Status()
			if st.DurableCommit != before {
				t.Errorf("member %d shows commit %d, synced is %d", id, st.DurableCommit, before)
			}
			if st.Commit > before {
				unsynced++
			}
		}
		c.deliver()
	}
	if unsynced == 0 {
		t.Fatal("everything is synced: the test tests nothing")
	}
}
