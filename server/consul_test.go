package server

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/door/consul"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/health"
	"github.com/incumbent-dev/incumbent/watch"
)

// withConsul opens the door.
func withConsul(cfg Config) Config {
	cfg.Consul = Consul{Listen: "127.0.0.1:0"}
	return cfg
}

func consulGet(t *testing.T, s *Server, path string, into any) *http.Response {
	t.Helper()
	return consulDo(t, s, http.MethodGet, path, "", into)
}

func consulPut(t *testing.T, s *Server, path, body string, into any) {
	t.Helper()
	if r := consulDo(t, s, http.MethodPut, path, body, into); r.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", path, r.Status)
	}
}

func consulDo(t *testing.T, s *Server, method, path, body string, into any) *http.Response {
	t.Helper()
	r, b := consulAsk(t, s, method, path, body)
	if into != nil {
		if err := json.Unmarshal(b, into); err != nil {
			t.Fatalf("%s: %q: %v", path, b, err)
		}
	}
	return r
}

func consulAsk(t *testing.T, s *Server, method, path, body string) (*http.Response, []byte) {
	t.Helper()
	q, err := http.NewRequest(method, "http://"+s.ConsulAddr()+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.DefaultClient.Do(q)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r, b
}

// Every member is a node of the catalog, and so is the agent that stands for all; once
// they are registered nothing more is written.
func TestMembersAreNodesOfTheCatalog(t *testing.T) {
	for _, same := range []bool{false, true} {
		cfg := withConsul(testConfig(t))
		if same {
			cfg.Consul.Node = cfg.Name
		}
		s := open(t, cfg)
		names := func() (list []string) {
			catalog.Of(s.engine.View()).Nodes("default", "", func(n *catalog.Node) bool {
				list = append(list, n.Name)
				return true
			})
			return list
		}
		want := 2
		if same {
			want = 1
		}
		until(t, "the nodes are registered", func() bool { return len(names()) == want })
		until(t, "nothing is left to be said", s.saidNodes)
		i := catalog.Of(s.engine.View()).Instance("default", cfg.Name, consul.MemberService)
		if i == nil || len(i.NodeChecks) != 1 || i.NodeChecks[0].ID != "serfHealth" || i.NodeChecks[0].Status != catalog.Passing {
			t.Errorf("%v: %+v", names(), i)
		}
	}
}

// saidNodes reports whether a member would write nothing to the catalog.
func (s *Server) saidNodes() bool {
	for _, c := range s.consulCommands() {
		if r, idle := catalog.Of(s.engine.View()).Idling(&c, nil); !idle || r.Err != nil {
			return false
		}
	}
	return true
}

// Members on different hosts agree on the address of the agent's node, and write nothing
// more then: it is that of the member of that name, or the one that is configured, or that of
// one of them as long as that belongs to the cluster.
func TestMembersAgreeOnTheAgentsNode(t *testing.T) {
	for name, tt := range map[string]struct {
		node      string
		addresses [2]string // as configured
		want      []string
	}{
		"as nobody":             {"", [2]string{}, []string{"127.0.0.1", "127.0.0.2"}},
		"as the first":          {"n1", [2]string{}, []string{"127.0.0.1"}},
		"as the second":         {"n2", [2]string{}, []string{"127.0.0.2"}},
		"at what one is told":   {"", [2]string{1: "127.0.0.3"}, []string{"127.0.0.3"}},
		"at what both are told": {"", [2]string{"127.0.0.3", "127.0.0.3"}, []string{"127.0.0.3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			var members []*Server
			for i, address := range tt.addresses {
				cfg := withConsul(memberConfig(t, fmt.Sprint("n", i+1)))
				cfg.Consul.Listen, cfg.Consul.Node, cfg.Consul.NodeAddress = fmt.Sprintf("127.0.0.%d:0", i+1), tt.node, address
				if i == 0 {
					members = append(members, open(t, cfg))
				} else {
					members = append(members, join(t, members[0], cfg))
				}
			}
			first, second := members[0], members[1]
			agent := func() *catalog.Node { return catalog.Of(first.engine.View()).Node("default", first.consul.door.Node()) }
			settled := func() bool {
				at := first.engine.View().Index()
				return agent() != nil && second.engine.View().Index() == at && first.saidNodes() && second.saidNodes() && // of one state
					first.engine.View().Index() == at && second.engine.View().Index() == at && slices.Contains(tt.want, agent().Address)
			}
			until(t, "nothing is left to be said", settled)
			if tt.node == "" {
				gone := *agent()
				gone.Address, gone.TaggedAddresses, gone.Meta = "127.0.0.9", nil, pairs(consul.MemberMeta, "99")
				c := catalog.Command{Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: gone.Name}, Node: &gone}
				if _, err := first.engine.Await(t.Context(), engine.Call{}, c); err != nil {
					t.Fatal(err)
				}
				until(t, "the address is no longer that of one that has gone", settled)
			}
			crash(t, first)
			crash(t, second)
		})
	}
}

