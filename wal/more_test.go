package wal

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// TestG30_OtherHistoryIsFound puts a frame of a copy of the log, that went
// another way from the same point, in the place of the frame that is there.
// Every sector of it is sound and in its place; only the chain knows.
func TestG30_OtherHistoryIsFound(t *testing.T) {
	mine := vfs.NewMem()
	l, _ := open(t, mine)
	appendSync(t, l, Batch{Entries: entries(1, 1, 100, 1)})
	yours := mine.Clone()
	other, err := yours.OpenWrite(join(testDir, l.cur().name))
	must(t, err)
	from := l.cur().offset(l.next)
	k := &Log{
		fs: yours, dir: testDir, opts: l.opts, pool: l.pool, groups: map[uint64]group{0: l.groups[0]}, segs: l.segs, file: other,
		chain: l.chain, rec: l.rec, next: l.next, synced: l.synced,
	}
	appendSync(t, l, Batch{Entries: entries(2, 1, 100, 1)})
	appendSync(t, k, Batch{Entries: entries(2, 1, 100, 9)})
	to := l.cur().offset(l.next)
	appendSync(t, l, Batch{Entries: entries(3, 1, 100, 9)})
	im, im2 := imageOf(t, mine), imageOf(t, yours)
	if _, _, err := im2.read(t); err != nil {
		t.Fatal(err)
	}
	copy(im.files[0][from:to], im2.files[0][from:to])
	_, _, err = im.read(t)
	if d := damageOf(t, err); d.Offset != to {
		t.Fatalf("reported as %v, want the byte %d", err, to)
	}
}

// TestG30_OtherSegmentIsFound does the same with a whole segment.
func TestG30_OtherSegmentIsFound(t *testing.T) {
	var images [2]*image
	for i, term := range []uint64{1, 2} {
		fsys := vfs.NewMem()
		l, _ := open(t, fsys)
		for index := uint64(1); index < 12; index++ {
			appendSync(t, l, Batch{Entries: entries(index, 1, 400, term)})
		}
		images[i] = imageOf(t, fsys)
	}
	for i := 1; i < len(images[0].files); i++ {
		own := images[0].files[i]
		images[0].files[i] = images[1].files[i]
		_, _, err := images[0].read(t)
		images[0].files[i] = own
		if d := damageOf(t, err); d.File != join(testDir, images[0].names[i]) || d.Offset != 0 {
			t.Fatalf("reported as %v", err)
		}
	}
}

func TestJudge(t *testing.T) {
	s := make([]byte, sectorBytes)
	sealFrame(s, 300, 290, 5)
	want := func(what string, s []byte, seq uint64, want verdict) {
		t.Helper()
		if got, reason := judge(s, seq); got != want {
			t.Errorf("%s: verdict %d (%s), want %d", what, got, reason, want)
		}
	}
	want("sealed", s, 300, whole)
	want("elsewhere", s, 301, damaged)
	want("blank", blankSector[:], 300, empty)
	for n := 1; n < sectorBytes; n++ {
		front := slices.Concat(s[:n], make([]byte, sectorBytes-n))
		want("front", front, 300, torn)
		if n > 4 { // the sequence has begun
			want("front of another place", front, 301, damaged)
		}
		want("back", slices.Concat(make([]byte, sectorBytes-n), s[sectorBytes-n:]), 300, damaged)
	}
	bad := bytes.Clone(s)
	bad[2], bad[3] = 0xff, 0x01 // more payload than there is
	putSum(bad)
	want("impossible length", bad, 300, damaged)
}

// TestCrashDuringRecovery cuts the power at every call that an opening makes
// to mend a log with a torn tail, again and again: it ends with what the first
// recovery would have found, or with less of what was never synced.
func TestCrashDuringRecovery(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 8))
		f := newFaulty()
		l, _ := open(t, f.fs())
		keep := Batch{Entries: entries(1, 2, 300, 1), HardState: HardState{1, 1, 1}}
		appendSync(t, l, keep)
		must(t, l.Append(Batch{Entries: entries(3, 2, 400, 1)}))
		must(t, l.Append(Batch{Entries: entries(5, 1, 900, 1)}))
		m := f.mem.Clone()
		if seed%2 == 0 {
			m = f.mem.CrashClone(rng)
		}
		for n := 1; ; n++ {
			calls := 0
			g := &faulty{mem: m, fault: func(vfs.Call) vfs.Fault {
				if calls++; calls >= n {
					return vfs.Fault{Err: syscall.EIO}
				}
				return vfs.Fault{}
			}}
			_, rec, err := Open(g.fs(), testDir, testOptions)
			if err == nil {
				got := rec.Groups[0]
				if n := len(got.Entries); n < 2 || !reflect.DeepEqual(got.Entries[:2], keep.Entries) || got.HardState != keep.HardState {
					t.Fatalf("seed %d: log says %+v", seed, rec)
				}
				break
			}
			wantKind(t, err, incumbent.Internal)
			if rng.IntN(2) == 0 {
				m = m.CrashClone(rng)
			} else {
				m = m.Clone()
			}
		}
	}
}

