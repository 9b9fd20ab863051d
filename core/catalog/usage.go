package catalog

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

var _ core.Counting = (*tables)(nil)

// CountIn implements [core.Counting].
func (t *tables) CountIn(u *core.Usage, _ func(incumbent.SessionID) *core.Session) { t.usage = u }

// Recount implements [core.Counting].
func (t *tables) Recount(u *core.Usage) {
	count := func(owner, namespace string) {
		u.Add(owner, namespace, &core.Growth{core.Registrations: 1})
	}
	t.hosts.Scan(func(h *host) bool {
		count(h.node.Owner, h.node.Namespace)
		return true
	})
	t.services.Scan(func(s *Service) bool {
		count(s.Owner, s.Namespace)
		return true
	})
	t.checks.Scan(func(c *Check) bool {
		count(c.Owner, c.Namespace)
		return true
	})
}

// charge is what was counted for an owner and a namespace.
type charge struct {
	owner, namespace string
	records          int64
}

// charge counts records.
func (t *tables) charge(owner, namespace string, records int64) {
	if t.usage == nil {
		return
	}
	t.usage.Add(owner, namespace, &core.Growth{core.Registrations: records})
	if t.marked != nil {
		t.marked.charges = append(t.marked.charges, charge{owner, namespace, records})
	}
}

// overQuota says why what a plan makes a principal and the namespace have is over a
// quota; nil: it is not. What lets go never is, and neither is what tells how a check
// is.
func (p *plan) overQuota(x *core.Exec, namespace string) *incumbent.Error {
	var owners, namespaces core.Growth
	asks := x.Principal()
	count := func(there bool, owner string) {
		if !there {
			namespaces[core.Registrations]++
		}
		if !there || owner != asks {
			owners[core.Registrations]++
		}
	}
	if n := p.newNode; n != nil {
		if p.node == nil {
			count(false, "")
		} else {
			count(true, p.node.node.Owner)
		}
	}
	if p.newOne != nil {
		if p.service == nil {
			count(false, "")
		} else {
			count(true, p.service.Owner)
		}
	}
	for _, o := range p.checks {
		if o == nil {
			count(false, "")
		} else if p.registers {
			count(true, o.Owner)
		}
	}
	if owners[core.Registrations] == 0 && namespaces[core.Registrations] == 0 {
		return nil
	}
	return x.OverQuota(asks, namespace, owners, namespaces)
}
