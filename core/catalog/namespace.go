package catalog

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

var _ core.Namespaced = (*View)(nil)

// Namespace implements [core.Namespaced]. What removals any index may have missed is
// said of this one too.
func (v *View) Namespace(namespace string, session func(incumbent.SessionID)) core.FamilyView {
	t := newTables()
	v.Nodes(namespace, "", func(n *Node) bool {
		return t.takeNode(n)
	})
	v.services.Ascend(&Service{Namespace: namespace}, func(s *Service) bool {
		if s.Namespace != namespace {
			return false
		}
		if !s.Session.IsZero() {
			session(s.Session)
		}
		return t.takeService(s)
	})
	v.Checks(namespace, func(c *Check) bool {
		t.checks.Set(c)
		t.attach(c, 0, false)
		return true
	})
	v.Sessions(namespace, func(s *Session) bool {
		session(s.ID)
		t.addSession(s)
		return true
	})
	v.marks.Ascend(mark{namespace: namespace}, func(m mark) bool {
		if m.namespace != namespace {
			return false
		}
		t.touch(m, t.isDead(m))
		return true
	})
	t.floor = max(t.floor, v.floor)
	t.renew()
	return &View{t.shared}
}
