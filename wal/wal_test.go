package wal

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

const testDir = "data/wal"

var testOptions = Options{SegmentBytes: MinSegmentBytes, Cluster: [16]byte{1, 2, 3}, Member: 7}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, fsys vfs.FS) (*Log, Recovered) {
	t.Helper()
	l, rec, err := Open(fsys, testDir, testOptions)
	must(t, err)
	return l, rec
}

// entries makes n entries from index on, of so many bytes each.
func entries(index uint64, n, size int, term uint64) []Entry {
	es := make([]Entry, n)
	for i := range es {
		at := index + uint64(i)
		es[i] = Entry{Index: at, Term: term, Type: uint8(at % 3), Data: bytes.Repeat([]byte{byte(at), byte(term)}, size)[:size]}
	}
	return es
}

func appendSync(t testing.TB, l *Log, b Batch) {
	t.Helper()
	must(t, l.Append(b))
	must(t, l.Sync())
}

func wantKind(t testing.TB, err error, want incumbent.Kind) {
	t.Helper()
	if got := incumbent.KindOf(err); got != want {
		t.Fatalf("got %v (%v), want %v", got, err, want)
	}
}

// segmentFiles returns the names of a log's segments, with the folder.
func segmentFiles(t testing.TB, fsys vfs.FS) []string {
	t.Helper()
	names, err := fsys.List(testDir)
	must(t, err)
	var files []string
	for _, name := range names {
		if strings.HasSuffix(name, segmentSuffix) {
			files = append(files, join(testDir, name))
		}
	}
	return files
}

func TestRoundTrip(t *testing.T) {
	for _, fsys := range []vfs.FS{vfs.NewMem(), vfs.OS{}} {
		t.Run(fmt.Sprintf("%T", fsys), func(t *testing.T) {
			dir := testDir
			if _, ok := fsys.(vfs.OS); ok {
				dir = t.TempDir()
			}
			l, rec, err := Open(fsys, dir, testOptions)
			must(t, err)
			if !rec.Created || rec.Meta.Incarnation != 1 || rec.Meta.Member != 7 || len(rec.Groups) != 0 {
				t.Fatalf("new log says %+v", rec)
			}
			appendSync(t, l, Batch{Group: 1, Entries: entries(1, 20, 300, 1), HardState: HardState{1, 7, 0}})
			appendSync(t, l, Batch{Group: 1, HardState: HardState{1, 7, 15}})
			appendSync(t, l, Batch{Group: 2, Entries: entries(1, 2, 0, 5), HardState: HardState{5, 0, 1}})
			appendSync(t, l, Batch{Group: 1, Entries: entries(18, 5, 10, 2), HardState: HardState{2, 0, 16}})
			must(t, l.Append(Batch{}))
			mark := SnapshotMark{Index: 12, Term: 1, Bytes: 99, File: "12.snap", Checksum: [32]byte{9}}
			must(t, l.MarkSnapshot(1, mark))
			must(t, l.Close())
			must(t, l.Close())

			l, rec, err = Open(fsys, dir, Options{SegmentBytes: MinSegmentBytes})
			must(t, err)
			want := map[uint64]GroupState{
				1: {HardState{2, 0, 16}, mark, append(entries(13, 5, 300, 1), entries(18, 5, 10, 2)...)},
				2: {HardState{5, 0, 1}, SnapshotMark{}, entries(1, 2, 0, 5)},
			}
			want[2].Entries[0].Data, want[2].Entries[1].Data = nil, nil
			if diff := cmp.Diff(want, rec.Groups); diff != "" {
				t.Fatal(diff)
			}
			if rec.Created || !rec.Clean || rec.Cut != 0 || rec.Meta.Incarnation != 2 || rec.Meta.Cluster != testOptions.Cluster {
				t.Fatalf("log says %+v", rec)
			}
			must(t, l.Close())
			wantKind(t, l.Append(Batch{Group: 1, HardState: HardState{3, 0, 16}}), incumbent.Unavailable)
		})
	}
}

