package lease

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// enqueue takes or keeps a place in the queue of a lease that another holds.
func (s *exec) enqueue(c *command, l *Lease) result {
	e, holder := l.entry, string(c.holder)
	if w, ok := s.placeOf(e, c.session, holder); ok {
		return result{Lease: l, Queued: true, Position: s.position(e, w)}
	}
	if int(l.Waiting) >= s.limits.queue {
		return result{Lease: l, Err: tooLarge("queue of the lease", "MaxQueue", s.limits.queue)}
	}
	if s.has(c.session).waits >= s.limits.waits {
		return result{Lease: l, Err: tooLarge("places in queues of the session", "MaxWaitsPerSession", s.limits.waits)}
	}
	if err := s.checkRoom(c.session); err != nil {
		return result{Lease: l, Err: err}
	}
	owner := s.ownerOf(c.session)
	owners, namespaces := core.Growth{core.Leases: 1, core.Places: 1}, core.Growth{core.Places: 1}
	if err := s.x.OverQuota(owner, l.Name.Namespace, owners, namespaces); err != nil {
		return result{Lease: l, Err: err}
	}
	if err := s.checkShare(e, c.session, owner); err != nil {
		return result{Lease: l, Err: err}
	}
	w := Waiter{Session: c.session, Holder: holder, Since: s.x.Index(), Turn: s.turnOf(e, owner), Critical: c.critical}
	s.addPlace(e, w)
	n := l.next()
	n.Waiting++
	s.putAlive(Queued, l, n, c.session)
	return result{Lease: n, Queued: true, Position: s.position(e, w)}
}

// checkShare refuses a place to who has its fair share of a queue; of all queues
// quotas decide. Operators and members have no share.
func (s *exec) checkShare(e *entry, id incumbent.SessionID, owner string) *incumbent.Error {
	if core.Privileged(owner) {
		return nil
	}
	switch {
	case len(s.placesIn(e, id, s.limits.ofSession)) >= s.limits.ofSession:
		return tooLarge("places of the session in the queue of the lease", "MaxPlacesPerSession", s.limits.ofSession)
	case s.shares.now[share{e.row, owner}] >= s.limits.ofPrincipal:
		return tooLarge("places of the principal in the queue of the lease", "MaxPlacesPerPrincipal", s.limits.ofPrincipal)
	}
	return nil
}

// turnOf is the turn of a principal's next place in a queue: that of the queue's
// first place, or the one behind the principal's last. So in each turn every
// principal that waits is granted once, and whoever comes late waits for no more
// than one place of each that came before. The places of one principal stay in
// their order.
func (s *exec) turnOf(e *entry, owner string) uint64 {
	turn := uint64(0)
	s.places.Ascend(place{row: e.row}, func(p place) bool {
		if p.row == e.row {
			turn = p.Turn
		}
		return false
	})
	s.turns.Descend(byTurn{e.row, owner, ^uint64(0), ^incumbent.Index(0)}, func(b byTurn) bool {
		if b.row == e.row && b.principal == owner {
			turn = max(turn, b.turn+1)
		}
		return false
	})
	return turn
}

// dequeue takes a waiter out of the queue of a record that no table has yet.
func (s *exec) dequeue(n *Lease, w Waiter) {
	s.dropPlace(n.entry, w)
	n.Waiting--
}

// firstOf is the first place of a session in the queue of a lease.
func (s *exec) firstOf(l *Lease, session incumbent.SessionID) (Waiter, bool) {
	list := s.placesIn(l.entry, session, 1)
	if len(list) == 0 {
		return Waiter{}, false
	}
	return list[0], true
}

// nextWaiter is who is next in a queue that is not empty: see [ReleaseCommand].
func (s *exec) nextWaiter(l *Lease, preferred incumbent.SessionID) Waiter {
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
		if passed++; passed > core.MaxAbsent {
			break
		}
	}
	return first
}

// absent reports whether the command under way passes a session over.
func (s *exec) absent(id incumbent.SessionID) bool {
	if c := &s.cmd; len(c.absent) > 0 && s.absentIDs == nil {
		s.absentIDs = make([]incumbent.SessionID, 0, len(c.absent)/len(id))
		for list := range slices.Chunk(c.absent, len(id)) {
			s.absentIDs = append(s.absentIDs, incumbent.SessionID(list))
		}
		slices.SortFunc(s.absentIDs, compareIDs)
	}
	_, found := slices.BinarySearchFunc(s.absentIDs, id, compareIDs)
	return found
}

// leaveQueue gives up a place, or all places of the session if no holder is
// named. What was offered meanwhile stays: it may have been accepted, which the log
// need not say. Who does not want it releases it.
func (s *exec) leaveQueue(c *command) result {
	_, l, err := s.lookup(c)
	if err != nil {
		return result{Err: err}
	}
	if c.session.IsZero() {
		return result{Err: fail(incumbent.Invalid, "leaving a queue needs a session")}
	}
	if err := s.x.CheckOwner(c.session); err != nil {
		return result{Err: err}
	}
	if l == nil {
		return result{}
	}
	return result{Lease: s.leave(l, c.session, c.holder)}
}

// leave takes a session's places out of the queue of a lease: all of them, or
// the one of a holder.
func (s *exec) leave(l *Lease, session incumbent.SessionID, holder []byte) *Lease {
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
	s.put(Dequeued, l, n)
	return n
}
