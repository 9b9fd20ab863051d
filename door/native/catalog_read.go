package native

import (
	"context"
	"fmt"
	"slices"
	"strings"

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

// ListNodes reads a page.
func (s catalogService) ListNodes(ctx context.Context, r *connect.Request[pb.ListNodesRequest]) (*connect.Response[pb.ListNodesResponse], error) {
	in := r.Msg
	return reading(ctx, s.d, calls.ListNodes.LaneOfRead(in.Stale), in.Stale, func(f *former) (*pb.ListNodesResponse, error) {
		page, sight, err := s.d.catalogPage(ctx, calls.ListNodes, in.Namespace, in.Limit)
		if err != nil {
			return nil, err
		}
		out := &pb.ListNodesResponse{Index: uint64(f.view.Index())}
		catalog.Of(f.view).Nodes(namespaceOf(in.Namespace), in.After, func(n *catalog.Node) bool {
			if incumbent.CompareNames(n.Name, in.After) <= 0 || !sight.Sees(incumbent.Name{Namespace: n.Namespace, Lease: n.Name}) {
				return true
			}
			if out.More = page.full(); out.More {
				return false
			}
			shown := nodePB(n)
			page.use(shown)
			out.Nodes = append(out.Nodes, shown)
			return true
		})
		return out, nil
	})
}

// ListServices reads a page.
func (s catalogService) ListServices(ctx context.Context, r *connect.Request[pb.ListServicesRequest]) (*connect.Response[pb.ListServicesResponse], error) {
	in := r.Msg
	return reading(ctx, s.d, calls.ListServices.LaneOfRead(in.Stale), in.Stale, func(f *former) (*pb.ListServicesResponse, error) {
		page, sight, err := s.d.catalogPage(ctx, calls.ListServices, in.Namespace, in.Limit)
		if err != nil {
			return nil, err
		}
		v, namespace := catalog.Of(f.view), namespaceOf(in.Namespace)
		out := &pb.ListServicesResponse{Index: uint64(f.view.Index())}
		var last *pb.ServiceSummary
		v.AllInstances(namespace, func(i *catalog.Instance) bool {
			if incumbent.CompareNames(i.Service.Name, in.After) <= 0 || !sight.Sees(incumbent.Name{Namespace: namespace, Lease: i.Service.Name}) {
				return true
			}
			if last == nil || !incumbent.Alike(last.Name, i.Service.Name) {
				if out.More = page.full(); out.More {
					return false
				}
				last = &pb.ServiceSummary{Name: i.Service.Name, ModifiedIndex: uint64(v.ServiceIndex(namespace, i.Service.Name))}
				page.use(last)
				out.Services = append(out.Services, last)
			}
			summarize(last, i)
			return true
		})
		return out, nil
	})
}

// summarize counts an instance in.
func summarize(s *pb.ServiceSummary, i *catalog.Instance) {
	for _, tag := range i.Service.Tags {
		if at, there := slices.BinarySearch(s.Tags, tag); !there {
			s.Tags = slices.Insert(s.Tags, at, tag)
		}
	}
	switch i.Status() {
	case catalog.Passing:
		s.Passing++
	case catalog.Warning:
		s.Warning++
	default:
		s.Critical++
	}
}

// catalogPage begins a page of a list, of which a caller is shown what it may see.
func (d *Door) catalogPage(ctx context.Context, call calls.Call, namespace string, limit uint32) (room, auth.Sight, error) {
	page, err := newPage(limit)
	if err != nil {
		return room{}, auth.Sight{}, err
	}
	namespace = namespaceOf(namespace)
	if err := incumbent.ValidateNamespace(namespace); err != nil {
		return room{}, auth.Sight{}, err
	}
	sight := d.rights(callerOf(ctx)).Sight(call.Action())
	return page, sight, sight.SeesAny(incumbent.Name{Namespace: namespace})
}

// Health reads the instances of a service.
func (s catalogService) Health(ctx context.Context, r *connect.Request[pb.HealthRequest]) (*connect.Response[pb.HealthResponse], error) {
	in := r.Msg
	h := healthOf(in)
	if err := h.validate(); err != nil {
		return nil, s.d.callError(err)
	}
	if waits(in) {
		return shared[pb.HealthResponse](s.d.answerShared(ctx, in, healthFields, true, func() (watch.QuerySpec[*core.View], error) {
			who := callerOf(ctx)
			return s.d.healthQuery(h, s.d.hidesFrom(who)), h.allowed(s.d, who)
		}))
	}
	return reading(ctx, s.d, calls.HealthOfService.LaneOfRead(in.Stale), in.Stale, func(f *former) (*pb.HealthResponse, error) {
		if err := h.allowed(s.d, callerOf(ctx)); err != nil {
			return nil, err
		}
		out := h.read(f, nil)
		out.Index = uint64(f.view.Index())
		if in.Stale {
			out.AgeMs = ms(s.d.age())
		}
		return out, nil
	})
}

// healthFields are those of a HealthResponse that are of the moment.
var healthFields = sharedFields{index: 2, modified: 4, age: 3}

// health is which instances somebody asks for.
type health struct {
	namespace, service string
	passing            bool
	tags               []string // in order
}

func healthOf(in *pb.HealthRequest) *health {
	h := &health{namespaceOf(in.Namespace), in.Service, in.Passing, slices.Clone(in.Tags)}
	slices.Sort(h.tags)
	h.tags = slices.Compact(h.tags)
	return h
}

func (h *health) validate() error {
	switch {
	case h.service == "" || len(h.service) > catalog.MaxNameBytes:
		return invalid("service", "has %d bytes; 1 to %d are allowed", len(h.service), catalog.MaxNameBytes)
	case len(h.tags) > catalog.MaxTags:
		return invalid("tags", "are %d, limit is %d", len(h.tags), catalog.MaxTags)
	}
	return incumbent.ValidateNamespace(h.namespace)
}

func (h *health) allowed(d *Door, who *caller) error {
	return d.authorize(who, calls.HealthOfService.Action(), auth.Resource{Name: incumbent.Name{Namespace: h.namespace, Lease: h.service}})
}

// read shows the instances, and notes what it has read.
func (h *health) read(f *former, notes *watch.Reads) *pb.HealthResponse {
	out := &pb.HealthResponse{}
	at := engine.ReadCatalog(f.view, notes, h.namespace).ReadService(h.service, func(i *catalog.Instance) bool {
		if h.wants(i) {
			out.Instances = append(out.Instances, f.instance(i))
		}
		return true
	})
	out.ModifiedIndex = uint64(max(at, 1))
	return out
}

func (h *health) wants(i *catalog.Instance) bool {
	for _, tag := range h.tags {
		if !slices.Contains(i.Service.Tags, tag) {
			return false
		}
	}
	return !h.passing || i.Status() == catalog.Passing
}

// healthQuery is the query that all share who ask for the same instances.
func (d *Door) healthQuery(h *health, hides bool) watch.QuerySpec[*core.View] {
	return watch.QuerySpec[*core.View]{
		Key: watch.QueryKey{
			Kind: watch.Kind(catalog.Number), Rights: rightsKey("", hides),
			Params: fmt.Sprintf("native health %q %q %v %q", h.namespace, h.service, h.passing, h.tags),
		},
		Eval: func(v *core.View, notes *watch.Reads) watch.Result {
			out := h.read(d.sharedForm(v, hides), notes)
			digest := watch.NewDigest()
			digest.Uint(uint64(len(out.Instances)))
			for _, i := range out.Instances {
				digestInstance(digest, i)
			}
			hash, modified := digest.Sum(), incumbent.Index(out.ModifiedIndex)
			out.Hash, out.ModifiedIndex = hash[:], 0
			return watch.Result{Value: out, Hash: hash, Modified: modified, Size: proto.Size(out)}
		},
	}
}

// digestInstance adds what an instance says, save for indexes.
func digestInstance(d *watch.Digest, i *pb.Instance) {
	i = proto.CloneOf(i)
	i.Node.CreatedIndex, i.Node.ModifiedIndex = 0, 0
	i.Service.CreatedIndex, i.Service.ModifiedIndex = 0, 0
	for _, c := range i.Checks {
		c.CreatedIndex, c.ModifiedIndex = 0, 0
	}
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(i)
	if err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "encode an instance: %w", err))
	}
	d.Bytes(b)
}

