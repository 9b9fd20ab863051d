package ovsdb

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/lease"
)

// claimLater claims a lock once the connection has a session.
func (c *conn) claimLater(l *lock) {
	s := &c.session.locks
	if s.open {
		l.claim()
		return
	}
	s.waiting = append(s.waiting, l)
	if len(s.waiting) == 1 && s.session.IsZero() {
		_, _ = rand.Read(s.session[:]) // never fails
		c.openSession()
	}
}

func (c *conn) openSession() {
	s, d := &c.session.locks, c.door
	place, ok := c.placeForLock()
	if !ok {
		d.putOff(func() { c.do(c.openSession) })
		return
	}
	cmd := core.OpenSessionCommand{ID: s.session, TTL: lockTTL}
	d.engine.Leases().OpenSession(lease.Call{Origin: c.who.origin()}, cmd, func(r core.Result) {
		place.Leave()
		d.settled(c.who, auth.SessionOpen, audit.Session(cmd.ID), "", &r, true)
		c.do(func() { c.opened(r) })
	})
}

func (c *conn) opened(r core.Result) {
	s := &c.session.locks
	waiting := s.waiting
	switch kind := incumbent.KindOf(errorIn(r)); {
	case kind == incumbent.OK || kind == incumbent.Exists:
	case comesLater(kind):
		c.door.putOffAfter(r.Err, func() { c.do(c.openSession) })
		return
	default: // there is to be none, for a quota or the like: who asks again tries again
		s.session, s.waiting = incumbent.SessionID{}, nil
		for _, l := range waiting {
			l.refused(r.Err)
		}
		return
	}
	s.open, s.waiting = true, nil
	c.door.keeper.add(s.session, c)
	for _, l := range waiting {
		l.claim()
	}
}

// holder is for whom the connection's locks are claimed: its principal, and which of
// the principal's connections.
func (c *conn) holder() string {
	return cmp.Or(c.who.principal.Name, doorName) + "/" + hex.EncodeToString(c.session.locks.session[:6])
}

// endLocks closes the session with all its locks.
func (c *conn) endLocks() {
	s := &c.session.locks
	for _, l := range s.byName {
		l.over = true
		if l.wait != nil {
			l.wait.Cancel()
		}
	}
	id := s.session
	*s = locks{}
	if id.IsZero() {
		return
	}
	c.door.keeper.remove(id)
	c.door.closeSession(id, c.who, 0)
}

// closeSession closes a session: if there is no leader it is tried again, and if there is
// none for long the session's ttl ends it.
func (d *Door) closeSession(id incumbent.SessionID, who *caller, tries int) {
	cmd := core.CloseSessionCommand{ID: id, Reason: "the connection was closed"}
	d.engine.Leases().CloseSession(lease.Call{Origin: who.origin()}, cmd, func(r core.Result) {
		d.settled(who, auth.SessionClose, audit.Session(id), cmd.Reason, &r, true)
		if r.Err != nil && comesLater(r.Err.Kind) && tries < maxCloses {
			d.putOffAfter(r.Err, func() { d.closeSession(id, who, tries+1) })
		}
	})
}

// maxCloses is how often the end of a session is tried that meets no leader: longer than it
// can live without one.
const maxCloses = 200

var errLocksLost = incumbent.Errorf(incumbent.Expired, "the session that the connection's locks belong to has ended")
