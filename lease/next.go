package lease

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Commands that may free a lease say who is next, or who is not: only the leader
// knows whose clients are there. One that another member proposes says nothing;
// an offer to a waiter that has died lapses then.

// absentSchema is the first schema version whose commands pass waiters over.
const absentSchema = 2

// next is the first waiter of a lease whose client is known to be there.
func (e *Engine) next(l *core.Lease) incumbent.SessionID {
	if l == nil || !e.leading {
		return incumbent.SessionID{}
	}
	for w := range e.view.Queue(l.Name) {
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

// absentIn appends the waiters of a lease that stand before the first one whose
// client is there: no more places than the command passes over.
func (e *Engine) absentIn(list []incumbent.SessionID, l *core.Lease) []incumbent.SessionID {
	places := 0
	for w := range e.view.Queue(l.Name) {
		if len(list) >= core.MaxAbsent || places >= core.MaxAbsent || e.present(w.Session) {
			break
		}
		if !slices.Contains(list, w.Session) {
			list = append(list, w.Session)
		}
		places++
	}
	return list
}

// knowsAbsent reports whether this member may name who is absent.
func (e *Engine) knowsAbsent() bool { return e.leading && e.view.ActiveSchema() >= absentSchema }

// absentBehind lists whom the end of a session must not hand its leases to.
func (e *Engine) absentBehind(id incumbent.SessionID) (list []incumbent.SessionID) {
	if !e.knowsAbsent() {
		return nil
	}
	e.view.SessionLeases(id, func(l *core.Lease) bool {
		list = e.absentIn(list, l)
		return len(list) < core.MaxAbsent
	})
	return list
}

// absentAfter lists whom an offer that its session declines must not go to.
func (e *Engine) absentAfter(l *core.Lease, id incumbent.SessionID) []incumbent.SessionID {
	if !e.knowsAbsent() || l.Free() || !l.Offered || l.Session != id {
		return nil
	}
	return e.absentIn(nil, l)
}
