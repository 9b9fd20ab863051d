package server

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/health"
	"github.com/incumbent-dev/incumbent/vfs"
)

// execute executes a command of the catalog.
func execute(t testing.TB, s *Server, cmd catalog.Command) {
	t.Helper()
	done := make(chan core.Result, 1)
	s.engine.Execute(engine.Call{}, cmd, func(r core.Result) { done <- r })
	if r := <-done; r.Err != nil {
		t.Fatal(r.Err)
	}
}

// registerWeb registers a service with a check that a member runs.
func registerWeb(t testing.TB, s *Server, id string, runner uint64, d health.Definition) {
	t.Helper()
	d.Interval = time.Second
	execute(t, s, catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: "n"}, Node: &catalog.Node{Namespace: "default", Name: "n", Address: "10.0.0.1"},
		Service: &catalog.Service{Namespace: "default", Node: "n", ID: id, Name: "web", Port: 80, Weights: catalog.Weights{Passing: 1, Warning: 1}},
		Checks:  []*catalog.Check{{Namespace: "default", Node: "n", ID: id, Name: "http", ServiceID: id, Type: "http", Runner: runner, Definition: d.Encode()}},
	})
}

func checkIn(s *Server, id string) *catalog.Check {
	return catalog.Of(s.engine.View()).Check("default", "n", id)
}

func consulConfig(cfg Config) Config {
	cfg.Consul = Consul{Listen: "127.0.0.1:0", DNS: ConsulDNS{Listen: "127.0.0.1:0"}}
	cfg.presence = time.Second
	return cfg
}

// site is a service that is well, or not, and is asked by whichever member checks it.
type site struct {
	*httptest.Server
	status atomic.Int64
	asked  atomic.Int64
}

func newSite(t testing.TB) *site {
	w := &site{}
	w.status.Store(200)
	w.Server = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		w.asked.Add(1)
		rw.WriteHeader(int(w.status.Load()))
	}))
	t.Cleanup(w.Close)
	return w
}

// TestChecksAreTakenOver: a check is run by the member with which it was registered;
// when that is cut off by another, and later by itself again.
func TestChecksAreTakenOver(t *testing.T) {
	first := open(t, consulConfig(memberConfig(t, "n1")))
	members := []*Server{first, join(t, first, consulConfig(memberConfig(t, "n2"))), join(t, first, consulConfig(memberConfig(t, "n3")))}
	present := func(n int) func() bool {
		return func() bool {
			for _, s := range members {
				if len(health.Present(s.engine.View(), "default")) != n {
					return false
				}
			}
			return true
		}
	}
	until(t, "all run checks", present(3))
	leader := leaderOf(t, members...)
	var runner *Server
	for _, s := range members {
		if s != leader {
			runner = s
		}
	}
	web := newSite(t)
	registerWeb(t, leader, "w", runner.cluster.ID(), health.Definition{HTTP: web.URL})
	until(t, "the check passes", func() bool { return checkIn(leader, "w").Status == catalog.Passing })
	if out := checkIn(leader, "w").Output; !strings.Contains(out, "200 OK") {
		t.Errorf("output %q", out)
	}
	runs := func(s *Server) int { return s.checks.feed.Runner.Stats().Checks }
	for _, s := range members {
		if want := map[bool]int{true: 1}[s == runner]; runs(s) != want {
			t.Errorf("%s runs %d checks, want %d", s.cfg.Name, runs(s), want)
		}
	}

	runner.transport.Mute(true)
	until(t, "another runs it", func() bool {
		n := 0
		for _, s := range members {
			if s != runner {
				n += runs(s)
			}
		}
		return n == 1
	})
	web.status.Store(500)
	until(t, "the others know that it is critical", func() bool { return checkIn(leader, "w").Status == catalog.Critical })

	runner.transport.Mute(false)
	until(t, "it is run where it was registered", func() bool {
		n := 0
		for _, s := range members {
			n += runs(s)
		}
		return n == 1 && runs(runner) == 1
	})
	web.status.Store(200)
	until(t, "it passes", func() bool { return checkIn(leader, "w").Status == catalog.Passing })

	// One that leaves in order gives its checks up at once.
	if err := runner.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	until(t, "another runs it", func() bool {
		return checkIn(leader, "w") != nil && runs(leader)+runs(other(members, leader, runner)) == 1
	})
}

