package node

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"testing"

	pb "go.etcd.io/raft/v3/raftpb"
	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs/sealed"
	"github.com/incumbent-dev/incumbent/wal"
)

func TestEntryRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cmds := rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 300), 1, MaxEntryCommands).Draw(t, "commands")
		want := entryHeader{
			Group: rapid.Uint64().Draw(t, "group"), Member: rapid.Uint64().Draw(t, "member"),
			Incarnation: rapid.Uint64().Draw(t, "incarnation"), First: rapid.Uint64().Draw(t, "first"), Count: len(cmds),
		}
		b := encodeEntry(want, cmds)
		got, err := decodeHeader(b)
		if err != nil || got != want {
			t.Fatalf("header: got %+v, %v, want %+v", got, err, want)
		}
		back, err := decodeEntry(b, nil)
		if err != nil || !slices.EqualFunc(back, cmds, bytes.Equal) {
			t.Fatalf("commands: got %q, %v, want %q", back, err, cmds)
		}
	})
}

// TestLargestEntryFits holds the largest entry against the limits around it.
func TestLargestEntryFits(t *testing.T) {
	cmds := make([][]byte, MaxEntryCommands)
	for i := range cmds {
		cmds[i] = make([]byte, MaxCommandBytes/MaxEntryCommands)
	}
	for _, cs := range [][][]byte{cmds, {make([]byte, MaxCommandBytes)}} {
		b := encodeEntry(entryHeader{Count: len(cs)}, cs)
		if _, err := decodeEntry(b, nil); err != nil {
			t.Errorf("entry of %d commands: %v", len(cs), err)
		}
	}
}

func FuzzEntry(f *testing.F) {
	f.Add(encodeEntry(entryHeader{Group: 1, Member: 2, Incarnation: 3, First: 4, Count: 2}, [][]byte{[]byte("a"), {}}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		h, herr := decodeHeader(b)
		cmds, err := decodeEntry(b, nil)
		if err != nil {
			if incumbent.KindOf(err) != incumbent.Corrupt {
				t.Fatalf("got %v, want Corrupt", err)
			}
			return
		}
		if herr != nil || h.Count != len(cmds) || len(cmds) > MaxEntryCommands {
			t.Fatalf("header says %+v, %v; %d commands", h, herr, len(cmds))
		}
		// Lengths have more than one encoding; commands must survive all the same.
		back, err := decodeEntry(encodeEntry(h, cmds), nil)
		if err != nil || !slices.EqualFunc(back, cmds, bytes.Equal) {
			t.Fatalf("second decoding: %v", err)
		}
	})
}

// snapshotFile returns a whole file and what the log would say of it.
func snapshotFile(t testing.TB, content []byte) ([]byte, wal.SnapshotMark) {
	t.Helper()
	var file bytes.Buffer
	h := snapshotHeader{Schema: 3, Group: 4, Meta: SnapshotMeta{Index: 5, Term: 6, ConfState: pb.EnsureConfState(&pb.ConfState{
		Voters: []uint64{1, 2, 3}, Learners: []uint64{9},
	})}}
	w, err := newSnapshotWriter(&file, h)
	if err != nil {
		t.Fatal(err)
	}
	for len(content) > 0 { // in odd pieces
		n := min(len(content), 40_001)
		if _, err := w.Write(content[:n]); err != nil {
			t.Fatal(err)
		}
		content = content[n:]
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return file.Bytes(), w.mark(h.Meta, "name")
}

func TestSnapshotFileRoundTrip(t *testing.T) {
	for _, size := range []int{0, 1, sealed.MaxChunk - 1, sealed.MaxChunk, sealed.MaxChunk + 1, 5*sealed.MaxChunk + 7} {
		content := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
		file, mark := snapshotFile(t, content)
		r, err := newSnapshotReader(bytes.NewReader(file), "f")
		if err != nil {
			t.Fatal(err)
		}
		h := r.Header
		if h.Schema != 3 || h.Group != 4 || h.Meta.Index != 5 || h.Meta.Term != 6 ||
			!slices.Equal(h.Meta.ConfState.GetVoters(), []uint64{1, 2, 3}) || !slices.Equal(h.Meta.ConfState.GetLearners(), []uint64{9}) {
			t.Errorf("header: %+v", h)
		}
		got, err := io.ReadAll(r)
		if err != nil || !bytes.Equal(got, content) {
			t.Errorf("size %d: got %d bytes, %v", size, len(got), err)
		}
		if err := r.finish(mark); err != nil {
			t.Errorf("size %d: finish: %v", size, err)
		}
	}
}

// TestSnapshotChunksStayInPlace swaps and drops whole, valid chunks.
func TestSnapshotChunksStayInPlace(t *testing.T) {
	content := bytes.Repeat([]byte("abc"), sealed.MaxChunk) // three equal-sized chunks
	file, mark := snapshotFile(t, content)
	record := sealed.MaxChunk + sealed.ChunkBytes
	head := len(file) - sealed.TrailerBytes - 3*record
	chunk := func(i int) []byte { return file[head+i*record : head+(i+1)*record] }
	other, _ := snapshotFile(t, append([]byte("x"), content[1:]...))
	for name, b := range map[string][]byte{
		"swapped":     slices.Concat(file[:head], chunk(1), chunk(0), chunk(2), file[head+3*record:]),
		"dropped":     slices.Concat(file[:head], chunk(0), chunk(2), file[head+3*record:]),
		"twice":       slices.Concat(file[:head], chunk(0), chunk(0), chunk(1), chunk(2), file[head+3*record:]),
		"another one": other,
	} {
		r, err := newSnapshotReader(bytes.NewReader(b), "f")
		if err == nil {
			err = r.finish(mark)
		}
		if incumbent.KindOf(err) != incumbent.Corrupt {
			t.Errorf("%s: got %v, want Corrupt", name, err)
		}
	}
}

func FuzzSnapshotReader(f *testing.F) {
	for _, size := range []int{0, 100, sealed.MaxChunk + 1} {
		file, _ := snapshotFile(f, make([]byte, size))
		f.Add(file)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := newSnapshotReader(bytes.NewReader(b), "f")
		if err == nil {
			_, err = io.Copy(io.Discard, r)
		}
		if err != nil && incumbent.KindOf(err) != incumbent.Corrupt {
			t.Fatalf("got %v, want Corrupt", err)
		}
		if err == nil && r.Offset() != int64(len(b)) {
			t.Fatalf("accepted %d of %d bytes", r.Offset(), len(b))
		}
	})
}

// FuzzSnapshotBit flips one bit of a valid file: it must be found.
func FuzzSnapshotBit(f *testing.F) {
	file, mark := snapshotFile(f, bytes.Repeat([]byte{7}, sealed.MaxChunk+100))
	f.Add(uint(0), uint8(0))
	f.Fuzz(func(t *testing.T, at uint, bit uint8) {
		b := slices.Clone(file)
		b[at%uint(len(b))] ^= 1 << (bit % 8)
		r, err := newSnapshotReader(bytes.NewReader(b), "f")
		if err == nil {
			err = r.finish(mark)
		}
		var e *incumbent.Error
		if !errors.As(err, &e) || e.Kind != incumbent.Corrupt {
			t.Fatalf("bit %d of byte %d: got %v, want Corrupt", bit%8, at%uint(len(b)), err)
		}
	})
}
