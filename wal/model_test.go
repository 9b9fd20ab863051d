package wal

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent/vfs"
)

// state is what a log should say: the model.
type state map[uint64]GroupState

func (s state) clone() state {
	c := state{}
	for id, g := range s {
		g.Entries = slices.Clone(g.Entries)
		c[id] = g
	}
	return c
}

func (g GroupState) lastIndex() uint64 { return g.Snapshot.Index + uint64(len(g.Entries)) }

func (s state) append(b Batch) {
	g := s[b.Group]
	if len(b.Entries) > 0 {
		keep := b.Entries[0].Index - g.Snapshot.Index - 1
		g.Entries = append(g.Entries[:keep:keep], b.Entries...)
	}
	if (b.HardState != HardState{}) {
		g.HardState = b.HardState
	}
	s[b.Group] = g
}

func (s state) snapshot(id uint64, m SnapshotMark) {
	g := s[id]
	g.Entries = g.Entries[m.Index-g.Snapshot.Index:]
	g.Snapshot = m
	s[id] = g
}

func (s state) install(id uint64, m SnapshotMark) {
	g := s[id]
	g.Entries, g.Snapshot, g.HardState.Commit = nil, m, m.Index
	s[id] = g
}

// equal compares; groups of which nothing is known count as absent.
func (s state) equal(groups map[uint64]GroupState) bool {
	for id := range 2 {
		if !cmp.Equal(s[uint64(id)], groups[uint64(id)], cmp.Comparer(func(a, b []Entry) bool {
			return slices.EqualFunc(a, b, func(x, y Entry) bool {
				return x.Index == y.Index && x.Term == y.Term && x.Type == y.Type && string(x.Data) == string(y.Data)
			})
		})) {
			return false
		}
	}
	return true
}

// machine drives a log beside the model.
type machine struct {
	fs   *vfs.Mem
	log  *Log
	now  state
	past []state // what a crash may leave: from the last sync to now
	term uint64
	runs uint64
}

func (m *machine) open(t *rapid.T) Recovered {
	l, rec, err := Open(m.fs, testDir, testOptions)
	if err != nil {
		t.Fatalf("open: %v", err)
	}
	m.runs++
	if rec.Meta.Incarnation != m.runs {
		t.Fatalf("incarnation %d, want %d", rec.Meta.Incarnation, m.runs)
	}
	m.log = l
	return rec
}

func (m *machine) check(t *rapid.T, err error) {
	if err != nil {
		t.Fatal(err)
	}
}

func (m *machine) synced() { m.past = []state{m.now.clone()} }

// Append writes a batch that a raft group could write.
func (m *machine) Append(t *rapid.T) {
	b := Batch{Group: rapid.Uint64Range(0, 1).Draw(t, "group")}
	g := m.now[b.Group]
	m.term += rapid.Uint64Range(0, 1).Draw(t, "term")
	last := g.lastIndex()
	if n := rapid.IntRange(0, 8).Draw(t, "entries"); n > 0 {
		lowest := max(g.HardState.Commit, g.Snapshot.Index) + 1
		at := rapid.Uint64Range(lowest, last+1).Draw(t, "at")
		b.Entries = entries(at, n, rapid.SampledFrom([]int{0, 1, 30, 400, 1200}).Draw(t, "size"), m.term)
		last = at + uint64(n) - 1
	}
	if rapid.Bool().Draw(t, "state") {
		b.HardState = HardState{m.term, g.HardState.Vote, rapid.Uint64Range(g.HardState.Commit, last).Draw(t, "commit")}
		if m.term > g.HardState.Term {
			b.HardState.Vote = rapid.Uint64Range(0, 3).Draw(t, "vote")
		}
	}
	m.check(t, m.log.Append(b))
	m.addPrefixes(b)
	m.now.append(b)
	m.past = append(m.past, m.now.clone())
}