// instance writes an instance.
func (f *former) instance(i *catalog.Instance) *pb.Instance {
	p := &pb.Instance{Node: nodePB(i.Node), Service: f.service(i.Service), Status: statusPB(i.Status())}
	for _, list := range [...][]*catalog.Check{i.NodeChecks, i.Checks} {
		for _, c := range list {
			p.Checks = append(p.Checks, checkPB(c))
		}
	}
	return p
}

func nodePB(n *catalog.Node) *pb.Node {
	return &pb.Node{
		Name: n.Name, Id: n.ID, Address: n.Address, TaggedAddresses: mapOf(n.TaggedAddresses), Meta: mapOf(n.Meta),
		CreatedIndex: uint64(n.Created), ModifiedIndex: uint64(n.Modified),
	}
}

func (f *former) service(s *catalog.Service) *pb.Service {
	p := &pb.Service{
		Node: s.Node, Id: s.ID, Name: s.Name, Tags: s.Tags, Address: s.Address, Port: uint32(s.Port), Meta: mapOf(s.Meta),
		CreatedIndex: uint64(s.Created), ModifiedIndex: uint64(s.Modified),
	}
	if !s.Session.IsZero() {
		p.Session = f.sessionID(s.Session)
	}
	return p
}

func checkPB(c *catalog.Check) *pb.Check {
	return &pb.Check{
		Node: c.Node, Id: c.ID, Name: c.Name, Status: statusPB(c.Status), Notes: c.Notes, Output: strings.ToValidUTF8(c.Output, "\uFFFD"),
		ServiceId: c.ServiceID, ServiceName: c.ServiceName, TtlMs: ms(c.TTL), DeregisterAfterMs: ms(c.DeregisterAfter),
		CreatedIndex: uint64(c.Created), ModifiedIndex: uint64(c.Modified),
	}
}

func mapOf(pairs []catalog.Pair) map[string]string {
	if len(pairs) == 0 {
		return nil
	}
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		m[p.Key] = p.Value
	}
	return m
}
