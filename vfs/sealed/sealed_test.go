package sealed

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	"github.com/incumbent-dev/incumbent"
)

const testMagic = "TESTFORM"

// file returns a whole file.
func file(t testing.TB, header string, content []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := NewWriter(&b, testMagic, []byte(header))
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
	if w.Bytes() != int64(b.Len()) || w.Sum() != sha256.Sum256(b.Bytes()) {
		t.Fatal("the writer does not know its own file")
	}
	return b.Bytes()
}

func read(b []byte) (*Reader, []byte, error) {
	r, err := NewReader(bytes.NewReader(b), "f", testMagic, 100)
	if err != nil {
		return nil, nil, err
	}
	got, err := io.ReadAll(r)
	return r, got, err
}

func TestRoundTrip(t *testing.T) {
	for _, size := range []int{0, 1, MaxChunk - 1, MaxChunk, MaxChunk + 1, 5*MaxChunk + 7} {
		content := bytes.Repeat([]byte("0123456789abcde"), size/15+1)[:size]
		b := file(t, "header", content)
		r, got, err := read(b)
		if err != nil || !bytes.Equal(got, content) || string(r.Header()) != "header" {
			t.Fatalf("size %d: got %d bytes, header %q, %v", size, len(got), r.Header(), err)
		}
		if r.Offset() != int64(len(b)) || r.Sum() != sha256.Sum256(b) || r.Damage() != nil {
			t.Errorf("size %d: the reader does not know the file", size)
		}
		slow, err := NewReader(iotest.OneByteReader(bytes.NewReader(b)), "f", testMagic, 100)
		if err == nil {
			err = slow.Finish()
		}
		if err != nil {
			t.Errorf("size %d, a byte at a time: %v", size, err)
		}
	}
}

// No byte of a file may differ, be missing, or be one too many.
func TestG30_EveryDamagedByteIsFound(t *testing.T) {
	whole := file(t, "a header", bytes.Repeat([]byte("contents"), 40))
	check := func(what string, at int, b []byte) {
		t.Helper()
		if _, _, err := read(b); incumbent.KindOf(err) != incumbent.Corrupt {
			t.Errorf("%s %d: got %v, want Corrupt", what, at, err)
		}
	}
	for i := range whole {
		for bit := range 8 {
			b := slices.Clone(whole)
			b[i] ^= 1 << bit
			check("flipped in byte", i, b)
		}
		check("cut at", i, whole[:i])
		check("removed byte", i, slices.Delete(slices.Clone(whole), i, i+1))
	}
	check("one more than", len(whole), append(slices.Clone(whole), 0))
	check("twice", 2, append(slices.Clone(whole), whole...))
}

// The hash is compared by itself: checksums that were made to fit do not help.
func TestTheHashIsCompared(t *testing.T) {
	b := file(t, "h", []byte("contents"))
	at := len(b) - TrailerBytes
	forged, err := NewWriter(io.Discard, testMagic, []byte("h"))
	if err == nil {
		_, err = forged.Write([]byte("contents"))
	}
	if err == nil {
		err = forged.flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	var tail bytes.Buffer
	forged.w = &tail
	trailer := slices.Clone(b[at : len(b)-crcBytes])
	trailer[len(trailer)-1] ^= 1 // of the hash
	if err := forged.record(trailer); err != nil {
		t.Fatal(err)
	}
	_, _, err = read(slices.Concat(b[:at], tail.Bytes()))
	if incumbent.KindOf(err) != incumbent.Corrupt {
		t.Errorf("got %v, want Corrupt", err)
	}
}

func TestWhatIsSomethingElse(t *testing.T) {
	for _, b := range []string{"x", "hello", "another file, which is longer", "TESTFOR", "TESTFORN and so on"} {
		_, _, err := read([]byte(b))
		if other := b != "TESTFOR"; errors.Is(err, ErrOther) != other || incumbent.KindOf(err) != incumbent.Corrupt {
			t.Errorf("%q: got %v", b, err)
		}
	}
	if _, err := NewWriter(io.Discard, "short", nil); err == nil {
		t.Error("a magic of five bytes was taken")
	}
	if _, _, err := read(file(t, string(make([]byte, 101)), nil)); incumbent.KindOf(err) != incumbent.Corrupt {
		t.Errorf("a header over the limit: %v", err)
	}
}

// What the disk says is not called damage.
func TestAnErrorOfTheDiskIsItsOwn(t *testing.T) {
	b, broken := file(t, "h", make([]byte, 100)), errors.New("broken disk")
	for cut := range b {
		r, err := NewReader(io.MultiReader(bytes.NewReader(b[:cut]), iotest.ErrReader(broken)), "f", testMagic, 100)
		if err == nil {
			err = r.Finish()
		}
		if !errors.Is(err, broken) {
			t.Errorf("after %d bytes: %v", cut, err)
		}
	}
}

func FuzzReader(f *testing.F) {
	for _, size := range []int{0, 100, MaxChunk + 1} {
		f.Add(file(f, "header", make([]byte, size)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, _, err := read(b)
		if err != nil && incumbent.KindOf(err) != incumbent.Corrupt {
			t.Fatalf("got %v, want Corrupt", err)
		}
		if err == nil && r.Offset() != int64(len(b)) {
			t.Fatalf("accepted %d of %d bytes", r.Offset(), len(b))
		}
	})
}