func TestIncarnationGrowsWithEveryOpening(t *testing.T) {
	fsys := vfs.NewMem()
	rng := rand.New(rand.NewPCG(1, 1))
	for want := uint64(1); want < 60; want++ {
		l, rec := open(t, fsys)
		if rec.Meta.Incarnation != want || l.Meta().Incarnation != want {
			t.Fatalf("incarnation %d, want %d", rec.Meta.Incarnation, want)
		}
		fsys = fsys.CrashClone(rng)
	}
	if n := len(segmentFiles(t, fsys)); n < 3 {
		t.Fatalf("only %d segments: the incarnation never crossed one", n)
	}
}

func TestInstallSnapshotReplacesEntries(t *testing.T) {
	fsys := vfs.NewMem()
	l, _ := open(t, fsys)
	appendSync(t, l, Batch{Entries: entries(1, 9, 100, 1), HardState: HardState{1, 1, 4}})
	mark := SnapshotMark{Index: 50, Term: 3, File: "50.snap"}
	must(t, l.InstallSnapshot(0, mark))
	crashed := fsys.CrashClone(rand.New(rand.NewPCG(3, 3)))
	appendSync(t, l, Batch{Entries: entries(51, 2, 8, 3), HardState: HardState{3, 0, 51}})
	must(t, l.Close())

	_, rec := open(t, crashed)
	want := GroupState{HardState: HardState{1, 1, 50}, Snapshot: mark}
	if diff := cmp.Diff(want, rec.Groups[0]); diff != "" {
		t.Fatal(diff)
	}
	_, rec = open(t, fsys)
	want = GroupState{HardState{3, 0, 51}, mark, entries(51, 2, 8, 3)}
	if diff := cmp.Diff(want, rec.Groups[0]); diff != "" {
		t.Fatal(diff)
	}
}

func TestReleaseKeepsWhatIsNeeded(t *testing.T) {
	fsys := vfs.NewMem()
	l, _ := open(t, fsys)
	appendSync(t, l, Batch{Group: 9, Entries: entries(1, 1, 10, 1), HardState: HardState{1, 3, 1}})
	for i := uint64(1); i <= 60; i++ {
		appendSync(t, l, Batch{Group: 1, Entries: entries(i, 1, 700, 1), HardState: HardState{1, 2, i}})
	}
	before := l.Status().Segments
	if got := []uint64{l.Oldest(1), l.Oldest(9), l.Oldest(7)}; got[0] == 0 || got[0] > 40 || got[1] != 1 || got[2] != 0 {
		t.Errorf("the oldest entries of groups 1, 9 and 7 end at %v", got)
	}
	must(t, l.MarkSnapshot(1, SnapshotMark{Index: 40, Term: 1, File: "40"}))
	must(t, l.Release(1, 40))
	if got := l.Status().Segments; got != before && got < before-1 {
		t.Fatalf("released %d of %d segments though group 9 needs the first", before-got, before)
	}
	must(t, l.MarkSnapshot(9, SnapshotMark{Index: 1, Term: 1, File: "9-1"}))
	must(t, l.Release(9, 1))
	if got := l.Oldest(1); got <= 40 || l.Oldest(9) != 0 {
		t.Errorf("after a release up to 40 the oldest entries of groups 1 and 9 end at %d and %d", got, l.Oldest(9))
	}
	after := l.Status().Segments
	if after >= before-10 {
		t.Fatalf("%d of %d segments are left", after, before)
	}
	must(t, l.Prepare())
	if names := segmentFiles(t, fsys); len(names) != after {
		t.Fatalf("%d segments on disk, status says %d", len(names), after)
	}
	for i := uint64(61); i <= 90; i++ { // into recycled segments
		appendSync(t, l, Batch{Group: 1, Entries: entries(i, 1, 700, 1)})
		must(t, l.Prepare())
	}
	for _, image := range []*vfs.Mem{fsys.Clone(), fsys.CrashClone(rand.New(rand.NewPCG(5, 5)))} {
		_, rec := open(t, image)
		want := map[uint64]GroupState{
			1: {HardState{1, 2, 60}, SnapshotMark{Index: 40, Term: 1, File: "40"}, entries(41, 50, 700, 1)},
			9: {HardState{1, 3, 1}, SnapshotMark{Index: 1, Term: 1, File: "9-1"}, nil},
		}
		if diff := cmp.Diff(want, rec.Groups); diff != "" {
			t.Fatal(diff)
		}
	}
}

