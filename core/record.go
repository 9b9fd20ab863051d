package core

import (
	"encoding/binary"
	"iter"

	"github.com/incumbent-dev/incumbent/core/wire"
)

// Writers of snapshot records, one for each message of core.proto. The bytes
// are hashed, so they depend on nothing but the state: fields in the order of
// their numbers, zero values left out.

const (
	recordHeader  wire.Number = 1
	recordLease   wire.Number = 2
	recordSession wire.Number = 3
	recordKept    wire.Number = 4
	recordMember  wire.Number = 5
	recordGone    wire.Number = 6
	recordSection wire.Number = 7
	recordFamily  wire.Number = 8
)

// sizes are the numbers of records that a header announces, and the newest schema
// of the families that have some.
type sizes struct{ leases, sessions, kept, members, gone, sections, families uint64 }

// sizes of a view: a family without records has no section, so that members that
// know more families write the same bytes.
func (v *View) sizes() sizes {
	n := v.shared.sizes()
	for _, f := range v.families {
		if f.Records() > 0 {
			n.sections++
			n.families = max(n.families, f.schema)
		}
	}
	return n
}

func (t *shared) sizes() sizes {
	return sizes{uint64(t.names.Len()), uint64(t.sessions.Len()), uint64(t.kept.Len()), uint64(len(t.members)), uint64(t.goneMembers.Len()), 0, 0}
}

// schema is the lowest version that knows every record: it follows from the
// state alone, so that members of different versions write the same bytes.
func (n sizes) schema() uint64 {
	if n.sections > 0 {
		return n.families
	}
	if n.members > 0 || n.gone > 0 {
		return memberSchema
	}
	return 1
}

func (e *encoder) header(t *shared, n sizes) {
	m := e.Begin(recordHeader)
	e.Uint(1, n.schema())
	e.Uint(2, uint64(t.index))
	e.Uint(3, uint64(t.keysFloor))
	e.Uint(4, n.leases)
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

// leaseRecord writes a lease and, unless it is nil, who waits for it.
func (e *encoder) leaseRecord(num wire.Number, l *Lease, queue iter.Seq[Waiter]) {
	m := e.Begin(num)
	e.name(l.Name)
	e.Text(2, l.Holder)
	e.Session(3, l.Session)
	e.Fixed(4, uint64(l.Token))
	e.Fixed(5, uint64(l.LastToken))
	e.Millis(6, l.TTL)
	e.Uint(7, l.Renewal)
	e.Flag(8, l.Offered)
	e.Flag(9, l.Critical)
	e.Flag(10, l.Revoking)
	for _, p := range l.Pins {
		e.Text(11, p)
	}
	if queue != nil {
		queue(func(w Waiter) bool { e.waiter(12, &w); return true })
	}
	e.Uint(13, uint64(l.Modified))
	e.origin(14, l.Origin)
	for b := l.past; len(b) > 0; {
		var c packed
		c, b = nextPacked(b)
		e.packedChange(15, &c)
	}
	if l.granted != 0 {
		c := l.grantChange()
		e.leaseChange(15, &c)
	}
	e.Text(16, l.PreviousHolder)
	e.End(m)
}

func (e *encoder) waiter(num wire.Number, w *Waiter) {
	m := e.Begin(num)
	e.Session(1, w.Session)
	e.Text(2, w.Holder)
	e.Uint(3, uint64(w.Since))
	e.Flag(4, w.Critical)
	e.Uint(5, w.Turn)
	e.End(m)
}

func (e *encoder) leaseChange(num wire.Number, c *LeaseChange) {
	m := e.Begin(num)
	e.Uint(1, uint64(c.Index))
	e.Uint(2, uint64(c.What))
	e.Text(3, c.Holder)
	e.Fixed(4, uint64(c.Token))
	e.origin(5, c.Origin)
	e.Millis(6, c.Late)
	e.Text(7, c.By)
	e.End(m)
}

// packedChange writes what leaseChange does, without unpacking.
func (e *encoder) packedChange(num wire.Number, c *packed) {
	m := e.Begin(num)
	e.Uint(1, uint64(c.index))
	e.Uint(2, uint64(c.what))
	e.Bytes(3, c.holder)
	e.Fixed(4, uint64(c.token))
	if c.at != 0 || len(c.door)+len(c.address)+len(c.principal) > 0 {
		o := e.Begin(5)
		e.Uint(1, uint64(c.at))
		e.Bytes(2, c.door)
		e.Bytes(3, c.address)
		e.Bytes(4, c.principal)
		e.End(o)
	}
	e.Uint(6, uint64(c.late))
	e.Bytes(7, c.by)
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

func (e *encoder) keptRecord(num wire.Number, k *kept) {
	m := e.Begin(num)
	r := &k.result
	e.Text(1, k.id)
	e.Uint(2, uint64(r.Index))
	if r.Err != nil {
		e.Uint(3, uint64(r.Err.Kind))
	}
	if r.Lease != nil {
		e.leaseRecord(5, r.Lease, nil)
	}
	if r.Session != nil {
		e.sessionRecord(6, r.Session)
	}
	e.Flag(7, r.Granted)
	e.Flag(8, r.Queued)
	e.Uint(9, uint64(r.Position))
	if r.Txn != nil {
		t := e.Begin(10)
		e.Uint(1, uint64(r.Txn.Unmet))
		e.Uint(2, uint64(r.Txn.Failed))
		e.End(t)
	}
	e.End(m)
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