// While growth is refused the catalog is told that a member is not there.
func TestG31_MembersAreWatchedWithoutSpace(t *testing.T) {
	first := open(t, withConsul(memberConfig(t, "n1")))
	members := []*Server{first, join(t, first, withConsul(memberConfig(t, "n2"))), join(t, first, withConsul(memberConfig(t, "n3")))}
	leader := leaderOf(t, members...)
	gone := members[(slices.Index(members, leader)+1)%len(members)]
	is := func(status catalog.Status) func() bool {
		return func() bool {
			i := catalog.Of(leader.engine.View()).Instance("default", gone.cfg.Name, consul.MemberService)
			return i != nil && len(i.NodeChecks) == 1 && i.NodeChecks[0].Status == status
		}
	}
	until(t, "it is there", is(catalog.Passing))
	for _, s := range members {
		s.node.RefuseGrowth(func() error { return incumbent.Errorf(incumbent.Overloaded, "there is no space") })
	}
	crash(t, gone)
	until(t, "it is not", is(catalog.Critical))
}

// The node of a member that is none any more goes.
func TestNodesOfFormerMembersGo(t *testing.T) {
	s := open(t, withConsul(testConfig(t)))
	until(t, "the nodes are registered", func() bool {
		return catalog.Of(s.engine.View()).Instance("default", s.cfg.Name, consul.MemberService) != nil
	})
	former := catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: "former"}, Node: &catalog.Node{Name: "former", Address: "127.0.0.9"},
		Service: &catalog.Service{ID: consul.MemberService, Name: consul.MemberService, Meta: pairs(consul.MemberMeta, "1")},
	}
	other := former
	other.Target.Node, other.Node = "other", &catalog.Node{Name: "other", Address: "127.0.0.9"}
	other.Service = &catalog.Service{ID: consul.MemberService, Name: consul.MemberService}
	for _, c := range []core.Command{former, other} {
		if _, err := s.engine.Await(t.Context(), engine.Call{}, c); err != nil {
			t.Fatal(err)
		}
	}
	until(t, "it is gone", func() bool { return catalog.Of(s.engine.View()).Node("default", "former") == nil })
	if catalog.Of(s.engine.View()).Node("default", "other") == nil {
		t.Error("a node is gone that was nobody's business")
	}
}

