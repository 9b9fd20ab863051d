package wal

import (
	"fmt"
	"testing"

	"github.com/incumbent-dev/incumbent/vfs"
)

// TestAppendAllocatesNothing: once the buffer has grown, a batch costs no
// allocation and one write.
func TestAppendAllocatesNothing(t *testing.T) {
	writes := 0
	fsys := vfs.Inject(vfs.OS{}, func(c vfs.Call) vfs.Fault {
		if c.Op == vfs.OpWrite {
			writes++
		}
		return vfs.Fault{}
	})
	o := testOptions
	o.SegmentBytes = 16 << 20
	l, _, err := Open(fsys, t.TempDir(), o)
	must(t, err)
	es := entries(1, 64, 200, 1)
	must(t, l.Append(Batch{Entries: es}))
	writes = 0
	const runs = 100
	allocs := testing.AllocsPerRun(runs, func() {
		if err := l.Append(Batch{Entries: es, HardState: HardState{1, 1, 0}}); err != nil {
			t.Fatal(err)
		}
	})
	if allocs != 0 {
		t.Errorf("%v allocations a batch", allocs)
	}
	if writes != runs+1 { // AllocsPerRun runs once more to warm up
		t.Errorf("%d writes for %d batches", writes, runs+1)
	}
	must(t, l.Close())
}

// BenchmarkAppendSync appends batches of so many entries of 200 bytes, each
// batch with a hard state and a sync, on the real disk.
func BenchmarkAppendSync(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			l, _, err := Open(vfs.OS{}, b.TempDir(), Options{Cluster: testOptions.Cluster, Member: 7})
			must(b, err)
			must(b, l.Prepare())
			benchAppend(b, l, n, l.Sync)
		})
	}
}

// BenchmarkAppend is the same without sync: what encoding and writing cost.
func BenchmarkAppend(b *testing.B) {
	for _, n := range []int{1, 16, 256} {
		b.Run(fmt.Sprintf("entries=%d", n), func(b *testing.B) {
			l, _, err := Open(vfs.OS{}, b.TempDir(), Options{Cluster: testOptions.Cluster, Member: 7})
			must(b, err)
			benchAppend(b, l, n, func() error { return nil })
		})
	}
}

// benchAppend keeps the log short by snapshots, as a server does.
func benchAppend(b *testing.B, l *Log, n int, sync func() error) {
	es := entries(1, n, 200, 1)
	next, snapshot := uint64(1), l.Status().Segments
	b.ReportAllocs()
	b.SetBytes(int64(n) * 200)
	for b.Loop() {
		for i := range es {
			es[i].Index = next
			next++
		}
		must(b, l.Append(Batch{Entries: es, HardState: HardState{1, 1, next - 1}}))
		must(b, sync())
		if s := l.Status().Segments; s > snapshot {
			must(b, l.MarkSnapshot(0, SnapshotMark{Index: next - 1, Term: 1, File: "s"}))
			must(b, l.Release(0, next-1))
			must(b, l.Prepare())
			snapshot = l.Status().Segments
		}
	}
	b.ReportMetric(float64(n)*float64(b.N)/b.Elapsed().Seconds(), "entries/s")
	must(b, l.Close())
}

// BenchmarkOpen reads a log of 100,000 entries back.
func BenchmarkOpen(b *testing.B) {
	fsys := vfs.NewMem()
	o := Options{Cluster: testOptions.Cluster, Member: 7}
	l, _, err := Open(fsys, testDir, o)
	must(b, err)
	for i := range 1000 {
		must(b, l.Append(Batch{Entries: entries(uint64(i*100+1), 100, 200, 1)}))
	}
	must(b, l.Close())
	b.ReportAllocs()
	for b.Loop() {
		l, rec, err := Open(fsys, testDir, o)
		must(b, err)
		if len(rec.Groups[0].Entries) != 100000 {
			b.Fatal("entries are missing")
		}
		must(b, l.Close())
	}
}
