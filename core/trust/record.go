package trust

import (
	"bytes"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent/core/wire"
)

const bytesType = protowire.BytesType

// Kinds of records, in the order in which they stand in a section.
const (
	rootRecord uint8 = iota + 1 // one, unless the cluster was not founded
	tokenRecord
	memberRecord
)

// Records implements [core.FamilyView].
func (t *shared) Records() int {
	if t.Cluster == ([16]byte{}) {
		return 0
	}
	return 1 + len(t.tokens) + len(t.members)
}

// Write implements [core.FamilyView].
func (v *View) Write(record func([]byte) bool) {
	if v.Records() == 0 || !record(v.Root.record()) {
		return
	}
	for _, k := range v.tokens {
		if !record(k.record()) {
			return
		}
	}
	for _, m := range v.members {
		if !record(m.record()) {
			return
		}
	}
}

// Each record has its kind in field 15, which no part of it uses.
func record(kind uint8, write func(*wire.Writer)) []byte {
	var w wire.Writer
	write(&w)
	w.Uint(15, uint64(kind))
	return w.B
}

func (r *Root) record() []byte {
	return record(rootRecord, func(w *wire.Writer) {
		w.Bytes(1, present(r.Cluster[:]))
		w.Bytes(2, r.Secret.Current)
		w.Bytes(3, r.Secret.Next)
		w.Bytes(4, r.Authority.Current)
		w.Bytes(5, r.Authority.Next)
		w.Bytes(6, r.Cross)
		w.Uint(7, r.Epoch)
	})
}

func (k *Token) record() []byte { return record(tokenRecord, k.write) }

func (m *Member) record() []byte {
	return record(memberRecord, func(w *wire.Writer) {
		w.Fixed(1, m.ID)
		w.Flag(2, m.Signer)
		w.Bytes(3, present(m.Token[:]))
		m.Report.write(w)
	})
}

// ReadRecord implements [core.Tables]. What is kept is written as it was read, or
// the bytes are refused: so states that are equal have equal bytes.
func (t *tables) ReadRecord(b []byte) bool {
	switch kindOf(b) {
	case rootRecord:
		var r Root
		ok := fields(b, r.set) && t.Records() == 0 && r.Cluster != [16]byte{} && bytes.Equal(r.record(), b)
		t.Root = r
		return ok
	case tokenRecord:
		k := new(Token)
		if !fields(b, k.set) || !bytes.Equal(k.record(), b) || t.Records() == 0 || len(t.members) > 0 {
			return false
		}
		t.tokens = append(t.tokens, k)
		return true
	case memberRecord:
		m := new(Member)
		if !fields(b, m.set) || !bytes.Equal(m.record(), b) || t.Records() == 0 {
			return false
		}
		t.members = append(t.members, m)
		return true
	}
	return false
}

func kindOf(b []byte) (kind uint8) {
	wire.Fields(b, func(f wire.Field) bool { return f.Num != 15 || wire.Small(&f, &kind) })
	return kind
}

// fields gives all fields but the kind to set.
func fields(b []byte, set func(*wire.Field) bool) bool {
	return wire.Fields(b, func(f wire.Field) bool { return f.Num == 15 || set(&f) })
}

func (r *Root) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return fixed(f, r.Cluster[:])
	case 2:
		return copied(f, &r.Secret.Current)
	case 3:
		return copied(f, &r.Secret.Next)
	case 4:
		return copied(f, &r.Authority.Current)
	case 5:
		return copied(f, &r.Authority.Next)
	case 6:
		return copied(f, &r.Cross)
	case 7:
		return f.Uint(&r.Epoch)
	}
	return false
}

func (m *Member) set(f *wire.Field) bool {
	switch f.Num {
	case 1:
		return f.Fixed(&m.ID)
	case 2:
		return f.Flag(&m.Signer)
	case 3:
		return fixed(f, m.Token[:])
	}
	return m.Report.set(f)
}

// fixed takes bytes of one length, which are not all zero.
func fixed(f *wire.Field, to []byte) bool {
	ok := f.Type == bytesType && len(f.B) == len(to) && slices.Max(f.B) > 0
	copy(to, f.B)
	return ok
}

func copied(f *wire.Field, to *[]byte) bool {
	*to = bytes.Clone(f.B)
	return f.Type == bytesType && len(f.B) > 0
}

// at takes a time in seconds since 1970.
func at(f *wire.Field, to *time.Time) bool {
	var n uint64
	ok := f.Uint(&n) && n > 0 && n < 1<<40
	*to = time.Unix(int64(n), 0).UTC()
	return ok
}