// TestChecksAreOfANamespace: where the doors of members show different namespaces, a check is
// run by a member whose door shows its own, whoever it was registered with.
func TestChecksAreOfANamespace(t *testing.T) {
	third := consulConfig(memberConfig(t, "n3"))
	third.Consul.Namespace = "other"
	first := open(t, consulConfig(memberConfig(t, "n1")))
	members := []*Server{first, join(t, first, consulConfig(memberConfig(t, "n2"))), join(t, first, third)}
	for namespace, n := range map[string]int{"default": 2, "other": 1} {
		until(t, "all run checks", func() bool { return len(health.Present(first.engine.View(), namespace)) == n })
	}
	const checks = 16
	web := newSite(t)
	for i := range checks {
		registerWeb(t, first, fmt.Sprint(i), 1<<60, health.Definition{HTTP: web.URL}) // with nobody who is there
	}
	d := health.Definition{HTTP: web.URL, Interval: time.Second}
	execute(t, first, catalog.Command{
		Verb: catalog.Register, Target: catalog.Target{Namespace: "other", Node: "n"}, Node: &catalog.Node{Address: "10.0.0.1"},
		Checks: []*catalog.Check{{ID: "c", Name: "http", Type: "http", Runner: first.cluster.ID(), Definition: d.Encode()}},
	})
	for i := range checks {
		until(t, "a check passes", func() bool { return checkIn(first, fmt.Sprint(i)).Status == catalog.Passing })
	}
	until(t, "that of the other namespace passes", func() bool {
		return catalog.Of(first.engine.View()).Check("other", "n", "c").Status == catalog.Passing
	})
	var runs []int
	for _, s := range members {
		runs = append(runs, s.checks.feed.Runner.Stats().Checks)
	}
	if runs[0]+runs[1] != checks || runs[2] != 1 {
		t.Errorf("members run %v checks; want %d, and one of the third", runs, checks)
	}
}

// TestG31_StatusesAreWrittenWithoutSpace: while growth is refused, what members find of checks
// that are there is written: what is dead is not answered for, and what has recovered is not
// deregistered.
func TestG31_StatusesAreWrittenWithoutSpace(t *testing.T) {
	var free atomic.Int64
	free.Store(1 << 40)
	cfg := consulConfig(testConfig(t))
	cfg.fs = meager{vfs.OS{}, &free}
	s := open(t, cfg)
	dying, sick := newSite(t), newSite(t)
	sick.status.Store(500)
	registerWeb(t, s, "dying", s.cluster.ID(), health.Definition{HTTP: dying.URL})
	registerWeb(t, s, "sick", s.cluster.ID(), health.Definition{HTTP: sick.URL})
	goes := *checkIn(s, "sick")
	goes.DeregisterAfter = time.Minute
	execute(t, s, catalog.Command{Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: "n"}, Checks: []*catalog.Check{&goes}})
	is := func(id string, status catalog.Status) func() bool {
		return func() bool {
			c := checkIn(s, id)
			return c != nil && c.Status == status && c.Output != ""
		}
	}
	until(t, "one passes", is("dying", catalog.Passing))
	until(t, "one is critical", is("sick", catalog.Critical))

	free.Store(100)
	until(t, "growth is refused", func() bool { return s.node.Status().GrowthRefused })
	dying.status.Store(500)
	sick.status.Store(200)
	until(t, "what has died is critical", is("dying", catalog.Critical))
	until(t, "what has recovered passes", is("sick", catalog.Passing))
	if d := checkIn(s, "sick").Deadline(); d != nil {
		t.Errorf("it goes after %v", d.After)
	}
	dying.status.Store(200)
	until(t, "it passes again", is("dying", catalog.Passing))
}

func other(members []*Server, not ...*Server) *Server {
	for _, s := range members {
		if s != not[0] && s != not[1] {
			return s
		}
	}
	return nil
}

