package catalog

import (
	"fmt"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Check implements [core.Tables]: what is derived is derived anew and compared.
func (t *tables) Check(open func(incumbent.SessionID) bool, index incumbent.Index) error {
	t.renew()
	again := newTables()
	again.limits = t.limits
	for _, verify := range [...]func(*tables, func(incumbent.SessionID) bool, incumbent.Index) error{
		t.verifyNodes, t.verifyServices, t.verifyChecks, t.verifySessions, t.verifyMarks,
	} {
		if err := verify(again, open, index); err != nil {
			return err
		}
	}
	return t.verifyDerived(again)
}

func (t *tables) verifyNodes(again *tables, _ func(incumbent.SessionID) bool, index incumbent.Index) (err error) {
	t.hosts.Scan(func(h *host) bool {
		n := h.node
		switch {
		case incumbent.ValidateNamespace(n.Namespace) != nil, name("node", n.Name) != nil, n.validate() != nil, len(n.Owner) > core.MaxOriginBytes, !counted(n.Further, n.full()):
			err = fmt.Errorf("node %.80q: it cannot be", n.Name)
		case !again.takeNode(n):
			err = fmt.Errorf("node %.80q: its id is another's", n.Name)
		default:
			err = dated("node", n.Name, n.Created, n.Modified, index)
		}
		return err == nil
	})
	return err
}

func (t *tables) verifyServices(again *tables, open func(incumbent.SessionID) bool, index incumbent.Index) (err error) {
	t.services.Scan(func(s *Service) bool {
		switch {
		case s.validate() != nil, len(s.Owner) > core.MaxOriginBytes, !counted(s.Further, s.full()):
			err = fmt.Errorf("service %.80q: it cannot be", s.ID)
		case !s.Session.IsZero() && !open(s.Session):
			err = fmt.Errorf("service %.80q: its session %v is not open", s.ID, s.Session)
		case !again.takeService(s):
			err = fmt.Errorf("service %.80q: its node is not there", s.ID)
		case s.Node != t.host(s.Namespace, s.Node).node.Name:
			err = fmt.Errorf("service %.80q: it writes its node %.80q otherwise", s.ID, s.Node)
		default:
			err = dated("service", s.ID, s.Created, s.Modified, index)
		}
		return err == nil
	})
	return err
}

func (t *tables) verifyChecks(again *tables, _ func(incumbent.SessionID) bool, index incumbent.Index) (err error) {
	t.checks.Scan(func(c *Check) bool {
		own := *c
		switch {
		case c.validate() != nil, len(c.Owner) > core.MaxOriginBytes, !counted(c.Further, c.full()), c.Since < c.Created || c.Since > c.Modified:
			err = fmt.Errorf("check %.80q: it cannot be", c.ID)
		case !again.takeCheck(&own):
			err = fmt.Errorf("check %.80q: its node or service is not there", c.ID)
		case !own.same(c), c.Node != t.host(c.Namespace, c.Node).node.Name:
			err = fmt.Errorf("check %.80q: it says of its service what that does not", c.ID)
		default:
			again.checks.Set(c)
			again.attach(c, 0, false)
			err = dated("check", c.ID, c.Created, c.Modified, index)
		}
		return err == nil
	})
	return err
}

func (t *tables) verifySessions(again *tables, open func(incumbent.SessionID) bool, index incumbent.Index) (err error) {
	t.sessions.Scan(func(s *Session) bool {
		switch {
		case s.validate() != nil:
			err = fmt.Errorf("session %v: it cannot be", s.ID)
		case !open(s.ID):
			err = fmt.Errorf("session %v: it is not open", s.ID)
		case again.dependable(s, false).Err != nil:
			err = fmt.Errorf("session %v: %w", s.ID, again.dependable(s, false).Err)
		default:
			again.addSession(s)
			err = dated("session", s.ID.String(), s.Created, s.Modified, index)
		}
		return err == nil
	})
	return err
}

func (t *tables) verifyMarks(again *tables, _ func(incumbent.SessionID) bool, index incumbent.Index) (err error) {
	again.floor = t.floor
	t.marks.Scan(func(m mark) bool {
		if m.of == 0 || m.of >= numMarkKinds || m.at < t.floor && t.isDead(m) || m.at == 0 || m.at > index || incumbent.ValidateNamespace(m.namespace) != nil {
			err = fmt.Errorf("index %d of %.80q, the floor is %d, the state's index is %d", m.at, m.name, t.floor, index)
		}
		again.touch(m, again.isDead(m))
		return err == nil
	})
	if n := t.dead.Len(); n > t.limits.tombstones || t.floor > index {
		return fmt.Errorf("%d indexes of nothing, their floor is %d: limit MaxTombstones is %d", n, t.floor, t.limits.tombstones)
	}
	t.instances.Scan(func(i *Instance) bool {
		newest := max(i.Service.Modified, i.Node.Modified)
		for _, c := range slices.Concat(i.NodeChecks, i.Checks) {
			newest = max(newest, c.Modified)
		}
		if at := t.at(i.Service.Namespace, ofService, i.Service.Name); at < newest || t.at(i.Service.Namespace, ofNode, i.Node.Name) < newest {
			err = fmt.Errorf("service %.80q: its index is %d, it changed at %d", i.Service.Name, at, newest)
		}
		return err == nil
	})
	return err
}

func (t *tables) verifyDerived(again *tables) (err error) {
	again.renew()
	switch {
	case t.records() > t.limits.records:
		return fmt.Errorf("%d records: limit MaxRecords is %d", t.records(), t.limits.records)
	case t.instances.Len() != again.instances.Len(), t.ids.Len() != again.ids.Len(), t.bonds.Len() != again.bonds.Len(),
		t.tenants.Len() != again.tenants.Len(), t.dead.Len() != again.dead.Len(), t.marks.Len() != again.marks.Len():
		return fmt.Errorf("what is derived is not what the records say")
	}
	t.instances.Scan(func(i *Instance) bool {
		if o := again.instance(i.Service); o == nil || !i.equal(o) {
			err = fmt.Errorf("service %.80q on %.80q: its instance is not what its records say", i.Service.ID, i.Service.Node)
		}
		return err == nil
	})
	t.hosts.Scan(func(h *host) bool {
		o := again.host(h.node.Namespace, h.node.Name)
		if err == nil && (h.services != o.services || h.sessions != o.sessions || !slices.Equal(h.checks, o.checks) || h.services > t.limits.services) {
			err = fmt.Errorf("node %.80q: %d services and %d sessions are counted, there are %d and %d", h.node.Name, h.services, h.sessions, o.services, o.sessions)
		}
		return err == nil
	})
	t.ids.Scan(func(id nodeID) bool {
		if o, _ := again.ids.Get(id); err == nil && o != id {
			err = fmt.Errorf("node id %.80q: it is said to be that of %.80q", id.id, id.name)
		}
		return err == nil
	})
	return err
}

func (i *Instance) equal(o *Instance) bool {
	return i.Node == o.Node && i.Service == o.Service && slices.Equal(i.NodeChecks, o.NodeChecks) && slices.Equal(i.Checks, o.Checks)
}

func dated(what, name string, created, modified, index incumbent.Index) error {
	if created == 0 || created > modified || modified > index {
		return fmt.Errorf("%s %.80q: created at %d and modified at %d, the state's index is %d", what, name, created, modified, index)
	}
	return nil
}