// A node that has a member's name goes to the member if it was that of a former member. One
// that somebody else has registered stays; that is said once, and all else is registered.
func TestWhoseNodeHasAMembersName(t *testing.T) {
	former, others := incumbent.SessionID{15: 99}.String(), incumbent.SessionID{1}.String()
	for name, tt := range map[string]struct {
		id     string
		meta   []catalog.Pair // of the service
		stays  bool
		status catalog.Status
	}{
		"of a former member":            {former, pairs(consul.MemberMeta, "99"), false, catalog.Passing},
		"of one that is known to be so": {former, pairs(consul.MemberMeta, "99"), false, catalog.Critical},
		"somebody else's":               {others, nil, true, catalog.Passing},
		"that somebody else took over":  {others, pairs(consul.MemberMeta, "99"), true, catalog.Passing},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // they mostly wait
			cfg := testConfig(t)
			s := open(t, cfg)
			check := aliveCheck(true)
			check.Status = tt.status
			execute(t, s, catalog.Command{
				Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: cfg.Name}, Checks: []*catalog.Check{check},
				Node:    &catalog.Node{Name: cfg.Name, ID: tt.id, Address: "127.0.0.9"},
				Service: &catalog.Service{ID: consul.MemberService, Name: consul.MemberService, Meta: tt.meta},
			})
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			cfg = withConsul(cfg)
			log := newSink()
			cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
			s = open(t, cfg)
			node := func() *catalog.Node { return catalog.Of(s.engine.View()).Node("default", cfg.Name) }
			refusals := func() (n int) {
				for _, line := range log.lines() {
					if strings.Contains(line, "node of the catalog not registered") {
						n++
					}
				}
				return n
			}
			if !tt.stays {
				until(t, "nothing is left to be said", s.saidNodes)
				self := consulCluster{s}.Members()[0]
				i := catalog.Of(s.engine.View()).Instance("default", cfg.Name, consul.MemberService)
				if got := node(); got.ID != s.consul.door.ServerID(&self) || got.Address == "127.0.0.9" || i.NodeChecks[0].Status != catalog.Passing || memberIn(i.Service.Meta) != self.ID {
					t.Errorf("%+v, %+v", got, i)
				}
				if n := refusals(); n != 0 {
					t.Errorf("said %d times that a node is not registered", n)
				}
				return
			}
			until(t, "the agent is registered", func() bool { return catalog.Of(s.engine.View()).Node("default", DefaultConsulNode) != nil })
			until(t, "it is said that the member is not", func() bool { return refusals() > 0 })
			said := map[string]string{}
			for range 3 {
				s.registerConsulNodes(t.Context(), said)
			}
			if n := refusals(); n != 2 {
				t.Errorf("said %d times by two", n)
			}
			if got := node(); got.ID != tt.id || got.Address != "127.0.0.9" {
				t.Errorf("it is %+v now", got)
			}
		})
	}
}

// In a cluster that was restored the member's node is the new member's. The agent's stays
// what it was, with the sessions that depend on it, and is at the address of who serves now;
// also after a client has written it.
func TestARestoredClusterHasItsNodes(t *testing.T) {
	for _, same := range []bool{false, true} {
		t.Run(fmt.Sprint("the member is the agent: ", same), func(t *testing.T) {
			t.Parallel() // they mostly wait
			cfg := withConsul(testConfig(t))
			cfg.Consul.NodeAddress = "127.0.0.9"
			if same {
				cfg.Consul.Node = cfg.Name
			}
			s := open(t, cfg)
			registered := func() bool {
				return catalog.Of(s.engine.View()).Instance("default", cfg.Name, consul.MemberService) != nil && s.saidNodes()
			}
			until(t, "the nodes are registered", registered)
			agent := func() *catalog.Node { return catalog.Of(s.engine.View()).Node("default", s.consul.door.Node()) }
			was := agent()
			var session struct{ ID string }
			consulPut(t, s, "/v1/session/create", "{}", &session)
			var b bytes.Buffer
			if err := s.operator().Backup(t.Context(), &b); err != nil {
				t.Fatal(err)
			}
			if err := s.Close(t.Context()); err != nil {
				t.Fatal(err)
			}
			cfg.DataDir, cfg.Consul.NodeAddress = t.TempDir(), ""
			if _, err := cluster.Restore(cluster.RestoreConfig{DataDir: cfg.DataDir, Name: cfg.Name}, &b, "the backup"); err != nil {
				t.Fatal(err)
			}
			s = open(t, cfg)
			as := func() bool {
				m := consulCluster{s}.Members()[0]
				i := catalog.Of(s.engine.View()).Instance("default", cfg.Name, consul.MemberService)
				return registered() && i.Node.ID == s.consul.door.ServerID(&m) && memberIn(i.Service.Meta) == m.ID && i.NodeChecks[0].Status == catalog.Passing &&
					agent().ID == was.ID && agent().Address == "127.0.0.1"
			}
			until(t, "the nodes are the new member's", as)
			consulPut(t, s, "/v1/catalog/register", `{"Node":"`+agent().Name+`","Address":"127.0.0.8"}`, nil)
			until(t, "they are so again", as)
			var self struct {
				Config struct{ NodeID string }
			}
			if consulGet(t, s, "/v1/agent/self", &self); self.Config.NodeID != was.ID {
				t.Errorf("the agent says it is %q, was %q", self.Config.NodeID, was.ID)
			}
			var found []json.RawMessage
			if consulGet(t, s, "/v1/session/info/"+session.ID, &found); len(found) != 1 {
				t.Error("the session has ended")
			}
		})
	}
}

