package wal

import (
	"errors"
	"io"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// faulty is a filesystem in memory with one fault that can be switched.
type faulty struct {
	mem   *vfs.Mem
	fault func(vfs.Call) vfs.Fault
}

func newFaulty() *faulty {
	return &faulty{mem: vfs.NewMem(), fault: func(vfs.Call) vfs.Fault { return vfs.Fault{} }}
}

func (f *faulty) fs() vfs.FS {
	return vfs.Inject(f.mem, func(c vfs.Call) vfs.Fault { return f.fault(c) })
}

func on(op vfs.Op, fault vfs.Fault) func(vfs.Call) vfs.Fault {
	return func(c vfs.Call) vfs.Fault {
		if c.Op == op {
			return fault
		}
		return vfs.Fault{}
	}
}

func none(vfs.Call) vfs.Fault { return vfs.Fault{} }

// TestG31_FailedSyncIsFinal: after one failed sync every call fails with that
// error, though the disk would answer again, and a restart finds what was
// synced before.
func TestG31_FailedSyncIsFinal(t *testing.T) {
	f := newFaulty()
	l, _ := open(t, f.fs())
	good := Batch{Entries: entries(1, 3, 50, 1), HardState: HardState{1, 1, 1}}
	appendSync(t, l, good)
	must(t, l.Append(Batch{Entries: entries(4, 3, 50, 1)}))
	f.fault = on(vfs.OpSync, vfs.Fault{Err: syscall.EIO})
	first := l.Sync()
	wantKind(t, first, incumbent.Internal)
	if !errors.Is(first, syscall.EIO) || !strings.Contains(first.Error(), l.cur().name) {
		t.Fatalf("%v does not say what failed", first)
	}
	f.fault = none
	for name, err := range map[string]error{
		"sync": l.Sync(), "append": l.Append(good), "mark": l.MarkSnapshot(0, SnapshotMark{Index: 1}),
		"install": l.InstallSnapshot(0, SnapshotMark{Index: 9}), "release": l.Release(0, 0), "close": l.Close(),
	} {
		if err != first {
			t.Errorf("%s gave %v, want %v", name, err, first)
		}
	}
	for seed := range uint64(20) {
		_, rec := open(t, f.mem.CrashClone(rand.New(rand.NewPCG(seed, 1))))
		if n := len(rec.Groups[0].Entries); n != 3 && n != 6 {
			t.Fatalf("%d entries are left", n)
		}
	}
}

// TestG31_FullDiskPausesAppends fills the disk: appends go on into the
// reserve, then are refused with nothing changed, and go on when space returns.
func TestG31_FullDiskPausesAppends(t *testing.T) {
	f := newFaulty()
	l, _ := open(t, f.fs())
	free, err := f.mem.Free(testDir)
	must(t, err)
	f.mem.SetCapacity(1<<40 - free + MinSegmentBytes/2) // room for no further segment
	if s := l.Status(); s.ReserveOnly || s.Room < MinSegmentBytes {
		t.Fatalf("status before is %+v", s)
	}
	var want []Entry
	reserve, index := 0, uint64(1)
	for err == nil {
		es := entries(index, 1, 300, 1)
		if err = l.Append(Batch{Entries: es}); err == nil {
			must(t, l.Sync())
			want = append(want, es...)
			index++
		}
		if l.Status().ReserveOnly {
			reserve++
		}
	}
	wantKind(t, err, incumbent.Unavailable)
	var e *incumbent.Error
	if !errors.Is(err, syscall.ENOSPC) || !errors.As(err, &e) || e.Hint == "" {
		t.Fatalf("%v has no cause or no hint", err)
	}
	if reserve < 4 {
		t.Fatalf("only %d appends after status said that the reserve is used", reserve)
	}
	if s := l.Status(); !s.ReserveOnly {
		t.Fatalf("status is %+v", s)
	}
	// A batch over several segments changes nothing either.
	seq, chain := l.next, l.chain
	big := Batch{Entries: entries(index, 30, 400, 1), HardState: HardState{1, 1, index}}
	wantKind(t, l.Append(big), incumbent.Unavailable)
	wantKind(t, l.Prepare(), incumbent.Unavailable)
	if l.next != seq || l.chain != chain {
		t.Fatal("a refused batch was written in part")
	}
	_, rec := open(t, f.mem.Clone()) // though the disk is full
	if diff := cmp.Diff(want, rec.Groups[0].Entries); diff != "" {
		t.Fatal(diff)
	}

	f.mem.SetCapacity(0)
	must(t, l.Prepare())
	if s := l.Status(); s.ReserveOnly {
		t.Fatalf("status is %+v with space again", s)
	}
	appendSync(t, l, big)
	_, rec = open(t, f.mem.CrashClone(rand.New(rand.NewPCG(1, 1))))
	if diff := cmp.Diff(append(want, big.Entries...), rec.Groups[0].Entries); diff != "" {
		t.Fatal(diff)
	}
}

// TestG31_BatchOverSegmentsIsAllOrNothing: the spare would take some of the
// batch, but not all.
func TestG31_BatchOverSegmentsIsAllOrNothing(t *testing.T) {
	f := newFaulty()
	l, _ := open(t, f.fs())
	f.mem.SetCapacity(1)
	b := Batch{Entries: entries(1, 40, 400, 1), HardState: HardState{1, 1, 40}}
	next := l.next
	wantKind(t, l.Append(b), incumbent.Unavailable)
	if l.next != next || l.Status().Segments != 1 || l.Status().ReserveOnly {
		t.Fatalf("a refused batch changed the log: %+v", l.Status())
	}
	f.mem.SetCapacity(0)
	appendSync(t, l, b)
	if _, rec := open(t, f.mem.Clone()); len(rec.Groups[0].Entries) != 40 {
		t.Fatalf("%d entries", len(rec.Groups[0].Entries))
	}
}

// TestG31_FullDiskIsFreedByTheReserve: with the disk full, the reserve takes
// the hard state and the snapshot mark that let old segments go, and those
// become the next spares without asking the disk for anything.
func TestG31_FullDiskIsFreedByTheReserve(t *testing.T) {
	f := newFaulty()
	l, _ := open(t, f.fs())
	f.mem.SetCapacity(1)
	index := uint64(1)
	for !l.Status().ReserveOnly {
		appendSync(t, l, Batch{Entries: entries(index, 1, 300, 1)})
		index++
	}
	appendSync(t, l, Batch{HardState: HardState{1, 1, index - 1}})
	must(t, l.MarkSnapshot(0, SnapshotMark{Index: index - 1, Term: 1, File: "s"}))
	must(t, l.Release(0, index-1))
	wantKind(t, l.Prepare(), incumbent.Unavailable) // it wants two, and there is one to recycle
	if l.Status().ReserveOnly {
		t.Fatal("no segment was recycled")
	}
	for range 50 {
		appendSync(t, l, Batch{Entries: entries(index, 1, 300, 1), HardState: HardState{1, 1, index}})
		must(t, l.MarkSnapshot(0, SnapshotMark{Index: index, Term: 1, File: "s"}))
		must(t, l.Release(0, index))
		if l.Prepare() != nil && l.Status().ReserveOnly {
			t.Fatal("no segment was recycled")
		}
		index++
	}
	must(t, l.Close())
	_, rec := open(t, f.fs())
	if rec.Groups[0].Snapshot.Index != index-1 {
		t.Fatalf("log says %+v", rec)
	}
}

// TestPrepareThatFailsLeavesNothing: a file that cannot be made a spare is removed,
// or each attempt would leave one until the disk is full. The log goes on.
func TestPrepareThatFailsLeavesNothing(t *testing.T) {
	f := newFaulty()
	l, _ := open(t, f.fs())
	appendSync(t, l, Batch{Entries: entries(1, 3, 50, 1), HardState: HardState{1, 1, 1}})
	before, err := f.mem.List(testDir)
	must(t, err)
	f.fault = func(c vfs.Call) vfs.Fault {
		if c.Op == vfs.OpWrite && strings.Contains(c.Name, sparePrefix) {
			return vfs.Fault{Err: syscall.EIO}
		}
		return vfs.Fault{}
	}
	for range 3 {
		wantKind(t, l.Prepare(), incumbent.Internal)
	}
	after, err := f.mem.List(testDir)
	must(t, err)
	if len(after) > len(before) {
		t.Errorf("files are %v, were %v", after, before)
	}
	appendSync(t, l, Batch{Entries: entries(4, 3, 50, 1), HardState: HardState{1, 1, 4}})
	f.fault = none
	must(t, l.Prepare())
	must(t, l.Close())
}

// TestG31_WriteWithoutSpaceIsNoFailedSync: a filesystem that does not honour
// preallocation runs out in the middle of a write. The batch is refused and
// may be tried again; what it left behind is never taken for something else,
// whatever crashes when.
func TestG31_WriteWithoutSpaceIsNoFailedSync(t *testing.T) {
	for _, part := range []int64{0, 1, 511, 512, 700, 1024, 1100, 1300, 1500, 1536} {
		for _, tries := range []int{1, 3} {
			for seed := range uint64(5) {
				runOutOfSpace(t, part, tries, rand.New(rand.NewPCG(uint64(part), seed)))
			}
		}
	}
}

// runOutOfSpace has every write of a batch end after so many bytes.
func runOutOfSpace(t *testing.T, part int64, tries int, rng *rand.Rand) {
	t.Helper()
	f := newFaulty()
	l, _ := open(t, f.fs())
	first := Batch{Entries: entries(1, 1, 10, 1), HardState: HardState{1, 1, 1}}
	appendSync(t, l, first)
	refused := Batch{Entries: entries(2, 3, 480, 1)}
	f.fault = on(vfs.OpWrite, vfs.Fault{Err: syscall.ENOSPC, Bytes: part})
	for range tries {
		wantKind(t, l.Append(refused), incumbent.Unavailable)
		f.mem.Writeback(rng)
	}
	whole := slices.Concat(first.Entries, refused.Entries) // two frames; refused, and yet perhaps on the disk
	checkCrashes(t, f.mem, [][]Entry{first.Entries, whole[:3], whole})
	f.fault = none
	second := Batch{Entries: entries(2, 1, 10, 2)}
	must(t, l.Append(second))
	after := append(append([]Entry{}, first.Entries...), second.Entries...)
	checkCrashes(t, f.mem, [][]Entry{first.Entries, after})
	must(t, l.Sync())
	checkCrashes(t, f.mem, [][]Entry{after})
	must(t, l.Close())
}

// checkCrashes opens crash clones and wants one of these lists of entries.
func checkCrashes(t *testing.T, m *vfs.Mem, wants [][]Entry) {
	t.Helper()
	for seed := range uint64(16) {
		_, rec := open(t, m.CrashClone(rand.New(rand.NewPCG(seed, 2))))
		found := false
		for _, want := range wants {
			found = found || reflect.DeepEqual(want, rec.Groups[0].Entries)
		}
		if !found {
			t.Fatalf("seed %d: log says %d entries, %+v", seed, len(rec.Groups[0].Entries), rec.Meta)
		}
	}
}

func TestShortWriteGoesOn(t *testing.T) {
	f := newFaulty()
	l, _ := open(t, f.fs())
	short := 0
	f.fault = func(c vfs.Call) vfs.Fault {
		if c.Op == vfs.OpWrite && c.Bytes > 100 && short < 5 {
			short++
			return vfs.Fault{Err: io.ErrShortWrite, Bytes: 100}
		}
		return vfs.Fault{}
	}
	es := entries(1, 2, 400, 1)
	appendSync(t, l, Batch{Entries: es})
	f.fault = none
	_, rec := open(t, f.mem.Clone())
	if diff := cmp.Diff(es, rec.Groups[0].Entries); diff != "" || short == 0 {
		t.Fatal(short, diff)
	}
	f.fault = on(vfs.OpWrite, vfs.Fault{Err: io.ErrShortWrite})
	wantKind(t, l.Append(Batch{Entries: entries(3, 1, 1, 1)}), incumbent.Internal)
}

// TestG31_TheNameOfTheLastFileIsDurable: a process that ended between giving a file of the log
// its name and syncing the folder leaves a name that a loss of power would take, and with it
// what the next process has acknowledged.
func TestG31_TheNameOfTheLastFileIsDurable(t *testing.T) {
	f := newFaulty()
	l, _ := open(t, f.fs())
	f.fault = on(vfs.OpSyncDir, vfs.Fault{Err: syscall.EIO})
	next := uint64(1)
	for err := error(nil); err == nil; next++ {
		if next > 10_000 {
			t.Fatal("no second file is begun")
		}
		if err = l.Append(Batch{Entries: entries(next, 1, 500, 1), HardState: HardState{1, 1, next}}); err == nil {
			err = l.Sync()
		}
	}
	next--
	_ = l.Close()
	f.fault = none
	l, rec := open(t, f.fs())
	if got := uint64(len(rec.Groups[0].Entries)); got < next-1 {
		t.Fatalf("%d entries are left of %d", got, next-1)
	}
	next = uint64(len(rec.Groups[0].Entries)) + 1
	appendSync(t, l, Batch{Entries: entries(next, 1, 50, 1), HardState: HardState{1, 1, next}})
	for seed := range uint64(20) {
		_, rec := open(t, f.mem.CrashClone(rand.New(rand.NewPCG(seed, 1))))
		if n := uint64(len(rec.Groups[0].Entries)); n != next {
			t.Fatalf("%d entries are left of %d that were acknowledged", n, next)
		}
	}
}

// TestASpareThatCannotBeReadStopsNobody: nothing of the log is in it.
func TestASpareThatCannotBeReadStopsNobody(t *testing.T) {
	f := newFaulty()
	l, _ := open(t, f.fs())
	must(t, l.Prepare())
	must(t, l.Close())
	f.fault = func(c vfs.Call) vfs.Fault {
		if c.Op == vfs.OpRead && strings.Contains(c.Name, sparePrefix) {
			return vfs.Fault{Err: syscall.EIO}
		}
		return vfs.Fault{}
	}
	l, _ = open(t, f.fs())
	appendSync(t, l, Batch{Entries: entries(1, 3, 50, 1), HardState: HardState{1, 1, 1}})
}

// TestEveryCallFails runs one history over and over, each time with another of
// its calls to the filesystem failing. Whatever fails, what was acknowledged
// is there after a crash; and when it was lack of space, the history can be
// finished.
func TestEveryCallFails(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.EIO, syscall.ENOSPC} {
		failed := 0
		for n := 1; ; n++ {
			f := newFaulty()
			calls := 0
			f.fault = func(vfs.Call) vfs.Fault {
				if calls++; calls == n {
					return vfs.Fault{Err: errno, Bytes: 300}
				}
				return vfs.Fault{}
			}
			h := &story{}
			err := h.run(f)
			if calls < n {
				break
			}
			failed++
			if err != nil && incumbent.KindOf(err) == incumbent.OK {
				t.Fatalf("call %d: error %v has no kind", n, err)
			}
			f.fault = none
			for seed := range uint64(8) {
				h.verify(t, f.mem.CrashClone(rand.New(rand.NewPCG(seed, uint64(n)))), n)
			}
			h.verify(t, f.mem.Clone(), n)
		}
		if failed < 100 {
			t.Fatalf("only %d calls were tried", failed)
		}
	}
}

