package native

import (
	"cmp"
	"context"
	"net/http"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// catalogService serves CatalogService; its methods are documented in catalog.proto.
type catalogService struct{ d *Door }

// Register stores.
func (s catalogService) Register(ctx context.Context, r *connect.Request[pb.RegisterRequest]) (*connect.Response[pb.RegisterResponse], error) {
	c, err := registration(r.Msg)
	if err != nil {
		return nil, s.d.callError(err)
	}
	res, err := s.d.changeCatalog(ctx, calls.Register, c, r.Msg.Idempotency, r.Header())
	return unary(&pb.RegisterResponse{Index: uint64(res.Index)}, err)
}

// Deregister takes out.
func (s catalogService) Deregister(ctx context.Context, r *connect.Request[pb.DeregisterRequest]) (*connect.Response[pb.DeregisterResponse], error) {
	in := r.Msg
	t := catalog.Target{Kind: catalog.NodeKind, Namespace: namespaceOf(in.Namespace), Node: in.Node}
	switch {
	case in.ServiceId != "" && in.CheckId != "":
		return nil, s.d.callError(invalid("check_id", "goes without service_id"))
	case in.ServiceId != "":
		t.Kind, t.ID = catalog.ServiceKind, in.ServiceId
	case in.CheckId != "":
		t.Kind, t.ID = catalog.CheckKind, in.CheckId
	}
	c := &catalog.Command{Verb: catalog.Deregister, Target: t}
	res, err := s.d.changeCatalog(ctx, calls.Deregister, c, in.Idempotency, r.Header())
	return unary(&pb.DeregisterResponse{Index: uint64(res.Index)}, err)
}

// UpdateCheck says how a check is.
func (s catalogService) UpdateCheck(ctx context.Context, r *connect.Request[pb.UpdateCheckRequest]) (*connect.Response[pb.UpdateCheckResponse], error) {
	in := r.Msg
	status, err := statusIn(in.Status)
	if err != nil {
		return nil, s.d.callError(err)
	}
	c := &catalog.Command{
		Verb: catalog.UpdateCheck, Status: status, Output: in.Output,
		Target: catalog.Target{Kind: catalog.CheckKind, Namespace: namespaceOf(in.Namespace), Node: in.Node, ID: in.CheckId},
	}
	res, err := s.d.changeCatalog(ctx, calls.UpdateCheck, c, nil, nil)
	if is, ok := res.Record.(*catalog.Check); res.Idle || ok && is.Modified != res.Index {
		callerOf(ctx).control.said.idle = true // its ttl began anew, no more
	}
	return unary(&pb.UpdateCheckResponse{Index: uint64(res.Index)}, err)
}

// changeCatalog executes a command for a caller who waits.
func (d *Door) changeCatalog(ctx context.Context, call calls.Call, c *catalog.Command, key *pb.Idempotency, h http.Header) (core.Result, error) {
	if err := c.Validate(); err != nil {
		return core.Result{}, d.callError(err)
	}
	who := callerOf(ctx)
	judged := d.judged(who)
	for _, about := range aboutCatalog(d.view(), c) {
		if err := d.authorize(who, about.action, auth.Resource{Name: about.name}); err != nil {
			return core.Result{}, d.callError(err)
		}
	}
	r, err := d.change(ctx, change{
		call: call, name: c.Target.Node + "\x00" + c.Target.ID, command: *c, key: key, header: h, judged: judged,
		reserve: c.Verb == catalog.Deregister, about: "catalog",
	})
	if err != nil {
		return r, d.callError(err)
	}
	return r, nil
}

// catalogAbout is something that a command writes.
type catalogAbout struct {
	action auth.Action
	name   incumbent.Name
}

// aboutCatalog is what a command writes, as far as it is known here: services by their
// names, those that they would have and those that they have.
func aboutCatalog(v *core.View, c *catalog.Command) (list []catalogAbout) {
	t := &c.Target
	add := func(a auth.Action, name string) {
		about := catalogAbout{a, incumbent.Name{Namespace: t.Namespace, Lease: name}}
		if !slices.Contains(list, about) {
			list = append(list, about)
		}
	}
	service := func(id string) {
		if s := catalog.Of(v).Service(t.Namespace, t.Node, id); s != nil {
			add(auth.ServiceWrite, s.Name)
		}
	}
	check := func(id string) {
		k := catalog.Of(v).Check(t.Namespace, t.Node, id)
		if k == nil || k.ServiceID == "" {
			add(auth.NodeWrite, t.Node)
			return
		}
		add(auth.ServiceWrite, k.ServiceName)
	}
	switch {
	case c.Verb == catalog.Register:
		if c.Node != nil {
			add(auth.NodeWrite, t.Node)
		}
		if of := catalog.Of(v).Renames(t.Namespace, c); of != "" {
			add(auth.NodeWrite, of)
		}
		if c.Service != nil {
			service(c.Service.ID)
			add(auth.ServiceWrite, c.Service.Name)
		}
		for _, k := range c.Checks {
			if catalog.Of(v).Check(t.Namespace, t.Node, k.ID) != nil {
				check(k.ID)
			}
			switch {
			case k.ServiceID == "":
				add(auth.NodeWrite, t.Node)
			case c.Service == nil || !incumbent.Alike(k.ServiceID, c.Service.ID):
				service(k.ServiceID)
			}
		}
	case t.Kind == catalog.ServiceKind:
		service(t.ID)
	case t.Kind == catalog.CheckKind:
		check(t.ID)
	default:
		add(auth.NodeWrite, t.Node)
	}
	if len(list) == 0 { // what is not there: nothing is told of it to who may write nothing here
		add(auth.NodeWrite, t.Node)
	}
	return list
}

func namespaceOf(name string) string { return cmp.Or(name, incumbent.DefaultNamespace) }

// registration checks what is to be registered, save for what catalog's command does.
func registration(in *pb.RegisterRequest) (*catalog.Command, error) {
	node := in.NodeName
	if in.Node != nil {
		node = cmp.Or(node, in.Node.Name)
		if in.Node.Name != "" && !incumbent.Alike(in.Node.Name, node) {
			return nil, invalid("node_name", "is not that of node")
		}
	}
	c := &catalog.Command{Verb: catalog.Register, Target: catalog.Target{Namespace: namespaceOf(in.Namespace), Node: node}}
	if n := in.Node; n != nil {
		c.Node = &catalog.Node{
			Namespace: c.Target.Namespace, Name: node, ID: n.Id, Address: n.Address, TaggedAddresses: pairs(n.TaggedAddresses), Meta: pairs(n.Meta),
		}
	}
	if in.Service != nil {
		s, err := serviceIn(in.Service)
		if err != nil {
			return nil, err
		}
		s.Namespace, s.Node = c.Target.Namespace, node
		c.Service = s
	}
	for _, k := range in.Checks {
		status, err := statusIn(k.Status)
		if err != nil {
			return nil, err
		}
		check := &catalog.Check{
			Namespace: c.Target.Namespace, Node: node, ID: cmp.Or(k.Id, k.Name), Name: cmp.Or(k.Name, k.Id), Status: status, Notes: k.Notes, Output: k.Output,
			ServiceID: k.ServiceId, TTL: duration(k.TtlMs), DeregisterAfter: duration(k.DeregisterAfterMs),
		}
		if check.TTL > 0 {
			check.Type = "ttl"
		}
		if check.ServiceID == "" && c.Service != nil {
			check.ServiceID = c.Service.ID
		}
		c.Checks = append(c.Checks, check)
	}
	return c, nil
}

func duration(ms uint32) time.Duration { return time.Duration(ms) * time.Millisecond }

func serviceIn(in *pb.Service) (*catalog.Service, error) {
	s := &catalog.Service{
		ID: cmp.Or(in.Id, in.Name), Name: cmp.Or(in.Name, in.Id), Tags: in.Tags, Address: in.Address, Meta: pairs(in.Meta),
		Weights: catalog.Weights{Passing: 1, Warning: 1},
	}
	if in.Port > 1<<16-1 {
		return nil, invalid("port", "%d is over 65,535", in.Port)
	}
	s.Port = uint16(in.Port)
	if in.Session != "" {
		id, err := incumbent.ParseSessionID(in.Session)
		if err != nil {
			return nil, inField("session", err)
		}
		s.Session = id
	}
	return s, nil
}

// pairs are the entries of a map, by key.
func pairs(m map[string]string) []catalog.Pair {
	list := make([]catalog.Pair, 0, len(m))
	for k, v := range m {
		list = append(list, catalog.Pair{Key: k, Value: v})
	}
	slices.SortFunc(list, func(a, b catalog.Pair) int { return strings.Compare(a.Key, b.Key) })
	return list
}

func statusIn(s pb.CheckStatus) (catalog.Status, error) {
	switch s {
	case pb.CheckStatus_CHECK_STATUS_UNSPECIFIED, pb.CheckStatus_CHECK_STATUS_CRITICAL:
		return catalog.Critical, nil
	case pb.CheckStatus_CHECK_STATUS_WARNING:
		return catalog.Warning, nil
	case pb.CheckStatus_CHECK_STATUS_PASSING:
		return catalog.Passing, nil
	}
	return 0, invalid("status", "%d is unknown to this member", s)
}

func statusPB(s catalog.Status) pb.CheckStatus { return pb.CheckStatus(s) + 1 }
