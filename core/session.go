package core

import (
	"time"

	"github.com/incumbent-dev/incumbent"
)

// sessionOf returns an open session, nil if it is not open.
func (s *State) sessionOf(id incumbent.SessionID) *Session { return s.open[id].session }

func (s *Session) renewed() *Session {
	n := *s
	n.Renewal++
	return &n
}

// openSession is idempotent: a client that lost the answer asks again, and counts
// on its ttl from then on.
//
// A session's renewals begin at the index of its opening, so that an expiry of
// an earlier session with the same id never names one of this one.
func (s *State) openSession(c *command) Result {
	if c.session.IsZero() {
		return Result{Err: fail(incumbent.Invalid, "a session needs an id")}
	}
	ttl := time.Duration(0)
	if c.ttl != 0 {
		var err *incumbent.Error
		if ttl, err = TTLOf(c.ttl); err != nil {
			return Result{Err: err}
		}
	}
	if o := s.open[c.session].session; o != nil {
		if !c.mayUse(o) {
			return Result{Err: notOwner()}
		}
		if o.TTL == ttl {
			ch := Change{What: SessionTTL}
			s.renew(&ch, o.ID)
			s.emit(ch)
			return Result{Session: ch.Session}
		}
		return Result{Session: o, Err: incumbent.Errorf(incumbent.Exists, "session %v is open with a ttl of %v", o.ID, o.TTL)}
	}
	if s.sessions.Len() >= s.limits.Sessions {
		return Result{Err: tooLarge("sessions", "MaxSessions", s.limits.Sessions)}
	}
	if err := s.overQuota(&request{owner: s.origin().Principal, owners: Growth{Sessions: 1}}); err != nil {
		return Result{Err: err}
	}
	n := &Session{ID: c.session, TTL: ttl, Renewal: uint64(s.first), Opened: s.first, Origin: s.origin()}
	s.putSession(n)
	s.emit(Change{What: SessionOpen, Session: n})
	return Result{Session: n}
}

// closeSession succeeds for a session that is gone: that is what was asked.
func (s *State) closeSession(c *command) Result {
	if c.session.IsZero() {
		return Result{Err: fail(incumbent.Invalid, "a session needs an id")}
	}
	if len(c.text) > MaxReasonBytes {
		return Result{Err: tooLarge("reason", "MaxReasonBytes", MaxReasonBytes)}
	}
	o := s.open[c.session].session
	if o == nil {
		return Result{}
	}
	if !c.others && !c.mayUse(o) {
		return Result{Err: notOwner()}
	}
	s.endSession(SessionClose, &Ending{Session: o, Reason: string(c.text), Absent: c.absent})
	return Result{}
}

// expireSession ends a session whose deadline passed, unless anything has
// touched it since its proposer looked, or a record keeps it.
func (s *State) expireSession(c *command) Result {
	o := s.open[c.session].session
	if o == nil || o.Renewal != c.renewal || o.TTL == 0 || s.isKept(o.ID) {
		return Result{Session: o, Err: fail(incumbent.Conflict, "the expiry is void")}
	}
	s.endSession(SessionEnd, &Ending{Session: o, Expired: true, Late: c.lateness(), Absent: c.absent})
	return Result{}
}

// isKept reports whether a record keeps a session from expiring.
func (s *State) isKept(id incumbent.SessionID) bool {
	for i := range s.families {
		if k, ok := s.families[i].tables.(Keeping); ok && k.Keeps(id) {
			return true
		}
	}
	return false
}

func (s *State) endSession(what What, e *Ending) {
	o := e.Session
	s.emit(Change{What: what, Late: e.Late, By: e.Reason, SessionBefore: o})
	for i := range s.families {
		s.families[i].tables.EndSession(s.exec(), e)
	}
	s.sessions.Delete(o)
	s.open[o.ID].owner.Add(Sessions, -1)
	delete(s.open, o.ID)
}

// closing is a session that ends behind the command under way, because of it.
type closing struct {
	id     incumbent.SessionID
	reason string
}

// closeBehind ends the sessions that the command under way ends once it has succeeded.
// What ends with one of them may end more.
func (s *State) closeBehind() {
	for len(s.closing) > 0 {
		c := s.closing[0]
		s.closing = s.closing[1:]
		if o := s.sessionOf(c.id); o != nil {
			s.endSession(SessionClose, &Ending{Session: o, Reason: c.reason})
		}
	}
}

// extendSession makes void a session expiry that was proposed before it; the
// logged ttl never falls. A session without ttl keeps having none.
func (s *State) extendSession(c *command) Result {
	ttl, err := TTLOf(c.ttl)
	if err != nil {
		return Result{Err: err}
	}
	o, err := s.use(c, c.session)
	if err != nil {
		return Result{Err: err}
	}
	n := o.renewed()
	if o.TTL != 0 {
		n.TTL = max(o.TTL, ttl)
	}
	s.putSession(n)
	s.emit(Change{What: SessionTTL, SessionBefore: o, Session: n})
	return Result{Session: n}
}
