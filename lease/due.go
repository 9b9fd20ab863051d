package lease

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Due names a lease, a session or a family's deadline, which had passed when the
// book was asked.
type Due struct {
	Token    incumbent.Token     // of a lease, or 0
	Session  incumbent.SessionID // of a session, or zero
	Deadline *core.Deadline      // else of a family

	ref      ref
	deadline int64 // that had passed: one that has moved since may be due again, but that is another matter
}

// Expiry is what a command needs to end it.
type Expiry struct {
	Renewal uint64 // of a family's deadline: its generation
	Late    time.Duration
}

// Due appends what is due and was not handed out before. A deadline that
// equals now has not passed. Each one handed out is given back by Check or
// becomes an expiry by MarkExpiring.
func (b *Book) Due(dst []Due) []Due {
	b.buckets.take(b.now, func(n uint32, r ref) {
		t := b.timer(r)
		if t.bucket != n {
			return // void: the slot was used again, or moved
		}
		t.bucket = 0
		if !b.timed(r) {
			return
		}
		if t.deadline >= b.now {
			b.arm(r)
			return
		}
		t.flags |= inDue
		dst = append(dst, b.due(r))
	})
	return dst
}

func (b *Book) due(r ref) Due {
	switch r.kind() {
	case ofSession:
		s := &b.sessions[r.slot()]
		return Due{Session: s.id, ref: r, deadline: s.deadline}
	case ofDeadline:
		s := &b.deadlines[r.slot()]
		return Due{Deadline: s.of, ref: r, deadline: s.deadline}
	}
	l := &b.leases[r.slot()]
	return Due{Token: l.token, ref: r, deadline: l.deadline}
}

// is reports whether the slot is still the one that d named.
func (b *Book) is(d Due) bool {
	switch d.ref.kind() {
	case ofSession:
		s := &b.sessions[d.ref.slot()]
		return s.flags&(used|dead) == used && s.id == d.Session
	case ofDeadline:
		return b.deadlines[d.ref.slot()].of == d.Deadline // each beginning has its own
	}
	l := &b.leases[d.ref.slot()]
	return l.flags&used != 0 && l.token == d.Token
}

// Check looks at a due one again. If it is still due it says so; else it is
// given back.
func (b *Book) Check(d Due) (Expiry, bool) {
	t := b.timer(d.ref)
	if !b.is(d) || t.flags&inDue == 0 {
		return Expiry{}, false
	}
	if !b.timed(d.ref) || t.deadline != d.deadline || t.deadline >= b.now {
		t.flags &^= inDue
		b.arm(d.ref)
		return Expiry{}, false
	}
	return Expiry{Renewal: b.renewal(d.ref), Late: time.Duration(b.now - t.deadline)}, true
}

// MarkExpiring says that the expiry of a due one has been proposed: until it is
// applied nothing that it names is acknowledged.
func (b *Book) MarkExpiring(d Due) {
	t := b.timer(d.ref)
	t.flags = t.flags&^inDue | expiring
}

// Unmark says that an expiry with this renewal was not appended, or was void
// when applied: the slot, if it is still there, has its old deadline. If the
// renewal has moved on since, so has the mark.
func (b *Book) Unmark(d Due, renewal uint64) {
	if b.is(d) && b.renewal(d.ref) == renewal {
		b.settle(d.ref)
	}
}

func (b *Book) renewal(r ref) uint64 {
	switch r.kind() {
	case ofSession:
		return b.sessions[r.slot()].renewal
	case ofDeadline:
		return uint64(b.deadlines[r.slot()].of.Generation)
	}
	return b.leases[r.slot()].renewal
}
