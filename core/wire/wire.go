// Package wire writes and reads the protobuf messages of commands and snapshot
// records by hand: their bytes are hashed, and must depend on nothing but what
// they say, on no version of a library.
package wire

import (
	"encoding/binary"
	"time"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
)

// Number is that of a field.
type Number = protowire.Number

// Writer appends fields in the order in which it is called. Zero values are left
// out, so that equal contents give equal bytes.
type Writer struct{ B []byte }

// Uint writes a varint.
func (w *Writer) Uint(num Number, v uint64) {
	if v != 0 {
		w.B = protowire.AppendTag(w.B, num, protowire.VarintType)
		w.B = protowire.AppendVarint(w.B, v)
	}
}

// Fixed writes 64 bits.
func (w *Writer) Fixed(num Number, v uint64) {
	if v != 0 {
		w.B = protowire.AppendTag(w.B, num, protowire.Fixed64Type)
		w.B = binary.LittleEndian.AppendUint64(w.B, v)
	}
}

// Flag writes a bool.
func (w *Writer) Flag(num Number, v bool) {
	if v {
		w.Uint(num, 1)
	}
}

// Text writes a string.
func (w *Writer) Text(num Number, s string) {
	if s != "" {
		w.B = protowire.AppendTag(w.B, num, protowire.BytesType)
		w.B = protowire.AppendString(w.B, s)
	}
}

// Bytes writes bytes.
func (w *Writer) Bytes(num Number, b []byte) {
	if len(b) > 0 {
		w.B = protowire.AppendTag(w.B, num, protowire.BytesType)
		w.B = protowire.AppendBytes(w.B, b)
	}
}

// List writes n elements, one behind the other, each with its length: a field comes
// once. [Field.Each] reads them.
func (w *Writer) List(num Number, n int, element func(i int) []byte) {
	if n == 0 {
		return
	}
	start := w.Begin(num)
	for i := range n {
		w.B = protowire.AppendBytes(w.B, element(i))
	}
	w.End(start)
}

// Session writes the id of a session.
func (w *Writer) Session(num Number, id incumbent.SessionID) {
	if !id.IsZero() {
		w.Bytes(num, id[:])
	}
}

// Sessions writes ids of sessions, one behind the other.
func (w *Writer) Sessions(num Number, list []incumbent.SessionID) {
	if len(list) == 0 {
		return
	}
	m := w.Begin(num)
	for i := range list {
		w.B = append(w.B, list[i][:]...)
	}
	w.End(m)
}

// Millis writes a duration, rounded up: a stored one is never shorter than the
// one asked for, and none becomes zero.
func (w *Writer) Millis(num Number, d time.Duration) {
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++
	} else if ms == 0 && d < 0 {
		ms = -1
	}
	w.Uint(num, uint64(ms))
}

// Begin starts a message; what it returns goes to End. One byte is kept for the
// length; End moves the message if it needs more.
func (w *Writer) Begin(num Number) int {
	w.B = protowire.AppendTag(w.B, num, protowire.BytesType)
	w.B = append(w.B, 0)
	return len(w.B)
}

// End ends the message that Begin started.
func (w *Writer) End(start int) {
	n := len(w.B) - start
	if extra := protowire.SizeVarint(uint64(n)) - 1; extra > 0 {
		w.B = append(w.B, make([]byte, extra)...)
		copy(w.B[start+extra:], w.B[start:start+n])
	}
	protowire.AppendVarint(w.B[:start-1], uint64(n))
}

// Field is one field of a message: its value is N or B.
type Field struct {
	Num  Number
	Type protowire.Type
	N    uint64
	B    []byte // aliases the message
}

// Reader takes a message apart. Each field may come once, with a number below 64,
// and only as varint, bytes or 64 fixed bits, so that bytes mean one thing or
// nothing.
type Reader struct {
	rest []byte
	seen uint64
	bad  bool
}

// Read returns a reader of a message, which it does not change.
func Read(b []byte) Reader { return Reader{rest: b} }

