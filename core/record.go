package core

import (
	"encoding/binary"
	"iter"

	"google.golang.org/protobuf/encoding/protowire"
)

// Writers of snapshot records, one for each message of core.proto. The bytes
// are hashed, so they depend on nothing but the state: fields in the order of
// their numbers, zero values left out.

const (
	recordHeader  protowire.Number = 1
	recordLease   protowire.Number = 2
	recordSession protowire.Number = 3
	recordKept    protowire.Number = 4
	recordMember  protowire.Number = 5
	recordGone    protowire.Number = 6
	recordSection protowire.Number = 7
	recordFamily  protowire.Number = 8
)

// sizes are the numbers of records that a header announces.
type sizes struct{ leases, sessions, kept, members, gone, sections uint64 }

// sizes of a view: a family without records has no section, so that members that
// know more families write the same bytes.
func (v *View) sizes() sizes {
	n := v.shared.sizes()
	for _, f := range v.families {
		n.sections += uint64(one(f.Records() > 0))
	}
	return n
}

func (t *shared) sizes() sizes {
	return sizes{uint64(t.names.Len()), uint64(t.sessions.Len()), uint64(t.kept.Len()), uint64(len(t.members)), uint64(t.goneMembers.Len()), 0}
}

// schema is the lowest version that knows every record: it follows from the
// state alone, so that members of different versions write the same bytes.
func (n sizes) schema() uint64 {
	if n.sections > 0 {
		return familySchema
	}
	if n.members > 0 || n.gone > 0 {
		return memberSchema
	}
	return 1
}

func (e *encoder) header(t *shared, n sizes) {
	m := e.begin(recordHeader)
	e.uint(1, n.schema())
	e.uint(2, uint64(t.index))
	e.uint(3, uint64(t.keysFloor))
	e.uint(4, n.leases)
	e.uint(5, n.sessions)
	e.uint(6, n.kept)
	e.uint(7, n.members)
	e.uint(8, n.gone)
	e.uint(9, n.sections)
	e.end(m)
}

// section writes what stands before the records of a family.
func (e *encoder) section(name string, records int) {
	m := e.begin(recordSection)
	e.text(1, name)
	e.uint(2, uint64(records))
	e.end(m)
}

// familyRecord writes a record as its family wrote it.
func (e *encoder) familyRecord(record []byte) {
	m := e.begin(recordFamily)
	e.b = append(e.b, record...)
	e.end(m)
}

// leaseRecord writes a lease and, unless it is nil, who waits for it.
func (e *encoder) leaseRecord(num protowire.Number, l *Lease, queue iter.Seq[Waiter]) {
	m := e.begin(num)
	e.name(l.Name)
	e.text(2, l.Holder)
	e.id(3, l.Session)
	e.fixed(4, uint64(l.Token))
	e.fixed(5, uint64(l.LastToken))
	e.millis(6, l.TTL)
	e.uint(7, l.Renewal)
	e.flag(8, l.Offered)
	e.flag(9, l.Critical)
	e.flag(10, l.Revoking)
	for _, p := range l.Pins {
		e.text(11, p)
	}
	if queue != nil {
		queue(func(w Waiter) bool { e.waiter(12, &w); return true })
	}
	e.uint(13, uint64(l.Modified))
	e.origin(14, l.Origin)
	for i := range l.History {
		e.leaseChange(15, &l.History[i])
	}
	e.text(16, l.PreviousHolder)
	e.end(m)
}

func (e *encoder) waiter(num protowire.Number, w *Waiter) {
	m := e.begin(num)
	e.id(1, w.Session)
	e.text(2, w.Holder)
	e.uint(3, uint64(w.Since))
	e.flag(4, w.Critical)
	e.end(m)
}

func (e *encoder) leaseChange(num protowire.Number, c *LeaseChange) {
	m := e.begin(num)
	e.uint(1, uint64(c.Index))
	e.uint(2, uint64(c.What))
	e.text(3, c.Holder)
	e.fixed(4, uint64(c.Token))
	e.origin(5, c.Origin)
	e.millis(6, c.Late)
	e.text(7, c.By)
	e.end(m)
}

func (e *encoder) sessionRecord(num protowire.Number, s *Session) {
	m := e.begin(num)
	e.id(1, s.ID)
	e.millis(2, s.TTL)
	e.uint(3, s.Renewal)
	e.uint(4, uint64(s.Opened))
	e.origin(5, s.Origin)
	e.end(m)
}

func (e *encoder) keptRecord(num protowire.Number, k *kept) {
	m := e.begin(num)
	r := &k.result
	e.text(1, k.id)
	e.uint(2, uint64(r.Index))
	if r.Err != nil {
		e.uint(3, uint64(r.Err.Kind))
	}
	if r.Lease != nil {
		e.leaseRecord(5, r.Lease, nil)
	}
	if r.Session != nil {
		e.sessionRecord(6, r.Session)
	}
	e.flag(7, r.Granted)
	e.flag(8, r.Queued)
	e.uint(9, uint64(r.Position))
	if r.Txn != nil {
		t := e.begin(10)
		e.uint(1, uint64(r.Txn.Unmet))
		e.uint(2, uint64(r.Txn.Failed))
		e.end(t)
	}
	e.end(m)
}

func (e *encoder) memberRecord(n *Member) {
	m := e.begin(recordMember)
	e.member(n)
	e.uint(8, uint64(n.Since))
	e.end(m)
}

func (e *encoder) goneRecord(t *shared) {
	m := e.begin(recordGone)
	ids := e.begin(1)
	t.goneMembers.Scan(func(id uint64) bool {
		e.b = binary.LittleEndian.AppendUint64(e.b, id)
		return true
	})
	e.end(ids)
	e.end(m)
}
