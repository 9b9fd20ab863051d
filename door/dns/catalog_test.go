package dns

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/prepared"
)

// catalogOf is a state after some commands.
func catalogOf(t *testing.T, cmds ...core.Command) *core.State {
	t.Helper()
	s := core.New(policy.Family{}, catalog.Family{})
	apply(t, s, cmds...)
	return s
}

func apply(t *testing.T, s *core.State, cmds ...core.Command) {
	t.Helper()
	for _, c := range cmds {
		results := make([]core.Result, 1)
		s.Apply([][]byte{c.Encode(core.Meta{})}, results)
		if results[0].Err != nil {
			t.Fatalf("%+v: %v", c, results[0].Err)
		}
	}
}

// create stores a prepared query.
func create(t *testing.T, s *core.State, n byte, as *auth.Principal, q prepared.Query) {
	t.Helper()
	q.ID = incumbent.SessionID{n}.String()
	c, err := (&prepared.Change{Of: "default", Will: &q, As: as}).Command(s.View())
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, c)
}

func registered(node, address, service, id, serviceAddress string, status catalog.Status) catalog.Command {
	c := catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: node},
		Node: &catalog.Node{Namespace: "default", Name: node, Address: address, Meta: []catalog.Pair{{Key: "rack", Value: "a"}}},
	}
	if service != "" {
		c.Service = &catalog.Service{
			Namespace: "default", Node: node, ID: id, Name: service, Address: serviceAddress, Port: 80, Tags: []string{"v1"}, Weights: catalog.Weights{Passing: 7, Warning: 3},
		}
		c.Checks = []*catalog.Check{{Namespace: "default", Node: node, ID: "c-" + id, Name: "c", ServiceID: id, Status: status}}
	}
	return c
}

