package core

import (
	"encoding/binary"

	"github.com/incumbent-dev/incumbent/core/wire"
)

// Writers of snapshot records, one for each message of core.proto. The bytes
// are hashed, so they depend on nothing but the state: fields in the order of
// their numbers, zero values left out.

const (
	recordHeader  wire.Number = 1
	recordSession wire.Number = 3
	recordKept    wire.Number = 4
	recordMember  wire.Number = 5
	recordGone    wire.Number = 6
	recordSection wire.Number = 7
	recordFamily  wire.Number = 8
)

// sizes are the numbers of records that a header announces, and the newest schema
// of the families that have some.
type sizes struct{ sessions, kept, members, gone, sections, families uint64 }

// sizes of a view: a family without records has no section, so that members that
// know more families write the same bytes.
func (v *View) sizes() sizes {
	n := v.shared.sizes()
	for i, f := range v.families {
		if f.Records() > 0 {
			n.sections++
			n.families = max(n.families, uint64(v.kinds[i].Schema()))
		}
	}
	return n
}

func (t *shared) sizes() sizes {
	return sizes{uint64(t.sessions.Len()), uint64(t.kept.Len()), uint64(len(t.members)), uint64(t.goneMembers.Len()), 0, 0}
}

// schema is the lowest version that knows every record: it follows from the
// state alone, so that members of different versions write the same bytes.
func (n sizes) schema() uint64 { return max(n.families, oldestSchema) }

func (e *encoder) header(t *shared, n sizes) {
	m := e.Begin(recordHeader)
	e.Uint(1, n.schema())
	e.Uint(2, uint64(t.index))
	e.Uint(3, uint64(t.keysFloor))
	e.Uint(5, n.sessions)
	e.Uint(6, n.kept)
	e.Uint(7, n.members)
	e.Uint(8, n.gone)
	e.Uint(9, n.sections)
	e.End(m)
}

// section writes what stands before the records of a family.
func (e *encoder) section(name string, records int) {
	m := e.Begin(recordSection)
	e.Text(1, name)
	e.Uint(2, uint64(records))
	e.End(m)
}

// familyRecord writes a record as its family wrote it.
func (e *encoder) familyRecord(record []byte) {
	m := e.Begin(recordFamily)
	e.B = append(e.B, record...)
	e.End(m)
}

func (e *encoder) sessionRecord(num wire.Number, s *Session) {
	m := e.Begin(num)
	e.Session(1, s.ID)
	e.Millis(2, s.TTL)
	e.Uint(3, s.Renewal)
	e.Uint(4, uint64(s.Opened))
	e.origin(5, s.Origin)
	e.End(m)
}

func (e *encoder) keptRecord(k kept) {
	m := e.Begin(recordKept)
	e.B = append(e.B, k.record...)
	e.End(m)
}

// keptResult writes what is kept of a result with the key id, of whose Record a family
// keeps so much: what a caller needs to know that lost the first answer, and no more. No
// text that this program makes is part of it.
func (e *encoder) keptResult(id string, r *Result, family wire.Number, record []byte) {
	e.Text(1, id)
	e.Uint(2, uint64(r.Index))
	if r.Err != nil {
		e.Uint(3, uint64(r.Err.Kind))
	}
	e.Uint(4, uint64(family))
	e.Bytes(5, record)
	if r.Session != nil {
		e.sessionRecord(6, r.Session)
	}
	if r.Txn != nil {
		t := e.Begin(10)
		e.Uint(1, uint64(r.Txn.Unmet))
		e.Uint(2, uint64(r.Txn.Failed))
		e.End(t)
	}
}

func (e *encoder) memberRecord(n *Member) {
	m := e.Begin(recordMember)
	e.member(n)
	e.Uint(8, uint64(n.Since))
	e.End(m)
}

func (e *encoder) goneRecord(t *shared) {
	m := e.Begin(recordGone)
	ids := e.Begin(1)
	t.goneMembers.Scan(func(id uint64) bool {
		e.B = binary.LittleEndian.AppendUint64(e.B, id)
		return true
	})
	e.End(ids)
	e.End(m)
}