// Next returns the next field, false at the end or where the bytes are bad.
func (r *Reader) Next() (f Field, ok bool) {
	if len(r.rest) == 0 || r.bad {
		return f, false
	}
	num, typ, n := protowire.ConsumeTag(r.rest)
	if n < 0 || num >= 64 || r.seen&(1<<num) != 0 {
		r.bad = true
		return f, false
	}
	r.seen |= 1 << num
	f.Num, f.Type, r.rest = num, typ, r.rest[n:]
	switch typ {
	case protowire.VarintType:
		f.N, n = protowire.ConsumeVarint(r.rest)
	case protowire.BytesType:
		f.B, n = protowire.ConsumeBytes(r.rest)
	case protowire.Fixed64Type:
		n = -1
		if len(r.rest) >= 8 {
			f.N, n = binary.LittleEndian.Uint64(r.rest), 8
		}
	default:
		n = -1
	}
	if n < 0 {
		r.bad = true
		return f, false
	}
	r.rest = r.rest[n:]
	return f, true
}

// Fields hands the fields of a message to take, in their order, and reports whether the
// bytes are a message and take took all of them. A field that may not be there is to be
// refused by take. Fields come by value: who takes their address keeps them off the heap.
func Fields(b []byte, take func(f Field) bool) bool {
	r := Read(b)
	for f, more := r.Next(); more; f, more = r.Next() {
		if !take(f) {
			return false
		}
	}
	return !r.bad
}

// Bad reports whether the bytes were no message. It is known once Next has
// returned false.
func (r *Reader) Bad() bool { return r.bad }

// Uint takes a varint.
func (f *Field) Uint(to *uint64) bool {
	*to = f.N
	return f.Type == protowire.VarintType
}

// Fixed takes 64 bits.
func (f *Field) Fixed(to *uint64) bool {
	*to = f.N
	return f.Type == protowire.Fixed64Type
}

// Flag takes a bool.
func (f *Field) Flag(to *bool) bool {
	*to = f.N == 1
	return f.Type == protowire.VarintType && f.N <= 1
}

// Bytes takes bytes, which alias the message.
func (f *Field) Bytes(to *[]byte) bool {
	*to = f.B
	return f.Type == protowire.BytesType
}

// Text takes a text, whose bytes alias the message. Not even an error may let
// invalid UTF-8 through: a snapshot that holds it could not be read again.
func (f *Field) Text(to *[]byte) bool {
	*to = f.B
	return f.Type == protowire.BytesType && utf8.Valid(f.B)
}

// CopyText takes a copy of a text, as [Field.Text] does.
func (f *Field) CopyText(to *string) bool {
	*to = string(f.B)
	return f.Type == protowire.BytesType && utf8.Valid(f.B)
}

// CopyString takes a copy of bytes, which need not be UTF-8, as a string.
func (f *Field) CopyString(to *string) bool {
	*to = string(f.B)
	return f.Type == protowire.BytesType
}

// String takes bytes, which need not be UTF-8, as a string that aliases the message: who
// keeps it clones it.
func (f *Field) String(to *string) bool {
	*to = unsafe.String(unsafe.SliceData(f.B), len(f.B))
	return f.Type == protowire.BytesType
}

// Small takes a number below 256.
func Small[T ~uint8](f *Field, to *T) bool {
	*to = T(f.N)
	return f.Type == protowire.VarintType && f.N < 256
}

// Each calls take with each element of a list, as [Writer.List] writes it, which
// aliases the message. It is false if there are more than most, or take says so.
func (f *Field) Each(most int, take func([]byte) bool) bool {
	if f.Type != protowire.BytesType {
		return false
	}
	list := f.B
	for n := 0; len(list) > 0; n++ {
		b, size := protowire.ConsumeBytes(list)
		if size < 0 || n == most || !take(b) {
			return false
		}
		list = list[size:]
	}
	return true
}

// Session takes the id of a session.
func (f *Field) Session(to *incumbent.SessionID) bool {
	copy(to[:], f.B)
	return f.Type == protowire.BytesType && len(f.B) == len(to)
}

// Sessions takes ids of sessions, at most so many, as [Writer.Sessions] writes them. They
// alias the message.
func (f *Field) Sessions(to *[]byte, most int) bool {
	const size = len(incumbent.SessionID{})
	*to = f.B
	return f.Type == protowire.BytesType && len(f.B)%size == 0 && len(f.B) <= most*size
}

// Millis takes a duration of 0 to limit.
func (f *Field) Millis(to *time.Duration, limit time.Duration) bool {
	if f.Type != protowire.VarintType || f.N > uint64(limit/time.Millisecond) {
		return false
	}
	*to = time.Duration(f.N) * time.Millisecond
	return true
}