// story is a short history with every call of a Log, and what it was told.
type story struct {
	acked GroupState // durable for certain
	tried uint64     // last index that was ever appended
	made  bool       // Open succeeded once
}

func (h *story) run(f *faulty) error {
	for range 2 {
		l, rec, err := Open(f.fs(), testDir, testOptions)
		if err != nil {
			return err
		}
		h.made = true
		h.acked = rec.Groups[0]
		if err := h.fill(l); err != nil {
			return errors.Join(err, l.Close())
		}
		if err := l.Close(); err != nil {
			return err
		}
	}
	return nil
}

func (h *story) fill(l *Log) error {
	for range 12 {
		last := h.acked.lastIndex()
		b := Batch{Entries: entries(last+1, 3, 300, 1), HardState: HardState{1, 1, last + 2}}
		h.tried = last + 3
		err := l.Append(b)
		if incumbent.KindOf(err) == incumbent.Unavailable {
			err = l.Append(b) // there is space again
		}
		if err != nil {
			return err
		}
		if err := l.Sync(); err != nil {
			return err
		}
		h.acked.Entries = append(h.acked.Entries, b.Entries...)
		h.acked.HardState = b.HardState
	}
	mark := SnapshotMark{Index: h.acked.HardState.Commit - 5, Term: 1, File: "snap"}
	err := l.MarkSnapshot(0, mark)
	if incumbent.KindOf(err) == incumbent.Unavailable {
		err = l.MarkSnapshot(0, mark)
	}
	if err != nil {
		return err
	}
	h.acked.Entries = h.acked.Entries[mark.Index-h.acked.Snapshot.Index:]
	h.acked.Snapshot = mark
	if err := l.Release(0, mark.Index); err != nil {
		return err
	}
	if err := l.Prepare(); err != nil && incumbent.KindOf(err) != incumbent.Unavailable {
		return err
	}
	return nil
}

// verify opens what is left: at least what was acknowledged, at most what was
// tried.
func (h *story) verify(t *testing.T, m *vfs.Mem, n int) {
	t.Helper()
	_, rec, err := Open(m, testDir, testOptions)
	if err != nil {
		t.Fatalf("call %d failed: opening again: %v", n, err)
	}
	if h.made && rec.Created {
		t.Fatalf("call %d failed: the log is gone", n)
	}
	got := rec.Groups[0]
	first := got.Snapshot.Index
	if first < h.acked.Snapshot.Index || got.HardState.Commit < h.acked.HardState.Commit || got.lastIndex() > h.tried || got.lastIndex() < h.acked.lastIndex() {
		t.Fatalf("call %d failed: log says %d to %d, %+v; acknowledged is %d to %d, %+v", n, first, got.lastIndex(), got.HardState,
			h.acked.Snapshot.Index, h.acked.lastIndex(), h.acked.HardState)
	}
	if want := entries(first+1, len(got.Entries), 300, 1); len(want) > 0 && !reflect.DeepEqual(want, got.Entries) {
		t.Fatalf("call %d failed: entries differ", n)
	}
}
