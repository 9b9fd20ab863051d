package node

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/cryptotest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent/vfs"
)

// driven is members without goroutines, in virtual time.
type driven struct {
	t       *testing.T
	now     time.Time
	members map[uint64]*drivenMember
	disks   map[uint64]*vfs.Mem
	network []Message
	trace   []string // every message about a snapshot, for comparing runs

	lost  func(m *Message) bool // loses messages; nil: none
	muted map[uint64]bool       // members that close their sockets and stay silent
	mutes []bool                // how they were told
}

type drivenMember struct {
	*Manual
	machine *journal
	disk    *drivenDisk
}

// drivenClock is the time of all of them.
type drivenClock struct{ d *driven }

func (c drivenClock) Now() time.Time                                       { return c.d.now }
func (c drivenClock) Ticker(time.Duration) (ch <-chan time.Time, f func()) { return nil, func() {} }
func (c drivenClock) Sleep(context.Context, time.Duration)                 {}

// Send implements Transport.
func (d *driven) Send(ms []Message) {
	for _, m := range ms {
		if m.Raft != nil {
			m.Raft = proto.Clone(m.Raft).(*pb.Message)
		}
		if d.muted[m.From] || d.muted[m.To] || d.lost != nil && d.lost(&m) {
			continue
		}
		if c := m.Chunk; c != nil {
			d.trace = append(d.trace, fmt.Sprintf("%v %d→%d piece %d at %d", d.now.UnixMilli(), m.From, m.To, c.Index, c.Offset))
		}
		d.network = append(d.network, m)
	}
}

// newDriven opens three members.
func newDriven(t *testing.T) *driven {
	t.Helper()
	d := &driven{
		t: t, now: time.Unix(1000, 0), members: map[uint64]*drivenMember{}, disks: map[uint64]*vfs.Mem{}, muted: map[uint64]bool{},
	}
	for _, id := range trioIDs {
		d.disks[id] = vfs.NewMem()
		foundMember(t, d.disks[id], id, trioIDs)
		d.open(id, nil)
	}
	return d
}

func (d *driven) open(id uint64, change func(*Config)) {
	d.t.Helper()
	j, disk := &journal{}, &drivenDisk{}
	cfg := Config{
		FS: vfs.Inject(d.disks[id], disk.decide), Dir: "/data", Machine: j, Schema: 1, DiskReserve: -1, SegmentBytes: MinSegmentBytes,
		Transport: d, Clock: drivenClock{d}, TailEntries: 4, SnapshotRate: 4 << 20,
	}
	cfg.Events.Mute = func(muted bool) {
		d.muted[id] = muted
		d.mutes = append(d.mutes, muted)
	}
	if change != nil {
		change(&cfg)
	}
	m, err := OpenManual(cfg)
	if err != nil {
		d.t.Fatal(err)
	}
	d.members[id] = &drivenMember{Manual: m, machine: j, disk: disk}
}