// Where the leader's door is closed one of those whose is open says who is there, and takes
// out who is removed; another does when that one is gone.
func TestNodesAreKeptWhereTheLeadersDoorIsClosed(t *testing.T) {
	first := open(t, memberConfig(t, "n1"))
	members := []*Server{first, join(t, first, consulConfig(memberConfig(t, "n2"))), join(t, first, consulConfig(memberConfig(t, "n3")))}
	leader := leaderOf(t, members...)
	if leader != first {
		if err := leader.transferLeader(testContext(t), first.cluster.ID()); err != nil {
			t.Fatal(err)
		}
		leaderOf(t, members...)
	}
	status := func(s *Server) catalog.Status {
		if c := catalog.Of(first.engine.View()).Check("default", s.cfg.Name, "serfHealth"); c != nil {
			return c.Status
		}
		return 0
	}
	until(t, "all are there", func() bool {
		passing := func(s *Server) bool { return status(s) == catalog.Passing }
		return len(health.Present(first.engine.View(), "default")) == 2 && passing(members[0]) && passing(members[1]) && passing(members[2])
	})
	keeps := func(s *Server) bool { return s.keepsNodes(consulCluster{s}.Members()) }
	until(t, "one keeps them", func() bool { return keeps(members[1]) != keeps(members[2]) })
	gone := members[1]
	if keeps(members[2]) {
		gone = members[2]
	}
	crash(t, gone)
	until(t, "the one that kept them is known to be gone", func() bool { return status(gone) == catalog.Critical })
	if err := first.removeMember(testContext(t), gone.cluster.ID()); err != nil {
		t.Fatal(err)
	}
	until(t, "its node is gone", func() bool { return catalog.Of(first.engine.View()).Node("default", gone.cfg.Name) == nil })
	if status(first) != catalog.Passing {
		t.Error("the leader is not there")
	}
}

// Who belongs and who leads is changed at the leader. Another member says where that is.
func TestMembersAreRemovedAtTheLeader(t *testing.T) {
	members := trioWith(t, withConsul)
	leader := leaderOf(t, members...)
	i := slices.Index(members, leader)
	follower, gone := members[(i+1)%3], members[(i+2)%3]
	crash(t, gone)
	var raft struct{ Servers []struct{ ID, Node string } }
	consulGet(t, follower, "/v1/operator/raft/configuration", &raft)
	path := "/v1/operator/raft/peer?id="
	for _, m := range raft.Servers {
		if m.Node == gone.cfg.Name {
			path += m.ID
		}
	}
	until(t, "the crash is noticed", func() bool {
		return !leader.cluster.Connected(gone.cluster.ID()) && !follower.cluster.Connected(gone.cluster.ID())
	})
	for _, tt := range [][2]string{
		{http.MethodDelete, path},
		{http.MethodPut, "/v1/agent/force-leave/" + gone.cfg.Name},
		{http.MethodPost, "/v1/operator/raft/transfer-leader"},
	} {
		r, text := consulAsk(t, follower, tt[0], tt[1], "")
		if r.StatusCode != http.StatusInternalServerError || !strings.Contains(string(text), leader.cfg.Name) || !strings.Contains(string(text), leader.URL()) {
			t.Errorf("%s at a follower: %s %q", tt, r.Status, text)
		}
	}
	if r, text := consulAsk(t, leader, http.MethodDelete, path, ""); r.StatusCode != http.StatusOK {
		t.Errorf("at the leader: %s %q", r.Status, text)
	}
	if _, there := leader.engine.View().Member(gone.cluster.ID()); there {
		t.Error("it is a member still")
	}
}

