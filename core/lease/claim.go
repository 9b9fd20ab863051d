package lease

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// claim grants a free lease, extends or accepts the caller's own, or takes a
// place in its queue.
func (s *exec) claim(c *command) result {
	name, l, err := s.lookup(c)
	if err != nil {
		return result{Err: err}
	}
	if err := s.checkClaim(c, l); err != nil {
		return result{Err: err}
	}
	switch {
	case c.token != 0 && (l.Free() || c.token != uint64(l.Token) || !l.heldBy(c)):
		return result{Lease: l, Err: incumbent.Errorf(incumbent.NotHolder, "the lease is not held under token %d", c.token)}
	case l.Free():
		return s.claimFree(c, name, l)
	case l.heldBy(c):
		return s.extend(c, l)
	case c.wait:
		return s.enqueue(c, l)
	}
	return result{Lease: l, Err: fail(incumbent.Held, "another holds the lease")}
}

// checkClaim checks what a claim says, whatever the lease's state.
func (s *exec) checkClaim(c *command, l *Lease) *incumbent.Error {
	if l == nil || string(c.holder) != l.Holder {
		if !plain(c.holder, incumbent.MaxHolderBytes) {
			if err := incumbent.ValidateHolder(string(c.holder)); err != nil {
				return invalid(err)
			}
		}
	}
	if c.session.IsZero() {
		if c.wait {
			return fail(incumbent.Invalid, "waiting needs a session")
		}
		_, err := core.TTLOf(c.ttl)
		return err
	}
	if c.ttl != 0 {
		return fail(incumbent.Invalid, "a lease owned by a session lives by the session's ttl; leave ttl out")
	}
	_, err := s.x.Use(c.session)
	return err
}

// checkRoom counts places in queues as leases, since each may become one
// without being asked again.
func (s *exec) checkRoom(id incumbent.SessionID) *incumbent.Error {
	if c := s.has(id); c.leases+c.waits >= s.limits.perSession {
		return tooLarge("leases and places in queues of the session", "MaxLeasesPerSession", s.limits.perSession)
	}
	return nil
}

func (s *exec) checkNewLease() *incumbent.Error {
	if s.names.Len() >= s.limits.leases {
		return tooLarge("leases", "MaxLeases", s.limits.leases)
	}
	return nil
}

func (s *exec) claimFree(c *command, name incumbent.Name, l *Lease) result {
	if l == nil {
		if err := s.checkNewLease(); err != nil {
			return result{Err: err}
		}
	}
	if !c.session.IsZero() {
		if err := s.checkRoom(c.session); err != nil {
			return result{Err: err}
		}
	}
	if err := s.x.OverQuota(s.claimer(c), name.Namespace, core.Growth{core.Leases: 1}, core.Growth{core.Leases: 1}); err != nil {
		return result{Lease: l, Err: err}
	}
	n := l.next()
	if l == nil {
		n.entry = &entry{Name: name}
	}
	n.TTL, _ = core.TTLOf(c.ttl)
	w := Waiter{Session: c.session, Holder: string(c.holder), Critical: c.critical}
	if l != nil && l.PreviousHolder == w.Holder {
		w.Holder = l.PreviousHolder
	}
	s.grant(n, s.x.Token(), w, Granted)
	s.putAlive(Granted, l, n, c.session)
	return result{Lease: n, Granted: true}
}

// claimer is the principal that a holding will count for: the owner of the session,
// without one who claims.
func (s *exec) claimer(c *command) string {
	if c.session.IsZero() {
		return s.x.Principal()
	}
	return s.ownerOf(c.session)
}

// grant begins a holding under a new token, that of the newest [core.Exec.Token].
func (s *exec) grant(n *Lease, token incumbent.Token, w Waiter, what What) {
	if token <= n.LastToken {
		panic("lease: token does not exceed the last one of its lease")
	}
	n.Holder, n.Session, n.Critical = w.Holder, w.Session, w.Critical
	n.Token, n.LastToken = token, token
	n.Renewal++
	n.Offered = what == Offered
	n.Origin = s.x.Origin()
	n.begin(s.x.Index())
}

// extend is a logged extension: it changes the ttl, accepts an offer, or at
// least makes void an expiry that was proposed before it.
func (s *exec) extend(c *command, l *Lease) result {
	if l.Revoking {
		return result{Lease: l, Err: fail(incumbent.Held, "the lease is being revoked")}
	}
	n := l.next()
	n.Renewal++
	n.Critical = c.critical
	if c.session.IsZero() {
		ttl, _ := core.TTLOf(c.ttl)
		n.TTL = max(l.TTL, ttl)
	}
	what := Extended
	if l.Offered {
		what = s.accepted(n)
	}
	s.putAlive(what, l, n, c.session)
	return result{Lease: n}
}

// accept records that an offer was accepted, a while after the leader has
// acknowledged that: so it is no sign of life of the holder.
func (s *exec) accept(c *command) result {
	l := s.byToken(c)
	switch {
	case l == nil:
		return result{Err: incumbent.Errorf(incumbent.NotHolder, "no lease is held under token %d", c.token)}
	case l.Revoking:
		return result{Lease: l, Err: fail(incumbent.NotHolder, "the lease is being revoked")}
	case !l.Offered:
		return result{Lease: l}
	}
	n := l.next()
	n.Renewal++
	s.put(s.accepted(n), l, n)
	return result{Lease: n}
}

func (s *exec) byToken(c *command) *Lease {
	return s.leaseByToken(incumbent.Token(c.token))
}

// accepted makes an offer a holding that is known to be accepted.
func (s *exec) accepted(n *Lease) What {
	s.remember(n, LeaseChange{What: Accepted, Holder: n.Holder, Token: n.Token})
	n.Offered = false
	return Accepted
}
