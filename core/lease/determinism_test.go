package lease

import (
	"bytes"
	"errors"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// applyIn applies a log in batches that end at random places.
func applyIn(t *rapid.T, s *state, log [][]byte, label string) ([]core.Result, []core.Change) {
	var changes []core.Change
	results := make([]core.Result, len(log))
	for from := 0; from < len(log); {
		n := rapid.IntRange(1, len(log)-from).Draw(t, label)
		changes = append(changes, s.Apply(log[from:from+n], results[from:from+n])...)
		from += n
	}
	return results, changes
}

// sameLease compares what the records say: they may stand in other rows.
var sameLease = cmp.Options{
	cmp.Comparer(leasesAreSame),
	cmp.Comparer(func(a, b *newHolding) bool { return leasesAreSame((*Lease)(a), (*Lease)(b)) }),
}

func leasesAreSame(a, b *Lease) bool {
	if a == nil || b == nil {
		return a == b
	}
	var one, other writer
	one.record(a, nil)
	other.record(b, nil)
	return bytes.Equal(one.B, other.B) && a.Waiting == b.Waiting && (a.granted == 0) == (b.granted == 0)
}

var sameView = cmp.Comparer(func(a, b *core.View) bool { return a == b || a != nil && b != nil && a.Hash() == b.Hash() })

func drawLimits(t *rapid.T) limited {
	if rapid.Bool().Draw(t, "tight limits") {
		return tightLimits()
	}
	return noLimits()
}

// The same log gives the same state, results and changes, however it is split.
func TestG28_ApplyIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := New(), New()
		a.limit(drawLimits(t))
		b.limit(a.limits)
		log := drawLog(t, a.limits)
		resultsA, changesA := applyIn(t, a, log, "first split")
		resultsB, changesB := applyIn(t, b, log, "second split")
		if a.View().Hash() != b.View().Hash() {
			t.Fatal("hashes differ")
		}
		if d := cmp.Diff(resultsA, resultsB, sameView, sameLease); d != "" {
			t.Fatal(d)
		}
		if d := cmp.Diff(changesA, changesB, sameLease); d != "" {
			t.Fatal(d)
		}
	})
}

// A snapshot and the log behind it give what the whole log gives.
func TestG29_SnapshotAndTailEqualTheLog(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		whole := New()
		whole.limit(drawLimits(t))
		log := drawLog(t, whole.limits)
		at := rapid.IntRange(0, len(log)).Draw(t, "snapshot at")
		applyIn(t, whole, log[:at], "head")
		tail := restart(t, whole)
		if err := tail.Check(); err != nil {
			t.Fatal(err)
		}
		want, wantChanges := applyIn(t, whole, log[at:], "tail")
		got, gotChanges := applyIn(t, tail, log[at:], "other tail")
		if d := cmp.Diff(want, got, sameView, sameLease); d != "" {
			t.Fatal(d)
		}
		if d := cmp.Diff(wantChanges, gotChanges, sameLease); d != "" {
			t.Fatal(d)
		}
		if whole.View().Hash() != tail.View().Hash() {
			t.Fatal("hashes differ")
		}
	})
}

// A view never changes, whatever is applied while others read it.
func TestViewDoesNotChange(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := New()
		log := drawLog(t, s.limits)
		var readers sync.WaitGroup
		defer readers.Wait()
		for i := range log {
			s.Apply(log[i:i+1], make([]core.Result, 1))
			v := s.View()
			hash := v.Hash()
			readers.Go(func() {
				if v.Hash() != hash {
					t.Errorf("the view of index %d has changed", v.Index())
				}
			})
		}
	})
}

// The history is bounded in bytes as well as in number.
func TestHistoryBytes(t *testing.T) {
	s := New()
	long := string(bytes.Repeat([]byte("x"), core.MaxOriginBytes))
	meta := core.Meta{Origin: core.Origin{Address: long, Principal: long + long}}
	entity := PinCommand{Name: parseName("a"), Entity: "e"}
	for range 10 {
		s.Apply([][]byte{entity.Encode(meta), UnpinCommand(entity).Encode(meta)}, make([]core.Result, 2))
	}
	l := Of(s.View()).Lease(entity.Name)
	h := l.History()
	each := countedBytes(h[0].parts())
	if want := MaxHistoryBytes / each; len(h) != want || each < 2*core.MaxOriginBytes {
		t.Errorf("%d changes of %d bytes, want %d", len(h), each, want)
	}
	if h[0].Origin.Principal != long {
		t.Error("the principal was not cut at its limit")
	}
	restart(t, s)
}

// A checkpoint shows the state between the commands of its batch: members that
// cut the log into other batches see the same.
func TestG27_CheckpointWithinABatch(t *testing.T) {
	claim := func(lease string) []byte {
		return ClaimCommand{Name: parseName(lease), Holder: "ann", TTL: time.Minute}.Encode(core.Meta{})
	}
	log := [][]byte{claim("a"), core.CheckpointCommand{}.Encode(core.Meta{KeyID: []byte("k")}), claim("b"), claim("a")}
	one, each := New(), New()
	results, want := make([]core.Result, len(log)), make([]core.Result, len(log))
	one.Apply(log, results)
	for i := range log {
		each.Apply(log[i:i+1], want[i:i+1])
	}
	v := results[1].View
	if v == nil || v.Index() != 2 || Of(v).Len() != 1 || v.Hash() != want[1].View.Hash() || v.Hash() == one.View().Hash() {
		t.Errorf("the view of the checkpoint: %+v", v)
	}
}

