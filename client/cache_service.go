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
	cached[recordKey, *apiv1.CatalogEvent, *apiv1.CatalogEvent]
	opts WatchServiceOptions
}

// recordKey names a record of the catalog: a node, a service or check on it.
type recordKey struct{ kind, node, id string }

// NewServiceCache returns one that knows nothing. Of the options, where to begin is not
// used.
func NewServiceCache(opts WatchServiceOptions) *ServiceCache {
	c := &ServiceCache{opts: opts}
	c.records = map[recordKey]*apiv1.CatalogEvent{}
	return c
}

// Services returns the instances by node and id. They are not to be changed.
func (c *ServiceCache) Services() []*apiv1.Service {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*apiv1.Service
	for _, e := range c.records {
		if s := e.GetService(); s != nil && incumbent.Alike(s.Name, c.opts.Service) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *apiv1.Service) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Id, b.Id)) })
	return list
}

// Checks returns the checks of a service (id "": of the node itself) by id.
func (c *ServiceCache) Checks(node, id string) []*apiv1.Check {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []*apiv1.Check
	for _, e := range c.records {
		if s := e.GetCheck(); s != nil && incumbent.Alike(s.Node, node) && incumbent.Alike(s.ServiceId, id) {
			list = append(list, s)
		}
	}
	slices.SortFunc(list, func(a, b *apiv1.Check) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Id, b.Id)) })
	return list
}

// Node returns a node that has an instance, nil: there is none of that name.
func (c *ServiceCache) Node(name string) *apiv1.Node {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.records[recordKey{"node", incumbent.Fold(name), ""}].GetNode()
}

func (c *ServiceCache) request(after uint64) *apiv1.ClientFrame {
	return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_WatchService{WatchService: &apiv1.WatchServiceRequest{
		Namespace: c.opts.Namespace, Service: c.opts.Service, Fields: c.opts.Fields, AfterIndex: after, CatchUp: true,
	}}}
}

func (c *ServiceCache) take(turn uint64, f *apiv1.ServerFrame) {
	m := f.GetWatchService()
	c.hear(turn, m, m.GetEvents(), func(records map[recordKey]*apiv1.CatalogEvent, e *apiv1.CatalogEvent) {
		s := e.GetService()
		switch {
		case s != nil && (e.What == "deleted" || !incumbent.Alike(s.Name, c.opts.Service)):
			forget(records, s)
		case e.What == "deleted":
			delete(records, keyOfRecord(e))
		default:
			records[keyOfRecord(e)] = e
		}
	})
}

// forget takes out an instance that is gone, or of another service now: with its checks, and
// with its node and that one's checks if it was the last there. Of these nothing is told any
// more.
func forget(records map[recordKey]*apiv1.CatalogEvent, gone *apiv1.Service) {
	delete(records, recordKey{"service", incumbent.Fold(gone.Node), incumbent.Fold(gone.Id)})
	last := true
	for _, e := range records {
		last = last && !incumbent.Alike(e.GetService().GetNode(), gone.Node)
	}
	maps.DeleteFunc(records, func(_ recordKey, e *apiv1.CatalogEvent) bool {
		if c := e.GetCheck(); c != nil {
			return incumbent.Alike(c.Node, gone.Node) && (last || incumbent.Alike(c.ServiceId, gone.Id))
		}
		return last && e.GetNode() != nil && incumbent.Alike(e.GetNode().Name, gone.Node)
	})
}

// keyOfRecord is what a record is known by, however its node and its own id are written.
func keyOfRecord(e *apiv1.CatalogEvent) recordKey {
	switch {
	case e.GetService() != nil:
		return recordKey{"service", incumbent.Fold(e.GetService().Node), incumbent.Fold(e.GetService().Id)}
	case e.GetCheck() != nil:
		return recordKey{"check", incumbent.Fold(e.GetCheck().Node), incumbent.Fold(e.GetCheck().Id)}
	}
	return recordKey{"node", incumbent.Fold(e.GetNode().GetName()), ""}
}