func TestLargeBatchTakesSeveralFramesAndSegments(t *testing.T) {
	fsys := vfs.NewMem()
	l, _ := open(t, fsys)
	must(t, l.Append(Batch{Entries: entries(1, 100, 400, 1), HardState: HardState{1, 1, 100}}))
	if l.Status().Segments < 10 {
		t.Fatal("the batch fits in fewer segments than it should")
	}
	must(t, l.Sync())
	_, rec := open(t, fsys.CrashClone(rand.New(rand.NewPCG(1, 2))))
	if diff := cmp.Diff(GroupState{HardState: HardState{1, 1, 100}, Entries: entries(1, 100, 400, 1)}, rec.Groups[0]); diff != "" {
		t.Fatal(diff)
	}
}

func TestLimits(t *testing.T) {
	l, _ := open(t, vfs.NewMem())
	most := l.MaxEntryBytes()
	wantKind(t, l.Append(Batch{Entries: entries(1, 1, most+1, 1)}), incumbent.TooLarge)
	must(t, l.Append(Batch{Entries: entries(1, 1, most, 1), HardState: HardState{1, 1, 1}}))
	groups := maxGroups(testOptions.SegmentBytes)
	for g := 1; g < groups; g++ {
		must(t, l.Append(Batch{Group: uint64(g), HardState: HardState{Term: 1}}))
	}
	wantKind(t, l.Append(Batch{Group: uint64(groups), HardState: HardState{Term: 1}}), incumbent.TooLarge)
	must(t, l.Sync())
	for _, n := range []int64{-1, 512, MinSegmentBytes + 1, MaxSegmentBytes + sectorBytes} {
		_, _, err := Open(vfs.NewMem(), testDir, Options{SegmentBytes: n, Cluster: testOptions.Cluster, Member: 1})
		wantKind(t, err, incumbent.Invalid)
	}
}

func TestWhatNoRaftWritesIsRefused(t *testing.T) {
	long := SnapshotMark{Index: 5, Term: 1, File: strings.Repeat("x", MaxSnapshotName+1)}
	for name, do := range map[string]func(l *Log) error{
		"gap":                func(l *Log) error { return l.Append(Batch{Entries: entries(12, 1, 1, 2)}) },
		"gap in batch":       func(l *Log) error { return l.Append(Batch{Entries: []Entry{{Index: 11}, {Index: 13}}}) },
		"committed entry":    func(l *Log) error { return l.Append(Batch{Entries: entries(6, 1, 1, 2)}) },
		"term falls":         func(l *Log) error { return l.Append(Batch{HardState: HardState{1, 1, 6}}) },
		"second vote":        func(l *Log) error { return l.Append(Batch{HardState: HardState{2, 3, 6}}) },
		"vote taken back":    func(l *Log) error { return l.Append(Batch{HardState: HardState{2, 0, 6}}) },
		"commit falls":       func(l *Log) error { return l.Append(Batch{HardState: HardState{2, 2, 5}}) },
		"commit beyond end":  func(l *Log) error { return l.Append(Batch{HardState: HardState{2, 2, 11}}) },
		"early snapshot":     func(l *Log) error { return l.MarkSnapshot(0, SnapshotMark{Index: 7}) },
		"old received":       func(l *Log) error { return l.InstallSnapshot(0, SnapshotMark{Index: 6}) },
		"long snapshot name": func(l *Log) error { return l.MarkSnapshot(0, long) },
		"early release":      func(l *Log) error { return l.Release(0, 1) },
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			l, _ := open(t, fsys)
			good := Batch{Entries: entries(1, 10, 5, 2), HardState: HardState{2, 2, 6}}
			appendSync(t, l, good)
			err := do(l)
			wantKind(t, err, incumbent.Internal)
			if again := l.Sync(); again != err {
				t.Fatalf("the log goes on after %v: %v", err, again)
			}
			_, rec := open(t, fsys.Clone())
			if diff := cmp.Diff(GroupState{HardState: good.HardState, Entries: good.Entries}, rec.Groups[0]); diff != "" {
				t.Fatal(diff)
			}
		})
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	for _, fsys := range []vfs.FS{vfs.NewMem(), vfs.OS{}} {
		dir := testDir
		if _, ok := fsys.(vfs.OS); ok {
			dir = t.TempDir()
		}
		l, _, err := Open(fsys, dir, testOptions)
		must(t, err)
		_, _, err = Open(fsys, dir, testOptions)
		wantKind(t, err, incumbent.Unavailable)
		if !strings.Contains(err.Error(), join(dir, lockName)) {
			t.Fatalf("%v does not name the lock", err)
		}
		must(t, l.Close())
		l, _, err = Open(fsys, dir, testOptions)
		must(t, err)
		must(t, l.Close())
	}
}

