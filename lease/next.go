package lease

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// Commands that may free a lease say who is next, or who is not: only the leader
// knows whose clients are there. One that another member proposes says nothing;
// an offer to a waiter that has died lapses then.

// next is the first waiter of a lease whose client is known to be there. As with a
// command that names who is absent, it is not looked for behind the first
// [core.MaxAbsent] places: a queue whose clients have all died must not hold up the
// loop with each end of a holding.
func (e *Engine) next(l *leases.Lease) incumbent.SessionID {
	if l == nil || !e.leading {
		return incumbent.SessionID{}
	}
	places := 0
	for w := range leases.Of(e.view).Queue(l.Name) {
		if places++; places > core.MaxAbsent {
			break
		}
		if e.present(w.Session) {
			return w.Session
		}
	}
	return incumbent.SessionID{}
}

// present reports whether the client of a session is known to be there: it was
// heard within a third of its ttl, give or take the grace. A connection that is
// merely open proves nothing.
func (e *Engine) present(id incumbent.SessionID) bool {
	i, ok := e.book.byID[id]
	if !ok {
		return false
	}
	s := &e.book.sessions[i]
	third := nanos(s.ttl)/3 + e.book.grace
	if s.ttl == 0 {
		third = int64(presentWithout)
	}
	return e.book.now-s.heard <= third
}

// absentees are the sessions that a command passes over, and what may still be
// looked at to find more of them.
type absentees struct {
	list []incumbent.SessionID // at most [core.MaxAbsent]
	left int                   // places, in all queues together
}

func newAbsentees() absentees { return absentees{left: maxPassedOver} }

func (a *absentees) full() bool { return len(a.list) >= core.MaxAbsent || a.left <= 0 }

// absentIn adds the waiters of a lease that stand before the first one whose client
// is there: no more places than the command passes over.
func (e *Engine) absentIn(a *absentees, l *leases.Lease) {
	if l.Waiting == 0 {
		return
	}
	places := 0
	for w := range leases.Of(e.view).Queue(l.Name) {
		if a.full() || places >= core.MaxAbsent {
			return
		}
		a.left--
		places++
		if e.present(w.Session) {
			return
		}
		if !slices.Contains(a.list, w.Session) {
			a.list = append(a.list, w.Session)
		}
	}
}

// absentBehind lists whom the end of a session must not hand its leases to. Where
// many wait for very many of them it may miss one, whose offer then lapses.
func (e *Engine) absentBehind(id incumbent.SessionID) []incumbent.SessionID {
	if !e.leading {
		return nil
	}
	a := newAbsentees()
	leases.Of(e.view).OfSession(id, func(l *leases.Lease) bool {
		e.absentIn(&a, l)
		return !a.full()
	})
	return a.list
}
