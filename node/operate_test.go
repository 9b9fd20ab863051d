package node

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// eventually waits up to a minute of virtual time, in small steps.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for range 60_000 {
		if ok() {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Fatalf("never happened: %s", what)
}

// startTrio starts three members and returns the leader.
func startTrio(t *testing.T, change func(*Config)) (*trio, *running) {
	t.Helper()
	g := newTrio(t)
	for _, id := range trioIDs {
		g.start(id, change)
	}
	l := g.leader()
	if err := l.WaitReady(t.Context()); err != nil {
		t.Fatal(err)
	}
	return g, l
}

// silence loses all messages from and to a member, as if its process were gone.
func (g *trio) silence(id uint64) {
	g.filter(func(m *Message) bool { return m.From != id && m.To != id })
}

// rename knows a member under another id, or no more if that is 0.
func (g *trio) rename(from, to uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	r := g.members[from]
	delete(g.members, from)
	if to != 0 {
		g.members[to] = r
	}
}

// others returns the running members but one.
func (g *trio) others(id uint64) []*running {
	g.mu.Lock()
	defer g.mu.Unlock()
	var rs []*running
	for _, other := range trioIDs {
		if r := g.members[other]; r != nil && other != id {
			rs = append(rs, r)
		}
	}
	return rs
}

// TestClusterGrowsAndShrinks lets a cluster of one become three and then lose
// its first member, all while it works.
func TestClusterGrowsAndShrinks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newTrio(t)
		g.disks = map[uint64]*vfs.Mem{1: vfs.NewMem(), 2: vfs.NewMem(), 3: vfs.NewMem()}
		var told atomic.Pointer[Members]
		first := g.start(1, func(c *Config) {
			c.Events.MembersChanged = func(v, l []uint64) { told.Store(&Members{v, l}) }
		})
		if err := first.WaitReady(t.Context()); err != nil {
			t.Fatal(err)
		}
		g.write("alone", 50, 10)
		self := first.Status().Member
		g.rename(1, self)
		join := func(id uint64) func(*Config) {
			return func(c *Config) { c.Join = &Identity{Cluster: first.Status().Cluster, Member: id} }
		}
		g.start(2, join(2))
		g.start(3, join(3))
		time.Sleep(time.Second)
		if st := g.members[2].Status(); st.State != Follower || st.Ready || st.Applied != 0 {
			t.Errorf("before it was taken in a member has %+v", st)
		}
		g.kill(2)
		g.start(2, nil) // it knows that it joins
		if err := first.ChangeMembers(t.Context(), MemberChange{2, Learner}, MemberChange{3, Learner}); err != nil {
			t.Fatal(err)
		}
		for _, id := range []uint64{2, 3} {
			if err := g.members[id].WaitReady(t.Context()); err != nil {
				t.Fatal(err)
			}
			if v, err := g.members[id].propose(fmt.Sprintf("learner %d", id)); err != nil {
				t.Errorf("a learner proposes: %v, %v", v, err)
			}
		}
		for range 2 { // saying it twice changes nothing
			if err := first.ChangeMembers(t.Context(), MemberChange{2, Voter}, MemberChange{3, Voter}); err != nil {
				t.Fatal(err)
			}
		}
		if m := told.Load(); !slices.Equal(m.Voters, sorted(2, 3, self)) || len(m.Learners) != 0 {
			t.Errorf("told of %+v", m)
		}
		g.agree()
		if err := first.ChangeMembers(t.Context(), MemberChange{self, Gone}); err != nil {
			t.Fatal(err)
		}
		eventually(t, "another leads", func() bool { return leads(g.members[2], g.members[3]) != nil })
		l := leads(g.members[2], g.members[3])
		if _, err := l.propose("two are left"); err != nil {
			t.Error(err)
		}
		if err := first.ChangeMembers(t.Context(), MemberChange{2, Gone}); incumbent.KindOf(err) != incumbent.NotLeader {
			t.Errorf("a member that is gone changes members: %v", err)
		}
		if err := l.ChangeMembers(t.Context(), MemberChange{2, Gone}, MemberChange{3, Gone}); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("nobody left: got %v, want Invalid", err)
		}
		g.stopAll()
	})
}

func sorted(ids ...uint64) []uint64 { slices.Sort(ids); return ids }

