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
	t.outdate(next, x.Index())
	t.setHost(h, next)
	t.tellNode(x, n, before, n)
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

// outdate notes that the node of a host, or one of its own checks, is another since an
// index, which becomes that of the services on it (0: theirs stay): see [tables.renew].
func (t *tables) outdate(h *host, at incumbent.Index) {
	if h.services == 0 {
		return
	}
	if !h.outdated {
		t.outdated = append(t.outdated, nodeName{h.node.Namespace, h.node.Name})
	}
	h.outdated, h.changed = true, max(h.changed, at)
}

// renew has the instances on nodes that have changed show what these and their own checks
// are, and moves the indexes of their services. It is done for all changes of a batch at
// once, for a node may have very many services: nothing but a view looks at either. What
// has come to such a node, or has left it, since it changed has a later index already.
func (t *tables) renew() {
	for _, n := range t.outdated {
		h := t.host(n.namespace, n.name)
		if h == nil || !h.outdated {
			continue
		}
		next := *h
		next.outdated, next.changed, next.topics = false, 0, nil
		t.setHost(h, &next)
		t.servicesOf(n.namespace, n.name, func(s *Service) bool {
			i := *t.instance(s)
			i.Node, i.NodeChecks = next.node, next.checks
			t.instances.Set(&i)
			m := mark{n.namespace, ofService, incumbent.Fold(s.Name), h.changed}
			if o, _ := t.marks.Get(m); o.at < m.at {
				t.touch(m, false)
			}
			return true
		})
	}
	t.outdated = nil
}

// topicsOf are the topics of a node and of all services on it: the same slice until there
// are others, or a view is made.
func (t *tables) topicsOf(namespace, node string) []core.Topic {
	h := t.host(namespace, node)
	if h.topics != nil {
		return h.topics
	}
	names := t.serviceNames(namespace, node)
	topics := make([]core.Topic, 0, len(names)+1)
	topics = append(topics, NodeTopic(namespace, node))
	for _, name := range names {
		topics = append(topics, ServiceTopic(namespace, name))
	}
	if h.outdated {
		next := *h
		next.topics = topics
		t.setHost(h, &next)
	}
	return topics
}

// tellNode tells of a change of a node. What was on one that is gone has been told of.
func (t *tables) tellNode(x *core.Exec, n *Node, before, after any) {
	c := core.FamilyChange{Topic: recordTopic(n.Namespace, Nodes, n.Name, ""), Before: before, After: after, Size: nodeBytes(n)}
	t.tell(x, c, told{namespace: n.Namespace, table: Nodes, node: n.Name, all: after != nil, gone: after == nil})
}

// told is what a change moves the indexes of.
type told struct {
	namespace string
	table     Table
	node      string
	services  []string // by their names
	all       bool     // services of the node, which is outdated: their indexes move once it no longer is
	gone      bool     // the node
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
	t.tell(x, c, told{namespace: s.Namespace, table: Services, node: s.Node, services: names})
}

// tell moves the indexes of a change, and tells watchers of it: of its topic, and of its node
// and services.
func (t *tables) tell(x *core.Exec, c core.FamilyChange, of told) {
	t.touch(mark{of.namespace, ofTable, string(of.table), x.Index()}, false)
	t.touch(mark{of.namespace, ofNode, of.node, x.Index()}, of.gone)
	if of.all {
		c.Also = t.topicsOf(of.namespace, of.node)
		x.Tell(Family{}, c)
		return
	}
	c.Also = make([]core.Topic, 0, len(of.services)+1)
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
	if came {
		next := *h
		next.topics = nil
		if o == nil {
			next.services++
		}
		t.setHost(h, &next)
	}
	if o != nil {
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
	t.attach(n, x.Index(), false)
	if o != nil && !incumbent.Alike(o.ServiceID, n.ServiceID) {
		t.attach(o, x.Index(), true)
	}
	t.tellCheck(x, n, before, n)
	t.tellDeadline(x, o, n)
	if n.Status == Critical {
		t.endBound(x, n.Namespace, n.Node, n.ID)
	}
}

// attach has the instances that a check tells of show it, or (detach) no longer show it:
// those of a node once they are renewed. at is as of [tables.outdate].
func (t *tables) attach(c *Check, at incumbent.Index, detach bool) {
	if c.ServiceID == "" {
		h := t.host(c.Namespace, c.Node)
		next := *h
		next.checks = with(h.checks, c, detach)
		t.outdate(&next, at)
		t.setHost(h, &next)
		return
	}
	i := *t.instance(t.service(c.Namespace, c.Node, c.ServiceID))
	i.Checks = with(i.Checks, c, detach)
	t.instances.Set(&i)
}

func (t *tables) tellCheck(x *core.Exec, c *Check, before, after any) {
	change := core.FamilyChange{Topic: recordTopic(c.Namespace, Checks, c.Node, c.ID), Before: before, After: after, Size: checkBytes(c)}
	of := told{namespace: c.Namespace, table: Checks, node: c.Node}
	of.shows(c)
	if o, _ := before.(*Check); o != nil && !incumbent.Alike(o.ServiceID, c.ServiceID) {
		of.shows(o)
	}
	t.tell(x, change, of)
}

// shows adds the services whose instances show a check.
func (o *told) shows(c *Check) {
	if c.ServiceID == "" {
		o.all = true
		return
	}
	o.services = append(o.services, c.ServiceName)
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
	t.attach(c, x.Index(), true)
	t.charge(c.Owner, c.Namespace, -c.registrations())
	t.tellCheck(x, c, c, nil)
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
	next.topics = nil
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
	t.tellNode(x, n, n, nil)
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
