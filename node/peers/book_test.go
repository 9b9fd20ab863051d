package peers

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"io/fs"
	"maps"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
)

var testCluster = [16]byte{7}

func mustOpen(t *testing.T, fsys vfs.FS) *book {
	t.Helper()
	b, err := openBook(fsys, "/peers", testCluster)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestBookJudges is the table of what a member may show after what it showed.
func TestBookJudges(t *testing.T) {
	first, second := bootNonce{1}, bootNonce{2}
	before := Standing{Incarnation: 3, Term: 5, Durable: 100, Commit: 90}
	for _, c := range []struct {
		name    string
		shows   Standing
		boot    bootNonce
		accused bool
	}{
		{"the same run, again", before, first, false},
		{"the same run, an older hello that was overtaken", Standing{3, 4, 80, 80}, first, false},
		{"the next start", Standing{4, 5, 100, 80}, second, false},
		{"the next start, with the uncommitted tail cut by a new leader", Standing{4, 6, 91, 91}, second, false},
		{"the next start, without a committed entry", Standing{4, 6, 89, 89}, second, true},
		{"the next start, with an older term", Standing{4, 4, 100, 90}, second, true},
		{"an incarnation once more", Standing{3, 6, 200, 200}, second, true},
		{"an older incarnation", Standing{2, 6, 200, 200}, second, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			b := mustOpen(t, vfs.NewMem())
			if lower, err := b.admit(1, before, first, 0); lower != "" || err != nil {
				t.Fatal(lower, err)
			}
			lower, err := b.admit(1, c.shows, c.boot, 0)
			if err != nil || (lower != "") != c.accused {
				t.Errorf("accused of %q, %v", lower, err)
			}
			if lower, err := b.admit(2, Standing{}, second, 0); lower != "" || err != nil {
				t.Errorf("another member is accused of %q, %v", lower, err)
			}
		})
	}
}

// TestBookOfWhatWasAcknowledged: what a member has acknowledged to this one counts
// though it has not shown it yet; a stranger's is not noted.
func TestBookOfWhatWasAcknowledged(t *testing.T) {
	before, after := Standing{Incarnation: 3, Term: 5, Durable: 100, Commit: 90}, Standing{Incarnation: 4, Term: 5, Durable: 109, Commit: 109}
	for _, c := range []struct {
		name    string
		note    func(b *book)
		hello   uint64 // acknowledged, as far as is known when the member is back
		accused bool
	}{
		{"nothing more", func(*book) {}, 0, false},
		{"less than it has", func(b *book) { b.acknowledged(1, 109) }, 108, false},
		{"noted before", func(b *book) { b.acknowledged(1, 110); b.acknowledged(1, 95) }, 0, true},
		{"known when it is back", func(*book) {}, 110, true},
		{"by another", func(b *book) { b.acknowledged(2, 110) }, 0, false},
	} {
		b := mustOpen(t, vfs.NewMem())
		if _, err := b.admit(1, before, bootNonce{1}, 0); err != nil {
			t.Fatal(err)
		}
		c.note(b)
		if lower, err := b.admit(1, before, bootNonce{1}, c.hello); lower != "" || err != nil {
			t.Errorf("%s: in the same run accused of %q, %v", c.name, lower, err)
		}
		if lower, err := b.admit(1, after, bootNonce{2}, c.hello); err != nil || (lower != "") != c.accused {
			t.Errorf("%s: accused of %q, %v", c.name, lower, err)
		}
		if _, known := b.rows[2]; known {
			t.Errorf("%s: a stranger is in the book", c.name)
		}
	}
}

// TestBookOutlivesPowerLoss crashes after every hello that was admitted, in many
// ways: it is in the book that the next start finds.
func TestBookOutlivesPowerLoss(t *testing.T) {
	mem := vfs.NewMem()
	b := mustOpen(t, mem)
	for i := uint64(1); i <= 5; i++ {
		s := Standing{Incarnation: i, Term: i, Durable: 10 * i, Commit: 10 * i}
		if lower, err := b.admit(1, s, bootNonce{byte(i)}, 0); lower != "" || err != nil {
			t.Fatal(lower, err)
		}
		for seed := range 20 {
			found := mustOpen(t, mem.CrashClone(rand.New(rand.NewPCG(i, uint64(seed)))))
			want := map[uint64]seen{1: {incarnation: i, term: i, index: 10 * i, boot: bootNonce{byte(i)}}}
			if diff := cmp.Diff(want, found.rows, cmp.AllowUnexported(seen{})); diff != "" {
				t.Fatalf("start %d, crash %d: %s", i, seed, diff)
			}
		}
	}
}

