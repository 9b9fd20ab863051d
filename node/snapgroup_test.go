package node

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

// trio is three running members that hand messages to one another.
type trio struct {
	t       testing.TB
	mu      sync.Mutex // guards what follows; held for a look or an assignment
	members map[uint64]*running
	disks   map[uint64]*vfs.Mem
	// onMessage may change a message, or lose it by returning false.
	onMessage func(m *Message) bool
	sent      []SnapshotSent
	received  map[uint64][]SnapshotDone
	pieces    []piece
}

// piece is a piece of a snapshot that came by.
type piece struct {
	at     time.Time
	offset int64
	bytes  int
}

var trioIDs = []uint64{1, 2, 3}

// newTrio prepares three disks whose snapshots name all three as voters.
func newTrio(t testing.TB) *trio {
	t.Helper()
	g := &trio{t: t, members: map[uint64]*running{}, disks: map[uint64]*vfs.Mem{}, received: map[uint64][]SnapshotDone{}}
	for _, id := range trioIDs {
		g.disks[id] = vfs.NewMem()
		foundMember(t, g.disks[id], id, trioIDs)
	}
	return g
}

// foundMember writes what a member begins with: an empty snapshot that names the
// voters.
func foundMember(t testing.TB, fs vfs.FS, id uint64, voters []uint64) {
	t.Helper()
	folder := newSnapshotFolder(fs, "/data/snap")
	if err := vfs.MkdirAll(fs, folder.dir); err != nil {
		t.Fatal(err)
	}
	log, _, err := wal.Open(fs, "/data/log", wal.Options{SegmentBytes: MinSegmentBytes, Cluster: [16]byte{1}, Member: id})
	if err != nil {
		t.Fatal(err)
	}
	meta := SnapshotMeta{Index: bootstrapIndex, Term: bootstrapTerm, ConfState: pb.EnsureConfState(&pb.ConfState{Voters: voters})}
	mark, err := folder.writeNow(systemClock{}, snapshotHeader{Schema: 1, Meta: meta}, (&journal{}).Snapshot())
	if err == nil {
		err = log.InstallSnapshot(0, mark)
	}
	if err == nil {
		err = log.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Send implements Transport, for all members.
func (g *trio) Send(ms []Message) {
	for _, m := range ms {
		if m.Raft != nil {
			m.Raft = proto.Clone(m.Raft).(*pb.Message) // as if it had been encoded
		}
		g.mu.Lock()
		to, change := g.members[m.To], g.onMessage
		if m.Chunk != nil {
			c := *m.Chunk
			c.Raft = proto.Clone(c.Raft).(*pb.Message)
			m.Chunk = &c
			g.pieces = append(g.pieces, piece{time.Now(), c.Offset, len(c.Data)})
		}
		g.mu.Unlock()
		if change != nil && !change(&m) {
			continue
		}
		if to != nil {
			to.Step(m)
		}
	}
}

func (g *trio) filter(f func(m *Message) bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onMessage = f
}

func (g *trio) config(id uint64, c *Config) {
	c.Transport = g
	c.SnapshotEntries = 20
	c.TailEntries = 4
	c.Events.SnapshotSent = func(s SnapshotSent) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.sent = append(g.sent, s)
	}
	c.Events.SnapshotReceived = func(d SnapshotDone) {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.received[id] = append(g.received[id], d)
	}
}

// start starts a member on its disk.
func (g *trio) start(id uint64, change func(*Config)) *running {
	g.t.Helper()
	r := (&stand{fs: g.disks[id]}).startUnready(g.t, func(c *Config) {
		g.config(id, c)
		if change != nil {
			change(c)
		}
	})
	g.mu.Lock()
	g.members[id] = r
	g.mu.Unlock()
	synctest.Wait() // so that it runs
	return r
}

// kill ends a member at once: it says good-bye to nobody.
func (g *trio) kill(id uint64) {
	g.t.Helper()
	g.mu.Lock()
	r := g.members[id]
	delete(g.members, id)
	g.mu.Unlock()
	if err := r.stop(); err != nil {
		g.t.Fatalf("member %d: %v", id, err)
	}
}

func (g *trio) events() (sent []SnapshotSent, received map[uint64][]SnapshotDone) {
	g.mu.Lock()
	defer g.mu.Unlock()
	received = map[uint64][]SnapshotDone{}
	for id, d := range g.received {
		received[id] = slices.Clone(d)
	}
	return slices.Clone(g.sent), received
}

// leader waits until a member leads and all running voters follow it in its term.
func (g *trio) leader() *running {
	g.t.Helper()
	for range 600 {
		if l := leads(g.running()...); l != nil {
			return l
		}
		time.Sleep(DefaultTick)
	}
	for _, r := range g.running() {
		g.t.Logf("%+v", r.Status())
	}
	g.t.Fatal("nobody leads")
	return nil
}

// running returns the members that run.
func (g *trio) running() []*running {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Collect(maps.Values(g.members))
}

// leads returns the one of some members that leads, once all voters among them
// follow it in its term: then no vote is under way that could still depose it.
func leads(rs ...*running) *running {
	for _, r := range rs {
		st := r.Status()
		if st.State != Leader {
			continue
		}
		strays := slices.ContainsFunc(rs, func(other *running) bool {
			o := other.Status()
			return slices.Contains(st.Voters, o.Member) && (o.Term != st.Term || o.Leader != st.Member)
		})
		if !strays {
			return r
		}
	}
	return nil
}

// write proposes n commands of so many bytes, in entries of a few, and waits.
func (g *trio) write(name string, n, bytes int) {
	g.t.Helper()
	l := g.leader()
	for i := 0; i < n; {
		var group sync.WaitGroup
		for range min(50, n-i) {
			cmd := fmt.Sprintf("%s-%0*d", name, bytes, i)
			i++
			group.Add(1)
			l.Propose(Proposal{Command: []byte(cmd), Done: func(_ any, err error) {
				if err != nil {
					g.t.Errorf("%s: %v", cmd, err)
				}
				group.Done()
			}})
		}
		group.Wait()
		time.Sleep(time.Millisecond) // in virtual time, or no snapshot would ever have any
	}
}

// agree waits until all running members have applied the same as the leader.
func (g *trio) agree() {
	g.t.Helper()
	for range 2000 {
		want := g.leader().machine.list()
		differs := func(r *running) bool { return !slices.Equal(r.machine.list(), want) }
		if !slices.ContainsFunc(g.running(), differs) {
			return
		}
		time.Sleep(DefaultTick)
	}
	for _, r := range g.running() {
		g.t.Errorf("%d commands are applied here: %+v", len(r.machine.list()), r.Status())
	}
}

// follower returns a running member that does not lead.
func (g *trio) follower() uint64 {
	g.t.Helper()
	l := g.leader().Status().Member
	for _, id := range trioIDs {
		if id != l {
			return id
		}
	}
	return 0
}

// settled waits until no transfer is left and checks that nothing is pinned.
func (g *trio) settled() {
	g.t.Helper()
	time.Sleep(time.Second)
	synctest.Wait() // others have woken in this very moment
	for id, r := range g.members {
		if n := r.snapshots.kept.holds(); n != 0 {
			g.t.Errorf("member %d still holds %d files", id, n)
		}
		names, err := g.disks[id].List("/data/snap")
		if err != nil || len(names) != 1 {
			g.t.Errorf("member %d: files left: %v, %v", id, names, err)
		}
	}
}

func (g *trio) stopAll() {
	for id := range g.members {
		g.kill(id)
	}
}
