package native

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// WatchService sends a snapshot or resumes, then sends changes until the caller goes.
func (s catalogService) WatchService(ctx context.Context, r *connect.Request[pb.WatchServiceRequest], out *connect.ServerStream[pb.WatchServiceResponse]) error {
	sel, err := s.d.selectService(callerOf(ctx), r.Msg)
	return s.d.watch(ctx, sel, err, out.Conn())
}

// selectService checks what a caller wants to watch. Whatever is told of the service
// stands under its topic, also changes of nodes.
func (d *Door) selectService(who *caller, r *pb.WatchServiceRequest) (*selection, error) {
	h := healthOf(&pb.HealthRequest{Namespace: r.GetNamespace(), Service: r.GetService()})
	if err := h.validate(); err != nil {
		return nil, err
	}
	selected, err := selectorOf(engine.FamilyTopic(catalog.Number, catalog.ServiceTopic(h.namespace, h.service)), false, r.GetFields())
	if err != nil {
		return nil, err
	}
	sel := &selection{
		after: incumbent.Index(r.GetAfterIndex()), catchUp: r.GetCatchUp(), who: who, action: calls.WatchService.Action(), selected: []watch.Selector{selected},
		form:    form{answer: fieldWatchService},
		about:   incumbent.Name{Namespace: h.namespace, Lease: h.service},
		records: &serviceRecords{health: h},
	}
	_, err = sel.sight(d)
	return sel, err
}

// serviceRecords are the instances of a service.
type serviceRecords struct {
	health *health
	node   string // of the last instance that was shown
	id     string
	same   bool // nothing has changed
}

// begin knows no more than that nothing of the service has changed.
func (s *serviceRecords) begin(v *core.View, after incumbent.Index) (changes bool) {
	s.node, s.id = "", ""
	s.same = after > 0 && catalog.Of(v).ServiceIndex(s.health.namespace, s.health.service) <= after
	return s.same
}

// next shows the instances that are there, each node before its services.
func (s *serviceRecords) next(f *former, room *room, _ auth.Sight) (out []proto.Message, more bool) {
	if s.same {
		return nil, false
	}
	last := ""
	catalog.Of(f.view).Instances(s.health.namespace, s.health.service, func(i *catalog.Instance) bool {
		n := i.Service
		if c := incumbent.CompareNames(n.Node, s.node); c < 0 || c == 0 && incumbent.CompareNames(n.ID, s.id) <= 0 {
			return true
		}
		if room.full() {
			more = true
			return false
		}
		show := func(index incumbent.Index, record any) {
			e := f.catalogRecord(record)
			e.Index, e.What = uint64(index), present
			room.use(e)
			out = append(out, e)
		}
		if n.Node != last && !incumbent.Alike(n.Node, s.node) {
			show(i.Node.Modified, i.Node)
			for _, c := range i.NodeChecks {
				show(c.Modified, c)
			}
		}
		show(n.Modified, n)
		for _, c := range i.Checks {
			show(c.Modified, c)
		}
		s.node, s.id, last = n.Node, n.ID, n.Node
		return true
	})
	return out, more
}

// catalogEvents writes a change of a record of the catalog, behind what comes with it.
func (f *former) catalogEvents(c *core.Change) (out []proto.Message) {
	show := func(record any, what string) *pb.CatalogEvent {
		e := f.catalogRecord(record)
		e.Index, e.What = uint64(c.Index), what
		if e.Record != nil { // not of a session
			out = append(out, e)
		}
		return e
	}
	if i, ok := c.Family.With.(*catalog.Instance); ok {
		show(i.Node, present)
		for _, check := range i.NodeChecks {
			show(check, present)
		}
	}
	record, what := c.Family.After, "stored"
	if record == nil {
		record, what = c.Family.Before, "deleted"
	}
	e := show(record, what)
	if before, ok := c.Family.Before.(*catalog.Check); ok {
		e.Was = statusPB(before.Status)
	}
	return out
}

func (f *former) catalogRecord(record any) *pb.CatalogEvent {
	switch r := record.(type) {
	case *catalog.Node:
		return &pb.CatalogEvent{Record: &pb.CatalogEvent_Node{Node: nodePB(r)}}
	case *catalog.Service:
		return &pb.CatalogEvent{Record: &pb.CatalogEvent_Service{Service: f.service(r)}}
	case *catalog.Check:
		return &pb.CatalogEvent{Record: &pb.CatalogEvent_Check{Check: checkPB(r)}}
	}
	return &pb.CatalogEvent{}
}
