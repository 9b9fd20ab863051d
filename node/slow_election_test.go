package node

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/cryptotest"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent/vfs"
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

// electionAfter returns how long two voters, whose flushes take delay, need to elect
// a leader: after its process ended, or (lost false) after silence. They may know
// what a flush takes, as they do where the log has been written to.
func electionAfter(t *testing.T, seed uint64, delay time.Duration, known, lost bool) time.Duration {
	cryptotest.SetGlobalRandom(t, seed)
	c := newCluster(3)
	if err := c.members[1].Campaign(); err != nil {
		t.Fatal(err)
	}
	c.settle()
	c.cut[1] = true
	for _, id := range []uint64{2, 3} {
		c.members[id].election.rand = rand.New(rand.NewPCG(seed, id))
		if known {
			c.members[id].FlushTakes(delay)
		}
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
// after mere silence, also where a vote takes long because disks are slow.
func TestElectionWithSlowFlushes(t *testing.T) {
	for _, c := range []struct {
		flush, limit time.Duration
		known        bool // what a flush takes
	}{
		{flush: 5 * time.Millisecond, limit: 400 * time.Millisecond},
		{flush: 100 * time.Millisecond, limit: 2 * time.Second},
		{flush: 200 * time.Millisecond, limit: 5 * time.Second},
		{flush: 300 * time.Millisecond, limit: 8 * time.Second},
		{flush: 500 * time.Millisecond, limit: 10 * time.Second},
		{flush: time.Second, limit: 20 * time.Second},
		{flush: 5 * time.Millisecond, limit: 400 * time.Millisecond, known: true},
		{flush: 300 * time.Millisecond, limit: 3 * time.Second, known: true},
		{flush: 500 * time.Millisecond, limit: 6 * time.Second, known: true},
		{flush: time.Second, limit: 12 * time.Second, known: true},
		{flush: 2 * time.Second, limit: 24 * time.Second, known: true},
	} {
		for _, lost := range []bool{true, false} {
			var took []time.Duration
			for seed := range uint64(11) {
				took = append(took, electionAfter(t, seed, c.flush, c.known, lost))
			}
			slices.Sort(took)
			limit := c.limit
			if !lost {
				limit += 2 * electionTicks * DefaultTick // until the silence is noticed
			}
			t.Logf("flush %v, known %v, connections closed %v: median %v, worst %v", c.flush, c.known, lost, took[5], took[10])
			if worst := took[len(took)-1]; worst > limit {
				t.Errorf("flush %v, known %v, connections closed %v: median %v, worst %v, want at most %v", c.flush, c.known, lost, took[5], worst, limit)
			}
		}
	}
}

// Three members whose every flush takes a second elect a leader. They may need
// several terms, for a vote takes them longer than they know at first, and who wins
// one late may find the next begun. Once all follow the same it stays: its flushes
// are slow, and none of the others is faster. When it is gone another one follows.
// All that was written is there.
func TestG32_SlowDisksEverywhereKeepALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, 1)
		g := newTrio(t)
		var book roleBook
		for _, id := range trioIDs {
			g.start(id, func(c *Config) {
				c.FS = vfs.Inject(g.disks[id], func(call vfs.Call) vfs.Fault {
					if call.Op == vfs.OpSync && strings.HasSuffix(call.Name, segmentName) {
						time.Sleep(time.Second)
					}
					return vfs.Fault{}
				})
				c.Events.RoleChanged = func(r Role) { book.note(id, r) }
			})
		}
		l := g.leader()
		if err := l.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		was := book.elections()
		for i := range 30 {
			if _, err := l.propose(fmt.Sprint("slow ", i)); err != nil {
				t.Fatalf("proposal %d: %v\n%s", i, err, book.String())
			}
		}
		if n := book.elections() - was; n != 0 || l.Status().State != Leader {
			t.Errorf("while it wrote, %d elections were won; member %d is %v\n%s", n, l.Status().Member, l.Status().State, book.String())
		}
		id := l.Status().Member
		g.silence(id)
		// How long that takes is chance, for both may vote for themselves several
		// times: TestElectionWithSlowFlushes holds it against limits.
		eventually(t, "another leads", func() bool { return leads(g.others(id)...) != nil })
		if _, err := leads(g.others(id)...).propose("on"); err != nil {
			t.Errorf("%v\n%s", err, book.String())
		}
		g.filter(nil)
		g.agree()
		g.stopAll()
	})
}

// A leader whose disk is slow, and has been for long, hands over to members whose
// disks are faster.
func TestG32_ASlowDiskAmongFastOnesDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cryptotest.SetGlobalRandom(t, 1)
		g := newTrio(t)
		var slow atomic.Uint64 // its flushes take two seconds
		for _, id := range trioIDs {
			g.start(id, func(c *Config) {
				c.FS = vfs.Inject(g.disks[id], func(call vfs.Call) vfs.Fault {
					if call.Op == vfs.OpSync && strings.HasSuffix(call.Name, segmentName) && slow.Load() == id {
						time.Sleep(2 * time.Second)
					}
					return vfs.Fault{}
				})
			})
		}
		first := g.leader()
		follower := g.follower()
		slow.Store(follower)
		for i := range 10 { // its disk is used to that
			if _, err := first.propose(fmt.Sprint("slow ", i)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(3 * time.Second)
		}
		if err := first.TransferLeader(t.Context(), follower); err != nil {
			t.Fatal(err)
		}
		if g.leader().Status().Member != follower {
			t.Fatal("leadership was not handed over")
		}
		done := make(chan error, 1)
		g.members[follower].Propose(Proposal{Command: []byte("last"), Done: func(_ any, err error) { done <- err }})
		eventually(t, "a fast one leads again", func() bool { return leads(g.others(follower)...) != nil })
		if err := <-done; err != nil {
			t.Errorf("what it was asked to write: %v", err)
		}
		slow.Store(0)
		g.agree()
		g.stopAll()
	})
}

// roleBook remembers what members became, and when.
type roleBook struct {
	mu    sync.Mutex // guards what follows; held for a look or an entry
	lines []string
	won   int
}

func (b *roleBook) note(id uint64, r Role) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lines = append(b.lines, fmt.Sprintf("%s member %d is %v of term %d under %d", time.Now().Format("05.000000"), id, r.State, r.Term, r.Leader))
	if r.State == Leader {
		b.won++
	}
}

// elections returns how many were won.
func (b *roleBook) elections() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.won
}

// String returns what happened, a line for each change.
func (b *roleBook) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return strings.Join(b.lines, "\n")
}
