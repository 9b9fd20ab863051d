package node

import (
	"fmt"
	"iter"
	"slices"
	"strings"
	"testing"
	"testing/cryptotest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// drivenDisk lets the appender of a driven member hang in a sync of the log while
// its loop and its applier go on.
type drivenDisk struct {
	hold  bool
	yield func(struct{}) bool // inside the appender's work
	next  func() (struct{}, bool)
	err   error
}

func (k *drivenDisk) decide(call vfs.Call) vfs.Fault {
	for k.hold && k.yield != nil && call.Op == vfs.OpSync && strings.Contains(call.Name, "/log/") {
		k.hold = k.yield(struct{}{}) && k.hold
	}
	return vfs.Fault{}
}

// append does what waits for the appender, or goes on with what hangs.
func (k *drivenDisk) append(m *Manual) (worked bool, err error) {
	if k.next == nil {
		k.next, _ = iter.Pull(func(yield func(struct{}) bool) {
			k.yield = yield
			worked, k.err = m.Append()
			k.yield = nil
		})
	} else if k.hold {
		return false, nil
	}
	if _, hangs := k.next(); hangs {
		return false, nil
	}
	k.next = nil
	return worked || k.err != nil, k.err
}

// pass lets time go by in steps of a millisecond, and members act when they want.
func (d *driven) pass(t time.Duration) {
	d.t.Helper()
	for range t / time.Millisecond {
		d.now = d.now.Add(time.Millisecond)
		for _, id := range d.ids() {
			m := d.members[id]
			at, wants := m.Wake()
			if tick := d.now.UnixMilli()%DefaultTick.Milliseconds() == 0; tick || wants && !at.After(d.now) {
				m.Turn(tick)
			}
		}
		d.work()
	}
}

// passUntil lets time go by until something holds, and returns how long it took.
func (d *driven) passUntil(what string, ok func() bool) time.Duration {
	d.t.Helper()
	began := d.now
	for d.now.Sub(began) < time.Minute {
		if ok() {
			return d.now.Sub(began)
		}
		d.pass(time.Millisecond)
	}
	d.t.Fatalf("never happened: %s", what)
	return 0
}

// leading returns the leader of the latest term among the members but one, or 0.
func (d *driven) leading(but uint64) uint64 {
	var lead, term uint64
	for _, id := range d.ids() {
		if st := d.members[id].Status(); id != but && st.State == Leader && st.Term > term {
			lead, term = id, st.Term
		}
	}
	return lead
}

// propose proposes on a member and returns where the answer will be.
func (d *driven) propose(id uint64, cmd string) *drivenAnswer {
	a := &drivenAnswer{cmd: cmd}
	d.members[id].Propose(Proposal{Command: []byte(cmd), Done: func(_ any, err error) {
		a.times++
		a.err = err
	}})
	return a
}

type drivenAnswer struct {
	cmd   string
	times int
	err   error
}

// settle lets everybody be answered and compares the machines.
func (d *driven) settle(answers ...*drivenAnswer) {
	d.t.Helper()
	d.passUntil("all are answered", func() bool {
		return !slices.ContainsFunc(answers, func(a *drivenAnswer) bool { return a.times == 0 })
	})
	d.agree()
	got := d.leader().machine.list()
	for _, a := range answers {
		n := 0
		for _, cmd := range got {
			if cmd == a.cmd {
				n++
			}
		}
		if a.times != 1 || a.err != nil || n != 1 {
			d.t.Errorf("%s was answered %d times, with %v, and applied %d times", a.cmd, a.times, a.err, n)
		}
	}
}

// TestG32_ManualLostLeader ends the process of the leader, and tells the others
// that its connections are closed: a new leader is there within 200 ms.
func TestG32_ManualLostLeader(t *testing.T) {
	for seed := range uint64(20) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, seed)
			d := newDriven(t)
			d.write("a", 5, 1)
			old := d.leader().Status().Member
			delete(d.members, old)
			for _, id := range d.ids() {
				d.members[id].PeerLost(old)
			}
			took := d.passUntil("another leads", func() bool { return d.leading(old) != 0 })
			if took > 200*time.Millisecond {
				t.Errorf("seed %d: without a leader for %v", seed, took)
			}
			d.settle(d.propose(d.ids()[0], "b"), d.propose(d.ids()[1], "c"))
		})
	}
}

// TestG33_ManualHungDisk lets the disk of the leader hang: it hands over, and what
// it was asked to propose is answered when the disk is back.
func TestG33_ManualHungDisk(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	d := newDriven(t)
	d.write("a", 5, 1)
	old := d.leader()
	id := old.Status().Member
	old.disk.hold = true
	answers := []*drivenAnswer{d.propose(id, "stuck")}
	took := d.passUntil("another leads", func() bool { return d.leading(id) != 0 })
	if took < flushStalledAfter || took > flushStalledAfter+300*time.Millisecond {
		t.Errorf("another leads after %v", took)
	}
	answers = append(answers, d.propose(d.leading(id), "on"))
	d.pass(3 * time.Second)
	if answers[1].times != 1 || answers[1].err != nil {
		t.Errorf("the new leader works: %+v", answers[1])
	}
	if st := old.Status(); st.State != Follower || !st.FlushStalled || len(d.mutes) != 0 {
		t.Errorf("with its disk out the old one is %v, muted %v", st.Role, d.mutes)
	}
	old.disk.hold = false
	d.settle(answers...)
}

