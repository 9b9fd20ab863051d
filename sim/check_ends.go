package sim

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
)

// said is what the commands of a batch say that they may end.
type said struct {
	before   *core.View // the batch
	names    map[incumbent.Name]bool
	tokens   map[incumbent.Token]bool
	sessions map[incumbent.SessionID]bool
}

// ends checks that commands end nothing but what they say: an extension that is judged
// before they are applied relies on it (G04).
func (c *checker) ends(a *engine.Applied) {
	s := said{c.view, map[incumbent.Name]bool{}, map[incumbent.Token]bool{}, map[incumbent.SessionID]bool{}}
	c.view = a.View
	if s.before == nil || !slices.ContainsFunc(a.Changes, endsSomething) {
		return
	}
	for _, cmd := range a.Commands {
		effect := a.View.Effect(cmd, func(end *core.End) {
			s.names[incumbent.Name{Namespace: string(end.Namespace), Model: string(end.Model), Lease: string(end.Lease)}] = end.Lease != nil
			s.tokens[end.Token] = end.Token != 0
			s.sessions[end.Session] = !end.Session.IsZero()
		})
		if effect == core.Anything {
			return
		}
	}
	for i := range a.Changes {
		x := &a.Changes[i]
		if session := endedSession(x); session != nil && !s.session(session.ID) {
			c.w.violate("session %v ended at %d, which no command after %d says (G04)", session.ID, x.Index, a.Before)
		}
		if l := endedHolding(x); l != nil && !s.lease(l) {
			c.w.violate("the holding of %v under token %d ended at %d, which no command after %d says (G04)", l.Name, l.Token, x.Index, a.Before)
		}
	}
}

func endsSomething(x core.Change) bool { return endedSession(&x) != nil || endedHolding(&x) != nil }

// endedSession is the session that a change ended, nil: none.
func endedSession(x *core.Change) *core.Session {
	if x.What == core.SessionClose || x.What == core.SessionEnd {
		return x.SessionBefore
	}
	return nil
}

// endedHolding is the holding that a change ended, as it was; nil: none.
func endedHolding(x *core.Change) *leases.Lease {
	l, _ := leases.ChangeOf(x)
	if o := l.LeaseBefore; o != nil && o.Token != 0 && l.Lease != nil && l.Lease.Token != o.Token {
		return o
	}
	return nil
}

// session reports whether it was said that a session may end: by itself, or with another.
// One that opened in the batch itself was in no view before it.
func (s *said) session(id incumbent.SessionID) bool {
	if s.sessions[id] {
		return true
	}
	any := false
	for _, ends := range s.sessions {
		any = any || ends
	}
	return any && (s.before.Session(id) == nil || s.before.MayFollow(id))
}

func (s *said) lease(l *leases.Lease) bool {
	return s.tokens[l.Token] || s.names[l.Name] || !l.Session.IsZero() && s.session(l.Session)
}
