package backup

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/vfs/sealed"
)

var day = time.Date(2026, 11, 22, 17, 0, 0, 0, time.UTC)

// state has n leases, one of them a session's, and n keys, one of them locked.
func state(t testing.TB, n int) *core.View {
	t.Helper()
	s := engine.NewState()
	session := incumbent.SessionID{1}
	cmds := []core.Command{core.OpenSessionCommand{ID: session, TTL: time.Minute}}
	for i := range n {
		name := incumbent.Name{Namespace: "default", Model: "default", Lease: fmt.Sprint("lease", i)}
		claim := leases.ClaimCommand{Name: name, Holder: "ann", TTL: time.Minute}
		if i == 0 {
			claim.Session, claim.TTL = session, 0
		}
		key := kv.Key{Namespace: "default", Name: fmt.Sprint("key", i)}
		cmds = append(cmds, claim, kv.Command{Verb: kv.Put, Key: key, Value: []byte("value")})
	}
	var raw [][]byte
	for _, c := range cmds {
		raw = append(raw, c.Encode(core.Meta{Origin: core.Origin{At: day, Door: "test"}}))
	}
	results := make([]core.Result, len(raw))
	s.Apply(raw, results)
	for i, r := range results {
		if r.Err != nil {
			t.Fatalf("command %d: %v", i, r.Err)
		}
	}
	return s.View()
}

func write(t testing.TB, v *core.View) []byte {
	t.Helper()
	var b bytes.Buffer
	err := Write(t.Context(), &b, v, Info{Cluster: strings.Repeat("c", 32), Member: "n1", Program: "test", At: day})
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	for _, n := range []int{0, 3, 2000} {
		v := state(t, n)
		b := write(t, v)
		info, got, err := Verify(bytes.NewReader(b), "f")
		if err != nil {
			t.Fatal(err)
		}
		if got.Hash() != v.Hash() {
			t.Errorf("%d leases: the state that is read is another", n)
		}
		want := Info{
			Version: Version, Schema: core.SchemaVersion, Cluster: strings.Repeat("c", 32), Member: "n1", Program: "test", Index: v.Index(), At: day,
			Contents: v.Contents(),
		}
		if !slices.Contains(want.Contents, core.Content{Name: "kv", Records: n}) || !slices.Contains(want.Contents, core.Content{Name: "leases", Records: n}) {
			t.Fatalf("the state holds %v", want.Contents)
		}
		if diff := cmp.Diff(want, info); diff != "" {
			t.Errorf("it says of itself (- wanted):\n%s", diff)
		}
		if checked, err := Check(bytes.NewReader(b), "f"); err != nil || checked.Index != v.Index() {
			t.Errorf("checked: %+v, %v", checked, err)
		}
	}
}

// A backup of which any bit differs, or that is cut anywhere, is refused, with and
// without a look at what it holds.
func TestG30_ABackupThatDiffersIsRefused(t *testing.T) {
	whole := write(t, state(t, 2))
	refused := func(what string, at int, b []byte) {
		t.Helper()
		_, _, err := Verify(bytes.NewReader(b), "f")
		_, checked := Check(bytes.NewReader(b), "f")
		for _, err := range []error{err, checked} {
			if k := incumbent.KindOf(err); k != incumbent.Corrupt && k != incumbent.Invalid {
				t.Errorf("%s %d: got %v", what, at, err)
			}
		}
	}
	for i := range whole {
		for bit := range 8 {
			b := slices.Clone(whole)
			b[i] ^= 1 << bit
			refused("flipped in byte", i, b)
		}
		refused("cut at", i, whole[:i])
	}
	refused("one more than", len(whole), append(slices.Clone(whole), 0))
}

func FuzzVerify(f *testing.F) {
	whole := write(f, state(f, 3))
	f.Add(whole, uint(0), byte(0))
	f.Add(whole[:len(whole)/2], uint(20), byte(1))
	f.Add([]byte("not a backup"), uint(0), byte(0))
	f.Fuzz(func(t *testing.T, b []byte, at uint, flip byte) {
		changed := slices.Clone(b)
		if len(b) > 0 {
			changed[at%uint(len(b))] ^= flip
		}
		_, v, err := Verify(bytes.NewReader(changed), "f")
		switch k := incumbent.KindOf(err); {
		case err == nil && v == nil, err != nil && k != incumbent.Corrupt && k != incumbent.Invalid:
			t.Fatalf("got %v, %v", v, err)
		case err == nil && bytes.Equal(b, whole) && !bytes.Equal(changed, whole):
			t.Fatalf("byte %d: accepted with %x", at, flip)
		}
	})
}