// TestCatalog: what the catalog has is answered, whatever the case of its names, and
// members are there without being registered.
func TestCatalog(t *testing.T) {
	s := catalogOf(
		t, registered("n1", "10.0.0.1", "web", "w1", "", catalog.Passing), registered("N2", "10.0.0.2", "web", "w2", "10.0.0.22", catalog.Warning),
		registered("n3", "10.0.0.3", "web", "w3", "", catalog.Critical), registered("n4", "10.0.0.4", "Mixed", "m", "10.0.0.44", catalog.Passing),
	)
	now := time.Unix(1000, 0)
	c := &Catalog{
		View: s.View, Age: func() time.Duration { return 0 }, Namespace: "default", Now: func() time.Time { return now },
		Members: func() []Node { return []Node{{Name: "m1", Address: "10.0.1.1"}} },
	}
	d := newDoor(t, func(cfg *Config) { cfg.Names = c.Names })
	check := func(name string, qtype uint16, want ...string) {
		t.Helper()
		got := lines(ask(t, d, false, name, qtype).Answer)
		slices.Sort(got)
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	check("web.service.consul.", dns.TypeA, "web.service.consul. 0 A 10.0.0.1", "web.service.consul. 0 A 10.0.0.22")
	check("v1.web.service.consul.", dns.TypeSRV, "v1.web.service.consul. 0 SRV 1 3 80 0a000016.addr.dc1.consul.", "v1.web.service.consul. 0 SRV 1 7 80 n1.node.dc1.consul.")
	check("mixed.service.consul.", dns.TypeA, "mixed.service.consul. 0 A 10.0.0.44")
	check("n2.node.consul.", dns.TypeA, "n2.node.consul. 0 A 10.0.0.2")
	check("n1.node.consul.", dns.TypeTXT, `n1.node.consul. 0 TXT "rack=a"`)
	check("m1.node.consul.", dns.TypeA, "m1.node.consul. 0 A 10.0.1.1")
	check("consul.service.consul.", dns.TypeA, "consul.service.consul. 0 A 10.0.1.1")
	check("consul.", dns.TypeNS, "consul. 0 NS m1.node.dc1.consul.")
	check("2.0.0.10.in-addr.arpa.", dns.TypePTR, "2.0.0.10.in-addr.arpa. 0 PTR N2.node.dc1.consul.")
	check("44.0.0.10.in-addr.arpa.", dns.TypePTR, "44.0.0.10.in-addr.arpa. 0 PTR Mixed.service.dc1.consul.")

	apply(t, s, registered("N5", "10.0.0.5", "", "", "", 0))
	check("n5.node.consul.", dns.TypeA, "n5.node.consul. 0 A 10.0.0.5")
	check("5.0.0.10.in-addr.arpa.", dns.TypePTR) // the index is of a moment ago
	now = now.Add(remadeEvery)
	check("5.0.0.10.in-addr.arpa.", dns.TypePTR, "5.0.0.10.in-addr.arpa. 0 PTR N5.node.dc1.consul.")
}

// TestPreparedQueries: they are found by DNS, whatever the case of what they are for, and
// with the rights of whom they say, as long as that is somebody.
func TestPreparedQueries(t *testing.T) {
	s := core.New(kv.Family{}, policy.Family{}, catalog.Family{})
	apply(t, s, registered("n1", "10.0.0.1", "web", "w1", "", catalog.Passing), registered("n4", "10.0.0.4", "Mixed", "m", "10.0.0.44", catalog.Warning))
	create(t, s, 1, nil, prepared.Query{Name: "Plain", Service: prepared.Service{Service: "web", Near: "_agent"}, DNS: prepared.DNS{TTL: "7s"}})
	create(t, s, 2, nil, prepared.Query{Name: "t-", Template: prepared.Template{Type: prepared.PrefixMatch}, Service: prepared.Service{Service: "${name.suffix}"}})
	create(t, s, 3, &auth.Principal{Kind: auth.Agent, Name: "app", Via: auth.Credential}, prepared.Query{Name: "as", Service: prepared.Service{Service: "mixed"}})
	known := true
	c := &Catalog{
		View: s.View, Age: func() time.Duration { return 0 }, Namespace: "default", Now: time.Now, Members: func() []Node { return nil }, Agent: "n1",
		As: auth.Principal{Kind: auth.Observer, Name: "dns"}, Knows: func() func(auth.Principal) bool { return func(auth.Principal) bool { return known } },
	}
	d := newDoor(t, func(cfg *Config) { cfg.Names = c.Names })
	check := func(name string, want ...string) {
		t.Helper()
		if got := lines(ask(t, d, false, name, dns.TypeA).Answer); !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	check("plain.query.consul.", "plain.query.consul. 7 A 10.0.0.1")
	check("t-mixed.query.consul.", "t-mixed.query.consul. 0 A 10.0.0.44")
	check("as.query.consul.", "as.query.consul. 0 A 10.0.0.44")
	check("nothing.query.consul.")
	apply(t, s, policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: "app", For: []string{"agent:app"}, Rules: []auth.Rule{
		{State: auth.Services, Namespace: "default", Prefix: "Mixed", Verbs: auth.See},
		{State: auth.Nodes, Namespace: "default", Prefix: "n4", Verbs: auth.See},
	}}})
	check("plain.query.consul.")
	check("as.query.consul.", "as.query.consul. 0 A 10.0.0.44")
	known = false
	check("as.query.consul.")
}

