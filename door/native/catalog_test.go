package native

import (
	"net/http"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
)

func (m *member) catalog(o ...connect.ClientOption) incumbentv1connect.CatalogServiceClient {
	return incumbentv1connect.NewCatalogServiceClient(http.DefaultClient, m.url, o...)
}

// web registers an instance of a service on a node, with a check.
func web(node, id string, status pb.CheckStatus, tags ...string) *pb.RegisterRequest {
	return &pb.RegisterRequest{
		Node:    &pb.Node{Name: node, Address: "10.0.0.1", Meta: map[string]string{"zone": "a"}},
		Service: &pb.Service{Id: id, Name: "web", Port: 80, Tags: tags},
		Checks:  []*pb.Check{{Id: id + "-up", Name: "up", Status: status}},
	}
}

func register(t *testing.T, m *member, r *pb.RegisterRequest) uint64 {
	t.Helper()
	res, err := m.catalog().Register(t.Context(), connect.NewRequest(r))
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.Index
}

const (
	passing  = pb.CheckStatus_CHECK_STATUS_PASSING
	critical = pb.CheckStatus_CHECK_STATUS_CRITICAL
)

func TestCatalog(t *testing.T) {
	m, ctx := newMember(t), t.Context()
	register(t, m, web("b", "w1", passing, "v2", "v1"))
	at := register(t, m, web("a", "w2", critical, "v1"))
	if again := register(t, m, web("a", "w2", critical, "v1")); again < at {
		t.Errorf("registered anew at %d, before at %d", again, at)
	}
	health := func(r *pb.HealthRequest) (ids []string) {
		t.Helper()
		r.Service = "web"
		for _, o := range [][]connect.ClientOption{nil, {connect.WithProtoJSON()}} {
			res, err := m.catalog(o...).Health(ctx, connect.NewRequest(r))
			if err != nil {
				t.Fatal(err)
			}
			ids = nil
			for _, i := range res.Msg.Instances {
				ids = append(ids, i.Node.Name+"/"+i.Service.Id)
			}
		}
		return ids
	}
	for _, x := range []struct {
		r    *pb.HealthRequest
		want string
	}{
		{&pb.HealthRequest{}, "a/w2 b/w1"},
		{&pb.HealthRequest{Stale: true}, "a/w2 b/w1"},
		{&pb.HealthRequest{Passing: true}, "b/w1"},
		{&pb.HealthRequest{Tags: []string{"v1", "v2"}}, "b/w1"},
		{&pb.HealthRequest{WaitMs: 1}, "a/w2 b/w1"},
		{&pb.HealthRequest{Namespace: "other"}, ""},
	} {
		if got := strings.Join(health(x.r), " "); got != x.want {
			t.Errorf("%v: %q", x.r, got)
		}
	}
	services, err := m.catalog().ListServices(ctx, connect.NewRequest(&pb.ListServicesRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if s := services.Msg.Services; len(s) != 1 || s[0].Passing != 1 || s[0].Critical != 1 || strings.Join(s[0].Tags, ",") != "v1,v2" {
		t.Errorf("services: %v", s)
	}
	nodes, err := m.catalog().ListNodes(ctx, connect.NewRequest(&pb.ListNodesRequest{Limit: 1}))
	if err != nil || len(nodes.Msg.Nodes) != 1 || !nodes.Msg.More || nodes.Msg.Nodes[0].Meta["zone"] != "a" {
		t.Errorf("first page of nodes: %v, %v", nodes, err)
	}
	nodes, err = m.catalog().ListNodes(ctx, connect.NewRequest(&pb.ListNodesRequest{After: "a", Limit: 1}))
	if err != nil || len(nodes.Msg.Nodes) != 1 || nodes.Msg.More || nodes.Msg.Nodes[0].Name != "b" {
		t.Errorf("second page of nodes: %v, %v", nodes, err)
	}
	if _, err := m.catalog().UpdateCheck(ctx, connect.NewRequest(&pb.UpdateCheckRequest{Node: "a", CheckId: "w2-up", Status: passing, Output: "ok"})); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(health(&pb.HealthRequest{Passing: true}), " "); got != "a/w2 b/w1" {
		t.Errorf("passing after the update: %q", got)
	}
	ttl := &pb.RegisterRequest{NodeName: "a", Checks: []*pb.Check{{Id: "beat", TtlMs: 600_000}}}
	register(t, m, ttl)
	pass := connect.NewRequest(&pb.UpdateCheckRequest{Node: "a", CheckId: "beat", Status: passing})
	first, err := m.catalog().UpdateCheck(ctx, pass)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := m.catalog().UpdateCheck(ctx, pass); err != nil || again.Msg.Index != first.Msg.Index {
		t.Errorf("told again that it is well: %v, %v, before that at %d", again, err, first.Msg.Index)
	}
	for _, r := range []*pb.DeregisterRequest{{Node: "a", CheckId: "w2-up"}, {Node: "a", ServiceId: "w2"}, {Node: "b"}, {Node: "b"}} {
		if _, err := m.catalog().Deregister(ctx, connect.NewRequest(r)); err != nil {
			t.Errorf("%v: %v", r, err)
		}
	}
	if got := health(&pb.HealthRequest{}); len(got) != 0 {
		t.Errorf("after all are gone: %v", got)
	}
}

// What cannot be is refused, and says of which field.
func TestCatalogRefuses(t *testing.T) {
	m, ctx := newMember(t), t.Context()
	for _, r := range []*pb.RegisterRequest{
		{},
		{NodeName: "a"},
		{NodeName: "a", Node: &pb.Node{Name: "b"}},
		{NodeName: "a", Service: &pb.Service{Name: "web"}}, // there is no node
		{NodeName: "a", Node: &pb.Node{}, Service: &pb.Service{Name: "web", Port: 70_000}},
		{NodeName: "a", Node: &pb.Node{}, Service: &pb.Service{Name: "web", Session: "x"}},
		{NodeName: "a", Node: &pb.Node{}, Checks: []*pb.Check{{Id: "c", Status: 9}}},
		{NodeName: "a", Node: &pb.Node{}, Namespace: "no\x00"},
	} {
		if _, err := m.catalog().Register(ctx, connect.NewRequest(r)); err == nil {
			t.Errorf("%v was registered", r)
		}
	}
	if _, err := m.catalog().UpdateCheck(ctx, connect.NewRequest(&pb.UpdateCheckRequest{Node: "a", CheckId: "c"})); kindOf(err) != incumbent.NotFound {
		t.Errorf("a check that is not there: %v", err)
	}
	if _, err := m.catalog().Health(ctx, connect.NewRequest(&pb.HealthRequest{})); kindOf(err) != incumbent.Invalid {
		t.Errorf("the health of no service: %v", err)
	}
}

// A watch begins with what is there, each node before what is on it, and tells what
// changes of the service, of its nodes and of the checks of either, and nothing else.
func TestG15_AServiceIsWatched(t *testing.T) {
	for name, o := range map[string][]connect.ClientOption{"proto": nil, "json": {connect.WithProtoJSON()}, "grpc": {connect.WithGRPC()}} {
		t.Run(name, func(t *testing.T) {
			m, ctx := newMember(t), t.Context()
			register(t, m, web("a", "w1", passing))
			w, err := m.catalog(o...).WatchService(ctx, connect.NewRequest(&pb.WatchServiceRequest{Service: "web"}))
			if err != nil {
				t.Fatal(err)
			}
			defer w.Close()
			next := func() (all []string) {
				t.Helper()
				for w.Receive() {
					for _, e := range w.Msg().Events {
						text := e.What
						switch r := e.Record.(type) {
						case *pb.CatalogEvent_Node:
							text += " node " + r.Node.Name
						case *pb.CatalogEvent_Service:
							text += " service " + r.Service.Id
						case *pb.CatalogEvent_Check:
							text += " check " + r.Check.Id + " " + r.Check.Status.String()
						}
						all = append(all, text)
					}
					if len(all) > 0 {
						return all
					}
				}
				t.Fatal(w.Err())
				return nil
			}
			expect := func(want string) {
				t.Helper()
				if got := strings.Join(next(), ", "); got != want {
					t.Errorf("got  %s\nwant %s", got, want)
				}
			}
			expect("present node a, present service w1, present check w1-up CHECK_STATUS_PASSING")
			other := web("b", "o1", passing)
			other.Service.Name = "other"
			register(t, m, other)
			if _, err := m.catalog().UpdateCheck(ctx, connect.NewRequest(&pb.UpdateCheckRequest{Node: "a", CheckId: "w1-up", Status: critical})); err != nil {
				t.Fatal(err)
			}
			expect("stored check w1-up CHECK_STATUS_CRITICAL")
			register(t, m, &pb.RegisterRequest{Node: &pb.Node{Name: "a", Address: "10.0.0.2"}})
			expect("stored node a")
			if _, err := m.catalog().Deregister(ctx, connect.NewRequest(&pb.DeregisterRequest{Node: "a", ServiceId: "w1"})); err != nil {
				t.Fatal(err)
			}
			expect("deleted check w1-up CHECK_STATUS_CRITICAL, deleted service w1")
			// An instance that comes brings what a read shows of it: its node, and how that one is.
			register(t, m, &pb.RegisterRequest{Node: &pb.Node{Name: "b"}, Checks: []*pb.Check{{Node: "b", Id: "alive", Status: critical}}})
			came := &pb.RegisterRequest{Node: &pb.Node{Name: "b"}, Service: &pb.Service{Node: "b", Id: "o1", Name: "Web"}}
			register(t, m, came)
			expect("present node b, present check alive CHECK_STATUS_CRITICAL, stored service o1, stored check o1-up CHECK_STATUS_PASSING")
			came.Service.Port = 1
			register(t, m, came)
			expect("stored service o1")
			came.Service = &pb.Service{Node: "b", Id: "o2", Name: "web"} // whoever watches knows its node
			register(t, m, came)
			expect("stored service o2")
		})
	}
}

// A service that gets another name comes with its checks, also to those who watch fields of
// that name which it has not changed.
func TestG19_ARenamedServiceComesWithItsChecks(t *testing.T) {
	m := newMember(t)
	r := web("a", "w1", critical)
	r.Service.Name = "other"
	register(t, m, r)
	w, err := m.catalog().WatchService(t.Context(), connect.NewRequest(&pb.WatchServiceRequest{Service: "web", Fields: []string{"status"}}))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if !w.Receive() || !w.Msg().Snapshot || len(w.Msg().Events) > 0 {
		t.Fatalf("began with %v, %v", w.Msg(), w.Err())
	}
	r.Service.Name, r.Checks = "web", nil
	register(t, m, r)
	for w.Receive() {
		for _, e := range w.Msg().Events {
			if c := e.GetCheck(); c.GetId() == "w1-up" && c.Status == critical {
				return
			}
		}
	}
	t.Fatal(w.Err())
}

// Who waits for a service is told when that changes, and not when another does.
func TestG19_AWaitForAServiceEndsWithItsChange(t *testing.T) {
	m, ctx := newMember(t), t.Context()
	register(t, m, web("a", "w1", passing))
	first, err := m.catalog().Health(ctx, connect.NewRequest(&pb.HealthRequest{Service: "web", WaitMs: 1}))
	if err != nil || first.Msg.ModifiedIndex == 0 || len(first.Msg.Hash) == 0 {
		t.Fatal(first, err)
	}
	for _, wait := range []*pb.HealthRequest{
		{Service: "web", AfterIndex: first.Msg.ModifiedIndex, WaitMs: 600_000},
		{Service: "web", NotHash: first.Msg.Hash, WaitMs: 600_000},
	} {
		told := make(chan *connect.Response[pb.HealthResponse], 1)
		go func() {
			res, err := m.catalog().Health(ctx, connect.NewRequest(wait))
			if err != nil {
				t.Error(err)
			}
			told <- res
		}()
		other := web("b", "o1", passing)
		other.Service.Name = "other"
		register(t, m, other)
		register(t, m, web("a", "w1", critical))
		res := <-told
		if res == nil || len(res.Msg.Instances) != 1 || res.Msg.Instances[0].Status != critical {
			t.Fatalf("told %v", res)
		}
		register(t, m, web("a", "w1", passing))
	}
}

// An agent writes and sees of the catalog what policies say, by names of services and
// of nodes.
func TestG12_TheCatalogFollowsThePolicies(t *testing.T) {
	m, ctx := newMember(t), t.Context()
	register(t, m, web("a", "w1", passing))
	secret := web("a", "s1", passing)
	secret.Service.Name = "secret"
	register(t, m, secret)
	m.let("agent:a", auth.Rule{State: auth.Services, Namespace: "default", Prefix: "web*", Verbs: auth.See | auth.Write})
	m.as(agentA())
	denied := func(what string, err error) {
		t.Helper()
		if kindOf(err) != incumbent.Denied {
			t.Errorf("%s: %v", what, err)
		}
	}
	own := web("a", "w2", passing)
	own.NodeName, own.Node = "a", nil
	register(t, m, own)
	_, err := m.catalog().Register(ctx, connect.NewRequest(web("a", "w3", passing)))
	denied("register the node", err)
	_, err = m.catalog().Register(ctx, connect.NewRequest(&pb.RegisterRequest{NodeName: "a", Service: proto.CloneOf(secret.Service)}))
	denied("register another's service", err)
	renamed := proto.CloneOf(own.Service)
	renamed.Id = "s1"
	_, err = m.catalog().Register(ctx, connect.NewRequest(&pb.RegisterRequest{NodeName: "a", Service: renamed}))
	denied("rename another's service", err)
	_, err = m.catalog().UpdateCheck(ctx, connect.NewRequest(&pb.UpdateCheckRequest{Node: "a", CheckId: "s1-up"}))
	denied("update another's check", err)
	_, err = m.catalog().Deregister(ctx, connect.NewRequest(&pb.DeregisterRequest{Node: "a"}))
	denied("deregister the node", err)
	_, err = m.catalog().Deregister(ctx, connect.NewRequest(&pb.DeregisterRequest{Node: "a", ServiceId: "s1"}))
	denied("deregister another's service", err)
	_, err = m.catalog().Health(ctx, connect.NewRequest(&pb.HealthRequest{Service: "secret"}))
	denied("see another's service", err)
	_, err = m.catalog().Health(ctx, connect.NewRequest(&pb.HealthRequest{Service: "secret", WaitMs: 1000}))
	denied("wait for another's service", err)
	w, err := m.catalog().WatchService(ctx, connect.NewRequest(&pb.WatchServiceRequest{Service: "secret"}))
	if err == nil {
		w.Receive()
		err = w.Err()
		w.Close()
	}
	denied("watch another's service", err)
	services, err := m.catalog().ListServices(ctx, connect.NewRequest(&pb.ListServicesRequest{}))
	if err != nil || len(services.Msg.Services) != 1 || services.Msg.Services[0].Name != "web" {
		t.Errorf("services: %v, %v", services, err)
	}
	_, err = m.catalog().ListNodes(ctx, connect.NewRequest(&pb.ListNodesRequest{}))
	denied("list nodes", err)
}
