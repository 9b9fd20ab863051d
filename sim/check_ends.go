package sim

import (
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
	if s.before == nil {
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
		if (x.What == core.SessionClose || x.What == core.SessionEnd) && !s.session(x.SessionBefore.ID) {
			c.w.violate("session %v ended at %d, which no command after %d says (G04)", x.SessionBefore.ID, x.Index, a.Before)
		}
		l, _ := leases.ChangeOf(x)
		if o := l.LeaseBefore; o != nil && o.Token != 0 && l.Lease != nil && l.Lease.Token != o.Token && !s.lease(o) {
			c.w.violate("the holding of %v under token %d ended at %d, which no command after %d says (G04)", o.Name, o.Token, x.Index, a.Before)
		}
	}
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
