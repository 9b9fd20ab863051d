package core

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
)

// enqueue takes or keeps a place in the queue of a lease that another holds.
func (s *State) enqueue(c *command, l *Lease) Result {
	e, holder := l.entry, string(c.holder)
	if w, ok := s.placeOf(e, c.session, holder); ok {
		return Result{Lease: l, Queued: true, Position: s.position(e, w.Since)}
	}
	if int(l.Waiting) >= s.limits.queue {
		return Result{Lease: l, Err: tooLarge("queue of the lease", "MaxQueue", s.limits.queue)}
	}
	if s.counts[c.session].waits >= s.limits.waits {
		return Result{Lease: l, Err: tooLarge("places in queues of the session", "MaxWaitsPerSession", s.limits.waits)}
	}
	if err := s.checkRoom(c.session); err != nil {
		return Result{Lease: l, Err: err}
	}
	if err := s.overQuota(&request{
		owner: s.counts[c.session].session.owner(), namespace: l.Name.Namespace,
		owners: Growth{Leases: 1, Places: 1}, namespaces: Growth{Places: 1},
	}); err != nil {
		return Result{Lease: l, Err: err}
	}
	s.addPlace(e, Waiter{Session: c.session, Holder: holder, Since: s.first, Critical: c.critical})
	n := l.next()
	n.Waiting++
	s.putAlive(Queued, l, n, c.session)
	return Result{Lease: n, Queued: true, Position: int(n.Waiting)}
}

// dequeue takes a waiter out of the queue of a record that no table has yet.
func (s *State) dequeue(n *Lease, w Waiter) {
	s.dropPlace(n.entry, w)
	n.Waiting--
}

// firstOf is the first place of a session in the queue of a lease.
func (s *State) firstOf(l *Lease, session incumbent.SessionID) (Waiter, bool) {
	list := s.placesIn(l.entry, session, 1)
	if len(list) == 0 {
		return Waiter{}, false
	}
	return list[0], true
}

// nextWaiter is who is next in a queue that is not empty: see [ReleaseCommand].
func (s *State) nextWaiter(l *Lease, preferred incumbent.SessionID) Waiter {
	if !preferred.IsZero() {
		if w, ok := s.firstOf(l, preferred); ok {
			return w
		}
	}
	var first Waiter
	passed := 0
	for w := range s.queue(l.entry) {
		s.steps++
		if !s.absent(w.Session) {
			return w
		}
		if passed == 0 {
			first = w
		}
		if passed++; passed > MaxAbsent {
			break
		}
	}
	return first
}

// absent reports whether the command under way passes a session over.
func (s *State) absent(id incumbent.SessionID) bool {
	c := &s.cmd
	if len(c.absent) > 0 && c.absentIDs == nil {
		c.absentIDs = make([]incumbent.SessionID, 0, len(c.absent)/len(id))
		for list := range slices.Chunk(c.absent, len(id)) {
			c.absentIDs = append(c.absentIDs, incumbent.SessionID(list))
		}
		slices.SortFunc(c.absentIDs, compareIDs)
	}
	_, found := slices.BinarySearchFunc(c.absentIDs, id, compareIDs)
	return found
}

// leaveQueue gives up a place, or all places of the session if no holder is
// named. What was offered meanwhile stays: it may have been accepted, which the log
// need not say. Who does not want it releases it.
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
	return Result{Lease: s.leave(l, c.session, c.holder)}
}

// leave takes a session's places out of the queue of a lease: all of them, or
// the one of a holder.
func (s *State) leave(l *Lease, session incumbent.SessionID, holder []byte) *Lease {
	e := l.entry
	var list []Waiter
	if len(holder) == 0 {
		list = s.placesIn(e, session, int(l.Waiting))
	} else if w, ok := s.placeOf(e, session, string(holder)); ok {
		list = []Waiter{w}
	}
	if len(list) == 0 {
		return l
	}
	n := l.next()
	for _, w := range list {
		s.dequeue(n, w)
	}
	s.put(Change{What: Dequeued, LeaseBefore: l, Lease: n})
	return n
}
