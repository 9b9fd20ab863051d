package wire

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// one is the only field of what write writes.
func one(t testing.TB, write func(w *Writer)) Field {
	t.Helper()
	var w Writer
	write(&w)
	r := Read(w.B)
	f, ok := r.Next()
	if _, more := r.Next(); !ok || more || r.Bad() {
		t.Fatalf("%x is not one field", w.B)
	}
	return f
}

func elements(f *Field, most int) (list []string, ok bool) {
	ok = f.Each(most, func(b []byte) bool {
		list = append(list, string(b))
		return true
	})
	return list, ok
}

func TestListsAreReadAsTheyAreWritten(t *testing.T) {
	want := []string{"a", "", strings.Repeat("x", 200), "\xff"}
	f := one(t, func(w *Writer) { w.List(3, len(want), func(i int) []byte { return []byte(want[i]) }) })
	got, ok := elements(&f, len(want))
	if d := cmp.Diff(want, got); d != "" || !ok || f.Num != 3 {
		t.Errorf("read %v, field %d:\n%s", ok, f.Num, d)
	}
	if got, ok := elements(&f, len(want)-1); ok || len(got) != len(want)-1 {
		t.Errorf("of %d elements %d are taken and it is %v, the limit is %d", len(want), len(got), ok, len(want)-1)
	}
	if f.Each(len(want), func(b []byte) bool { return len(b) > 0 }) {
		t.Error("an element that was refused is no reason to refuse the list")
	}
	f.B = f.B[:len(f.B)-1]
	if _, ok := elements(&f, len(want)); ok {
		t.Error("a list that is cut short is read")
	}
	var none Writer
	none.List(3, 0, nil)
	if len(none.B) > 0 {
		t.Errorf("a list without elements is written as %x", none.B)
	}
}

func TestSmallNumbers(t *testing.T) {
	type verb uint8
	for n, ok := range map[uint64]bool{1: true, 255: true, 256: false, 1<<32 + 1: false} {
		f := one(t, func(w *Writer) { w.Uint(1, n) })
		var to verb
		if got := Small(&f, &to); got != ok || ok && uint64(to) != n {
			t.Errorf("%d is read as %d: %v", n, to, got)
		}
	}
	f := one(t, func(w *Writer) { w.Fixed(1, 7) })
	if Small(&f, new(verb)) {
		t.Error("fixed bits are read as a small number")
	}
}

// Texts are UTF-8, strings need not be; neither aliases the message.
func TestCopies(t *testing.T) {
	for text, valid := range map[string]bool{"é": true, "\xff": false} {
		f := one(t, func(w *Writer) { w.Text(1, text) })
		var a, b string
		if f.CopyText(&a) != valid || !f.CopyString(&b) || b != text {
			t.Errorf("%q is read as a text %q and a string %q", text, a, b)
		}
		was := slices.Clone(f.B)
		for i := range f.B {
			f.B[i] = 'x'
		}
		if a != string(was) || b != string(was) {
			t.Errorf("%q changes with the message to %q and %q", was, a, b)
		}
	}
	f := one(t, func(w *Writer) { w.Uint(1, 1) })
	var s string
	if f.CopyText(&s) || f.CopyString(&s) || f.Each(1, func([]byte) bool { return true }) {
		t.Error("a number is read as bytes")
	}
}
