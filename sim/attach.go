package sim

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/lease"
)

// attachment is the connection that speaks for an agent's session: while it
// stands, the agent beats instead of naming its lease. A beat says that the
// session lives, and which of its leases are being revoked; of one that was lost
// it says nothing. So it counts only while the agent holds: what was lost is
// over for the agent before it is over for the leader.
type attachment struct {
	wanted  bool     // the agent attaches its session at all
	counter uint64   // of the newest
	to      *process // nil: none, or no answer yet
}

// attach binds the session to the connection with the member that the agent
// talks to.
func (a *agent) attach() {
	a.attached.counter++
	counter, session := a.attached.counter, a.session
	current := func() bool { return a.session == session && a.attached.counter == counter }
	told := false
	a.call(func(p *process, reply func(func())) {
		bound := a.w.check.acked
		lost := func(reason string) {
			a.w.check.detached(p, a, current(), told, reason)
			told = true
			p.reply(func() {
				if current() {
					a.attached.to = nil
				}
			})
		}
		answered := func(r core.Result) {
			a.w.check.attached(p, session, r, bound)
			reply(func() {
				if !current() {
					return
				}
				switch {
				case r.Err == nil:
					a.w.res.Attached++
					a.reader.hears(r.Index)
					a.attached.to = p
				case r.Err.Kind.Transient():
					a.moves()
				}
			})
		}
		p.admit(request{who: whoIs(a.principal()), lane: calls.Attach.Lane()}, func(leave func()) {
			p.leases.Attach(lease.Attachment{Session: session, Counter: counter, Lost: lost}, func(r core.Result) {
				leave()
				answered(r)
			})
		}, func(err *incumbent.Error) { answered(core.Result{Err: err}) })
	}, func() {})
}

// attaches reports whether the agent speaks through a connection that stands,
// and begins one if it does not.
func (a *agent) attaches() bool {
	if !a.attached.wanted || a.session.IsZero() {
		return false
	}
	if t := a.attached.to; t != nil && t == a.at.proc {
		return true
	}
	a.detach()
	a.attach()
	return false
}

// detach ends the connection, of which its member hears or, half open, does not.
func (a *agent) detach() {
	p, counter, session := a.attached.to, a.attached.counter, a.session
	a.attached.to = nil
	if p == nil || a.w.lose() {
		return
	}
	a.w.after(a.w.upTo(networkTakes), func() {
		p.arrive(frame{firstAgent + a.id, func() { p.leases.Detach(session, counter) }})
	})
}

// attached checks the answer to an attachment: it is no older than what anybody
// was told before (G14, G22).
func (c *checker) attached(p *process, session incumbent.SessionID, r core.Result, bound incumbent.Index) {
	if p.gone || r.Err != nil {
		return
	}
	if r.Index < bound || r.Session == nil || r.Session.ID != session {
		c.w.violate("member %d attached session %v at index %d (%+v), %d had been acknowledged before (G14)", p.m.at, session, r.Index, r.Session, bound)
	}
	c.acked = max(c.acked, r.Index)
}

// detached checks what a connection is told of the end of its attachment: once,
// and never that another one has taken the place of the newest.
func (c *checker) detached(p *process, a *agent, newest, told bool, reason string) {
	if told {
		c.w.violate("member %d told agent %d twice that its session is no longer attached", p.m.at, a.id)
	}
	if newest && reason == lease.LostElsewhere {
		c.w.violate("member %d told agent %d that its session is %s, counter %d is the highest (G4)", p.m.at, a.id, reason, a.attached.counter)
	}
}