// TestJoinRefusesForeignFolders opens folders that belong to somebody.
func TestJoinRefusesForeignFolders(t *testing.T) {
	s := newStand()
	r := s.start(t, nil)
	own := Identity{Cluster: r.Status().Cluster, Member: r.Status().Member}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	cfg := Config{FS: s.fs, Dir: "/data", Machine: &journal{}, Schema: 1, SegmentBytes: MinSegmentBytes}
	for _, id := range []Identity{{own.Cluster, 7}, {[16]byte{9}, own.Member}} {
		cfg.Join = &id
		_, err := Open(cfg)
		if incumbent.KindOf(err) != incumbent.Invalid || !strings.Contains(err.Error(), own.String()) || !strings.Contains(err.Error(), id.String()) {
			t.Errorf("join as %v: got %v, want Invalid naming both", id, err)
		}
	}
	cfg.Join = &own // it is that member already
	n, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if st := n.Status(); st.Commit == 0 {
		t.Errorf("it forgot what it had: %+v", st)
	}
	if err := n.Close(t.Context()); err != nil {
		t.Error(err)
	}
	for _, id := range []Identity{{own.Cluster, 0}, {[16]byte{}, 7}, {own.Cluster, 1<<64 - 1}} {
		cfg.Join = &id
		if _, err := Open(cfg); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("join as %v: got %v, want Invalid", id, err)
		}
	}
}

// load proposes on a member without a pause and counts how that ends.
func load(r *running, stop *atomic.Bool, group *sync.WaitGroup) map[incumbent.Kind]int {
	kinds := map[incumbent.Kind]int{}
	name := r.Status().Member
	group.Go(func() {
		for i := 0; !stop.Load(); i++ {
			_, err := r.propose(fmt.Sprintf("%d-%d", name, i))
			kinds[incumbent.KindOf(err)]++
			time.Sleep(time.Millisecond)
		}
	})
	return kinds
}

// TestG34_TransferHoldsProposals hands leadership around under load: every
// command is applied, none is answered with an error.
func TestG34_TransferHoldsProposals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := startTrio(t, nil)
		var stop atomic.Bool
		var group sync.WaitGroup
		var kinds []map[incumbent.Kind]int
		for _, id := range trioIDs {
			kinds = append(kinds, load(g.members[id], &stop, &group))
		}
		for range 6 {
			time.Sleep(100 * time.Millisecond)
			to := l.Status().Member%3 + 1
			if err := l.TransferLeader(t.Context(), to); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the chosen one leads", func() bool { return g.members[to].Status().State == Leader })
			if c := g.members[to].Status().Candidacy; c.Reason != ElectionHandedOver || c.Won.IsZero() {
				t.Errorf("who took over stood %+v", c)
			}
			l = g.members[to]
		}
		stop.Store(true)
		group.Wait()
		for i, k := range kinds {
			if len(k) != 1 || k[incumbent.OK] < 100 {
				t.Errorf("answers at member %d: %v", i+1, k)
			}
		}
		g.agree()
		if got := g.members[1].machine.list(); hasTwice(got) {
			t.Error("a command was applied twice")
		}
		refused := g.others(l.Status().Member)[0]
		if err := refused.TransferLeader(t.Context(), 0); incumbent.KindOf(err) != incumbent.NotLeader {
			t.Errorf("a follower hands over: got %v, want NotLeader", err)
		}
		if err := l.TransferLeader(t.Context(), 9); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("to nobody: got %v, want Invalid", err)
		}
		g.filter(func(m *Message) bool { return m.Raft == nil || m.Raft.GetType() != pb.MsgTimeoutNow })
		if err := l.TransferLeader(t.Context(), 0); incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("nobody takes over: got %v, want Unavailable", err)
		}
		if _, err := l.propose("after a failed hand-over"); err != nil {
			t.Error(err)
		}
		g.filter(nil)
		g.stopAll()
	})
}

func hasTwice(cmds []string) bool {
	seen := map[string]bool{}
	for _, c := range cmds {
		if seen[c] {
			return true
		}
		seen[c] = true
	}
	return false
}

// TestCloseHandsOver closes the leader under load.
func TestCloseHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := startTrio(t, nil)
		rest := g.others(l.Status().Member)
		var stop atomic.Bool
		var group sync.WaitGroup
		kinds := []map[incumbent.Kind]int{load(rest[0], &stop, &group), load(rest[1], &stop, &group)}
		time.Sleep(100 * time.Millisecond)
		began := time.Now()
		if err := l.stop(); err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(rest, func(r *running) bool { return r.Status().State == Leader }) {
			t.Error("the leader stopped before another led")
		}
		if took := time.Since(began); took > 300*time.Millisecond {
			t.Errorf("the stop took %v", took)
		}
		time.Sleep(100 * time.Millisecond)
		stop.Store(true)
		group.Wait()
		for i, k := range kinds {
			if len(k) != 1 || k[incumbent.OK] < 100 {
				t.Errorf("answers at member %d: %v", i, k)
			}
		}
		g.rename(l.Status().Member, 0)
		g.stopAll()
	})
}

