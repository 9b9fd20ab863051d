package node

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// ledger knows what was proposed and what was acknowledged, in order.
type ledger struct {
	mu       sync.Mutex
	proposed []string
	acked    []string
}

// propose proposes n commands at once and returns when they are answered.
func (l *ledger) propose(r *running, n int) {
	var group sync.WaitGroup
	ps := make([]Proposal, n)
	l.mu.Lock()
	for i := range ps {
		cmd := fmt.Sprintf("c%d", len(l.proposed))
		l.proposed = append(l.proposed, cmd)
		group.Add(1)
		ps[i] = Proposal{Command: []byte(cmd), Done: func(_ any, err error) {
			defer group.Done()
			if err == nil {
				l.mu.Lock()
				defer l.mu.Unlock()
				l.acked = append(l.acked, cmd)
			}
		}}
	}
	l.mu.Unlock()
	r.Propose(ps...)
	group.Wait()
}

func (l *ledger) acknowledged() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.acked)
}

// check demands that all that was acknowledged is there, in order, once, and
// nothing that was never proposed.
func (l *ledger) check(got, acked []string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(got) > len(l.proposed) || !slices.Equal(got, l.proposed[:len(got)]) {
		return fmt.Errorf("recovered %v, which is not a prefix of what was proposed: %v", got, l.proposed)
	}
	if len(got) < len(acked) {
		return fmt.Errorf("recovered %d commands, %d were acknowledged: lost %v", len(got), len(acked), acked[len(got):])
	}
	return nil
}

// crashes checks, at calls that change the disk, what a machine would find that
// lost power just then.
type crashes struct {
	t      testing.TB
	mem    *vfs.Mem
	ledger *ledger
	every  int    // calls from one crash to the next
	most   int    // crashes
	only   string // names that contain this

	mu    sync.Mutex
	rng   *rand.Rand
	calls int
	tried int
}

func (c *crashes) decide(call vfs.Call) vfs.Fault {
	switch call.Op {
	case vfs.OpCreate, vfs.OpWrite, vfs.OpSync, vfs.OpPreallocate, vfs.OpRename, vfs.OpRemove, vfs.OpSyncDir:
	default:
		return vfs.Fault{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !strings.Contains(call.Name, c.only) {
		return vfs.Fault{}
	}
	if c.calls++; c.calls%c.every != 0 || c.tried == c.most {
		return vfs.Fault{}
	}
	c.tried++
	acked := c.ledger.acknowledged()
	clone := c.mem.CrashClone(c.rng)
	if err := recoverAndCheck(c.t, clone, c.ledger, acked); err != nil {
		c.t.Errorf("crash before %v of %s: %v", call.Op, call.Name, err)
	}
	return vfs.Fault{}
}

func smallSnapshots(c *Config) {
	c.SnapshotEntries = 15
	c.TailEntries = 4
}

// recoverAndCheck starts a node on what a crash left. As soon as it is ready it
// must show everything that was acknowledged.
func recoverAndCheck(t testing.TB, fs *vfs.Mem, l *ledger, acked []string) error {
	j := &journal{}
	cfg := Config{FS: fs, Dir: "/data", Machine: j, Schema: 1, DiskReserve: -1, SegmentBytes: MinSegmentBytes}
	smallSnapshots(&cfg)
	n, err := Open(cfg)
	if err != nil {
		return fmt.Errorf("open: %w", err)
	}
	done := make(chan error, 1)
	go func() { done <- n.Run(context.Background()) }()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err = n.WaitReady(ctx)
	got := j.list()
	if err == nil {
		err = l.check(got, acked)
	}
	ctx, cancel = context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if cerr := n.Close(ctx); err == nil {
		err = cerr
	}
	if rerr := <-done; err == nil {
		err = rerr
	}
	return err
}

// TestG26_RestartShowsWhatWasAcknowledged crashes a node at calls all over its
// life, snapshots included, and looks at what it serves first afterwards.
func TestG26_RestartShowsWhatWasAcknowledged(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		s := newStand()
		c := &crashes{
			t: t, mem: s.fs, ledger: &ledger{},
			every: rapid.IntRange(5, 150).Draw(rt, "every"), most: 3,
			rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(rt, "seed"), 1)),
		}
		for range 2 {
			r := s.start(t, func(cfg *Config) {
				smallSnapshots(cfg)
				cfg.FS = vfs.Inject(s.fs, c.decide)
			})
			for range rapid.IntRange(1, 25).Draw(rt, "rounds") {
				c.ledger.propose(r, rapid.IntRange(1, 5).Draw(rt, "commands"))
			}
			if err := r.stop(); err != nil {
				t.Fatalf("run: %v", err)
			}
		}
		if err := recoverAndCheck(t, s.fs.Clone(), c.ledger, c.ledger.acknowledged()); err != nil {
			t.Fatal(err)
		}
	})
}