// TestBookThatCannotBeWrittenAdmitsNobody fails each call in turn; the book on
// disk stays the old one or becomes the new one, whole.
func TestBookThatCannotBeWrittenAdmitsNobody(t *testing.T) {
	for fail := range 4 {
		mem := vfs.NewMem()
		mustOpen(t, mem) // makes the folder
		calls, broken := 0, errors.New("broken")
		b := mustOpen(t, mem)
		b.fsys = vfs.Inject(mem, func(vfs.Call) vfs.Fault {
			calls++
			if calls-1 == fail {
				return vfs.Fault{Err: broken}
			}
			return vfs.Fault{}
		})
		_, err := b.admit(1, Standing{Incarnation: 1}, bootNonce{1}, 0)
		if err == nil {
			t.Errorf("call %d failed and the hello was admitted", fail)
		}
		if n := len(mustOpen(t, mem).rows); n > 1 {
			t.Errorf("%d rows", n)
		}
		if lower, err := b.admit(1, Standing{Incarnation: 1}, bootNonce{1}, 0); lower != "" || err != nil {
			t.Errorf("the next try: %q, %v", lower, err)
		}
		if n := len(mustOpen(t, mem).rows); n != 1 {
			t.Errorf("%d rows after the next try", n)
		}
	}
}

// One file of the two may be damaged: it was being written. The other one has what was shown
// before then.
func TestDamagedBook(t *testing.T) {
	mem := vfs.NewMem()
	b := mustOpen(t, mem)
	for i := range uint64(2) {
		if _, err := b.admit(1, Standing{1 + i, 2, 3, 3}, bootNonce{byte(i)}, 0); err != nil {
			t.Fatal(err)
		}
	}
	content := b.encode()
	for i := range len(content) * 8 {
		bad := slices.Clone(content)
		bad[i/8] ^= 1 << (i % 8)
		if _, rows, whole := decodeBook(bad); whole {
			t.Fatalf("bit %d: %v", i, rows)
		}
	}
	if _, err := openBook(mem, "/peers", [16]byte{8}); incumbent.KindOf(err) != incumbent.Corrupt {
		t.Errorf("of another cluster: %v", err)
	}
	damage := func(name string) {
		f, err := mem.OpenWrite(b.path(name))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := f.WriteAt([]byte("x"), 40); err != nil {
			t.Fatal(err)
		}
	}
	damage(bookNames[1])
	if got := mustOpen(t, mem).rows[1].incarnation; got != 1 {
		t.Errorf("the other file has incarnation %d, want 1", got)
	}
	damage(bookNames[0])
	if _, err := openBook(mem, "/peers", testCluster); incumbent.KindOf(err) != incumbent.Corrupt {
		t.Errorf("both damaged: %v", err)
	}
}

// A member without any room on its disk writes down what the others show.
func TestBookOnAFullDisk(t *testing.T) {
	mem := vfs.NewMem()
	mustOpen(t, mem)
	full := vfs.Inject(mem, func(c vfs.Call) vfs.Fault {
		if c.Op == vfs.OpCreate || c.Op == vfs.OpPreallocate {
			return vfs.Fault{Err: syscall.ENOSPC}
		}
		return vfs.Fault{}
	})
	b := mustOpen(t, full)
	for i := uint64(1); i <= 4; i++ {
		if lower, err := b.admit(i, Standing{Incarnation: i}, bootNonce{1}, 0); lower != "" || err != nil {
			t.Fatal(lower, err)
		}
		if got := len(mustOpen(t, full).rows); got != int(i) {
			t.Errorf("%d members shown, %d in the book", i, got)
		}
	}
}