// TestG32_LostLeaderIsFollowedAtOnce ends the leader's process, with and without
// word of its closed connections.
func TestG32_LostLeaderIsFollowedAtOnce(t *testing.T) {
	for _, told := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			g, l := startTrio(t, nil)
			time.Sleep(time.Second)
			id := l.Status().Member
			rest := g.others(id)
			g.silence(id)
			began := time.Now()
			if told {
				for _, r := range rest {
					r.PeerLost(id)
				}
			}
			var next *running
			eventually(t, "another leads", func() bool { next = leads(rest...); return next != nil })
			took := time.Since(began)
			reason := map[bool]ElectionReason{true: ElectionLeaderLost, false: ElectionTimedOut}[told]
			if c := next.Status().Candidacy; c.Reason != reason || c.Started.Before(began) || c.Won.Before(c.Started) || c.Won.After(time.Now()) {
				t.Errorf("told %v: began at %v, stood %+v", told, began, c)
			}
			if told && took > 400*time.Millisecond {
				t.Errorf("told of the loss it took %v", took)
			}
			if !told && took < electionTicks*DefaultTick-2*DefaultTick {
				t.Errorf("not told of the loss it took only %v", took)
			}
			g.filter(nil)
			g.stopAll()
		})
	}
}

// TestLosingOneLinkChangesNothing tells one follower that the leader is gone,
// which the other hears: it must not disturb the cluster.
func TestLosingOneLinkChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := startTrio(t, nil)
		time.Sleep(time.Second)
		id, term := l.Status().Member, l.Status().Term
		cut := g.follower()
		g.filter(func(m *Message) bool { return !(m.From == id && m.To == cut) && !(m.From == cut && m.To == id) })
		g.members[cut].PeerLost(id)
		for range 100 {
			time.Sleep(20 * time.Millisecond)
			if _, err := l.propose("x"); err != nil {
				t.Fatal(err)
			}
		}
		g.filter(nil)
		eventually(t, "it hears the leader again", func() bool { return g.members[cut].Status().Leader == id })
		if st := l.Status(); st.State != Leader || st.Term != term {
			t.Errorf("one lost link cost the leader its term %d: %+v", term, st.Role)
		}
		g.agree()
		g.stopAll()
	})
}

// TestPausedFollowerDoesNotCampaign stops a member's loop for longer than an
// election timeout, as SIGSTOP does, while the leader's messages wait: what waits
// counts before the tick that would have missed it, and missed ticks are dropped.
func TestPausedFollowerDoesNotCampaign(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := startTrio(t, nil)
		time.Sleep(time.Second)
		term := l.Status().Term
		var roles atomic.Int32
		paused := g.members[g.follower()]
		paused.inbox.call(func() {
			paused.cfg.Events.RoleChanged = func(Role) { roles.Add(1) }
		})
		for range 5 {
			paused.inbox.call(func() { time.Sleep(3 * electionTicks * DefaultTick) })
			time.Sleep(4 * electionTicks * DefaultTick)
		}
		if n := roles.Load(); n != 0 || l.Status().Term != term || l.Status().State != Leader {
			t.Errorf("a pause made %d changes of role, term %d → %d", n, term, l.Status().Term)
		}
		g.stopAll()
	})
}

// hung starts three members of whose leader the disk hangs.
func hung(t *testing.T) (g *trio, l *running, slow *slowLog, muted chan bool) {
	t.Helper()
	muted = make(chan bool, 10)
	slows := map[*vfs.Mem]*slowLog{}
	g, l = startTrio(t, func(c *Config) {
		disk := c.FS.(*vfs.Mem)
		slows[disk] = &slowLog{release: make(chan struct{})}
		c.FS = vfs.Inject(disk, slows[disk].decide)
		c.Events.Mute = func(m bool) { muted <- m }
	})
	slow = slows[g.disks[l.Status().Member]]
	return g, l, slow, muted
}