// TestChecksNeverReachTheCluster: a check that leads to a listener of a member is not
// run, whoever registered it: the member may take it for an operator.
func TestChecksNeverReachTheCluster(t *testing.T) {
	cfg := consulConfig(memberConfig(t, "n1"))
	cfg.Consul.ChecksAnywhere = true
	s := open(t, cfg)
	for id, url := range map[string]string{
		"native": s.URL(), "consul": "http://" + s.ConsulAddr(), "dns": "http://" + s.DNSAddr(), "peers": "http://" + s.peerAddress,
		"name": strings.Replace(s.URL(), "127.0.0.1", "localhost", 1),
	} {
		registerWeb(t, s, id, s.cluster.ID(), health.Definition{HTTP: url})
		until(t, id+" is refused", func() bool { return strings.Contains(checkIn(s, id).Output, "checks do not connect to") })
	}
	elsewhere := s.engine.View().Members()[0]
	elsewhere.ID++
	elsewhere.Name, elsewhere.PeerAddress, elsewhere.ClientURL, elsewhere.Learner = "n9", "10.255.255.2:7601", "http://10.255.255.3:7600", true
	propose(t, s, core.PutMemberCommand{Member: elsewhere})
	of := func(address string) string { return address[strings.LastIndex(address, ":"):] }
	for at, want := range map[string]bool{
		"10.255.255.1:7600": true, "127.0.0.1:1": true, "10.255.255.2:7601": false, "10.255.255.3:7600": false, "10.255.255.3:80": true,
		// As this member listens, so do the others.
		"10.255.255.2" + of(s.ConsulAddr()): false, "10.255.255.3" + of(s.DNSAddr()): false, "10.255.255.1" + of(s.ConsulAddr()): true,
	} {
		if fine := s.neverChecked(netip.MustParseAddrPort(at)) == ""; fine != want {
			t.Errorf("%s: %v", at, fine)
		}
	}
}

// TestDNS: a service that a check finds well is answered for, over both transports, and
// one that is critical is not.
func TestDNS(t *testing.T) {
	s := open(t, consulConfig(testConfig(t)))
	web := newSite(t)
	ask := func(network, name string, qtype uint16) *dns.Msg {
		t.Helper()
		c := dns.Client{Net: network, Timeout: testTimeout}
		m, _, err := c.Exchange(new(dns.Msg).SetQuestion(name, qtype), s.DNSAddr())
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	registerWeb(t, s, "w", s.cluster.ID(), health.Definition{HTTP: web.URL})
	for _, network := range []string{"udp", "tcp"} {
		until(t, "it is answered for over "+network, func() bool { return len(ask(network, "web.service.consul.", dns.TypeA).Answer) == 1 })
		if m := ask(network, "n1.node.consul.", dns.TypeA); len(m.Answer) != 1 {
			t.Errorf("the member itself: %v", m)
		}
	}
	web.status.Store(503)
	until(t, "it is not answered for", func() bool { return ask("udp", "web.service.consul.", dns.TypeA).Rcode == dns.RcodeNameError })
}

// TestDNSConfig: what cannot be is refused before anything is opened.
func TestDNSConfig(t *testing.T) {
	for what, c := range map[string]Consul{
		"without the door":           {DNS: ConsulDNS{Listen: "127.0.0.1:0"}},
		"an address that is none":    {Listen: "127.0.0.1:0", DNS: ConsulDNS{Listen: "x"}},
		"settings without a door":    {Listen: "127.0.0.1:0", DNS: ConsulDNS{Domain: "x"}},
		"everybody without a name":   {Listen: "127.0.0.1:0", DNS: ConsulDNS{Listen: "0.0.0.0:0"}},
		"a ttl that is none":         {Listen: "127.0.0.1:0", DNS: ConsulDNS{Listen: "127.0.0.1:0", ServiceTTL: "web"}},
		"a ttl of nodes below 0":     {Listen: "127.0.0.1:0", DNS: ConsulDNS{Listen: "127.0.0.1:0", NodeTTL: -1}},
		"a domain that is no domain": {Listen: "127.0.0.1:0", DNS: ConsulDNS{Listen: "127.0.0.1:0", Domain: "a..b"}},
	} {
		cfg := testConfig(t)
		cfg.Consul = c
		if err := cfg.Validate(); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	cfg := testConfig(t)
	cfg.Consul = Consul{Listen: "127.0.0.1:0", DNS: ConsulDNS{Listen: "127.0.0.1:0", ServiceTTL: "web=5s, *=1s", Domain: "example.org"}}
	if err := cfg.Validate(); err != nil {
		t.Error(err)
	}
}
