package core

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
)

// enqueue takes or keeps a place in the queue of a lease that another holds.
func (s *State) enqueue(c *command, l *Lease) Result {
	e, holder := l.entry, string(c.holder)
	if w, ok := s.placeOf(e, c.session, holder); ok {
		return Result{Lease: l, Queued: true, Position: s.position(e, w)}
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
	owner := s.counts[c.session].session.Owner()
	if err := s.overQuota(&request{
		owner: owner, namespace: l.Name.Namespace,
		owners: Growth{Leases: 1, Places: 1}, namespaces: Growth{Places: 1},
	}); err != nil {
		return Result{Lease: l, Err: err}
	}
	if err := s.checkShare(e, c.session, owner); err != nil {
		return Result{Lease: l, Err: err}
	}
	w := Waiter{Session: c.session, Holder: holder, Since: s.first, Turn: s.turnOf(e, owner), Critical: c.critical}
	s.addPlace(e, w)
	n := l.next()
	n.Waiting++
	s.putAlive(Queued, l, n, c.session)
	return Result{Lease: n, Queued: true, Position: s.position(e, w)}
}

// checkShare refuses a place to who has its fair share of a queue; of all queues
// quotas decide. Operators and members have no share.
func (s *State) checkShare(e *entry, id incumbent.SessionID, owner string) *incumbent.Error {
	if privileged(owner) {
		return nil
	}
	switch {
	case len(s.placesIn(e, id, s.limits.ofSession)) >= s.limits.ofSession:
		return tooLarge("places of the session in the queue of the lease", "MaxPlacesPerSession", s.limits.ofSession)
	case s.shares[share{e.row, owner}] >= s.limits.ofPrincipal:
		return tooLarge("places of the principal in the queue of the lease", "MaxPlacesPerPrincipal", s.limits.ofPrincipal)
	}
	return nil
}

// turnOf is the turn of a principal's next place in a queue: that of the queue's
// first place, or the one behind the principal's last. So in each turn every
// principal that waits is granted once, and whoever comes late waits for no more
// than one place of each that came before. The places of one principal stay in
// their order.
func (s *State) turnOf(e *entry, owner string) uint64 {
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
	if err := s.checkOwner(c, c.session); err != nil {
		return Result{Err: err}
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