// What a member of an earlier version has written down is known, and goes once there is
// something newer.
func TestABookOfAnEarlierVersion(t *testing.T) {
	mem := vfs.NewMem()
	mustOpen(t, mem)
	row := seen{incarnation: 3, term: 5, index: 90, boot: bootNonce{1}}
	content := (&book{rows: map[uint64]seen{1: row}, cluster: testCluster}).encode()
	old := slices.Concat([]byte(oldMagic), testCluster[:], content[bookHeadBytes-4:len(content)-4])
	old = binary.LittleEndian.AppendUint32(old, crc32.Checksum(old, castagnoli))
	if err := vfs.WriteFile(mem, "/peers/"+oldName, old); err != nil {
		t.Fatal(err)
	}
	for range 2 { // until something is written
		if got := mustOpen(t, mem).rows[1]; got != row {
			t.Fatalf("it says %+v", got)
		}
	}
	b := mustOpen(t, mem)
	if lower, err := b.admit(1, Standing{4, 5, 89, 89}, bootNonce{2}, 0); lower == "" || err != nil {
		t.Errorf("who has less than that is let in: %v", err)
	}
	if _, err := b.admit(2, Standing{1, 1, 1, 1}, bootNonce{3}, 0); err != nil {
		t.Fatal(err)
	}
	if got := mustOpen(t, mem).rows; len(got) != 2 || got[1] != row {
		t.Errorf("behind it there is %+v", got)
	}
	if _, err := mem.Size("/peers/" + oldName); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the old file is there: %v", err)
	}
	if err := errors.Join(vfs.MkdirAll(mem, "/other"), vfs.WriteFile(mem, "/other/"+oldName, old[:len(old)-1])); err != nil {
		t.Fatal(err)
	}
	if _, err := openBook(mem, "/other", testCluster); incumbent.KindOf(err) != incumbent.Corrupt {
		t.Errorf("one that is not whole: %v", err)
	}
}

func FuzzBook(f *testing.F) {
	f.Add((&book{rows: map[uint64]seen{1: {incarnation: 2}}, cluster: testCluster}).encode())
	f.Fuzz(func(t *testing.T, p []byte) {
		version, rows, whole := decodeBook(p)
		if !whole {
			return
		}
		again, back, whole := decodeBook((&book{rows: rows, version: version}).encode())
		if !whole || again != version || !maps.Equal(back, rows) {
			t.Fatal("does not come back")
		}
	})
}

// TestRolledBackMemberIsRefused lets a member return with less than it showed:
// by hello at first, by ping later.
func TestRolledBackMemberIsRefused(t *testing.T) {
	for _, which := range []int{0, 1} {
		a, b := pair(t)
		m, o := []*member{a, b}[which], []*member{a, b}[1-which]
		m.change(func() { m.standing.Durable, m.standing.Commit = 500, 400 })
		for _, p := range *m.set.peers.Load() {
			if c := p.slots[node.Control].Load(); c != nil {
				c.ping(m.cfg.Standing()) // the housekeeper does so too, once in a while
			}
		}
		eventually(t, "what the ping showed is noted", func() bool {
			o.set.book.mu.Lock()
			defer o.set.book.mu.Unlock()
			return o.set.book.rows[m.id].index == 400
		})
		o.restart() // its book remembers
		m.change(func() { m.standing.Durable, m.standing.Commit = 399, 399 })
		m.restart()
		know(a, b)
		m.until("the refusal", func() bool { return len(m.refused) > 0 })
		if k := incumbent.KindOf(m.now().refused[0]); k != incumbent.Corrupt {
			t.Errorf("refused with %v: %v", k, m.now().refused[0])
		}
		if len(o.now().refused) != 0 {
			t.Errorf("the other was refused: %v", o.now().refused)
		}
	}
}

// TestMemberWithoutWhatItAcknowledgedIsRefused: it had not shown it yet.
func TestMemberWithoutWhatItAcknowledgedIsRefused(t *testing.T) {
	var acknowledged atomic.Uint64
	a := newMember(t, 1)
	b := newMember(t, 2, func(c *Config) { c.Acknowledged = func(uint64) uint64 { return acknowledged.Load() } })
	know(a, b)
	eventually(t, "a connection", func() bool { return len(a.set.Links()) == 1 && a.set.Links()[0].Connected })
	acknowledged.Store(11) // it has shown 10
	a.restart()
	know(a, b)
	a.until("the refusal", func() bool { return len(a.refused) > 0 })
	if k := incumbent.KindOf(a.now().refused[0]); k != incumbent.Corrupt {
		t.Errorf("refused with %v", a.now().refused[0])
	}
}

// TestTwoProcessesOfOneMember start from copies of one folder: the second is
// told apart by its boot.
func TestTwoProcessesOfOneMember(t *testing.T) {
	a, b := pair(t)
	twin := newMember(t, 1)
	twin.set.SetMembers([]Member{{ID: 2, Address: b.addr}})
	twin.until("the refusal", func() bool { return len(twin.refused) > 0 })
	if l := a.set.Links()[0]; !l.Connected {
		t.Error("the first lost its connections")
	}
}