// fullState has one of everything.
func fullState(t fatal) *state {
	s := New()
	x, y := sessionID("x"), sessionID("y")
	cmds := []core.Command{
		core.OpenSessionCommand{ID: x, TTL: time.Minute},
		core.OpenSessionCommand{ID: y},
		ClaimCommand{Name: parseName("a"), Holder: "ann", Session: x, Critical: true},
		ClaimCommand{Name: parseName("a"), Holder: "bob", Session: y, Wait: true},
		ClaimCommand{Name: parseName("a"), Holder: "cid", Session: y, Wait: true, Critical: true},
		ClaimCommand{Name: parseName("b"), Holder: "ann", TTL: time.Minute},
		PinCommand{Name: parseName("b"), Entity: "e1"},
		PinCommand{Name: parseName("b"), Entity: "e2"},
		ReleaseCommand{Name: parseName("a"), Holder: "ann", Session: x},
		ClaimCommand{Name: parseName("c"), Holder: "ann", TTL: time.Minute},
		ReleaseCommand{Name: parseName("c"), Holder: "ann"},
		RevokeCommand{Name: parseName("b"), By: "op", AtDeadline: true},
		ClaimCommand{Name: parseName("b"), Holder: "bob", TTL: time.Minute},
		core.PutMemberCommand{Member: core.Member{ID: 7, Name: "m7", PeerAddress: "host:1", ClientURL: "https://host:2", Schema: 2, Version: "v1"}},
		core.PutMemberCommand{Member: core.Member{ID: 5, Name: "m5", Schema: 3, Learner: true}},
		core.RemoveMemberCommand{ID: 9},
		core.RemoveMemberCommand{ID: 8},
	}
	for i, c := range cmds {
		meta := core.Meta{Origin: core.Origin{At: time.UnixMilli(int64(i)), Door: "native", Address: "127.0.0.1:1", Principal: "p"}}
		if i%2 == 0 {
			meta.KeyID = []byte{0xff, byte(i)}
		}
		s.Apply([][]byte{c.Encode(meta)}, make([]core.Result, 1))
	}
	if err := s.Check(); err != nil {
		t.Fatalf("%v", err)
	}
	return s
}

func snapshotBytes(t fatal, s *state) []byte {
	var b bytes.Buffer
	if err := s.View().WriteSnapshot(&b); err != nil {
		t.Fatalf("%v", err)
	}
	return b.Bytes()
}

// A snapshot cut off anywhere is Corrupt, and so is one with more behind it.
func TestRestoreRefusesTornSnapshots(t *testing.T) {
	whole := snapshotBytes(t, fullState(t))
	for n := range whole {
		if _, err := Restore(bytes.NewReader(whole[:n])); incumbent.KindOf(err) != incumbent.Corrupt {
			t.Fatalf("cut at %d of %d: %v", n, len(whole), err)
		}
	}
	if _, err := Restore(bytes.NewReader(append(bytes.Clone(whole), 0))); incumbent.KindOf(err) != incumbent.Corrupt {
		t.Fatalf("a byte too many: %v", err)
	}
}

// A flipped bit is found or gives another state: never a panic, never one that
// breaks an invariant.
func TestRestoreFlippedBits(t *testing.T) {
	whole := snapshotBytes(t, fullState(t))
	for i := range len(whole) * 8 {
		flipped := bytes.Clone(whole)
		flipped[i/8] ^= 1 << (i % 8)
		s, err := Restore(bytes.NewReader(flipped))
		if err == nil {
			err = s.Check()
			if err == nil && bytes.Equal(snapshotBytes(t, s), whole) {
				t.Fatalf("bit %d of byte %d changes nothing", i%8, i/8)
			}
			if err != nil {
				t.Fatalf("bit %d of byte %d: %v", i%8, i/8, err)
			}
		}
	}
}

type failing struct{ after int }

var errBroken = errors.New("broken")

func (f *failing) Write(b []byte) (int, error) {
	if f.after -= len(b); f.after < 0 {
		return 0, errBroken
	}
	return len(b), nil
}

func (f *failing) Read([]byte) (int, error) { return 0, errBroken }

// Errors of the file are passed on as what they are.
func TestSnapshotErrors(t *testing.T) {
	if err := fullState(t).View().WriteSnapshot(new(failing)); !errors.Is(err, errBroken) {
		t.Errorf("writing: %v", err)
	}
	whole := snapshotBytes(t, fullState(t))
	in := io.MultiReader(bytes.NewReader(whole[:len(whole)/2]), new(failing))
	if _, err := Restore(in); !errors.Is(err, errBroken) {
		t.Errorf("reading: %v", err)
	}
}
