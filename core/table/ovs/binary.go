package ovs

import (
	"encoding/binary"
	"math"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
)

// The binary form of a datum is 0 if it is empty, else
//
//	kind of the keys + 16 × kind of the values   1 byte
//	number of elements                           varint
//	the keys, then the values of a map
//
// with integers as zigzag varints, reals as 8 bytes, booleans as one, texts behind
// their length, uuids as 16 bytes. There is one form of each datum.

// AppendBinary appends the binary form of a datum.
func (d Datum) AppendBinary(b []byte) []byte {
	if len(d.Keys) == 0 {
		return append(b, 0)
	}
	b = append(b, byte(d.Keys[0].kind)|byte(d.value(0).kind)<<4)
	b = protowire.AppendVarint(b, uint64(len(d.Keys)))
	for _, k := range d.Keys {
		b = k.appendBinary(b)
	}
	for _, v := range d.Values {
		b = v.appendBinary(b)
	}
	return b
}

func (a Atom) appendBinary(b []byte) []byte {
	switch a.kind {
	case Integer:
		return protowire.AppendVarint(b, protowire.EncodeZigZag(a.Int()))
	case Real:
		return binary.LittleEndian.AppendUint64(b, a.hi)
	case Boolean:
		return append(b, byte(a.hi))
	case String:
		return protowire.AppendString(b, a.s)
	}
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, a.hi), a.lo)
}

// decoder takes bytes apart. It is bad once something was not there.
type decoder struct {
	b   []byte
	bad bool
}

func (d *decoder) bytes(n uint64) []byte {
	if d.bad || n > uint64(len(d.b)) {
		d.bad, d.b = true, nil
		return nil
	}
	b := d.b[:n]
	d.b = d.b[n:]
	return b
}

func (d *decoder) byte() byte {
	if b := d.bytes(1); b != nil {
		return b[0]
	}
	return 0
}

// varint reads a varint in its shortest form.
func (d *decoder) varint() uint64 {
	v, n := protowire.ConsumeVarint(d.b)
	if n < 0 || n != protowire.SizeVarint(v) {
		d.bad, d.b = true, nil
		return 0
	}
	d.b = d.b[n:]
	return v
}

// column reads the index of a column of t.
func (d *decoder) column(t *Table) *Column {
	v := d.varint()
	if d.bad || v >= uint64(len(t.Columns)+2) {
		d.bad = true
		return columnUUID
	}
	return t.At(int(v) + ColumnVersion)
}

func appendColumn(b []byte, c int) []byte { return protowire.AppendVarint(b, uint64(c-ColumnVersion)) }

func (d *decoder) uuid() (u UUID) {
	copy(u[:], d.bytes(uint64(len(u))))
	return u
}

func (d *decoder) atom(k Kind) (a Atom) {
	switch a.kind = k; k {
	case Integer:
		a = IntegerAtom(protowire.DecodeZigZag(d.varint()))
	case Real:
		if b := d.bytes(8); b != nil {
			a.hi = binary.LittleEndian.Uint64(b)
		}
		f := a.Float()
		d.bad = d.bad || math.IsNaN(f) || math.IsInf(f, 0) || a.hi == 1<<63
	case Boolean:
		a.hi = uint64(d.byte())
		d.bad = d.bad || a.hi > 1
	case String:
		b := d.bytes(d.varint())
		d.bad = d.bad || !utf8.Valid(b)
		a.s = string(b)
	case UUIDKind:
		a = UUIDAtom(d.uuid())
	default:
		d.bad = true
	}
	return a
}

func (d *decoder) datum() (r Datum) {
	head := d.byte()
	if head == 0 {
		return r
	}
	n := d.varint()
	// Each element has a byte at least: what is made room for was paid for.
	if d.bad || n == 0 || n > MaxElements || n > uint64(len(d.b)) {
		d.bad = true
		return r
	}
	r.Keys = d.atoms(Kind(head&15), n)
	for i := 1; i < len(r.Keys) && !d.bad; i++ {
		d.bad = Compare(r.Keys[i-1], r.Keys[i]) >= 0
	}
	if k := Kind(head >> 4); k != Void && !d.bad {
		r.Values = d.atoms(k, n)
	}
	return r
}

func (d *decoder) atoms(k Kind, n uint64) []Atom {
	if n > uint64(len(d.b)) {
		d.bad = true
		return nil
	}
	list := make([]Atom, n)
	for i := range list {
		if list[i] = d.atom(k); d.bad {
			return nil
		}
	}
	return list
}

// typed reads a datum of type t, but for its constraints.
func (d *decoder) typed(t *Type) Datum {
	v := d.datum()
	n := len(v.Keys)
	d.bad = d.bad || n < t.Min || n > t.Max || n > 0 && (v.Keys[0].kind != t.Key.Kind || v.value(0).kind != t.Value.Kind)
	return v
}

// DecodeDatum reads the datum that b begins with, and returns the rest.
func DecodeDatum(b []byte) (v Datum, rest []byte, ok bool) {
	d := decoder{b: b}
	v = d.datum()
	return v, d.b, !d.bad
}

// AppendBinary appends the binary form of a row: its uuid, its version, and the
// datums of its columns.
func (r *Row) AppendBinary(b []byte) []byte {
	b = append(append(b, r.UUID[:]...), r.Version[:]...)
	for _, v := range r.Columns {
		b = v.AppendBinary(b)
	}
	return b
}

// DecodeRow reads a row of t and checks its types: kinds and numbers of elements.
// Columns at their default share it.
func DecodeRow(b []byte, t *Table) (*Row, bool) {
	d := decoder{b: b}
	r := &Row{UUID: d.uuid(), Version: d.uuid(), Columns: make([]Datum, len(t.Columns))}
	for i, c := range t.Columns {
		v := d.typed(&c.Type)
		if d.bad {
			return nil, false
		}
		if v.IsDefault(&c.Type) {
			v = c.Default
		}
		r.Columns[i] = v
	}
	return r, !d.bad && len(d.b) == 0
}