// TestG33_ManualMute is the same, but nobody hears that it is to take over: the
// leader falls silent until it is deposed.
func TestG33_ManualMute(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	d := newDriven(t)
	d.write("a", 5, 1)
	old := d.leader()
	id := old.Status().Member
	asked := 0
	d.lost = func(m *Message) bool {
		is := m.Raft != nil && m.Raft.GetType() == pb.MsgTimeoutNow
		if is {
			asked++
		}
		return is
	}
	old.disk.hold = true
	stuck := d.propose(id, "stuck")
	silent := d.passUntil("it falls silent", func() bool { return d.muted[id] })
	if want := flushStalledAfter + muteAfterTicks*DefaultTick; silent < want || silent > want+3*DefaultTick || old.Status().State != Leader {
		t.Errorf("silent after %v as %v, want %v", silent, old.Status().State, want)
	}
	if asked != 2 {
		t.Errorf("%d times somebody was told to take over, want twice", asked)
	}
	d.passUntil("it is deposed", func() bool { return !d.muted[id] })
	if st := old.Status(); st.State == Leader || !slices.Equal(d.mutes, []bool{true, false}) {
		t.Errorf("it may speak as %v, told %v", st.State, d.mutes)
	}
	d.lost = nil
	d.passUntil("another leads", func() bool { return d.leading(id) != 0 })
	old.disk.hold = false
	d.settle(stuck)
}

// TestG34_ManualTransfer hands leadership around while all three propose without a
// pause: nobody learns anything of it.
func TestG34_ManualTransfer(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	d := newDriven(t)
	d.write("a", 5, 1)
	var answers []*drivenAnswer
	flow := func() bool {
		for _, id := range d.ids() {
			answers = append(answers, d.propose(id, fmt.Sprintf("%d-%d", id, len(answers))))
		}
		return false
	}
	for range 12 {
		from := d.leader()
		to := from.Status().Member%3 + 1
		over, err := false, error(nil)
		from.StartTransferLeader(to, func(e error) { over, err = true, e })
		took := d.passUntil("the transfer ends", func() bool { return flow() || over })
		if err != nil || d.leading(0) != to || took > 2*DefaultTick {
			t.Errorf("after %v: %v, member %d leads, want %d", took, err, d.leading(0), to)
		}
	}
	d.settle(answers...)
}

// TestTransferIsToldTwice loses the first word of a transfer, and then both.
func TestTransferIsToldTwice(t *testing.T) {
	for _, lose := range []int{1, 2} {
		cryptotest.SetGlobalRandom(t, 1)
		d := newDriven(t)
		d.write("a", 5, 1)
		left := lose
		d.lost = func(m *Message) bool {
			if m.Raft == nil || m.Raft.GetType() != pb.MsgTimeoutNow {
				return false
			}
			left--
			return left >= 0
		}
		from := d.leader()
		over, err := false, error(nil)
		from.StartTransferLeader(0, func(e error) { over, err = true, e })
		waiting := d.propose(from.Status().Member, "waits")
		took := d.passUntil("the transfer ends", func() bool { return over })
		most := (transferAgainTicks + 2) * DefaultTick
		if lose == 1 && (err != nil || took > most) {
			t.Errorf("one lost: %v after %v, want it done in %v", err, took, most)
		}
		if lose == 2 && (incumbent.KindOf(err) != incumbent.Unavailable || left != 0 || from.Status().State != Leader) {
			t.Errorf("both lost: %v, %d words left, %v", err, left, from.Status().State)
		}
		d.settle(waiting)
	}
}

// TestManualLeaderIsRemoved has the leader swap itself for a new member, in one
// joint change.
func TestManualLeaderIsRemoved(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	d := newDriven(t)
	d.write("a", 5, 1)
	old := d.leader()
	id := old.Status().Member
	over, err := false, error(nil)
	old.StartChangeMembers(func(e error) { over, err = true, e }, MemberChange{id, Gone}, MemberChange{4, Voter})
	d.disks[4] = vfs.NewMem()
	d.open(4, func(c *Config) { c.Join = &Identity{Cluster: [16]byte{1}, Member: 4} })
	for i := 0; !over; i++ {
		d.pass(100 * time.Millisecond)
		if err := d.members[id].TakeSnapshot(); err != nil {
			t.Fatal(err)
		}
		if i == 100 {
			t.Fatal("the change is not made")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	d.passUntil("another leads", func() bool { return d.leading(id) != 0 })
	term := d.members[d.leading(id)].Status().Term
	d.pass(5 * time.Second)
	if st := old.Status(); st.State == Leader {
		t.Errorf("it leads although it is gone: %+v", st.Role)
	}
	delete(d.members, id)
	lead := d.members[d.leading(0)]
	if st := lead.Status(); st.Term != term || slices.Contains(st.Voters, id) || len(st.Voters) != 3 {
		t.Errorf("term %d → %d, voters %v", term, st.Term, st.Voters)
	}
	var answers []*drivenAnswer
	for _, id := range d.ids() {
		answers = append(answers, d.propose(id, fmt.Sprintf("of %d", id)))
	}
	d.settle(answers...)
}
