package vfs_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
)

// each runs a test on the real filesystem, on the one in memory and through
// the injector: one contract.
func each(t *testing.T, test func(t *testing.T, fsys vfs.FS, dir string)) {
	t.Run("os", func(t *testing.T) { test(t, vfs.OS{}, t.TempDir()) })
	t.Run("mem", func(t *testing.T) {
		m := vfs.NewMem()
		must(t, vfs.MkdirAll(m, "/data"))
		test(t, m, "/data")
	})
	t.Run("inject", func(t *testing.T) {
		m := vfs.Inject(vfs.NewMem(), func(vfs.Call) vfs.Fault { return vfs.Fault{} })
		must(t, vfs.MkdirAll(m, "data"))
		test(t, m, "data")
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func create(t *testing.T, fsys vfs.FS, name, content string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name)
	must(t, err)
	_, err = f.Write([]byte(content))
	must(t, err)
	return f
}

func read(t *testing.T, fsys vfs.FS, name string) string {
	t.Helper()
	b, err := vfs.ReadFile(fsys, name)
	must(t, err)
	return string(b)
}

func TestFileContract(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "a")
		f := create(t, fsys, name, "hello")
		_, err := f.WriteAt([]byte("J"), 0)
		must(t, err)
		_, err = f.WriteAt([]byte("far"), 10000)
		must(t, err)
		must(t, f.Sync())
		must(t, f.Preallocate(20000))
		if size, err := f.Size(); err != nil || size != 20000 {
			t.Fatalf("size is %d, %v", size, err)
		}
		must(t, f.Preallocate(5)) // never shorter
		must(t, f.Close())

		want := make([]byte, 20000)
		copy(want, "Jello")
		copy(want[10000:], "far")
		if got := read(t, fsys, name); got != string(want) {
			t.Fatal("content differs from what was written")
		}
		w, err := fsys.OpenWrite(name)
		must(t, err)
		var b [5]byte
		if _, err := io.ReadFull(w, b[:]); err != nil || string(b[:]) != "Jello" {
			t.Fatalf("read %q, %v", b, err)
		}
		if _, err := w.ReadAt(b[:], 19998); err != io.EOF {
			t.Fatalf("reading past the end gave %v, want EOF", err)
		}
		must(t, w.Close())
		if _, err := w.WriteAt(b[:], 0); !errors.Is(err, fs.ErrClosed) {
			t.Fatalf("writing a closed file gave %v", err)
		}
		r, err := fsys.Open(name)
		must(t, err)
		if _, err := r.Write(b[:]); err == nil {
			t.Fatal("a file opened to read took a write")
		}
		must(t, r.Close())
	})
}

func TestNames(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		sub := filepath.Join(dir, "x", "y")
		must(t, vfs.MkdirAll(fsys, sub))
		must(t, vfs.MkdirAll(fsys, sub))
		must(t, create(t, fsys, filepath.Join(sub, "b"), "1").Close())
		must(t, create(t, fsys, filepath.Join(sub, "a"), "2").Close())
		must(t, fsys.Rename(filepath.Join(sub, "b"), filepath.Join(sub, "c")))
		must(t, vfs.WriteFile(fsys, filepath.Join(sub, "a"), []byte("3")))
		must(t, fsys.SyncDir(sub))
		got, err := fsys.List(sub)
		must(t, err)
		if diff := cmp.Diff([]string{"a", "c"}, got); diff != "" {
			t.Fatal(diff)
		}
		if got := read(t, fsys, filepath.Join(sub, "a")) + read(t, fsys, filepath.Join(sub, "c")); got != "31" {
			t.Fatalf("contents are %q", got)
		}
		if size, err := fsys.Size(filepath.Join(sub, "c")); err != nil || size != 1 {
			t.Fatalf("size %d, %v", size, err)
		}
		if err := fsys.Remove(sub); err == nil {
			t.Fatal("removed a folder that is not empty")
		}
		if err := fsys.Mkdir(sub); !errors.Is(err, fs.ErrExist) {
			t.Fatalf("mkdir of what exists gave %v", err)
		}
		must(t, fsys.Remove(filepath.Join(sub, "a")))
		for _, err := range []error{
			fsys.Remove(filepath.Join(sub, "a")),
			fsys.Rename(filepath.Join(sub, "b"), filepath.Join(sub, "d")),
			errOf(fsys.Open(filepath.Join(sub, "b"))),
			errOf(fsys.OpenWrite(filepath.Join(dir, "no", "b"))),
			errOf(fsys.List(filepath.Join(dir, "no"))),
			errOf(fsys.Size(filepath.Join(dir, "no"))),
		} {
			if !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("got %v, want not exist", err)
			}
		}
		if free, err := fsys.Free(dir); err != nil || free <= 0 {
			t.Errorf("free is %d, %v", free, err)
		}
	})
}