// addPrefixes notes what a crash may leave of a batch of several frames: the
// entries of the first ones, without the hard state.
func (m *machine) addPrefixes(b Batch) {
	done := 0
	for rest := b.Entries; ; {
		n, _ := m.log.fit(rest)
		if n == len(rest) {
			return
		}
		done, rest = done+n, rest[n:]
		part := m.now.clone()
		part.append(Batch{Group: b.Group, Entries: b.Entries[:done]})
		m.past = append(m.past, part)
	}
}

func (m *machine) Sync(t *rapid.T) {
	m.check(t, m.log.Sync())
	m.synced()
}

func (m *machine) Snapshot(t *rapid.T) {
	id := rapid.Uint64Range(0, 1).Draw(t, "group")
	g := m.now[id]
	if g.HardState.Commit == 0 {
		t.Skip("nothing committed")
	}
	at := rapid.Uint64Range(max(1, g.Snapshot.Index), g.HardState.Commit).Draw(t, "at")
	mark := SnapshotMark{Index: at, Term: m.term, Bytes: int64(at), File: fmt.Sprintf("%d-%d", id, at)}
	m.check(t, m.log.MarkSnapshot(id, mark))
	m.now.snapshot(id, mark)
	m.synced()
}

func (m *machine) Install(t *rapid.T) {
	id := rapid.Uint64Range(0, 1).Draw(t, "group")
	mark := SnapshotMark{Index: m.now[id].HardState.Commit + rapid.Uint64Range(1, 9).Draw(t, "beyond"), Term: m.term, File: "received"}
	m.check(t, m.log.InstallSnapshot(id, mark))
	m.now.install(id, mark)
	m.synced()
}

func (m *machine) Release(t *rapid.T) {
	id := rapid.Uint64Range(0, 1).Draw(t, "group")
	m.check(t, m.log.Release(id, rapid.Uint64Range(0, m.now[id].Snapshot.Index).Draw(t, "index")))
}

func (m *machine) Prepare(t *rapid.T) { m.check(t, m.log.Prepare()) }

// Writeback is what the system does unasked.
func (m *machine) Writeback(t *rapid.T) {
	m.fs.Writeback(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1)))
}

func (m *machine) Reopen(t *rapid.T) {
	m.check(t, m.log.Close())
	rec := m.open(t)
	if !rec.Clean || rec.Cut != 0 || !m.now.equal(rec.Groups) {
		t.Fatalf("after an orderly end: %+v\nwant %+v", rec, m.now)
	}
	m.synced()
}

func (m *machine) Kill(t *rapid.T) {
	m.fs = m.fs.Clone()
	rec := m.open(t)
	if rec.Cut != 0 || !m.now.equal(rec.Groups) {
		t.Fatalf("after a kill: %+v\nwant %+v", rec, m.now)
	}
	m.synced()
}

// Crash loses power: what was synced is there, and of the rest a prefix.
func (m *machine) Crash(t *rapid.T) {
	m.fs = m.fs.CrashClone(rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0)))
	rec := m.open(t)
	i := slices.IndexFunc(m.past, func(s state) bool { return s.equal(rec.Groups) })
	if i < 0 {
		t.Fatalf("after a crash: %+v\nwant one of %+v", rec, m.past)
	}
	m.now = m.past[i].clone()
	m.synced()
}

func (m *machine) Check(t *rapid.T) {
	if m.log.Status().Segments < 1 || m.log.Status().ReserveOnly {
		t.Fatalf("status is %+v", m.log.Status())
	}
}

// TestModel runs random histories of two groups with crashes against the model.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &machine{fs: vfs.NewMem(), now: state{}, term: 1}
		m.open(t)
		m.synced()
		t.Repeat(map[string]func(*rapid.T){
			"append": m.Append, "append2": m.Append, "append3": m.Append, "sync": m.Sync,
			"snapshot": m.Snapshot, "install": m.Install, "release": m.Release, "prepare": m.Prepare,
			"reopen": m.Reopen, "kill": m.Kill, "crash": m.Crash, "writeback": m.Writeback, "": m.Check,
		})
	})
}
