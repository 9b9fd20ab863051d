package catalog

import (
	"cmp"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// What follows stores a record, or takes one out, with all that follows from it: its
// instances, the indexes that move, what watchers are told.

// putNode stores a node in the place of h's, nil: there is none. One that had another
// name was created when it got that.
func (t *tables) putNode(x *core.Exec, h *host, n *Node) {
	n.Created, n.Modified = cmp.Or(n.Created, x.Index()), x.Index()
	next := &host{node: n}
	var before any
	if h == nil {
		// Those of a node that was here before in this transaction: they end with it.
		t.bound(n.Namespace, n.Name, "", func(incumbent.SessionID) bool {
			next.sessions++
			return true
		})
	} else {
		*next, before = *h, h.node
		next.node, n.Created = n, h.node.Created
		t.charge(h.node.Owner, n.Namespace, -h.node.registrations())
	}
	t.charge(n.Owner, n.Namespace, n.registrations())
	t.setHost(h, next)
	t.reshape(next)
	t.tellNode(x, n, before, n, t.serviceNames(n.Namespace, n.Name))
}

// setHost stores a host in the place of another; either may be nil.
func (t *tables) setHost(o, n *host) {
	if o != nil && o.node.ID != "" && (n == nil || n.node.ID != o.node.ID) {
		t.ids.Delete(nodeID{o.node.Namespace, o.node.ID, ""})
	}
	if n == nil {
		t.hosts.Delete(o)
		return
	}
	t.hosts.Set(n)
	if n.node.ID != "" {
		t.ids.Set(nodeID{n.node.Namespace, n.node.ID, n.node.Name})
	}
}

// reshape has the instances on a node show what the node and its own checks are.
func (t *tables) reshape(h *host) {
	t.servicesOf(h.node.Namespace, h.node.Name, func(s *Service) bool {
		i := *t.instance(s)
		i.Node, i.NodeChecks = h.node, h.checks
		t.instances.Set(&i)
		return true
	})
}

// tellNode tells of a change of a node, or of one of its own checks.
func (t *tables) tellNode(x *core.Exec, n *Node, before, after any, names []string) {
	c := core.FamilyChange{Topic: recordTopic(n.Namespace, Nodes, n.Name, ""), Before: before, After: after, Size: nodeBytes(n)}
	t.tell(x, c, told{n.Namespace, Nodes, n.Name, names, after == nil})
}

// told is what a change moves the indexes of.
type told struct {
	namespace string
	table     Table
	node      string
	services  []string
	gone      bool // the node
}

// tellService tells of a change of a service, with its node and that one's own checks if
// those who watch its name do not know them: it is the first instance of that name there.
func (t *tables) tellService(x *core.Exec, s *Service, before, after any, names []string, with *Instance) {
	c := core.FamilyChange{Topic: recordTopic(s.Namespace, Services, s.Node, s.ID), Before: before, After: after, Size: serviceBytes(s)}
	if with != nil {
		c.With = with
		c.Size += nodeBytes(with.Node)
		for _, check := range with.NodeChecks {
			c.Size += checkBytes(check)
		}
	}
	t.tell(x, c, told{s.Namespace, Services, s.Node, names, false})
}

// tell moves the indexes of a change, and tells watchers of it: of its topic, and of its node
// and services.
func (t *tables) tell(x *core.Exec, c core.FamilyChange, of told) {
	c.Also = make([]core.Topic, 0, len(of.services)+1)
	t.touch(mark{of.namespace, ofTable, string(of.table), x.Index()}, false)
	t.touch(mark{of.namespace, ofNode, of.node, x.Index()}, of.gone)
	c.Also = append(c.Also, NodeTopic(of.namespace, of.node))
	for i, name := range of.services {
		of.services[i] = incumbent.Fold(name)
	}
	slices.Sort(of.services)
	for _, name := range slices.Compact(of.services) {
		m := mark{of.namespace, ofService, name, x.Index()}
		t.touch(m, t.isDead(m))
		c.Also = append(c.Also, ServiceTopic(of.namespace, name))
	}
	x.Tell(Family{}, c)
}

// putService stores a service in the place of o, nil: there is none. Its node is there.
func (t *tables) putService(x *core.Exec, o, n *Service) {
	n.Created, n.Modified = x.Index(), x.Index()
	h := t.host(n.Namespace, n.Node)
	i := &Instance{Node: h.node, Service: n, NodeChecks: h.checks}
	names := []string{n.Name}
	var before any
	came := o == nil || !incumbent.Alike(o.Name, n.Name)
	if o == nil {
		next := *h
		next.services++
		t.setHost(h, &next)
	} else {
		before, n.Created, i.Checks = o, o.Created, t.instance(o).Checks
		t.instances.Delete(&Instance{Service: o})
		t.evict(o)
		t.charge(o.Owner, o.Namespace, -o.registrations())
		if came {
			names = append(names, o.Name)
		}
	}
	with := i
	if !came || t.hasInstance(n.Namespace, n.Name, n.Node) {
		with = nil // who watches the name knows the node
	}
	t.charge(n.Owner, n.Namespace, n.registrations())
	t.services.Set(n)
	t.instances.Set(i)
	if !n.Session.IsZero() {
		t.tenants.Set(tenancy{n.Session, n.Namespace, n.Node, n.ID})
	}
	t.tellService(x, n, before, n, names, with)
	for _, c := range i.Checks { // whose service has another name, or other tags, or is written otherwise
		next := *c
		if next.ServiceID, next.ServiceName, next.ServiceTags = n.ID, n.Name, n.Tags; !next.same(c) {
			t.putCheck(x, c, &next)
		}
	}
}

// evict forgets with which session a service ends.
func (t *tables) evict(s *Service) {
	if !s.Session.IsZero() {
		t.tenants.Delete(tenancy{s.Session, s.Namespace, s.Node, s.ID})
	}
}

// putCheck stores a check in the place of o, nil: there is none. Its node is there,
// and its service.
func (t *tables) putCheck(x *core.Exec, o, n *Check) {
	n.Created, n.Modified = x.Index(), x.Index()
	n.Since = x.Index()
	var before any
	if o != nil {
		before, n.Created = o, o.Created
		if n.Status == o.Status && n.TTL == o.TTL && n.DeregisterAfter == o.DeregisterAfter {
			n.Since = o.Since
		}
		t.charge(o.Owner, o.Namespace, -o.registrations())
	}
	t.charge(n.Owner, n.Namespace, n.registrations())
	t.checks.Set(n)
	names := t.attach(n, false)
	if o != nil && !incumbent.Alike(o.ServiceID, n.ServiceID) {
		names = append(names, t.attach(o, true)...)
	}
	t.tellCheck(x, n, before, n, names)
	t.tellDeadline(x, o, n)
	if n.Status == Critical {
		t.endBound(x, n.Namespace, n.Node, n.ID)
	}
}

// attach has the instances that a check tells of show it, or (detach) no longer show
// it, and returns their names.
func (t *tables) attach(c *Check, detach bool) []string {
	if c.ServiceID == "" {
		h := t.host(c.Namespace, c.Node)
		next := *h
		next.checks = with(h.checks, c, detach)
		t.setHost(h, &next)
		t.reshape(&next)
		return t.serviceNames(c.Namespace, c.Node)
	}
	i := *t.instance(t.service(c.Namespace, c.Node, c.ServiceID))
	i.Checks = with(i.Checks, c, detach)
	t.instances.Set(&i)
	return []string{i.Service.Name}
}

func (t *tables) tellCheck(x *core.Exec, c *Check, before, after any, names []string) {
	change := core.FamilyChange{Topic: recordTopic(c.Namespace, Checks, c.Node, c.ID), Before: before, After: after, Size: checkBytes(c)}
	t.tell(x, change, told{c.Namespace, Checks, c.Node, names, false})
}

// endBound ends the sessions that depend on a node (check "") or on a check of it: once
// the command has succeeded.
func (t *tables) endBound(x *core.Exec, namespace, node, check string) {
	t.bound(namespace, node, check, func(id incumbent.SessionID) bool {
		x.CloseSession(id, boundReason(check))
		return true
	})
}

func boundReason(check string) string {
	if check == "" {
		return "its node is gone"
	}
	return "a check that it depends on is critical or gone"
}

func (t *tables) removeCheck(x *core.Exec, c *Check) {
	t.checks.Delete(c)
	names := t.attach(c, true)
	t.charge(c.Owner, c.Namespace, -c.registrations())
	t.tellCheck(x, c, c, nil, names)
	t.tellDeadline(x, c, nil)
	t.endBound(x, c.Namespace, c.Node, c.ID)
}

// removeService takes a service out with its checks.
func (t *tables) removeService(x *core.Exec, s *Service) {
	for _, c := range t.instance(s).Checks {
		t.removeCheck(x, c)
	}
	t.services.Delete(s)
	t.instances.Delete(&Instance{Service: s})
	t.evict(s)
	h := t.host(s.Namespace, s.Node)
	next := *h
	next.services--
	t.setHost(h, &next)
	t.charge(s.Owner, s.Namespace, -s.registrations())
	t.tellService(x, s, s, nil, []string{s.Name}, nil)
}

// removeNode takes a node out with all it has. Its own checks go last: each tells of
// all services.
func (t *tables) removeNode(x *core.Exec, h *host) {
	n := h.node
	var services []*Service
	t.servicesOf(n.Namespace, n.Name, func(s *Service) bool {
		services = append(services, s)
		return true
	})
	for _, s := range services {
		t.removeService(x, s)
	}
	for _, c := range h.checks {
		t.removeCheck(x, c)
	}
	t.setHost(t.host(n.Namespace, n.Name), nil)
	t.charge(n.Owner, n.Namespace, -n.registrations())
	t.tellNode(x, n, n, nil, nil)
	t.endBound(x, n.Namespace, n.Name, "")
}

// Sizes of what a change keeps, about.

func nodeBytes(n *Node) int {
	return recordBytes + len(n.Name) + len(n.Address) + pairBytes*(len(n.Meta)+len(n.TaggedAddresses))
}

func serviceBytes(s *Service) int {
	return recordBytes + len(s.Node) + len(s.ID) + pairBytes*(len(s.Tags)+len(s.Meta)+len(s.TaggedAddresses)+len(s.Ports))
}

func checkBytes(c *Check) int {
	return recordBytes + len(c.Node) + len(c.ID) + len(c.Notes) + len(c.Output) + len(c.Definition)
}

const (
	recordBytes = 384 // a record
	pairBytes   = 64  // a key with a value, a tag
)
