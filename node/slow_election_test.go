package node

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
)

// A follower whose answers take longer than roundTicks never confirms a read.
func TestG22_FollowerReadsOverASlowLink(t *testing.T) {
	c := three(t)
	// answers to member 3's MsgReadIndex take 5 ticks (250 ms)
	type late struct {
		m  Message
		at int
	}
	var queue []late
	c.confirm(3, "slow")
	for tick := 0; tick < 60; tick++ {
		c.now = c.now.Add(DefaultTick)
		for _, id := range c.ids() {
			c.members[id].Tick(c.now)
		}
		for busy := true; busy; {
			busy = false
			for _, id := range c.ids() {
				c.ready(id)
				busy = c.append(id) || busy
				c.ready(id)
				busy = c.apply(id) || busy
				c.ready(id)
			}
			if len(c.network) > 0 && c.network[0].Raft.GetType() == pb.MsgReadIndexResp {
				queue = append(queue, late{c.network[0], tick + 5})
				c.network = c.network[1:]
				busy = true
				continue
			}
			busy = c.deliver() || busy
		}
		for len(queue) > 0 && queue[0].at <= tick {
			c.members[3].Step(queue[0].m)
			queue = queue[1:]
		}
	}
	if got := c.log.String(); !strings.Contains(got, "confirm slow -> term") {
		t.Errorf("not confirmed: %s", got)
	}
}

// electionAfter returns how long two voters, whose flushes take delay, need to elect a
// leader: after its process ended, or (lost false) after silence.
func electionAfter(t *testing.T, seed uint64, delay time.Duration, lost bool) time.Duration {
	cryptotest.SetGlobalRandom(t, seed)
	c := newCluster(3)
	if err := c.members[1].Campaign(); err != nil {
		t.Fatal(err)
	}
	c.settle()
	c.cut[1] = true
	for _, id := range []uint64{2, 3} {
		c.members[id].election.rand = rand.New(rand.NewPCG(seed, id))
	}
	began := c.now
	if lost {
		c.members[2].PeerLost(1, c.now)
		c.members[3].PeerLost(1, c.now)
	}
	until := map[uint64]time.Time{} // when the flush under way ends
	covers := map[uint64]int{}      // what it covers
	const step = 5 * time.Millisecond
	for n := 1; n <= 200*30; n++ {
		c.now = c.now.Add(step)
		for _, id := range []uint64{2, 3} {
			if n%10 == int(id) { // the loops do not tick together
				c.members[id].Tick(c.now)
			}
		}
		for busy := true; busy; {
			busy = false
			for _, id := range []uint64{2, 3} {
				c.ready(id)
				m := c.members[id]
				if !until[id].IsZero() && !c.now.Before(until[id]) {
					for range covers[id] {
						c.append(id)
					}
					until[id] = time.Time{}
					busy = true
				}
				if until[id].IsZero() && len(m.appends) > 0 {
					until[id], covers[id] = c.now.Add(delay), len(m.appends)
				}
				c.ready(id)
				busy = c.apply(id) || busy
				c.ready(id)
				if m.Status().State == Leader {
					return c.now.Sub(began)
				}
			}
			busy = c.deliver() || busy
		}
	}
	return 30 * time.Second // nobody
}

// When a process ended, which its peers see, a leader is found hardly later than
// after mere silence, also where a vote takes long because disks are slow. Where
// a flush takes half a second neither finds one: raft's timeout is shorter than a
// round of votes.
func TestElectionWithSlowFlushes(t *testing.T) {
	for _, c := range []struct{ flush, limit time.Duration }{
		{5 * time.Millisecond, 400 * time.Millisecond},
		{100 * time.Millisecond, 2 * time.Second},
		{200 * time.Millisecond, 5 * time.Second},
		{300 * time.Millisecond, 10 * time.Second},
	} {
		var took []time.Duration
		for seed := range uint64(11) {
			took = append(took, electionAfter(t, seed, c.flush, true))
		}
		slices.Sort(took)
		if worst := took[len(took)-1]; worst > c.limit {
			t.Errorf("flush %v: median %v, worst %v, want at most %v", c.flush, took[5], worst, c.limit)
		}
	}
}
