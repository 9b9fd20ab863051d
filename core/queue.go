package core

import (
	"github.com/incumbent-dev/incumbent"
)

// enqueue takes or keeps a place in the queue of a lease that another holds.
func (s *State) enqueue(c *command, l *Lease) Result {
	holder := string(c.holder)
	if s.waiting(l.Name, c.session, holder) {
		return Result{Lease: l, Queued: true, Position: l.place(c.session, holder) + 1}
	}
	if len(l.Queue) >= s.limits.queue {
		return Result{Lease: l, Err: tooLarge("queue of the lease", "MaxQueue", s.limits.queue)}
	}
	if s.counts[c.session].waits >= s.limits.waits {
		return Result{Lease: l, Err: tooLarge("places in queues of the session", "MaxWaitsPerSession", s.limits.waits)}
	}
	if err := s.checkRoom(c.session); err != nil {
		return Result{Lease: l, Err: err}
	}
	w := Waiter{Session: c.session, Holder: holder, Since: s.first, Critical: c.critical}
	n := l.next()
	n.Queue = append(n.Queue, w) // shares the array as History does: see remember
	s.addPlace(l.Name, w)
	s.putAlive(Queued, l, n, c.session)
	return Result{Lease: n, Queued: true, Position: len(n.Queue)}
}

// place is the position of a waiter in the queue, -1 if it has none.
func (l *Lease) place(session incumbent.SessionID, holder string) int {
	for i := range l.Queue {
		if l.Queue[i].Session == session && l.Queue[i].Holder == holder {
			return i
		}
	}
	return -1
}

// placeOf is the first position of a session in the queue, -1 if it has none.
func (l *Lease) placeOf(session incumbent.SessionID) int {
	for i := range l.Queue {
		if l.Queue[i].Session == session {
			return i
		}
	}
	return -1
}

// dequeue takes the waiter at a position out of the queue of a record that no
// table has yet.
func (s *State) dequeue(n *Lease, i int) Waiter {
	w := n.Queue[i]
	s.dropPlace(n.Name, w)
	switch {
	case len(n.Queue) == 1:
		n.Queue = nil
	case i == 0:
		n.Queue = n.Queue[1:]
	default: // a new array: older records read this one up to its end
		q := make([]Waiter, 0, len(n.Queue)-1)
		n.Queue = append(append(q, n.Queue[:i]...), n.Queue[i+1:]...)
	}
	return w
}

// leaveQueue gives up a place, or all places of the session if no holder is
// named. What was offered meanwhile and is not accepted is handed on.
func (s *State) leaveQueue(c *command) Result {
	_, l, err := s.lookup(c)
	if err != nil {
		return Result{Err: err}
	}
	if c.session.IsZero() {
		return Result{Err: fail(incumbent.Invalid, "leaving a queue needs a session")}
	}
	if l == nil {
		return Result{}
	}
	l = s.leave(l, c.session, c.holder)
	if l.Offered && l.Session == c.session && (len(c.holder) == 0 || l.Holder == string(c.holder)) {
		l = s.freeLease(l, ending{what: Declined})
	}
	return Result{Lease: l}
}

// leave takes a session's places out of the queue of a lease.
func (s *State) leave(l *Lease, session incumbent.SessionID, holder []byte) *Lease {
	var n *Lease
	for i := len(l.Queue) - 1; i >= 0; i-- {
		w := &l.Queue[i]
		if w.Session != session || len(holder) > 0 && w.Holder != string(holder) {
			continue
		}
		if n == nil {
			n = l.next()
		}
		s.dequeue(n, i)
	}
	if n == nil {
		return l
	}
	s.put(Change{What: Dequeued, LeaseBefore: l, Lease: n})
	return n
}
