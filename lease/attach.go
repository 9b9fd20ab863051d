package lease

import (
	"bytes"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Attachment is a connection that speaks for a session.
type Attachment struct {
	Session incumbent.SessionID
	Counter uint64 // chosen by the client: the highest wins
	// Lost is called at most once, on the lease loop, when the session is over or
	// attached elsewhere. Not after Detach.
	Lost func(reason string)
}

// Reasons that Lost is told.
const (
	LostElsewhere = "attached elsewhere"
	LostExpired   = "expired"
	LostClosed    = "closed"
)

// attach is an attachment and who asked for it.
type attach struct {
	Attachment
	done   func(core.Result)
	member uint64 // that has the connection; 0: this one
}

// Attach binds a session to a connection and extends it. What is answered has
// been confirmed.
func (e *Engine) Attach(a *attach) {
	old := e.attachments[a.Session]
	if old != nil && old.Counter >= a.Counter {
		e.answerAttach(a, core.Result{Err: incumbent.Errorf(incumbent.Conflict,
			"the session is attached with counter %d", old.Counter).WithHint("attach with a higher counter")})
		return
	}
	if old != nil {
		e.lose(old, LostElsewhere)
	}
	e.attachments[a.Session] = a
	e.Extend(&Batch{Items: []Extension{{Session: a.Session}}, attach: a})
}

func (e *Engine) answerAttach(a *attach, r core.Result) {
	e.out.Answered = append(e.out.Answered, Answer{Done: a.done, Result: r, attach: true})
}

func (e *Engine) lose(a *attach, reason string) {
	if e.attachments[a.Session] == a {
		delete(e.attachments, a.Session)
	}
	switch {
	case a.member != 0 && reason == LostElsewhere:
		e.tellLost(a.member, counted{a.Session, a.Counter})
	case a.member == 0:
		e.courier.stale = true
		if a.Lost != nil {
			e.out.Lost = append(e.out.Lost, Lost{a.Lost, reason})
		}
	}
}

// attached answers an attachment once its extension has been judged.
func (e *Engine) attached(b *Batch) {
	a, kind := b.attach, b.Items[0].Kind
	current := e.attachments[a.Session] == a
	switch {
	case kind != incumbent.OK:
		if current {
			e.Detach(a.Session, a.Counter) // the leader may have heard of it
		}
		e.answerAttach(a, core.Result{Err: &incumbent.Error{Kind: kind, Message: explain(kind), RetryAfter: b.RetryAfter}})
	case !current:
		e.answerAttach(a, core.Result{Err: incumbent.Errorf(incumbent.Conflict, "the session was attached elsewhere or detached meanwhile")})
	default:
		e.answerAttach(a, core.Result{Index: e.view.Index(), Session: e.view.Session(a.Session)})
	}
}

// Detach ends an attachment: the connection broke. The session's deadline is
// that of its last extension.
func (e *Engine) Detach(session incumbent.SessionID, counter uint64) {
	if !e.bound(0, counted{session, counter}) {
		return
	}
	delete(e.attachments, session)
	c := &e.courier
	if !c.on || e.leading {
		return
	}
	c.stale = true
	if e.leader != 0 { // else whoever leads next is told of all attachments that are left
		c.detached = append(c.detached, counted{session, counter})
	}
}

// sessionOver tells the connection of a session that it has ended.
func (e *Engine) sessionOver(id incumbent.SessionID, what core.What) {
	reason := LostClosed
	if what == core.SessionEnd {
		reason = LostExpired
	}
	if a := e.attachments[id]; a != nil {
		e.lose(a, reason)
	}
}

// endedUnseen tells the connections of sessions that have ended unseen.
func (e *Engine) endedUnseen() {
	for _, id := range e.attachedIDs() {
		if e.view.Session(id) == nil {
			e.lose(e.attachments[id], LostExpired)
		}
	}
}

// attachedIDs are the sessions attached to this member, in their order.
func (e *Engine) attachedIDs() []incumbent.SessionID {
	ids := make([]incumbent.SessionID, 0, len(e.attachments))
	for id, a := range e.attachments {
		if a.member == 0 {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, func(a, b incumbent.SessionID) int { return bytes.Compare(a[:], b[:]) })
	return ids
}

// Inspection asks what only the leader's memory knows.
type Inspection struct {
	Items []Inspected
	// Done is called once. What the leader could not be asked for is not Known.
	Done func(*Inspection)
	// Err says why nothing was asked: Overloaded, or Unavailable where this member
	// is stopping.
	Err *incumbent.Error

	left    int
	arrived int64
}

// Inspected is what is known of one lease (by Token) or session.
type Inspected struct {
	Token   incumbent.Token
	Session incumbent.SessionID

	Known      bool          // the leader's memory has it
	Running    bool          // it has a deadline that can pass
	ExpiresIn  time.Duration // until then, grace included; of a lease that a session owns, the session's
	Extends    uint64        // since this leader leads
	LastExtend time.Duration // ago; -1: never since this leader leads
	Attached   bool          // session
}

// forget makes all items unknown.
func (q *Inspection) forget() {
	for i := range q.Items {
		it := &q.Items[i]
		*it = Inspected{Token: it.Token, Session: it.Session, LastExtend: -1}
	}
}

// Inspect fills in an inspection, or has the leader do so.
func (e *Engine) Inspect(q *Inspection) {
	q.left, q.arrived = len(q.Items), e.now
	c := &e.courier
	away := !e.leading && c.on
	q.forget()
	for i := range q.Items {
		it := &q.Items[i]
		if away && len(c.looks) < MaxForwarding {
			c.looks = append(c.looks, look{q, i})
			continue
		}
		e.inspect(it)
		q.left--
	}
	if q.left == 0 {
		e.out.Inspected = append(e.out.Inspected, q)
	}
}

// lookedAt takes the answer to one item of an inspection.
func (e *Engine) lookedAt(l look) {
	if l.q.left--; l.q.left == 0 {
		e.out.Inspected = append(e.out.Inspected, l.q)
	}
}

func (e *Engine) inspect(it *Inspected) {
	*it = Inspected{Token: it.Token, Session: it.Session, LastExtend: -1}
	if it.Token != 0 {
		e.book.inspectLease(it)
		return
	}
	e.book.inspectSession(it)
	it.Attached = e.attachments[it.Session] != nil
}

func (b *Book) inspectLease(it *Inspected) {
	i, ok := b.byToken.get(it.Token)
	if !ok {
		return
	}
	l := &b.leases[i]
	r := leaseRef(i)
	it.Known, it.Extends = true, uint64(l.extends)
	if l.extends > 0 {
		it.LastExtend = time.Duration(b.now - l.lastExtend)
	}
	if l.owner != noSlot && l.flags&(offered|revoking) == 0 {
		r = sessionRef(l.owner)
		if s := &b.sessions[l.owner]; s.extends > 0 {
			it.Extends, it.LastExtend = uint64(s.extends), time.Duration(b.now-s.heard)
		}
	}
	if it.Running = b.timed(r); it.Running {
		it.ExpiresIn = max(time.Duration(b.timer(r).deadline-b.now), 0)
	}
}

func (b *Book) inspectSession(it *Inspected) {
	i, ok := b.byID[it.Session]
	if !ok {
		return
	}
	s := &b.sessions[i]
	it.Known, it.Extends = true, uint64(s.extends)
	if s.extends > 0 {
		it.LastExtend = time.Duration(b.now - s.heard)
	}
	if it.Running = b.timed(sessionRef(i)); it.Running {
		it.ExpiresIn = max(time.Duration(s.deadline-b.now), 0)
	}
}
