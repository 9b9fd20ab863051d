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
	count := func(owner, namespace string, n int64) {
		u.Add(owner, namespace, &core.Growth{core.Registrations: n})
	}
	t.hosts.Scan(func(h *host) bool {
		count(h.node.Owner, h.node.Namespace, h.node.registrations())
		return true
	})
	t.services.Scan(func(s *Service) bool {
		count(s.Owner, s.Namespace, s.registrations())
		return true
	})
	t.checks.Scan(func(c *Check) bool {
		count(c.Owner, c.Namespace, c.registrations())
		return true
	})
}

// registrationBytes is how much of a record counts as one registration: what one says may
// be two hundred thousand bytes, of which a quota of so many records would bound nothing.
const registrationBytes = 4 << 10

// Each record says as how many registrations it counts besides one, in the section alone:
// one that was registered before all members counted so has 0 until it is registered
// anew, and what it counted as is what goes with it.

func (n *Node) registrations() int64    { return 1 + int64(n.Further) }
func (s *Service) registrations() int64 { return 1 + int64(s.Further) }
func (c *Check) registrations() int64   { return 1 + int64(c.Further) }

func furtherIn(bytes int) uint64 { return uint64(bytes / registrationBytes) }

// counted reports whether a record can count as so many besides one.
func counted(further, full uint64) bool { return further == 0 || further == full }

// furtherOf is where a record has it; nil: those of its kind do not.
func furtherOf(m message) *uint64 {
	switch r := m.(type) {
	case *Node:
		return &r.Further
	case *Service:
		return &r.Further
	case *Check:
		return &r.Further
	}
	return nil
}

// full is what the node counts as besides one from when all members count so.
func (n *Node) full() uint64 {
	return furtherIn(len(n.Name) + len(n.ID) + len(n.Address) + pairsBytes(n.TaggedAddresses) + pairsBytes(n.Meta))
}

// full is that of services.
func (s *Service) full() uint64 {
	n := len(s.Node) + len(s.ID) + len(s.Name) + len(s.Kind) + len(s.Address) + len(s.SocketPath) + pairsBytes(s.Meta)
	for i := range s.Ports {
		n += len(s.Ports[i].Name)
	}
	for _, tag := range s.Tags {
		n += len(tag)
	}
	for i := range s.TaggedAddresses {
		n += len(s.TaggedAddresses[i].Name) + len(s.TaggedAddresses[i].Address)
	}
	return furtherIn(n)
}

// full is that of checks. What changes with its service, and its output, with which
// nobody registers it, are left out.
func (c *Check) full() uint64 {
	return furtherIn(len(c.Node) + len(c.ID) + len(c.Name) + len(c.Notes) + len(c.Type) + len(c.Interval) + len(c.Timeout) + len(c.Definition) + len(c.SessionName))
}

func pairsBytes(list []Pair) (n int) {
	for i := range list {
		n += len(list[i].Key) + len(list[i].Value)
	}
	return n
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
	count := func(n, was int64, owner string) { // was 0: it is not there
		namespaces[core.Registrations] += n - was
		if owner != asks {
			was = 0
		}
		owners[core.Registrations] += n - was
	}
	if n := p.newNode; n != nil {
		if p.node == nil {
			count(n.registrations(), 0, "")
		} else {
			count(n.registrations(), p.node.node.registrations(), p.node.node.Owner)
		}
	}
	if n := p.newOne; n != nil {
		if p.service == nil {
			count(n.registrations(), 0, "")
		} else {
			count(n.registrations(), p.service.registrations(), p.service.Owner)
		}
	}
	for i, o := range p.checks {
		if o == nil {
			count(p.newOnes[i].registrations(), 0, "")
		} else if p.registers {
			count(p.newOnes[i].registrations(), o.registrations(), o.Owner)
		}
	}
	if owners[core.Registrations] <= 0 && namespaces[core.Registrations] <= 0 {
		return nil
	}
	return x.OverQuota(asks, namespace, owners, namespaces)
}
