package node

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
)

// fill leaves no space on the disks of some, and proposes more than the files of
// their logs can take. It returns where the answers will be.
func (g *trio) fill(l *running, ids ...uint64) (answers chan error, count int) {
	g.t.Helper()
	for _, id := range ids {
		g.disks[id].SetCapacity(1)
	}
	count = 14
	answers = make(chan error, count)
	for range count {
		l.Propose(Proposal{Command: make([]byte, 900<<10), Reserve: true, Done: func(_ any, err error) { answers <- err }})
	}
	for _, id := range ids {
		g.until("appends wait for space", func() bool { return g.members[id].Status().Paused != "" })
	}
	return answers, count
}

// empty gives all disks space again and checks that everybody is answered, with
// nothing but success or one other kind of error.
func (g *trio) empty(answers chan error, count int, or incumbent.Kind) {
	g.t.Helper()
	for _, disk := range g.disks {
		disk.SetCapacity(0)
	}
	for range count {
		if err := <-answers; err != nil && incumbent.KindOf(err) != or {
			g.t.Errorf("proposal that waited for space: %v", err)
		}
	}
	g.agree()
}

// watchTrio starts three members with their own mind about snapshots, and counts
// how often any of them is told to be silent.
func watchTrio(t *testing.T) (g *trio, l *running, mutes *atomic.Int32) {
	t.Helper()
	mutes = &atomic.Int32{}
	g, l = startTrio(t, func(c *Config) {
		c.SnapshotEntries = 1000
		c.Events.Mute = func(bool) { mutes.Add(1) }
	})
	return g, l, mutes
}

// TestG31_FullLeaderHandsOverOnce fills the disk of the leader alone: a member with
// space takes over, and the full one neither campaigns nor takes leadership back,
// whoever asks it to.
func TestG31_FullLeaderHandsOverOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l, mutes := watchTrio(t)
		id, term := l.Status().Member, l.Status().Term
		answers, count := g.fill(l, id)
		eventually(t, "another leads", func() bool { return leads(g.others(id)...) != nil })
		next := leads(g.others(id)...)
		time.Sleep(10 * time.Second)
		if st := next.Status(); st.State != Leader || st.Term != term+1 || mutes.Load() != 0 {
			t.Errorf("leadership went on from term %d to %+v, %d times silent", term, st.Role, mutes.Load())
		}
		if st := l.Status(); st.FlushStalled || st.Paused == "" {
			t.Errorf("a full disk shows as one that hangs: %+v", st)
		}
		if err := next.TransferLeader(t.Context(), id); incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("leadership to the full one: got %v, want Unavailable", err)
		}
		g.silence(next.Status().Member) // now only the full one and a follower are left
		for _, r := range g.others(next.Status().Member) {
			r.PeerLost(next.Status().Member)
		}
		for range 500 {
			time.Sleep(10 * time.Millisecond)
			if st := l.Status(); st.State != Follower {
				t.Fatalf("the full one is %+v", st.Role)
			}
		}
		g.filter(nil)
		g.empty(answers, count, incumbent.Unavailable) // what was not appended found no leader
		g.stopAll()
	})
}

// TestG31_FullQuorumKeepsItsLeader fills the disks of all, or of the leader and
// another: nobody else could be elected, so the leader stays, and confirms reads if
// its disk has what is committed.
func TestG31_FullQuorumKeepsItsLeader(t *testing.T) {
	for _, all := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g, l, mutes := watchTrio(t)
			id, term := l.Status().Member, l.Status().Term
			full := trioIDs
			if !all {
				full = []uint64{id, g.follower()}
			}
			asked := atomic.Int32{}
			g.filter(func(m *Message) bool {
				if m.Raft != nil && m.Raft.GetType() == pb.MsgTimeoutNow {
					asked.Add(1)
				}
				return true
			})
			answers, count := g.fill(l, full...)
			for range 20 {
				time.Sleep(500 * time.Millisecond)
				if st := l.Status(); st.Commit != st.Durable {
					continue // the others have what it cannot apply before it has space
				}
				if _, err := l.confirm(); err != nil {
					t.Errorf("confirmation: %v", err)
				}
			}
			if st := l.Status(); st.State != Leader || st.Term != term || mutes.Load() != 0 || asked.Load() != 0 {
				t.Errorf("leader of term %d is %+v, %d times silent, %d times handed over", term, st.Role, mutes.Load(), asked.Load())
			}
			g.empty(answers, count, incumbent.OK)
			g.stopAll()
		})
	}
}
