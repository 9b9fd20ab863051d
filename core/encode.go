package core

import (
	"encoding/binary"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
)

// encoder appends protobuf fields in the order it is called. Zero values are
// left out, so that equal contents give equal bytes.
type encoder struct{ b []byte }

func (e *encoder) uint(num protowire.Number, v uint64) {
	if v != 0 {
		e.b = protowire.AppendTag(e.b, num, protowire.VarintType)
		e.b = protowire.AppendVarint(e.b, v)
	}
}

func (e *encoder) fixed(num protowire.Number, v uint64) {
	if v != 0 {
		e.b = protowire.AppendTag(e.b, num, protowire.Fixed64Type)
		e.b = binary.LittleEndian.AppendUint64(e.b, v)
	}
}

func (e *encoder) flag(num protowire.Number, v bool) {
	if v {
		e.uint(num, 1)
	}
}

func (e *encoder) text(num protowire.Number, s string) {
	if s != "" {
		e.b = protowire.AppendTag(e.b, num, protowire.BytesType)
		e.b = protowire.AppendString(e.b, s)
	}
}

func (e *encoder) id(num protowire.Number, id incumbent.SessionID) {
	if !id.IsZero() {
		e.b = protowire.AppendTag(e.b, num, protowire.BytesType)
		e.b = protowire.AppendBytes(e.b, id[:])
	}
}

// ids writes sessions one behind the other.
func (e *encoder) ids(num protowire.Number, list []incumbent.SessionID) {
	if len(list) == 0 {
		return
	}
	e.b = protowire.AppendTag(e.b, num, protowire.BytesType)
	e.b = protowire.AppendVarint(e.b, uint64(len(list)*len(list[0])))
	for i := range list {
		e.b = append(e.b, list[i][:]...)
	}
}

// millis rounds up: a stored duration is never shorter than the one asked
// for, and none becomes zero, which means something else.
func (e *encoder) millis(num protowire.Number, d time.Duration) {
	ms := d / time.Millisecond
	if d%time.Millisecond > 0 {
		ms++
	} else if ms == 0 && d < 0 {
		ms = -1
	}
	e.uint(num, uint64(ms))
}

// begin starts a message; what it returns goes to end. One byte is kept for
// the length; end moves the message if it needs more.
func (e *encoder) begin(num protowire.Number) int {
	e.b = protowire.AppendTag(e.b, num, protowire.BytesType)
	e.b = append(e.b, 0)
	return len(e.b)
}

func (e *encoder) end(start int) {
	n := len(e.b) - start
	if extra := protowire.SizeVarint(uint64(n)) - 1; extra > 0 {
		e.b = append(e.b, make([]byte, extra)...)
		copy(e.b[start+extra:], e.b[start:start+n])
	}
	protowire.AppendVarint(e.b[:start-1], uint64(n))
}

// name is the first field wherever there is one, also when it is empty.
func (e *encoder) name(n incumbent.Name) {
	m := e.begin(1)
	e.text(1, n.Namespace)
	e.text(2, n.Model)
	e.text(3, n.Lease)
	e.end(m)
}

func (e *encoder) origin(num protowire.Number, o *Origin) {
	if *o == (Origin{}) {
		return
	}
	m := e.begin(num)
	e.uint(1, uint64(atMillis(o.At)))
	e.text(2, o.Door)
	e.text(3, o.Address)
	e.text(4, o.Principal)
	e.end(m)
}

// atMillis is the form of a wall clock in commands and snapshots; 0 is "none".
// It never makes a command fail: what does not fit is cut.
func atMillis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return min(max(t.UnixMilli(), 0), maxAtMillis)
}

func atTime(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}