func (d *driven) ids() []uint64 {
	var ids []uint64
	for id := range d.members {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// work does everything that can be done without a tick.
func (d *driven) work() {
	d.t.Helper()
	n := rounds(0)
	for busy := true; busy; n.next() {
		busy = false
		ms := d.network
		d.network = nil
		for _, m := range ms {
			if to := d.members[m.To]; to != nil && !d.muted[m.To] {
				to.Step(m)
			}
		}
		for _, id := range d.ids() {
			m := d.members[id]
			m.Turn(false)
			appended, err := m.disk.append(m.Manual)
			if err != nil {
				d.t.Fatal(err)
			}
			applied, err := m.Apply()
			if err != nil {
				d.t.Fatal(err)
			}
			loop, _, _ := m.Busy()
			busy = busy || appended || applied || loop
		}
		busy = busy || len(d.network) > 0
	}
}

// ticks lets time go by.
func (d *driven) ticks(n int) {
	d.t.Helper()
	for range n {
		d.now = d.now.Add(DefaultTick)
		for _, id := range d.ids() {
			d.members[id].Turn(true)
		}
		d.work()
	}
}

func (d *driven) leader() *drivenMember {
	d.t.Helper()
	for range 200 {
		for _, id := range d.ids() {
			if m := d.members[id]; m.Status().State == Leader {
				return m
			}
		}
		d.ticks(1)
	}
	d.t.Fatal("nobody leads")
	return nil
}

// write proposes commands one by one, each an entry, and takes snapshots.
func (d *driven) write(name string, n, bytes int) {
	d.t.Helper()
	for i := range n {
		cmd := fmt.Sprintf("%s-%0*d", name, bytes, i)
		answered := false
		d.leader().Propose(Proposal{Command: []byte(cmd), Done: func(_ any, err error) {
			answered = true
			if err != nil {
				d.t.Errorf("%s: %v", cmd, err)
			}
		}})
		d.work()
		if !answered {
			d.t.Fatalf("%s was not answered", cmd)
		}
		if i%10 == 9 {
			for _, id := range d.ids() {
				if err := d.members[id].TakeSnapshot(); err != nil {
					d.t.Fatal(err)
				}
			}
		}
	}
}

func (d *driven) agree() {
	d.t.Helper()
	want := d.leader().machine.list()
	for _, id := range d.ids() {
		for i := 0; i < 400 && len(d.members[id].machine.list()) < len(want); i++ {
			d.ticks(1)
		}
		if got := d.members[id].machine.list(); !slices.Equal(got, want) {
			d.t.Errorf("member %d has %d commands, the leader %d", id, len(got), len(want))
		}
		if n := d.members[id].snapshots.kept.holds(); n != 0 {
			d.t.Errorf("member %d still holds %d files", id, n)
		}
	}
}

// drive has one member away while the log is cut, lets it come back, and adds
// another, writing all the time. It returns what went over the network about
// snapshots.
func drive(t *testing.T) []string {
	d := newDriven(t)
	d.write("a", 30, 1)
	lead := d.leader().Status().Member
	down := trioIDs[0]
	if down == lead {
		down = trioIDs[1]
	}
	delete(d.members, down)
	d.disks[down] = d.disks[down].Clone() // what a new process finds
	d.ticks(100)                          // for who was there a moment ago the log is kept
	d.write("b", 100, 20_000)
	d.open(down, nil)
	for i := range 30 {
		d.ticks(1)
		d.write(fmt.Sprintf("c%d", i), 1, 1)
	}
	d.agree()
	if len(d.trace) == 0 {
		t.Error("it came back without a snapshot")
	}
	back := len(d.trace)
	var joined error
	d.leader().StartChangeMembers(func(err error) { joined = err }, MemberChange{ID: 4, Role: Learner})
	d.work()
	if joined != nil {
		t.Fatal(joined)
	}
	d.disks[4] = vfs.NewMem()
	d.open(4, func(c *Config) { c.Join = &Identity{Cluster: [16]byte{1}, Member: 4} })
	for i := range 30 {
		d.ticks(1)
		d.write(fmt.Sprintf("d%d", i), 1, 1)
	}
	d.agree()
	if len(d.trace) == back {
		t.Error("the joiner came without a snapshot")
	}
	return d.trace
}

// TestManualMembersCatchUp plays the same twice: it must go the same way.
func TestManualMembersCatchUp(t *testing.T) {
	var traces [2][]string
	for i := range traces {
		t.Run("", func(t *testing.T) {
			cryptotest.SetGlobalRandom(t, 1)
			traces[i] = drive(t)
		})
	}
	if !slices.Equal(traces[0], traces[1]) {
		t.Errorf("two runs of one seed differ:\n%v\n%v", traces[0], traces[1])
	}
}

// A snapshot that a peer waits for finds no space: the member goes on, and takes
// it later.
func TestManualSnapshotWaitsForSpace(t *testing.T) {
	cryptotest.SetGlobalRandom(t, 1)
	d := newDriven(t)
	d.write("a", 15, 1)
	l := d.leader()
	id, before := l.Status().Member, l.Status().Snapshot
	d.disks[id].SetCapacity(1)
	l.snap.wanted = true
	d.ticks(2)
	if l.Status().Snapshot != before {
		t.Fatal("there was space: the test tests nothing")
	}
	d.disks[id].SetCapacity(0)
	d.ticks(int(snapshotRetryAfter/DefaultTick) + 2)
	if l.snap.wanted || l.Status().Snapshot == before {
		t.Errorf("still wanted: %v, snapshot %d as before", l.snap.wanted, before)
	}
}