// sealedAs is a backup with another header, sound otherwise.
func sealedAs(t *testing.T, header string, v *core.View) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := sealed.NewWriter(&b, magic, []byte(header))
	if err == nil {
		err = v.WriteSnapshot(w)
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestWhatIsRefusedAndWhy(t *testing.T) {
	v := state(t, 1)
	for name, c := range map[string]struct {
		file []byte
		kind incumbent.Kind
		want string
	}{
		"empty":          {nil, incumbent.Corrupt, "ends early"},
		"another file":   {[]byte("keys: values\n"), incumbent.Invalid, "f is not a backup"},
		"a newer format": {sealedAs(t, `{"version":2,"schema":3,"more":true}`, v), incumbent.Invalid, "f is of format 2 and schema 3, this program knows 1 and"},
		"a newer schema": {sealedAs(t, `{"version":1,"schema":99}`, v), incumbent.Invalid, "schema 99"},
		"no version":     {sealedAs(t, `{"schema":1}`, v), incumbent.Corrupt, "header"},
		"no header":      {sealedAs(t, `cluster n1`, v), incumbent.Corrupt, "header"},
		"unknown field":  {sealedAs(t, `{"version":1,"schema":3,"index":"3","more":1}`, v), incumbent.Corrupt, "header"},
		"another index":  {sealedAs(t, `{"version":1,"schema":3,"index":"7"}`, v), incumbent.Corrupt, "index 7"},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := Verify(bytes.NewReader(c.file), "f")
			if incumbent.KindOf(err) != c.kind || !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("got %v, want %v: …%s…", err, c.kind, c.want)
			}
			var typed *incumbent.Error
			if c.kind == incumbent.Invalid && (!errors.As(err, &typed) || typed.Hint == "") {
				t.Errorf("no hint: %v", err)
			}
		})
	}
}