// TestOpeningWritesWhatMayBeInTheCacheOnly: frames that nothing proves to be
// synced are written again before anybody relies on them.
func TestOpeningWritesWhatMayBeInTheCacheOnly(t *testing.T) {
	f := newFaulty()
	l, _ := open(t, f.fs())
	must(t, l.Append(Batch{Entries: entries(1, 2, 300, 1)}))
	must(t, l.Append(Batch{Entries: entries(3, 1, 300, 1)}))
	frames := l.cur().offset(l.next) - l.cur().offset(l.synced)
	g := &faulty{mem: f.mem.Clone()}
	written, synced := int64(0), false
	g.fault = func(c vfs.Call) vfs.Fault {
		switch {
		case c.Op == vfs.OpWrite && !synced:
			written += c.Bytes
		case c.Op == vfs.OpSync:
			synced = true
		}
		return vfs.Fault{}
	}
	open(t, g.fs())
	if written < frames || !synced {
		t.Fatalf("wrote %d bytes before the first sync, want %d", written, frames)
	}
}

// TestWhatOpeningShowsIsDurable: a process is killed with frames in the cache
// only; the next one shows what it finds; then the power fails. Nothing of what was
// shown is gone.
func TestWhatOpeningShowsIsDurable(t *testing.T) {
	fsys := vfs.NewMem()
	l, _ := open(t, fsys)
	appendSync(t, l, Batch{Entries: entries(1, 2, 300, 1), HardState: HardState{1, 1, 2}})
	must(t, l.Append(Batch{Entries: entries(3, 5, 300, 1), HardState: HardState{2, 1, 6}}))
	must(t, l.Append(Batch{Entries: entries(8, 2, 300, 2), HardState: HardState{2, 1, 8}}))
	killed := fsys.Clone() // the cache outlives the process
	_, shown := open(t, killed)
	if n := len(shown.Groups[0].Entries); n != 9 {
		t.Fatalf("%d entries are shown after the kill, want 9", n)
	}
	for seed := range uint64(50) {
		_, again := open(t, killed.CrashClone(rand.New(rand.NewPCG(1, seed))))
		if diff := cmp.Diff(shown.Groups, again.Groups); diff != "" {
			t.Fatalf("crash %d: %s", seed, diff)
		}
	}
}

// TestSparesOfEarlierRuns: what can be used is, what is damaged or half made
// is not, and none of it is ever read as log.
func TestSparesOfEarlierRuns(t *testing.T) {
	fsys := vfs.NewMem()
	l, _ := open(t, fsys)
	appendSync(t, l, Batch{Entries: entries(1, 2, 10, 1), HardState: HardState{1, 1, 2}})
	must(t, l.Close())
	segment, err := vfs.ReadFile(fsys, segmentFiles(t, fsys)[0])
	must(t, err)
	for name, content := range map[string][]byte{
		"spare-5": make([]byte, MinSegmentBytes), "spare-0": segment, "spare-00": make([]byte, 100), "old-3": make([]byte, MinSegmentBytes),
	} {
		must(t, vfs.WriteFile(fsys, join(testDir, name), content))
	}
	l, rec := open(t, fsys)
	if len(rec.Groups[0].Entries) != 2 {
		t.Fatalf("log says %+v", rec)
	}
	names, err := fsys.List(testDir)
	must(t, err)
	for _, name := range names {
		if name == "spare-0" || name == "spare-00" || name == "old-3" {
			t.Errorf("%s was kept", name)
		}
	}
	for i := uint64(3); i < 60; i++ {
		appendSync(t, l, Batch{Entries: entries(i, 1, 700, 1)})
	}
	must(t, l.Close())
	if _, rec := open(t, fsys); len(rec.Groups[0].Entries) != 59 {
		t.Fatalf("%d entries are left", len(rec.Groups[0].Entries))
	}
}