func TestConsulDoor(t *testing.T) {
	s := open(t, withConsul(testConfig(t)))
	var leader string
	if consulGet(t, s, "/v1/status/leader", &leader); leader != s.ConsulAddr() {
		t.Errorf("leader %q, door at %q", leader, s.ConsulAddr())
	}
	var self struct {
		Config struct{ NodeName, NodeID string }
	}
	if consulGet(t, s, "/v1/agent/self", &self); self.Config.NodeName != DefaultConsulNode || self.Config.NodeID == "" {
		t.Errorf("%+v", self)
	}
	doors := s.doors()
	if last := doors[len(doors)-1]; last.Name != "consul" || last.Tls || last.Address != s.ConsulAddr() {
		t.Errorf("status shows %+v", last)
	}
	r := consulGet(t, s, "/v1/agent/metrics?format=prometheus", nil)
	if got := r.Header.Get("Content-Type"); r.StatusCode != http.StatusOK || !strings.HasPrefix(got, "text/plain") {
		t.Errorf("%s %s", r.Status, got)
	}
}

// Where the native listener has TLS the door has it too, for HTTP/1.1.
func TestConsulDoorOverTLS(t *testing.T) {
	cfg := withConsul(testConfig(t))
	cfg.TLSCert, cfg.TLSKey = newAuthority(t).issue(t, "localhost", "")
	s := open(t, cfg)
	dial := &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2", "http/1.1"}} //nolint:gosec // of this test
	c, err := tls.Dial("tcp", s.ConsulAddr(), dial)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if got := c.ConnectionState().NegotiatedProtocol; got != "http/1.1" {
		t.Errorf("protocol %q", got)
	}
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // as above
	defer client.CloseIdleConnections()
	r, err := client.Get("https://" + s.ConsulAddr() + "/v1/status/leader")
	if err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusOK {
		t.Error(r.Status)
	}
	if r, err = client.Get("https://" + s.ConsulAddr() + "/v1/agent/self"); err != nil {
		t.Fatal(err)
	}
	r.Body.Close()
	if r.StatusCode != http.StatusForbidden { // nobody is trusted for where they are
		t.Error(r.Status)
	}
}

func TestConsulSettings(t *testing.T) {
	for _, tt := range []struct {
		c   Consul
		bad string
	}{
		{Consul{}, ""},
		{Consul{Listen: "127.0.0.1:8500", Namespace: "n", Node: "x", Anonymous: "agent:a", NodeID: "6b2f3a52-6d2a-4f0e-9a59-3a4d0c1b2e01", Plaintext: true}, ""},
		{Consul{Node: "x"}, "consul-listen"},
		{Consul{Listen: "8500"}, "consul-listen"},
		{Consul{Listen: "0.0.0.0:8500"}, "0.0.0.0:8500"},
		{Consul{Listen: "10.0.0.1:8500", Plaintext: true}, "consul-plaintext"},
		{Consul{Listen: "127.0.0.1:8500", Namespace: "a b"}, "consul-namespace"},
		{Consul{Listen: "127.0.0.1:8500", Anonymous: "a"}, "consul-anonymous"},
		{Consul{Listen: "127.0.0.1:8500", NodeID: "a"}, "consul-node-id"},
	} {
		err := tt.c.validate(auth.ListenerPolicy{})
		if (err == nil) != (tt.bad == "") || err != nil && !strings.Contains(err.Error(), tt.bad) {
			t.Errorf("%+v: %v", tt.c, err)
		}
	}
}

// The status shows what services are waited for, and neither keys nor sessions.
func TestStatusShowsWhoWaitsForServices(t *testing.T) {
	s := open(t, withConsul(testConfig(t)))
	registerWeb(t, s, "1", 0, health.Definition{})
	for _, path := range []string{"/v1/health/service/web", "/v1/health/service/web", "/v1/kv/secret", "/v1/session/list"} {
		go func() {
			r, err := http.Get("http://" + s.ConsulAddr() + path + "?index=1000000000&wait=10m")
			if err == nil {
				r.Body.Close()
			}
		}()
	}
	all := func(watch.Kind, string) bool { return true }
	for waiting := 0; waiting < 4; runtime.Gosched() {
		waiting = 0
		for _, q := range s.engine.Queries().Busiest(10, all) {
			waiting += q.Users
		}
	}
	got, err := s.operator().Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(got.SharedReads) != 1 || got.SharedReads[0].Waiting != 2 || !strings.Contains(got.SharedReads[0].What, `"web"`) {
		t.Errorf("%v", got.SharedReads)
	}
	if c := got.Catalog; c.GetInstances() < 1 || c.GetCritical() != 1 {
		t.Errorf("catalog %v", c)
	}
}
