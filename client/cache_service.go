package client

import (
	"cmp"
	"maps"
	"slices"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// ServiceCache is the instances of a service, with their nodes and the checks of either,
// as a session that follows it has last heard of them.
type ServiceCache struct {
	cached[string, *host, *apiv1.CatalogEvent] // by the node's name
	opts                                       WatchServiceOptions
}

// Names of nodes, services and checks are folded where they are keys: they may be written
// in any case.

// host is a node with its own checks, the instances on it and theirs.
type host struct {
	node      *apiv1.Node
	own       checks
	instances map[string]*instance // by id
	checkedAt map[string]checks    // by the id of a check: among which it is
}

// instance is one of the service, with its checks.
type instance struct {
	service *apiv1.Service
	checks  checks
}

// checks are those of an instance, or of a node itself, by id.
type checks map[string]*apiv1.Check

// NewServiceCache returns one that knows nothing. Of the options, where to begin is not
// used. Pairs of the meta, of which there are at most 63 if they are all of its fields, are
// asked for with membership.
func NewServiceCache(opts WatchServiceOptions) *ServiceCache {
	c := &ServiceCache{opts: opts}
	c.records = map[string]*host{}
	return c
}

// Services returns the instances by node and id. They are not to be changed.
func (c *ServiceCache) Services() []*apiv1.Service {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*apiv1.Service
	for _, h := range c.records {
		for _, i := range h.instances {
			list = append(list, i.service)
		}
	}
	slices.SortFunc(list, func(a, b *apiv1.Service) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Id, b.Id)) })
	return list
}

// Checks returns the checks of a service (id "": of the node itself) by id.
func (c *ServiceCache) Checks(node, id string) []*apiv1.Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.records[incumbent.Fold(node)]
	if h == nil {
		return nil
	}
	return slices.SortedFunc(maps.Values(h.checksOf(id)), func(a, b *apiv1.Check) int { return cmp.Compare(a.Id, b.Id) })
}

// Node returns a node that has an instance, nil: there is none of that name.
func (c *ServiceCache) Node(name string) *apiv1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.records[incumbent.Fold(name)]; h != nil {
		return h.node
	}
	return nil
}

func (c *ServiceCache) request(after uint64) *apiv1.ClientFrame {
	return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_WatchService{WatchService: &apiv1.WatchServiceRequest{
		Namespace: c.opts.Namespace, Service: c.opts.Service, Fields: cachedFields(c.opts.Fields), AfterIndex: after, CatchUp: true,
	}}}
}

func (c *ServiceCache) take(turn uint64, f *apiv1.ServerFrame) {
	m := f.GetWatchService()
	c.hear(turn, m, m.GetEvents(), c.change)
}

// change makes the hosts what they are by an event. Of an instance it comes before its
// checks, and behind its node where that was not known.
func (c *ServiceCache) change(hosts map[string]*host, e *apiv1.CatalogEvent) {
	gone := e.What == "deleted"
	switch r := e.Record.(type) {
	case *apiv1.CatalogEvent_Node:
		if gone {
			delete(hosts, incumbent.Fold(r.Node.GetName()))
			return
		}
		hostNamed(hosts, r.Node.GetName()).node = r.Node
	case *apiv1.CatalogEvent_Service:
		if gone || !incumbent.Alike(r.Service.GetName(), c.opts.Service) {
			forget(hosts, r.Service)
			return
		}
		hostNamed(hosts, r.Service.GetNode()).put(r.Service)
	case *apiv1.CatalogEvent_Check:
		h := hosts[incumbent.Fold(r.Check.GetNode())]
		switch {
		case h == nil:
		case gone:
			h.uncheck(r.Check)
		default:
			h.check(r.Check)
		}
	}
}

// hostNamed returns the host of a name, which it adds if there is none.
func hostNamed(hosts map[string]*host, name string) *host {
	name = incumbent.Fold(name)
	h := hosts[name]
	if h == nil {
		h = &host{own: checks{}, instances: map[string]*instance{}, checkedAt: map[string]checks{}}
		hosts[name] = h
	}
	return h
}

// forget takes out an instance that is gone, or of another service now: with its checks, and
// with its node and that one's checks if it was the last there. Of these nothing is told any
// more. What it costs follows from what goes, not from what there is.
func forget(hosts map[string]*host, gone *apiv1.Service) {
	node := incumbent.Fold(gone.Node)
	h := hosts[node]
	if h == nil {
		return
	}
	if h.remove(gone); len(h.instances) == 0 {
		delete(hosts, node)
	}
}

// checksOf are those of an instance, or with id "" of the node itself; nil: it is not there.
func (h *host) checksOf(id string) checks {
	if id == "" {
		return h.own
	}
	if i := h.instances[incumbent.Fold(id)]; i != nil {
		return i.checks
	}
	return nil
}

// put stores an instance, which keeps its checks if it is there.
func (h *host) put(s *apiv1.Service) {
	i := h.instances[incumbent.Fold(s.Id)]
	if i == nil {
		i = &instance{checks: checks{}}
		h.instances[incumbent.Fold(s.Id)] = i
	}
	i.service = s
}

// remove takes an instance out with its checks.
func (h *host) remove(s *apiv1.Service) {
	for id := range h.checksOf(s.Id) {
		delete(h.checkedAt, id)
	}
	delete(h.instances, incumbent.Fold(s.Id))
}

// check stores a check where it belongs now, which may be with another instance than
// before. If that is of another service, nothing is told of the check any more.
func (h *host) check(c *apiv1.Check) {
	h.uncheck(c)
	if at := h.checksOf(c.ServiceId); at != nil {
		at[incumbent.Fold(c.Id)], h.checkedAt[incumbent.Fold(c.Id)] = c, at
	}
}

// uncheck takes a check out.
func (h *host) uncheck(c *apiv1.Check) {
	id := incumbent.Fold(c.Id)
	delete(h.checkedAt[id], id)
	delete(h.checkedAt, id)
}