// Who wrote a backup may not have known of everything that this program counts: what it
// does not name must not be there. What it names is as it says.
func TestCountsOfABackupAreCompared(t *testing.T) {
	v := state(t, 1)
	for name, c := range map[string]struct {
		change func(*core.Content) bool // whether it stays
		kind   incumbent.Kind
	}{
		"without what has no records": {func(c *core.Content) bool { return c.Records > 0 }, incumbent.OK},
		"without a kind":              {func(c *core.Content) bool { return c.Name != "kv" }, incumbent.Corrupt},
		"with another count":          {func(c *core.Content) bool { c.Records++; return true }, incumbent.Corrupt},
		"with no count":               {func(c *core.Content) bool { c.Records = 0; return true }, incumbent.Corrupt},
	} {
		info := Info{Version: Version, Schema: core.SchemaVersion, Index: v.Index()}
		for _, content := range v.Contents() {
			if c.change(&content) {
				info.Contents = append(info.Contents, content)
			}
		}
		header, err := json.Marshal(info)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := Verify(bytes.NewReader(sealedAs(t, string(header), v)), "f"); incumbent.KindOf(err) != c.kind {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A record that does not hold together is found behind sound checksums, too.
func TestSoundFilesOfUnsoundStates(t *testing.T) {
	var b bytes.Buffer
	w, err := sealed.NewWriter(&b, magic, []byte(`{"version":1,"schema":3,"index":"3"}`))
	if err == nil {
		_, err = w.Write([]byte("no records"))
	}
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := Verify(&b, "f"); incumbent.KindOf(err) != incumbent.Corrupt || !strings.Contains(err.Error(), "f: ") {
		t.Errorf("got %v, want Corrupt with the file's name", err)
	}
}

func TestWritingEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Write(ctx, io.Discard, state(t, 3), Info{}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// save writes a backup of an index into a folder, as a member does.
func save(t *testing.T, fsys vfs.FS, dir, cluster, member string, index int) string {
	t.Helper()
	v := state(t, index/2)
	info := Info{Cluster: cluster, Member: member, At: day.Add(time.Duration(index) * time.Hour), Index: v.Index()}
	name := info.FileName()
	if err := Save(fsys, filepath.Join(dir, name), func(w io.Writer) error { return Write(t.Context(), w, v, info) }); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestFolder(t *testing.T) {
	fsys := vfs.NewMem()
	if err := vfs.MkdirAll(fsys, "/b"); err != nil {
		t.Fatal(err)
	}
	ours := []string{save(t, fsys, "/b", "ours", "n1", 3), save(t, fsys, "/b", "ours", "n2", 5), save(t, fsys, "/b", "ours", "n1", 7)}
	other := save(t, fsys, "/b", "others", "n1", 1)
	damaged, mine := "incumbent-damaged@n1.backup", "by-hand.backup"
	unfinished := "incumbent-3@n1.backup.ours-0123456789abcdef.tmp"
	kept := []string{
		"incumbent-1@n2.backup.ours-0123456789abcdef.tmp",                                                       // another member's
		"incumbent-2@n1.backup.others-0123456789abcdef.tmp",                                                     // of another cluster
		"incumbent-3@n1.backup.0123456789abcdef.tmp",                                                            // being written by hand
		"incumbent-4@n1.backup.b.backup.ours-0123456789abcdef.tmp",                                              // of a member called otherwise
		"by-hand@n1.backup.ours-0123456789abcdef.tmp", "incumbent-5@n1.backup.ours-0123456789abcdef.tmp.backed", // somebody's
	}
	for _, name := range append([]string{damaged, mine, "notes.txt", unfinished}, kept...) {
		content := map[string]string{damaged: "INCBACK1xxxxxxx"}[name]
		if err := vfs.WriteFile(fsys, "/b/"+name, []byte(content)); err != nil {
			t.Fatal(err)
		}
	}
	names := func() (list []string) {
		t.Helper()
		files, err := List(fsys, "/b")
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range files {
			if (f.Err != nil) != (f.Name == damaged || f.Name == mine) {
				t.Errorf("%s: %v", f.Name, f.Err)
			}
			list = append(list, f.Name)
		}
		return list
	}
	if got, want := names(), append([]string{mine, damaged, other}, ours...); !slices.Equal(got, want) {
		t.Errorf("listed %q, want %q", got, want)
	}
	removed, err := Prune(fsys, "/b", "ours", 2)
	if err != nil || !slices.Equal(removed, ours[:1]) {
		t.Errorf("removed %q, %v", removed, err)
	}
	if err := RemoveUnfinished(fsys, "/b", "ours", "n1"); err != nil {
		t.Fatal(err)
	}
	if got, want := names(), append([]string{mine, damaged, other}, ours[1:]...); !slices.Equal(got, want) {
		t.Errorf("left %q, want %q", got, want)
	}
	all, err := fsys.List("/b")
	if err != nil || slices.Contains(all, unfinished) {
		t.Errorf("left %q, %v", all, err)
	}
	for _, name := range kept {
		if !slices.Contains(all, name) {
			t.Errorf("%s was removed", name)
		}
	}
}

// What a member is writing by itself is found by the names of it and of its cluster.
func TestAnUnfinishedBackupIsFound(t *testing.T) {
	fsys, ours, theirs := vfs.NewMem(), strings.Repeat("c", 32), strings.Repeat("d", 32)
	info := Info{Cluster: ours, Member: "n1", At: day}
	err := SaveOwn(fsys, "/"+info.FileName(), ours, func(io.Writer) error {
		for i, cluster := range []string{theirs, ours} {
			if err := RemoveUnfinished(fsys, "/", cluster, info.Member); err != nil {
				t.Error(err)
			}
			if names, err := fsys.List("/"); err != nil || len(names) != 1-i {
				t.Errorf("cluster %s left %q, %v", cluster, names, err)
			}
		}
		return nil
	})
	if err == nil {
		t.Error("a file that is gone was saved")
	}
}

// What somebody else keeps beside a backup's name stays, and two backups that are written to one
// name at once do not mix.
func TestNothingElseIsOverwritten(t *testing.T) {
	fsys := vfs.NewMem()
	if err := vfs.MkdirAll(fsys, "/b"); err != nil {
		t.Fatal(err)
	}
	if err := vfs.WriteFile(fsys, "/b/a.tmp", []byte("mine")); err != nil {
		t.Fatal(err)
	}
	err := Save(fsys, "/b/a", func(w io.Writer) error {
		if _, err := io.WriteString(w, "first"); err != nil {
			return err
		}
		if err := Save(fsys, "/b/a", func(w io.Writer) error { _, err := io.WriteString(w, "2"); return err }); err != nil {
			return err
		}
		_, err := io.WriteString(w, " whole")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"/b/a.tmp": "mine", "/b/a": "first whole"} {
		if got, err := vfs.ReadFile(fsys, name); err != nil || string(got) != want {
			t.Errorf("%s: %q, %v, want %q", name, got, err, want)
		}
	}
}

// Whatever fails, and wherever the power goes, a name in the folder stands for a
// whole backup.
func TestOnlyWholeFilesHaveAName(t *testing.T) {
	v := state(t, 3)
	for op := vfs.OpCreate; op <= vfs.OpSyncDir; op++ {
		mem, asked := vfs.NewMem(), 0
		fsys := vfs.Inject(mem, func(c vfs.Call) (f vfs.Fault) {
			if c.Op == op {
				asked++
				f.Err = errors.New("broken")
			}
			return f
		})
		err := Save(fsys, "/x.backup", func(w io.Writer) error { return Write(t.Context(), w, v, Info{}) })
		if (err != nil) != (asked > 0) || err != nil && incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("%v, %d times: %v", op, asked, err)
		}
		if f := Look(mem, "/x.backup"); f.Err == nil && op != vfs.OpSyncDir && asked > 0 {
			t.Errorf("%v: a file is there", op)
		}
	}
	fsys := vfs.NewMem()
	broken := errors.New("the sender is gone")
	err := Save(fsys, "/x.backup", func(w io.Writer) error {
		_, _ = io.WriteString(w, "a part")
		if _, err := fsys.Size("/x.backup"); err == nil {
			t.Error("a part of a file has its name")
		}
		return broken
	})
	if names, _ := fsys.List("/"); !errors.Is(err, broken) || len(names) > 0 {
		t.Errorf("%v, left: %q", err, names)
	}
	if err := Save(fsys, "/x.backup", func(w io.Writer) error { return Write(t.Context(), w, v, Info{}) }); err != nil {
		t.Fatal(err)
	}
	if err := Save(fsys, "/x.backup", func(io.Writer) error { return nil }); incumbent.KindOf(err) != incumbent.Exists {
		t.Errorf("a file was replaced: %v", err)
	}
	if f := Look(fsys, "/x.backup"); f.Err != nil || f.Info.Index != v.Index() {
		t.Errorf("%+v", f)
	}
}