// TestKillDuringSnapshot crashes at every single call that a snapshot makes, in
// its own folder and in the log.
func TestKillDuringSnapshot(t *testing.T) {
	for _, only := range []string{"/snap", "/log"} {
		s := newStand()
		c := &crashes{t: t, mem: s.fs, ledger: &ledger{}, every: 1, most: 1000, only: only, rng: rand.New(rand.NewPCG(7, 7))}
		var armed sync.Mutex // held while nothing is tried
		on := false
		r := s.start(t, func(cfg *Config) {
			cfg.TailEntries = 4
			cfg.FS = vfs.Inject(s.fs, func(call vfs.Call) vfs.Fault {
				armed.Lock()
				try := on
				armed.Unlock()
				if !try {
					return vfs.Fault{}
				}
				return c.decide(call)
			})
		})
		set := func(v bool) {
			armed.Lock()
			defer armed.Unlock()
			on = v
		}
		for range 3 {
			c.ledger.propose(r, 40)
			set(true)
			if _, err := r.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			set(false)
		}
		if c.tried < 6 {
			t.Errorf("only %d crashes were tried in %s", c.tried, only)
		}
		if st := r.Status(); st.Entries > 5 {
			t.Errorf("%d entries in memory after a snapshot, want a tail of 4", st.Entries)
		}
		names, err := s.fs.List("/data/snap")
		if err != nil || len(names) != 1 {
			t.Errorf("snapshots left: %v, %v", names, err)
		}
	}
}

// TestG29_SnapshotPlusTailEqualsFullLog restarts from a snapshot and a tail, and
// compares with a member that never took one.
func TestG29_SnapshotPlusTailEqualsFullLog(t *testing.T) {
	var lists [2][]string
	for i := range lists {
		s := newStand()
		l := &ledger{}
		r := s.start(t, nil)
		for round := range 6 {
			l.propose(r, 30)
			if i == 1 && round%2 == 1 {
				if _, err := r.Snapshot(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
		}
		l.propose(r, 30)
		if err := r.stop(); err != nil {
			t.Fatal(err)
		}
		r = s.start(t, nil)
		if first := r.Status().First; (first > 2) != (i == 1) {
			t.Errorf("log %d begins at %d", i, first)
		}
		lists[i] = r.machine.list()
	}
	if !slices.Equal(lists[0], lists[1]) {
		t.Errorf("full log gives %v\nsnapshot and tail give %v", lists[0], lists[1])
	}
}

// TestG34_LostLogBeginsNoNewCluster removes the log and leaves the snapshots.
func TestG34_LostLogBeginsNoNewCluster(t *testing.T) {
	s := newStand()
	r := s.start(t, nil)
	id := r.Status()
	r.mustPropose("a")
	if _, err := r.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	names, err := s.fs.List("/data/log")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if err := s.fs.Remove("/data/log/" + name); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		_, err = Open(Config{FS: s.fs, Dir: "/data", Machine: &journal{}, Schema: 1, SegmentBytes: MinSegmentBytes})
		if incumbent.KindOf(err) != incumbent.Corrupt || !strings.Contains(err.Error(), "/data/snap/") {
			t.Fatalf("open without the log: got %v, want Corrupt and the file", err)
		}
	}
	other := newStand().start(t, nil).Status()
	if other.Member == id.Member || other.Cluster == id.Cluster {
		t.Errorf("an empty disk got the identity of another: %x, %x", other.Member, other.Cluster)
	}
}

// TestDamagedSnapshotIsRefused flips bits all over a snapshot file.
func TestDamagedSnapshotIsRefused(t *testing.T) {
	s := newStand()
	r := s.start(t, nil)
	for i := range 20 {
		r.mustPropose(strings.Repeat("x", 10*i))
	}
	if _, err := r.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := r.stop(); err != nil {
		t.Fatal(err)
	}
	names, err := s.fs.List("/data/snap")
	if err != nil || len(names) != 1 {
		t.Fatalf("snapshots: %v, %v", names, err)
	}
	path := "/data/snap/" + names[0]
	whole, err := vfs.ReadFile(s.fs, path)
	if err != nil {
		t.Fatal(err)
	}
	try := func(what string, content []byte) {
		t.Helper()
		fs := s.fs.Clone()
		if err := vfs.WriteFile(fs, path, content); err != nil {
			t.Fatal(err)
		}
		_, err := Open(Config{FS: fs, Dir: "/data", Machine: &journal{}, Schema: 1, SegmentBytes: MinSegmentBytes})
		if incumbent.KindOf(err) != incumbent.Corrupt || !strings.Contains(err.Error(), path+": offset ") {
			t.Errorf("%s: got %v, want Corrupt with file and offset", what, err)
		}
	}
	for at := 0; at < len(whole); at += 37 {
		b := slices.Clone(whole)
		b[at] ^= 1 << (at % 8)
		try(fmt.Sprintf("bit flipped at %d", at), b)
	}
	try("cut short", whole[:len(whole)-1])
	try("longer", append(slices.Clone(whole), 0))
	try("empty", nil)

	newer := Config{FS: s.fs, Dir: "/data", Machine: &journal{}, Schema: 0, SegmentBytes: MinSegmentBytes}
	if _, err := Open(newer); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("older binary: got %v, want Invalid", err)
	}
}