func TestOthersLogIsRefused(t *testing.T) {
	fsys := vfs.NewMem()
	_, _, err := Open(fsys, testDir, Options{})
	wantKind(t, err, incumbent.NotFound)
	l, _ := open(t, fsys)
	must(t, l.Close())
	for _, o := range []Options{{Cluster: testOptions.Cluster, Member: 8}, {Cluster: [16]byte{4}, Member: 7}} {
		_, _, err := Open(fsys, testDir, o)
		wantKind(t, err, incumbent.Conflict)
	}
}

func TestOtherSegmentLengths(t *testing.T) {
	fsys := vfs.NewMem()
	want := GroupState{}
	for i, size := range []int64{MinSegmentBytes, 4 * MinSegmentBytes, MinSegmentBytes, 2 * MinSegmentBytes} {
		o := testOptions
		o.SegmentBytes = size
		l, rec, err := Open(fsys, testDir, o)
		must(t, err)
		if diff := cmp.Diff(want, rec.Groups[0]); diff != "" {
			t.Fatal(diff)
		}
		es := entries(uint64(10*i+1), 10, 900, 1)
		appendSync(t, l, Batch{Entries: es, HardState: HardState{1, 1, uint64(10 * i)}})
		want.Entries = append(want.Entries, es...)
		want.HardState = HardState{1, 1, uint64(10 * i)}
		must(t, l.Prepare())
		must(t, l.Close())
	}
}

// Read says what Open would and changes nothing; KeepLength keeps the spares of a log that was
// opened with another length, and without spares the length of its newest segment.
func TestReadAndKeepLength(t *testing.T) {
	fsys := vfs.NewMem()
	_, err := Read(fsys, testDir)
	wantKind(t, err, incumbent.NotFound)
	o := testOptions
	o.SegmentBytes = 4 * MinSegmentBytes
	l, first, err := Open(fsys, testDir, o)
	must(t, err)
	appendSync(t, l, Batch{Entries: entries(1, 3, 100, 1), HardState: HardState{1, 1, 2}})
	must(t, l.Prepare())
	_, err = Read(fsys, testDir)
	wantKind(t, err, incumbent.Unavailable)
	must(t, l.Close())
	names, err := fsys.List(testDir)
	must(t, err)
	for range 2 {
		rec, err := Read(fsys, testDir)
		must(t, err)
		if rec.Meta.Incarnation != first.Meta.Incarnation || !rec.Clean || len(rec.Groups[0].Entries) != 3 {
			t.Fatalf("the log says %+v", rec)
		}
	}
	for _, spared := range []bool{true, false} {
		if !spared {
			for _, name := range names {
				if strings.HasPrefix(name, sparePrefix) {
					must(t, fsys.Remove(testDir+"/"+name))
				}
			}
		}
		l, _, err = Open(fsys, testDir, Options{SegmentBytes: MinSegmentBytes, KeepLength: true})
		must(t, err)
		if l.opts.SegmentBytes != o.SegmentBytes {
			t.Errorf("segments of %d bytes, want %d", l.opts.SegmentBytes, o.SegmentBytes)
		}
		must(t, l.Close())
		if left, err := fsys.List(testDir); err != nil || spared && !slices.Equal(left, names) {
			t.Errorf("files %v became %v, %v", names, left, err)
		}
	}
}

func damageOf(t testing.TB, err error) *Damage {
	t.Helper()
	wantKind(t, err, incumbent.Corrupt)
	var d *Damage
	if !errors.As(err, &d) {
		t.Fatalf("%v has no Damage", err)
	}
	if !strings.Contains(err.Error(), fmt.Sprintf("%s at byte %d", d.File, d.Offset)) {
		t.Fatalf("%v does not name file and byte", err)
	}
	return d
}