func errOf[T any](_ T, err error) error { return err }

func TestLockRefusesTheSecond(t *testing.T) {
	each(t, func(t *testing.T, fsys vfs.FS, dir string) {
		name := filepath.Join(dir, "lock")
		first, err := fsys.Lock(name)
		must(t, err)
		_, err = fsys.Lock(name)
		if incumbent.KindOf(err) != incumbent.Unavailable || !strings.Contains(err.Error(), name) {
			t.Fatalf("the second got %v, want Unavailable naming %s", err, name)
		}
		must(t, first.Close())
		again, err := fsys.Lock(name)
		must(t, err)
		must(t, again.Close())
	})
}

func TestCrashKeepsWhatWasSynced(t *testing.T) {
	m := vfs.NewMem()
	f := create(t, m, "a", strings.Repeat("s", 2000))
	must(t, f.Sync())
	must(t, m.SyncDir("."))
	create(t, m, "b", "never synced")
	if _, err := f.WriteAt(bytes.Repeat([]byte("u"), 3000), 512); err != nil {
		t.Fatal(err)
	}
	outcomes, lostB, oldSize := map[string]bool{}, false, false
	for seed := range uint64(300) {
		c := m.CrashClone(rand.New(rand.NewPCG(seed, 1)))
		got := read(t, c, "a")
		if got[:512] != strings.Repeat("s", 512) {
			t.Fatal("a synced sector that was not written again changed")
		}
		for i := 512; i+512 <= len(got); i += 512 {
			if s := got[i : i+512]; strings.Count(s, s[:1]) != 512 && i != 1536 {
				t.Fatalf("sector at %d is torn: %q", i, s)
			}
		}
		outcomes[got] = true
		_, err := c.Size("b")
		lostB = lostB || err != nil
		oldSize = oldSize || len(got) == 2000
	}
	if len(outcomes) < 10 || !lostB || !oldSize {
		t.Fatalf("crashes are too tame: %d outcomes, lost b %v, old size %v", len(outcomes), lostB, oldSize)
	}
	if got := read(t, m, "a"); len(got) != 3512 || got[512:] != strings.Repeat("u", 3000) {
		t.Fatal("a crash clone changed the original")
	}
}

func TestCrashLosesUnsyncedNames(t *testing.T) {
	m := vfs.NewMem()
	must(t, vfs.MkdirAll(m, "d"))
	must(t, create(t, m, "d/old", "1").Sync())
	must(t, m.SyncDir("d"))
	must(t, m.Rename("d/old", "d/new"))
	seen := map[string]bool{}
	for seed := range uint64(50) {
		names, err := m.CrashClone(rand.New(rand.NewPCG(seed, 2))).List("d")
		must(t, err)
		seen[strings.Join(names, ",")] = true
	}
	if diff := cmp.Diff(map[string]bool{"old": true, "new": true}, seen); diff != "" {
		t.Fatal(diff)
	}
	must(t, m.SyncDir("d"))
	for seed := range uint64(50) {
		names, err := m.CrashClone(rand.New(rand.NewPCG(seed, 3))).List("d")
		must(t, err)
		if len(names) != 1 || names[0] != "new" {
			t.Fatalf("after syncing the folder a crash left %v", names)
		}
	}
}

func TestCrashIsReproducible(t *testing.T) {
	m := vfs.NewMem()
	for _, name := range []string{"a", "b", "c", "d"} {
		create(t, m, name, strings.Repeat(name, 5000))
	}
	state := func() string {
		c := m.CrashClone(rand.New(rand.NewPCG(7, 7)))
		names, err := c.List(".")
		must(t, err)
		all := ""
		for _, n := range names {
			all += n + ":" + read(t, c, n) + ";"
		}
		return all
	}
	want := state()
	for range 20 {
		if got := state(); got != want {
			t.Fatal("the same seed gave two outcomes")
		}
	}
}