// TestG33_HungDiskHandsOver lets the leader's flush hang: within two seconds
// another leads, and the member does not campaign while its flush is out.
func TestG33_HungDiskHandsOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l, slow, muted := hung(t)
		id := l.Status().Member
		rest := g.others(id)
		time.Sleep(time.Second)
		slow.hold.Store(true)
		began := time.Now()
		answered := make(chan error, 1)
		l.Propose(Proposal{Command: []byte("stuck"), Done: func(_ any, err error) { answered <- err }})
		eventually(t, "another leads", func() bool { return leads(rest...) != nil })
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("hand-over took %v", took)
		}
		if len(muted) != 0 {
			t.Error("muted although leadership was handed over")
		}
		// The others fall silent: only the hung member could lead with one of them.
		g.silence(leads(rest...).Status().Member)
		time.Sleep(5 * time.Second)
		if st := l.Status(); st.State != Follower || !st.FlushStalled {
			t.Errorf("with a flush out it is %+v", st.Role)
		}
		g.filter(nil)
		slow.hold.Store(false)
		close(slow.release)
		if err := <-answered; err != nil {
			t.Errorf("the command was replicated before: %v", err)
		}
		g.write("after", 10, 5)
		g.agree()
		g.stopAll()
	})
}

// TestG33_HungLeaderFallsSilent is the same, but nobody takes over: the leader
// falls silent until it is deposed, and then may speak again.
func TestG33_HungLeaderFallsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l, slow, muted := hung(t)
		id := l.Status().Member
		g.filter(func(m *Message) bool { return m.Raft == nil || m.Raft.GetType() != pb.MsgTimeoutNow })
		slow.hold.Store(true)
		began := time.Now()
		l.Propose(Proposal{Command: []byte("stuck")})
		if !<-muted {
			t.Error("told to speak before it was told to be silent")
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("silent only after %v", took)
		}
		g.silence(id)
		if <-muted {
			t.Error("told twice to be silent")
		}
		if st := l.Status(); st.State == Leader {
			t.Error("it may speak while it still leads")
		}
		g.filter(nil)
		eventually(t, "another leads", func() bool { return leads(g.others(id)...) != nil })
		if took := time.Since(began); took > 4*time.Second {
			t.Errorf("another leads only after %v", took)
		}
		slow.hold.Store(false)
		close(slow.release)
		g.write("after", 10, 5)
		g.agree()
		g.stopAll()
	})
}

// TestForwardsSurviveLoss loses a third of all frames once, under load.
func TestForwardsSurviveLoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, l := startTrio(t, nil)
		seen := map[uint64]bool{} // used by the follower's loop only
		g.filter(func(m *Message) bool {
			if m.Forward == nil || seen[m.Forward.First] {
				return true
			}
			seen[m.Forward.First] = true
			return m.Forward.First%3 != 0
		})
		f := g.members[g.follower()]
		const count = 200
		answers := make(chan error, count)
		for i := range count {
			f.Propose(Proposal{Command: fmt.Appendf(nil, "%03d", i), Done: func(_ any, err error) { answers <- err }})
			time.Sleep(time.Millisecond)
		}
		for range count {
			if err := <-answers; err != nil {
				t.Fatal(err)
			}
		}
		eventually(t, "the leader has applied them too", func() bool { return len(l.machine.list()) >= count })
		if got := l.machine.list(); len(got) != count || !slices.IsSorted(got) {
			t.Errorf("%d commands, in order: %v", len(got), slices.IsSorted(got))
		}
		g.stopAll()
	})
}

// TestStandingNeverFalls reads it through elections, kills and starts. Nor does the
// log on disk ever end before what was said to be settled.
func TestStandingNeverFalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, _ := startTrio(t, nil)
		last, most := map[uint64][3]uint64{}, map[uint64]uint64{}
		look := func() {
			for id, r := range g.members {
				var now [3]uint64
				now[0], now[1], now[2] = r.Standing()
				for i, was := range last[id] {
					if now[i] < was {
						t.Errorf("member %d: standing falls from %v to %v", id, last[id], now)
					}
				}
				last[id] = now
				durable, settled := r.Held()
				if durable < most[id] || settled > durable {
					t.Errorf("member %d: the log ends at %d, settled is %d and was %d", id, durable, settled, most[id])
				}
				most[id] = max(most[id], settled)
			}
		}
		for round := range 6 {
			g.write(fmt.Sprint(round), 30, 4)
			look()
			id := g.leader().Status().Member
			synctest.Wait() // nothing is on its way to the disk
			crashed := g.disks[id].Clone()
			g.silence(id)
			eventually(t, "another leads", func() bool { return leads(g.others(id)...) != nil })
			look()
			g.kill(id)
			g.filter(nil)
			g.disks[id] = crashed
			if r := g.start(id, nil); r.WaitReady(context.Background()) != nil {
				t.Fatal("not ready")
			}
			look()
		}
		g.stopAll()
	})
}
