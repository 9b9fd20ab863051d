package parts

import (
	"bytes"
	"slices"

	"github.com/incumbent-dev/incumbent/core/wire"
)

// A snapshot has a record for each part that waits, with what it is a part of:
// member, first and newest index, bytes of the whole, data.

// Records implements [core.FamilyView].
func (v *View) Records() (n int) {
	for _, w := range v.list {
		n += len(w.parts)
	}
	return n
}

// Write implements [core.FamilyView].
func (v *View) Write(record func([]byte) bool) {
	var out wire.Writer
	for _, w := range v.list {
		for _, p := range w.parts {
			if !record(w.record(&out, p)) {
				return
			}
		}
	}
}

// record writes a part into the same bytes as the one before.
func (w *Waiting) record(out *wire.Writer, data []byte) []byte {
	out.B = out.B[:0]
	out.Fixed(1, w.Member)
	out.Uint(2, uint64(w.Began))
	out.Uint(3, uint64(w.Newest))
	out.Uint(4, uint64(w.Total))
	out.Bytes(5, data)
	return out.B
}

// ReadRecord implements [core.Tables].
func (t *tables) ReadRecord(b []byte) bool {
	n, data, ok := readRecord(b)
	var again wire.Writer
	if !ok || !bytes.Equal(n.record(&again, data), b) {
		return false
	}
	data = bytes.Clone(data)
	o := t.of(n.Member)
	if o == nil {
		last := len(t.list) - 1
		n.parts = [][]byte{data}
		t.put(n.Member, n)
		return last < 0 || t.list[last].Member < n.Member
	}
	if o.Began != n.Began || o.Newest != n.Newest || o.Total != n.Total {
		return false
	}
	n.parts = append(slices.Clip(o.parts), data)
	t.put(n.Member, n)
	return t.list[len(t.list)-1] == n
}

func readRecord(b []byte) (w *Waiting, data []byte, ok bool) {
	w = new(Waiting)
	ok = wire.Fields(b, func(f wire.Field) bool {
		switch f.Num {
		case 1:
			return f.Fixed(&w.Member)
		case 2:
			return f.Uint((*uint64)(&w.Began))
		case 3:
			return f.Uint((*uint64)(&w.Newest))
		case 4:
			return length(&f, &w.Total)
		case 5:
			return f.Bytes(&data)
		}
		return false
	})
	return w, data, ok
}