func TestWritebackBringsBackWhatWasBetween(t *testing.T) {
	seen := map[string]bool{}
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 5))
		m := vfs.NewMem()
		f := create(t, m, "a", "1")
		must(t, f.Sync())
		must(t, m.SyncDir("."))
		for _, s := range []string{"2", "3"} {
			_, err := f.WriteAt([]byte(s), 0)
			must(t, err)
			m.Writeback(rng)
		}
		_, err := f.WriteAt([]byte("4"), 0)
		must(t, err)
		if got := read(t, m, "a"); got != "4" {
			t.Fatalf("the file holds %q", got)
		}
		seen[read(t, m.CrashClone(rng), "a")] = true
		must(t, f.Sync())
		if got := read(t, m.CrashClone(rng), "a"); got != "4" {
			t.Fatalf("after a sync a crash leaves %q", got)
		}
	}
	if diff := cmp.Diff(map[string]bool{"1": true, "2": true, "3": true, "4": true}, seen); diff != "" {
		t.Fatal(diff)
	}
}

func TestCloneKeepsEverythingWritten(t *testing.T) {
	m := vfs.NewMem()
	f := create(t, m, "a", "written")
	c := m.Clone()
	if _, err := f.WriteAt([]byte("later"), 0); err != nil {
		t.Fatal(err)
	}
	if got := read(t, c, "a"); got != "written" {
		t.Fatalf("clone has %q", got)
	}
	lost := false
	for seed := range uint64(20) {
		_, err := c.CrashClone(rand.New(rand.NewPCG(seed, 4))).Size("a")
		lost = lost || err != nil
	}
	if !lost {
		t.Fatal("what was not synced became durable by cloning")
	}
}

func TestMemFullDisk(t *testing.T) {
	m := vfs.NewMem()
	m.SetCapacity(1000)
	f := create(t, m, "a", strings.Repeat("x", 600))
	n, err := f.Write(make([]byte, 600))
	if n != 400 || !vfs.IsNoSpace(err) {
		t.Fatalf("wrote %d, %v", n, err)
	}
	if err := f.Preallocate(1001); !vfs.IsNoSpace(err) {
		t.Fatalf("preallocate gave %v", err)
	}
	if free, _ := m.Free("."); free != 0 {
		t.Fatalf("free is %d", free)
	}
	must(t, m.Remove("a"))
	if free, _ := m.Free("."); free != 1000 {
		t.Fatalf("free is %d after removing", free)
	}
}

func TestInject(t *testing.T) {
	var calls []string
	fault := map[string]vfs.Fault{}
	fsys := vfs.Inject(vfs.NewMem(), func(c vfs.Call) vfs.Fault {
		key := c.Op.String() + " " + c.Name
		calls = append(calls, key)
		return fault[key]
	})
	f := create(t, fsys, "a", "12345678")
	fault["write a"] = vfs.Fault{Err: io.ErrShortWrite, Bytes: 3}
	if n, err := f.WriteAt([]byte("abcdef"), 0); n != 3 || err != io.ErrShortWrite {
		t.Fatalf("short write gave %d, %v", n, err)
	}
	if got := read(t, fsys, "a"); got != "abc45678" {
		t.Fatalf("content is %q", got)
	}
	for _, op := range []string{"sync a", "preallocate a", "size a", "read a", "open a", "rename a", "remove a", "create a", "lock a", "list .", "syncdir .", "free .", "mkdir a"} {
		fault[op] = vfs.Fault{Err: syscall.EIO}
	}
	_, createErr := fsys.Create("a")
	for i, err := range []error{
		f.Sync(), f.Preallocate(9), errOf(f.Size()), errOf(f.Read(make([]byte, 1))), errOf(fsys.Open("a")), errOf(fsys.OpenWrite("a")),
		fsys.Rename("a", "b"), fsys.Remove("a"), createErr, errOf(fsys.Lock("a")), errOf(fsys.List(".")), fsys.SyncDir("."), errOf(fsys.Free(".")),
		fsys.Mkdir("a"), errOf(fsys.Size("a")),
	} {
		if !errors.Is(err, syscall.EIO) {
			t.Errorf("call %d was not refused: %v", i, err)
		}
	}
	if len(calls) < 17 {
		t.Fatalf("asked about %d calls only", len(calls))
	}
}

// A folder that was there is durable as well once MkdirAll returns: who made it may not have
// come to that.
func TestMkdirAllSyncsWhatWasThere(t *testing.T) {
	m := vfs.NewMem()
	must(t, vfs.MkdirAll(m, "/data"))
	must(t, m.Mkdir("/data/log"))
	must(t, vfs.MkdirAll(m, "/data/log"))
	for seed := range uint64(20) {
		if _, err := m.CrashClone(rand.New(rand.NewPCG(seed, 1))).List("/data/log"); err != nil {
			t.Fatal(err)
		}
	}
}