// TestPrepareBesideAppends runs Prepare and Status on goroutines of their own.
func TestPrepareBesideAppends(t *testing.T) {
	l, _ := open(t, vfs.NewMem())
	stop, done := make(chan struct{}), make(chan error)
	go func() {
		var err error
		for err == nil {
			select {
			case <-stop:
				done <- nil
				return
			default:
				err = l.Prepare()
				_ = l.Status()
			}
		}
		done <- err
	}()
	for i := uint64(1); i < 400; i++ {
		appendSync(t, l, Batch{Entries: entries(i, 1, 700, 1), HardState: HardState{1, 1, i}})
		must(t, l.MarkSnapshot(0, SnapshotMark{Index: i, Term: 1, File: "s"}))
		must(t, l.Release(0, i))
	}
	close(stop)
	must(t, <-done)
	must(t, l.Close())
}

func TestSegmentNames(t *testing.T) {
	for name, want := range map[string]bool{
		"0000000000000001.wal": true, "ffffffffffffffff.wal": true, "1.wal": false, "000000000000000g.wal": false,
		"000000000000000A.wal": false, "0000000000000001.tmp": false, "+000000000000001.wal": false, "lock": false,
	} {
		if first, ok := segmentFirst(name); ok != want || ok && segmentName(first) != name {
			t.Errorf("%s: %d, %v", name, first, ok)
		}
	}
}

// TestTranscripts runs testdata/*: what a log holds after each command, as
// Dump prints it.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/transcripts", func(t *testing.T, path string) {
		fsys := vfs.NewMem()
		var l *Log
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			var out strings.Builder
			if err := command(t, d, &fsys, &l, &out); err != nil {
				fmt.Fprintln(&out, err)
			}
			return out.String()
		})
	})
}

// command runs one command of a transcript.
func command(t *testing.T, d *datadriven.TestData, fsys **vfs.Mem, l **Log, out *strings.Builder) error {
	num := func(key string) uint64 {
		if !d.HasArg(key) {
			return 0
		}
		var s string
		d.ScanArgs(t, key, &s)
		n, err := strconv.ParseUint(s, 10, 64)
		must(t, err)
		return n
	}
	switch d.Cmd {
	case "open":
		var rec Recovered
		var err error
		if *l, rec, err = Open(*fsys, "wal", testOptions); err != nil {
			return err
		}
		fmt.Fprintf(out, "created=%t clean=%t cut=%d incarnation=%d\n", rec.Created, rec.Clean, rec.Cut, rec.Meta.Incarnation)
	case "append":
		b := Batch{Group: num("group"), HardState: HardState{num("term"), num("vote"), num("commit")}}
		if from := num("from"); from > 0 {
			for i, data := range strings.Fields(d.Input) {
				b.Entries = append(b.Entries, Entry{Index: from + uint64(i), Term: num("eterm"), Data: []byte(data)})
			}
		}
		return (*l).Append(b)
	case "sync":
		return (*l).Sync()
	case "snapshot", "install":
		m := SnapshotMark{Index: num("index"), Term: num("term"), Bytes: 10, File: fmt.Sprintf("%d.snap", num("index"))}
		if d.Cmd == "install" {
			return (*l).InstallSnapshot(num("group"), m)
		}
		return (*l).MarkSnapshot(num("group"), m)
	case "close":
		return (*l).Close()
	case "kill":
		*fsys = (*fsys).Clone()
	case "zero", "flip":
		f, err := (*fsys).OpenWrite(join("wal", segmentName(1)))
		must(t, err)
		b := make([]byte, max(1, num("bytes")))
		if d.Cmd == "flip" {
			_, err = f.ReadAt(b, int64(num("at")))
			must(t, err)
			b[0] ^= 1
		}
		_, err = f.WriteAt(b, int64(num("at")))
		must(t, err)
	case "dump":
		var b bytes.Buffer
		err := Dump(&b, *fsys, "wal")
		out.Write(b.Bytes())
		if err != nil {
			fmt.Fprintf(out, "(%v)\n", incumbent.KindOf(err))
		}
	default:
		t.Fatalf("no command %s", d.Cmd)
	}
	return nil
}