// TestG12_InstancesOnNodesThatAreNotSeen: of a service that may be seen, those instances are
// there that are on nodes that may be, whichever way they are asked for. So it is by HTTP.
func TestG12_InstancesOnNodesThatAreNotSeen(t *testing.T) {
	s := core.New(kv.Family{}, policy.Family{}, catalog.Family{})
	apply(t, s, registered("a", "10.0.0.1", "web", "w1", "", catalog.Passing), registered("b", "10.0.0.2", "web", "w2", "10.0.0.22", catalog.Passing))
	see := func(who, nodes, services string) *auth.Principal {
		apply(t, s, policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: who, For: []string{"agent:" + who}, Rules: []auth.Rule{
			{State: auth.Nodes, Namespace: "default", Prefix: nodes, Verbs: auth.See}, {State: auth.Services, Namespace: "default", Prefix: services, Verbs: auth.See},
		}}})
		return &auth.Principal{Kind: auth.Agent, Name: who, Via: auth.Credential}
	}
	create(t, s, 1, nil, prepared.Query{Name: "own", Service: prepared.Service{Service: "web"}})
	const first, second, member = "10.0.0.1", "10.0.0.22", "10.0.1.1"
	for i, tt := range []struct {
		as                *auth.Principal
		web, consul       []string
		nodesAt, services int // at the addresses of the member and of the second instance
	}{
		{see("all", "*", "*"), []string{first, second}, []string{member}, 1, 1},
		{see("nodes", "*", "other"), nil, nil, 1, 0},
		{see("services", "other", "*"), nil, nil, 0, 0},
		{see("one", "a", "web"), []string{first}, nil, 0, 0},
		{see("another", "b", "web"), []string{second}, nil, 0, 1},
	} {
		query := "as-" + tt.as.Name
		create(t, s, byte(i+2), tt.as, prepared.Query{Name: query, Service: prepared.Service{Service: "web"}})
		door := func(as *auth.Principal) (*Door, Names) {
			c := &Catalog{
				View: s.View, Age: func() time.Duration { return 0 }, Namespace: "default", Now: time.Now, As: *as,
				Members: func() []Node { return []Node{{Name: "m", Address: member}} },
			}
			n, _ := c.Names()
			return newDoor(t, func(cfg *Config) { cfg.Names = c.Names }), n
		}
		own, names := door(tt.as)
		others, _ := door(&auth.Principal{Kind: auth.Agent, Name: "nobody", Via: auth.Credential})
		for _, q := range []struct {
			door *Door
			name string
			want []string
		}{{own, "web.service", tt.web}, {own, "own.query", tt.web}, {others, query + ".query", tt.web}, {own, "consul.service", tt.consul}} {
			var got []string
			for _, rr := range ask(t, q.door, false, q.name+".consul.", dns.TypeA).Answer {
				got = append(got, rr.(*dns.A).A.String()) //nolint:forcetypeassert // of what was asked for
			}
			if slices.Sort(got); !slices.Equal(got, q.want) {
				t.Errorf("%s: %s: %q, want %q", tt.as.Name, q.name, got, q.want)
			}
		}
		if got := names.NodesAt(netip.MustParseAddr(member)); len(got) != tt.nodesAt {
			t.Errorf("%s: nodes %q", tt.as.Name, got)
		}
		if got := names.ServicesAt(netip.MustParseAddr(second)); len(got) != tt.services {
			t.Errorf("%s: services %q", tt.as.Name, got)
		}
	}
}

// TestWhoseRights: with a principal, only what that may look at is there.
func TestWhoseRights(t *testing.T) {
	s := catalogOf(t, registered("n1", "10.0.0.1", "web", "w1", "10.0.0.11", catalog.Passing), registered("n2", "10.0.0.2", "secret", "s", "10.0.0.22", catalog.Passing))
	who, err := auth.ParsePrincipal("observer:dns")
	if err != nil {
		t.Fatal(err)
	}
	apply(t, s, policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: "dns", For: []string{"observer:dns"}, Rules: []auth.Rule{
		{State: auth.Services, Namespace: "default", Prefix: "web", Verbs: auth.See},
		{State: auth.Nodes, Namespace: "default", Prefix: "n1", Verbs: auth.See},
	}}})
	c := &Catalog{View: s.View, Age: func() time.Duration { return 0 }, Namespace: "default", Now: time.Now, Members: func() []Node { return nil }, As: who}
	n, _ := c.Names()
	for service, want := range map[string]int{"web": 1, "secret": 0} {
		got := 0
		n.Instances(service, func(Instance) bool { got++; return true })
		if got != want {
			t.Errorf("%d instances of %s, want %d", got, service, want)
		}
	}
	for node, want := range map[string]bool{"n1": true, "n2": false} {
		if _, ok := n.Node(node); ok != want {
			t.Errorf("node %s: %v", node, ok)
		}
	}
	if got := n.ServicesAt(netip.MustParseAddr("10.0.0.22")); len(got) != 0 {
		t.Errorf("services %v", got)
	}
	if got := n.NodesAt(netip.MustParseAddr("10.0.0.2")); len(got) != 0 {
		t.Errorf("nodes %v", got)
	}
}
