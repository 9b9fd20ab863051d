package core

import (
	"github.com/incumbent-dev/incumbent"
)

// claim grants a free lease, extends or accepts the caller's own, or takes a
// place in its queue.
func (s *State) claim(c *command) Result {
	name, l, err := s.lookup(c)
	if err != nil {
		return Result{Err: err}
	}
	if err := s.checkClaim(c, l); err != nil {
		return Result{Err: err}
	}
	switch {
	case c.token != 0 && (l.Free() || c.token != uint64(l.Token) || !l.heldBy(c)):
		return Result{Lease: l, Err: incumbent.Errorf(incumbent.NotHolder, "the lease is not held under token %d", c.token)}
	case l.Free():
		return s.claimFree(c, name, l)
	case l.heldBy(c):
		return s.extend(c, l)
	case c.wait:
		return s.enqueue(c, l)
	}
	return Result{Lease: l, Err: fail(incumbent.Held, "another holds the lease")}
}

// checkClaim checks what a claim says, whatever the lease's state.
func (s *State) checkClaim(c *command, l *Lease) *incumbent.Error {
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
		_, err := ttlOf(c.ttl)
		return err
	}
	if c.ttl != 0 {
		return fail(incumbent.Invalid, "a lease owned by a session lives by the session's ttl; leave ttl out")
	}
	_, err := s.use(c, c.session)
	return err
}

// checkRoom counts places in queues as leases, since each may become one
// without being asked again.
func (s *State) checkRoom(id incumbent.SessionID) *incumbent.Error {
	if c := s.counts[id]; c.leases+c.waits >= s.limits.perSession {
		return tooLarge("leases and places in queues of the session", "MaxLeasesPerSession", s.limits.perSession)
	}
	return nil
}

func (s *State) checkNewLease() *incumbent.Error {
	if s.names.Len() >= s.limits.leases {
		return tooLarge("leases", "MaxLeases", s.limits.leases)
	}
	return nil
}

// heldBy reports whether the command's holder and session are the lease's.
// Without session on both sides the holder's name decides.
func (l *Lease) heldBy(c *command) bool {
	return l.Holder == string(c.holder) && l.Session == c.session
}

func (s *State) claimFree(c *command, name incumbent.Name, l *Lease) Result {
	if l == nil {
		if err := s.checkNewLease(); err != nil {
			return Result{Err: err}
		}
	}
	if !c.session.IsZero() {
		if err := s.checkRoom(c.session); err != nil {
			return Result{Err: err}
		}
	}
	if err := s.overQuota(&request{
		owner: s.claimer(c), namespace: name.Namespace, owners: Growth{Leases: 1}, namespaces: Growth{Leases: 1},
	}); err != nil {
		return Result{Lease: l, Err: err}
	}
	n := l.next()
	if l == nil {
		n.entry = &entry{Name: name}
	}
	n.TTL, _ = ttlOf(c.ttl)
	w := Waiter{Session: c.session, Holder: string(c.holder), Critical: c.critical}
	if l != nil && l.PreviousHolder == w.Holder {
		w.Holder = l.PreviousHolder
	}
	s.grant(n, s.nextToken(), w, Granted)
	s.putAlive(Granted, l, n, c.session)
	return Result{Lease: n, Granted: true}
}

// claimer is the principal that a holding will count for: the owner of the session,
// without one who claims.
func (s *State) claimer(c *command) string {
	if c.session.IsZero() {
		return s.origin().Principal
	}
	return s.counts[c.session].session.Owner()
}

// ownerOf is the principal that a holding counts for.
func (s *State) ownerOf(l *Lease) string {
	if l.Session.IsZero() {
		return l.Origin.Principal
	}
	return s.counts[l.Session].session.Owner()
}

// next returns a record to be changed into the successor of l. It shares the
// bytes of l: see remember.
func (l *Lease) next() *Lease {
	if l == nil {
		return &Lease{seldom: nothingSeldom, Origin: noOrigin}
	}
	n := *l
	return &n
}

// grant begins a holding under a new token, that of the newest nextToken.
func (s *State) grant(n *Lease, token incumbent.Token, w Waiter, what What) {
	if token <= n.LastToken {
		panic("core: token does not exceed the last one of its lease")
	}
	n.Holder, n.Session, n.Critical = w.Holder, w.Session, w.Critical
	n.Token, n.LastToken = token, token
	n.Renewal++
	n.Offered = what == Offered
	n.Origin = s.origin()
	n.begin(s.at)
}

// nextToken is the index of the command for its first grant and a further one
// for each further grant, so that no two grants share a token. Whatever is
// remembered and told from then on has that index; of a transaction the last one
// that it has taken.
func (s *State) nextToken() incumbent.Token {
	if s.running != nil {
		return s.running.token(s.first)
	}
	if s.granted {
		s.index++
		s.at = s.index
	}
	s.granted = true
	return incumbent.Token(s.at)
}

// extend is a logged extension: it changes the ttl, accepts an offer, or at
// least makes void an expiry that was proposed before it.
func (s *State) extend(c *command, l *Lease) Result {
	if l.Revoking {
		return Result{Lease: l, Err: fail(incumbent.Held, "the lease is being revoked")}
	}
	n := l.next()
	n.Renewal++
	n.Critical = c.critical
	if c.session.IsZero() {
		ttl, _ := ttlOf(c.ttl)
		n.TTL = max(l.TTL, ttl)
	}
	what := Extended
	if l.Offered {
		what = s.accepted(n)
	}
	s.putAlive(what, l, n, c.session)
	return Result{Lease: n}
}

// accept records that an offer was accepted, a while after the leader has
// acknowledged that: so it is no sign of life of the holder.
func (s *State) accept(c *command) Result {
	l := s.byToken(c)
	switch {
	case l == nil:
		return Result{Err: incumbent.Errorf(incumbent.NotHolder, "no lease is held under token %d", c.token)}
	case l.Revoking:
		return Result{Lease: l, Err: fail(incumbent.NotHolder, "the lease is being revoked")}
	case !l.Offered:
		return Result{Lease: l}
	}
	n := l.next()
	n.Renewal++
	s.put(Change{What: s.accepted(n), LeaseBefore: l, Lease: n})
	return Result{Lease: n}
}

func (s *State) byToken(c *command) *Lease {
	return s.leaseByToken(incumbent.Token(c.token))
}

// accepted makes an offer a holding that is known to be accepted.
func (s *State) accepted(n *Lease) What {
	s.remember(n, LeaseChange{What: Accepted, Holder: n.Holder, Token: n.Token})
	n.Offered = false
	return Accepted
}
