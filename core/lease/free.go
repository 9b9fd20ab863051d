package lease

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// ending is how a holding ends.
type ending struct {
	what What
	late time.Duration
	by   string
	to   incumbent.SessionID // preferred among the waiters, zero: none
}

// freeLease ends a holding and hands the lease to the next waiter.
func (s *exec) freeLease(l *Lease, e ending) *Lease {
	if l.Waiting == 0 {
		n := s.freed(l, e)
		s.put(e.what, l, n)
		return n
	}
	n, w := l.next(), s.nextWaiter(l, e.to)
	s.dequeue(n, w)
	return s.handOver(l, n, w, e)
}

// freed returns the free successor of l.
func (s *exec) freed(l *Lease, e ending) *Lease {
	n := l.next()
	s.remember(n, LeaseChange{What: e.what, Holder: l.Holder, Token: l.Token, Late: e.late, By: e.by})
	if e.what != Declined {
		n.PreviousHolder = l.Holder
	}
	n.Holder, n.Session, n.Token, n.TTL = "", incumbent.SessionID{}, 0, 0
	n.Offered, n.Critical, n.Revoking = false, false, false
	n.Origin = noOrigin
	return n
}

// handOver frees l and offers it to w, who has left its queue already: n is l
// but for that. Two changes are told of, under the index of the grant, and one
// record is stored.
func (s *exec) handOver(l, n *Lease, w Waiter, e ending) *Lease {
	token := s.x.Token()
	between := s.freed(n, e)
	between.Modified = s.x.Index()
	n = between.next()
	s.grant(n, token, w, Offered)
	n.Modified = between.Modified
	s.replace(l, n)
	s.tell(e.what, l, between, incumbent.SessionID{})
	s.tell(Offered, between, n, incumbent.SessionID{})
	return n
}

// release frees a lease for its holder. It is idempotent: asking for the end of
// a holding that is over succeeds and does nothing.
func (s *exec) release(c *command) result {
	_, l, err := s.lookup(c)
	if err != nil {
		return result{Err: err}
	}
	switch {
	case c.token == 0 && len(c.holder) == 0:
		return result{Err: fail(incumbent.Invalid, "name the holder or the token")}
	case s.x.CheckOwner(c.session) != nil:
		return result{Err: s.x.CheckOwner(c.session)}
	case l.Free(), c.token != 0 && c.token < uint64(l.Token):
		return result{Lease: l}
	case c.token != 0 && c.token != uint64(l.Token), len(c.holder) > 0 && !l.heldBy(c):
		return result{Lease: l, Err: fail(incumbent.NotHolder, "another holds the lease")}
	}
	return result{Lease: s.freeLease(l, ending{what: Released, to: c.other})}
}

// revoke ends a holding for an operator.
func (s *exec) revoke(c *command) result {
	_, l, err := s.lookup(c)
	if err != nil {
		return result{Err: err}
	}
	switch {
	case len(c.text) > core.MaxReasonBytes:
		return result{Err: tooLarge("name of the revoker", "MaxReasonBytes", core.MaxReasonBytes)}
	case c.token == 0 && l.Free():
		return result{Lease: l, Err: fail(incumbent.NotFound, "nobody holds the lease")}
	case c.token != 0 && (l.Free() || c.token != uint64(l.Token)):
		return result{Lease: l, Err: incumbent.Errorf(incumbent.Conflict, "the lease is no longer held under token %d", c.token)}
	case !c.atEnd:
		return result{Lease: s.freeLease(l, ending{what: Revoked, by: string(c.text), to: c.other})}
	case l.Revoking:
		return result{Lease: l}
	}
	n := l.next()
	n.Revoking = true
	n.Renewal++
	s.remember(n, LeaseChange{What: Revoking, Holder: l.Holder, Token: l.Token, By: string(c.text)})
	s.put(Revoking, l, n)
	return result{Lease: n}
}

// transfer gives a lease away, past the queue: to somebody who stands in it, or to
// a session that the caller may use. Nobody else has asked for a lease, and one
// session may not have more than so many.
func (s *exec) transfer(c *command) result {
	_, l, err := s.lookup(c)
	if err != nil {
		return result{Err: err}
	}
	switch {
	case c.other.IsZero():
		return result{Err: fail(incumbent.Invalid, "name the session to transfer to")}
	case s.x.CheckOwner(c.session) != nil:
		return result{Err: s.x.CheckOwner(c.session)}
	case l.Free(), !l.heldBy(c), c.token != 0 && c.token != uint64(l.Token):
		return result{Lease: l, Err: fail(incumbent.NotHolder, "only the holder transfers a lease")}
	case l.Revoking:
		return result{Lease: l, Err: fail(incumbent.Conflict, "the lease is being revoked")}
	case s.x.Session(c.other) == nil:
		return result{Lease: l, Err: incumbent.Errorf(incumbent.NotFound, "session %v to transfer to is not open", c.other)}
	}
	to := Waiter{Session: c.other, Holder: string(c.toHolder)}
	w, waits := s.targetIn(l, to)
	if waits {
		n := l.next()
		s.dequeue(n, w)
		return result{Lease: s.handOver(l, n, w, ending{what: Transferred})}
	}
	if err := s.checkTarget(c, l, to); err != nil {
		return result{Lease: l, Err: err}
	}
	return result{Lease: s.handOver(l, l, to, ending{what: Transferred})}
}

// targetIn is the place of a target in the queue, if it has one: without a
// holder, the first of its session.
func (s *exec) targetIn(l *Lease, to Waiter) (Waiter, bool) {
	if to.Holder == "" {
		return s.firstOf(l, to.Session)
	}
	return s.placeOf(l.entry, to.Session, to.Holder)
}

// checkTarget checks a target that does not stand in the queue.
func (s *exec) checkTarget(c *command, l *Lease, to Waiter) *incumbent.Error {
	if c.wait || s.x.CheckOwner(to.Session) != nil {
		return fail(incumbent.Denied, "the session to transfer to does not wait for the lease under that holder").
			WithHint("have it wait for the lease first, or ask an operator")
	}
	if to.Holder == "" {
		return fail(incumbent.Invalid, "name the holder to transfer to: its session is not in the queue")
	}
	if err := incumbent.ValidateHolder(to.Holder); err != nil {
		return invalid(err)
	}
	if to.Session == l.Session {
		if to.Holder == l.Holder {
			return fail(incumbent.Invalid, "a lease cannot be transferred to its holder")
		}
		return nil // one lease less, one more
	}
	if err := s.checkRoom(to.Session); err != nil {
		return err
	}
	owner := s.ownerOf(to.Session)
	if owner == s.principalOf(l) {
		return nil // so it is for the owner
	}
	return s.x.OverQuota(owner, "", core.Growth{core.Leases: 1}, core.Growth{})
}

// expire frees a lease whose deadline passed, unless anything has touched the
// holding since its proposer looked, or a pin keeps it. A pin does not keep an
// offer that nobody has accepted, or a waiter that is gone would have it for ever:
// which one that is the leader knows, and it proposes the expiry of no other.
func (s *exec) expire(c *command) result {
	l := s.byToken(c)
	if l == nil || l.Renewal != c.renewal || l.keptByPin() && !l.Offered {
		return result{Lease: l, Err: fail(incumbent.Conflict, "the expiry is void")}
	}
	e := ending{what: Expired, late: c.lateness(), to: c.other}
	if l.Offered && !l.Revoking {
		// Who lets an offer lapse costs those behind it one wait, and not one for each of
		// its places.
		e.what = Declined
		l = s.leave(l, l.Session, nil)
	}
	return result{Lease: s.freeLease(l, e)}
}
