package dns

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/miekg/dns"
)

// book is a catalog that does not change.
type book struct {
	nodes     map[string]Node
	instances map[string][]Instance
}

func (b book) Node(name string) (Node, bool) { n, ok := b.nodes[name]; return n, ok }

func (b book) Instances(service string, fn func(Instance) bool) {
	for _, i := range b.instances[service] {
		if !fn(i) {
			return
		}
	}
}

// Prepared knows one query, for all that has a port, n1 first.
func (b book) Prepared(name string) (Prepared, bool) {
	if name != "any" && name != "any.of.it" {
		return Prepared{}, false
	}
	ttl := 7 * time.Second
	return Prepared{Service: "web", Instances: append(slices.Clone(b.instances["web"][1:]), b.instances["moved"]...), Near: "N1", TTL: &ttl}, true
}

func (b book) Servers() []Node { return []Node{b.nodes["n1"]} }

func (b book) NodesAt(ip netip.Addr) (out []string) {
	for _, n := range b.nodes {
		if n.Address == ip.String() {
			out = append(out, n.Name)
		}
	}
	slices.Sort(out)
	return out
}

func (b book) ServicesAt(ip netip.Addr) (out []string) {
	for name, all := range b.instances {
		if slices.ContainsFunc(all, func(i Instance) bool { return i.Address == ip.String() }) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

func sample() book {
	n1 := Node{"n1", "10.0.0.1", []Pair{{"rack", "a1"}, {"rfc1035-txt", "plain"}}}
	n2 := Node{"N2", "2001:db8::2", nil}
	alias := Node{"alias", "n1.node.consul", nil}
	out := Node{"out", "db.example.com", nil}
	many := func(n int) (all []Instance) {
		for i := range n {
			all = append(all, Instance{Node: Node{fmt.Sprintf("m%d", i), fmt.Sprintf("10.1.%d.%d", i/250, i%250), nil}, Port: 80, Passing: 1})
		}
		return all
	}
	return book{
		nodes: map[string]Node{"n1": n1, "n2": n2, "alias": alias, "out": out, "round": {"round", "round.node.consul", nil}},
		instances: map[string][]Instance{
			"web": {
				{Node: n1, Port: 8080, Tags: []string{"Primary", "v1.2"}, Passing: 5, Warning: 2},
				{Node: n2, Port: 8081, Tags: []string{"v1.2"}, Status: Warning, Passing: 5, Warning: 2},
				{Node: n1, Port: 8082, Status: Critical},
			},
			"moved": {{Node: n1, Address: "10.9.9.9", Port: 1, Passing: 1}},
			"named": {{Node: n1, Address: "db.example.com", Port: 2, Passing: 1}},
			"ext":   {{Node: out, Port: 443, Passing: 1}},
			"both":  {{Node: n1, Address: "db.example.com", Port: 2, Passing: 1}, {Node: n1, Port: 3, Passing: 1}},
			"self":  {{Node: n1, Address: "self.service.consul", Port: 4, Passing: 1}, {Node: out, Address: "SELF.service.consul.", Passing: 1}},
			"down":  {{Node: n1, Port: 1, Status: Critical}},
			"many":  many(100),
			"huge":  many(4000),
		},
	}
}

func newDoor(t testing.TB, change func(*Config)) *Door {
	t.Helper()
	cfg := Config{
		Names: func() (Names, time.Duration) { return sample(), 0 }, Shuffle: func(int, func(i, j int)) {},
		Now: func() time.Time { return time.Unix(1000, 0) },
	}
	if change != nil {
		change(&cfg)
	}
	d, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func ask(t *testing.T, d *Door, datagram bool, name string, qtype uint16, change ...func(*dns.Msg)) *dns.Msg {
	t.Helper()
	q := new(dns.Msg).SetQuestion(name, qtype)
	for _, f := range change {
		f(q)
	}
	in, err := q.Pack()
	if err != nil {
		t.Fatal(err)
	}
	b := d.answer(in, datagram, send)
	var m dns.Msg
	if err := m.Unpack(b); err != nil {
		t.Fatalf("%s: %v in %x", name, err, b)
	}
	if m.Id != q.Id || !m.Response {
		t.Errorf("%s: id %d, response %v", name, m.Id, m.Response)
	}
	return &m
}

// lines are the records of a section without their class.
func lines(rrs []dns.RR) (out []string) {
	for _, rr := range rrs {
		if rr.Header().Rrtype != dns.TypeOPT {
			out = append(out, strings.Join(strings.Fields(strings.Replace(rr.String(), "\tIN\t", "\t", 1)), " "))
		}
	}
	return out
}

const soa = "consul. 0 SOA ns.consul. hostmaster.consul. 1000 3600 600 86400 0"

// TestAnswers: what each kind of name is answered with.
func TestAnswers(t *testing.T) {
	d := newDoor(t, func(c *Config) {
		c.NodeTTL, c.ServiceTTL = 7*time.Second, map[string]time.Duration{"web": 5 * time.Second, "mo*": 4 * time.Second, "*": 3 * time.Second}
	})
	srv1 := []string{"web.service.consul. 5 SRV 1 5 8080 n1.node.dc1.consul.", "web.service.consul. 5 SRV 1 2 8081 N2.node.dc1.consul."}
	extra1 := []string{"n1.node.dc1.consul. 5 A 10.0.0.1", `n1.node.dc1.consul. 5 TXT "rack=a1"`, `n1.node.dc1.consul. 5 TXT "plain"`, "N2.node.dc1.consul. 5 AAAA 2001:db8::2"}
	renamed := func(list []string, name string) (out []string) {
		for _, l := range list {
			out = append(out, strings.Replace(l, "web.service.consul.", name, 1))
		}
		return out
	}
	for _, c := range []struct {
		name          string
		qtype         uint16
		rcode         int
		answer, extra []string
	}{
		{name: "web.service.consul.", qtype: dns.TypeA, answer: []string{"web.service.consul. 5 A 10.0.0.1"}},
		{name: "web.service.consul.", qtype: dns.TypeAAAA, answer: []string{"web.service.consul. 5 AAAA 2001:db8::2"}},
		{name: "web.service.consul.", qtype: dns.TypeANY, answer: []string{"web.service.consul. 5 A 10.0.0.1", "web.service.consul. 5 AAAA 2001:db8::2"}},
		{name: "WeB.SERVICE.cOnsul.", qtype: dns.TypeA, answer: []string{"WeB.SERVICE.cOnsul. 5 A 10.0.0.1"}},
		{name: "web.service.dc1.consul.", qtype: dns.TypeA, answer: []string{"web.service.dc1.consul. 5 A 10.0.0.1"}},
		{name: "web.service.dc1.dc.consul.", qtype: dns.TypeA, answer: []string{"web.service.dc1.dc.consul. 5 A 10.0.0.1"}},
		{name: "web.service.dc2.consul.", qtype: dns.TypeA, rcode: dns.RcodeNameError},
		{name: "primary.web.service.consul.", qtype: dns.TypeA, answer: []string{"primary.web.service.consul. 5 A 10.0.0.1"}},
		{name: "v1.2.web.service.consul.", qtype: dns.TypeAAAA, answer: []string{"v1.2.web.service.consul. 5 AAAA 2001:db8::2"}},
		{name: "none.web.service.consul.", qtype: dns.TypeA, rcode: dns.RcodeNameError},
		{name: "web.service.consul.", qtype: dns.TypeSRV, answer: srv1, extra: extra1},
		{name: "_web._tcp.service.consul.", qtype: dns.TypeSRV, answer: renamed(srv1, "_web._tcp.service.consul."), extra: extra1},
		{name: "_web._tcp.consul.", qtype: dns.TypeSRV, answer: renamed(srv1, "_web._tcp.consul."), extra: extra1},
		{name: "_web._primary.service.dc1.consul.", qtype: dns.TypeSRV, answer: renamed(srv1[:1], "_web._primary.service.dc1.consul."), extra: extra1[:3]},
		{name: "_web._primary.dc1.consul.", qtype: dns.TypeSRV, answer: renamed(srv1[:1], "_web._primary.dc1.consul."), extra: extra1[:3]},
		{name: "moved.service.consul.", qtype: dns.TypeSRV, answer: []string{"moved.service.consul. 4 SRV 1 1 1 0a090909.addr.dc1.consul."}, extra: []string{"0a090909.addr.dc1.consul. 4 A 10.9.9.9"}},
		{name: "named.service.consul.", qtype: dns.TypeSRV, answer: []string{"named.service.consul. 3 SRV 1 1 2 db.example.com."}},
		{name: "named.service.consul.", qtype: dns.TypeA, answer: []string{"named.service.consul. 3 CNAME db.example.com."}},
		{name: "ext.service.consul.", qtype: dns.TypeSRV, answer: []string{"ext.service.consul. 3 SRV 1 1 443 db.example.com."}},
		{name: "ext.service.consul.", qtype: dns.TypeA, answer: []string{"ext.service.consul. 3 CNAME db.example.com."}},
		{name: "both.service.consul.", qtype: dns.TypeA, answer: []string{"both.service.consul. 3 A 10.0.0.1"}},
		{name: "both.service.consul.", qtype: dns.TypeAAAA},
		{name: "both.service.consul.", qtype: dns.TypeANY, answer: []string{"both.service.consul. 3 A 10.0.0.1"}},
		{name: "self.service.consul.", qtype: dns.TypeA, answer: []string{"self.service.consul. 3 A 10.0.0.1"}},
		{name: "down.service.consul.", qtype: dns.TypeA, rcode: dns.RcodeNameError},
		{name: "nothing.service.consul.", qtype: dns.TypeA, rcode: dns.RcodeNameError},
		{name: "moved.service.consul.", qtype: dns.TypeAAAA},
		{name: "moved.service.consul.", qtype: dns.TypeMX},

		{name: "any.query.consul.", qtype: dns.TypeA, answer: []string{"any.query.consul. 7 A 10.0.0.1", "any.query.consul. 7 A 10.9.9.9"}},
		{name: "any.of.it.query.dc1.consul.", qtype: dns.TypeAAAA, answer: []string{"any.of.it.query.dc1.consul. 7 AAAA 2001:db8::2"}},
		{
			name: "_any._tcp.query.consul.", qtype: dns.TypeSRV,
			answer: []string{
				"_any._tcp.query.consul. 7 SRV 1 0 8082 n1.node.dc1.consul.", "_any._tcp.query.consul. 7 SRV 1 1 1 0a090909.addr.dc1.consul.",
				"_any._tcp.query.consul. 7 SRV 1 2 8081 N2.node.dc1.consul.",
			},
			extra: []string{
				"n1.node.dc1.consul. 7 A 10.0.0.1", `n1.node.dc1.consul. 7 TXT "rack=a1"`, `n1.node.dc1.consul. 7 TXT "plain"`,
				"0a090909.addr.dc1.consul. 7 A 10.9.9.9", "N2.node.dc1.consul. 7 AAAA 2001:db8::2",
			},
		},
		{name: "none.query.consul.", qtype: dns.TypeA, rcode: dns.RcodeNameError},
		{name: "any.query.dc2.consul.", qtype: dns.TypeA, rcode: dns.RcodeNameError},

		{name: "n1.node.consul.", qtype: dns.TypeA, answer: []string{"n1.node.consul. 7 A 10.0.0.1"}},
		{name: "N2.node.dc1.consul.", qtype: dns.TypeAAAA, answer: []string{"N2.node.dc1.consul. 7 AAAA 2001:db8::2"}},
		{name: "n1.node.consul.", qtype: dns.TypeAAAA},
		{name: "n1.node.consul.", qtype: dns.TypeSRV},
		{name: "n1.node.consul.", qtype: dns.TypeTXT, answer: []string{`n1.node.consul. 7 TXT "rack=a1"`, `n1.node.consul. 7 TXT "plain"`}},
		{name: "n1.node.consul.", qtype: dns.TypeANY, answer: []string{"n1.node.consul. 7 A 10.0.0.1", `n1.node.consul. 7 TXT "rack=a1"`, `n1.node.consul. 7 TXT "plain"`}},
		{name: "alias.node.consul.", qtype: dns.TypeA, answer: []string{"alias.node.consul. 7 CNAME n1.node.consul.", "n1.node.consul. 7 A 10.0.0.1"}},
		{name: "out.node.consul.", qtype: dns.TypeA, answer: []string{"out.node.consul. 7 CNAME db.example.com."}},
		{name: "n9.node.consul.", qtype: dns.TypeA, rcode: dns.RcodeNameError},

		{name: "0a090909.addr.dc1.consul.", qtype: dns.TypeA, answer: []string{"0a090909.addr.dc1.consul. 7 A 10.9.9.9"}},
		{name: "20010db8000000000000000000000002.addr.consul.", qtype: dns.TypeAAAA, answer: []string{"20010db8000000000000000000000002.addr.consul. 7 AAAA 2001:db8::2"}},
		{name: "0a09090.addr.consul.", qtype: dns.TypeA, rcode: dns.RcodeNameError},

		{name: "1.0.0.10.in-addr.arpa.", qtype: dns.TypePTR, answer: []string{"1.0.0.10.in-addr.arpa. 7 PTR n1.node.dc1.consul."}},
		{name: "9.9.9.10.in-addr.arpa.", qtype: dns.TypePTR, answer: []string{"9.9.9.10.in-addr.arpa. 7 PTR moved.service.dc1.consul."}},
		{
			name: "2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa.", qtype: dns.TypePTR,
			answer: []string{"2.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6.arpa. 7 PTR N2.node.dc1.consul."},
		},
		{name: "1.2.3.4.in-addr.arpa.", qtype: dns.TypePTR, rcode: dns.RcodeRefused},

		{name: "consul.", qtype: dns.TypeSOA, answer: []string{soa}},
		{name: "consul.", qtype: dns.TypeNS, answer: []string{"consul. 7 NS n1.node.dc1.consul."}, extra: []string{"n1.node.dc1.consul. 7 A 10.0.0.1"}},
		{name: "consul.", qtype: dns.TypeA},
		{name: "service.consul.", qtype: dns.TypeA},
		{name: "dc1.consul.", qtype: dns.TypeNS},
		{name: "node.dc1.consul.", qtype: dns.TypeNS},
		{name: "what.consul.", qtype: dns.TypeA, rcode: dns.RcodeNameError},
		{name: "example.com.", qtype: dns.TypeA, rcode: dns.RcodeRefused},
		{name: "notconsul.", qtype: dns.TypeA, rcode: dns.RcodeRefused},
		{name: ".", qtype: dns.TypeNS, rcode: dns.RcodeRefused},
	} {
		m := ask(t, d, false, c.name, c.qtype)
		what := c.name + " " + dns.Type(c.qtype).String()
		if m.Rcode != c.rcode {
			t.Errorf("%s: %s, want %s", what, dns.RcodeToString[m.Rcode], dns.RcodeToString[c.rcode])
		}
		if diff := cmp.Diff(c.answer, lines(m.Answer)); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
		if diff := cmp.Diff(c.extra, lines(m.Extra)); diff != "" {
			t.Errorf("%s, additional:\n%s", what, diff)
		}
		var authority []string
		if c.rcode != dns.RcodeRefused && len(c.answer) == 0 {
			authority = []string{soa}
		}
		if diff := cmp.Diff(authority, lines(m.Ns)); diff != "" {
			t.Errorf("%s, authority:\n%s", what, diff)
		}
		if m.Authoritative != (c.rcode != dns.RcodeRefused) || m.RecursionAvailable {
			t.Errorf("%s: authoritative %v, recursion %v", what, m.Authoritative, m.RecursionAvailable)
		}
	}
	if m := ask(t, d, false, "round.node.consul.", dns.TypeA); len(m.Answer) != 1 {
		t.Errorf("an alias of itself: %v", m.Answer)
	}
}

// TestOnlyPassing: who warns can be left out, too.
func TestOnlyPassing(t *testing.T) {
	d := newDoor(t, func(c *Config) { c.OnlyPassing = true })
	if m := ask(t, d, false, "web.service.consul.", dns.TypeSRV); len(m.Answer) != 1 {
		t.Errorf("%v", m.Answer)
	}
}

// TestSizes: an answer is no longer than what the question takes, says when something
// is missing, and what it adds belongs to what it has.
func TestSizes(t *testing.T) {
	d := newDoor(t, nil)
	edns := func(size uint16) func(*dns.Msg) { return func(m *dns.Msg) { m.SetEdns0(size, false) } }
	for _, c := range []struct {
		what      string
		name      string
		qtype     uint16
		datagram  bool
		change    []func(*dns.Msg)
		size      int
		min, max  int // answers
		truncated bool
	}{
		{"plain", "many.service.consul.", dns.TypeA, true, nil, 512, 3, 3, false},
		{"1232", "many.service.consul.", dns.TypeA, true, []func(*dns.Msg){edns(1232)}, 1232, 60, 75, true},
		{"4096 is too much", "many.service.consul.", dns.TypeA, true, []func(*dns.Msg){edns(4096)}, 1232, 60, 75, true},
		{"100 is too little", "many.service.consul.", dns.TypeA, true, []func(*dns.Msg){edns(100)}, 512, 20, 30, true},
		{"SRV", "many.service.consul.", dns.TypeSRV, true, []func(*dns.Msg){edns(1232)}, 1232, 12, 40, true},
		{"TCP", "many.service.consul.", dns.TypeSRV, false, nil, 65535, 100, 100, false},
		{"TCP, all of it", "huge.service.consul.", dns.TypeA, false, nil, 65535, 4000, 4000, false},
		{"TCP, too much", "huge.service.consul.", dns.TypeSRV, false, nil, 65535, 500, 3000, true},
	} {
		q := new(dns.Msg).SetQuestion(c.name, c.qtype)
		for _, f := range c.change {
			f(q)
		}
		in, _ := q.Pack()
		b := d.answer(in, c.datagram, send)
		var m dns.Msg
		if err := m.Unpack(b); err != nil {
			t.Fatal(err)
		}
		if len(b) > c.size || len(m.Answer) < c.min || len(m.Answer) > c.max || m.Truncated != c.truncated {
			t.Errorf("%s: %d bytes, %d answers, truncated %v", c.what, len(b), len(m.Answer), m.Truncated)
		}
		if (m.IsEdns0() != nil) != (len(c.change) > 0) {
			t.Errorf("%s: EDNS %v", c.what, m.IsEdns0())
		}
		targets := map[string]bool{}
		for _, rr := range m.Answer {
			if s, ok := rr.(*dns.SRV); ok {
				targets[s.Target] = true
			}
		}
		for _, rr := range m.Extra {
			if rr.Header().Rrtype != dns.TypeOPT && !targets[rr.Header().Name] {
				t.Errorf("%s: %v belongs to nothing", c.what, rr)
			}
		}
	}
}

// TestNamesThatAreNone: an instance, a node or an alias whose name cannot be written is left
// out, and the others are answered.
func TestNamesThatAreNone(t *testing.T) {
	long := strings.Repeat("x", 64)
	bad := Node{Name: long, Address: "10.0.0.9"}
	names := sample()
	good := names.instances["web"][0]
	names.nodes["bad"], names.nodes["odd"] = bad, Node{Name: "odd", Address: "a..b"}
	names.instances["mixed"] = []Instance{
		{Node: good.Node, Address: "a..b", Port: 1, Passing: 1},
		{Node: good.Node, Address: long + ".example.com", Port: 2, Passing: 1},
		{Node: good.Node, Address: strings.Repeat("x23456789.", 26), Port: 3, Passing: 1}, // of more than 255 bytes
		{Node: good.Node, Address: `a\`, Port: 4, Passing: 1},
		{Node: bad, Port: 5, Passing: 1},
		good,
	}
	names.instances[long] = []Instance{{Node: good.Node, Address: "10.0.0.9", Port: 6, Passing: 1}}
	names.instances["only"] = names.instances["mixed"][:1]
	d := newDoor(t, func(c *Config) { c.Names = func() (Names, time.Duration) { return names, 0 } })
	extra := []string{"n1.node.dc1.consul. 0 A 10.0.0.1", `n1.node.dc1.consul. 0 TXT "rack=a1"`, `n1.node.dc1.consul. 0 TXT "plain"`}
	for _, c := range []struct {
		name          string
		qtype         uint16
		answer, extra []string
	}{
		{"mixed.service.consul.", dns.TypeSRV, []string{"mixed.service.consul. 0 SRV 1 5 8080 n1.node.dc1.consul."}, extra},
		{"mixed.service.consul.", dns.TypeA, []string{"mixed.service.consul. 0 A 10.0.0.9", "mixed.service.consul. 0 A 10.0.0.1"}, nil},
		{"only.service.consul.", dns.TypeSRV, nil, nil},
		{"odd.node.consul.", dns.TypeA, nil, nil},
		{"9.0.0.10.in-addr.arpa.", dns.TypePTR, nil, nil},
	} {
		m := ask(t, d, false, c.name, c.qtype)
		what := c.name + " " + dns.Type(c.qtype).String()
		if m.Rcode != dns.RcodeSuccess {
			t.Errorf("%s: %s", what, dns.RcodeToString[m.Rcode])
		}
		if diff := cmp.Diff(c.answer, lines(m.Answer)); diff != "" {
			t.Errorf("%s:\n%s", what, diff)
		}
		if diff := cmp.Diff(c.extra, lines(m.Extra)); diff != "" {
			t.Errorf("%s, additional:\n%s", what, diff)
		}
	}
	names.nodes["n1"] = bad // the server of the domain
	if m := ask(t, d, false, "consul.", dns.TypeNS); m.Rcode != dns.RcodeSuccess || len(m.Answer) != 0 {
		t.Errorf("NS: %v", m)
	}
}

// TestAge: what is too old is not answered from.
func TestAge(t *testing.T) {
	d := newDoor(t, func(c *Config) {
		c.MaxAge = time.Minute
		c.Names = func() (Names, time.Duration) { return sample(), time.Minute + 1 }
	})
	if m := ask(t, d, true, "web.service.consul.", dns.TypeA); m.Rcode != dns.RcodeServerFailure || len(m.Answer) != 0 {
		t.Errorf("%v", m)
	}
}

// TestOddQuestions: what is not a question of the Internet.
func TestOddQuestions(t *testing.T) {
	d := newDoor(t, nil)
	for rcode, change := range map[int]func(*dns.Msg){
		dns.RcodeNotImplemented: func(m *dns.Msg) { m.Opcode = dns.OpcodeUpdate },
		dns.RcodeFormatError:    func(m *dns.Msg) { m.Question = append(m.Question, m.Question[0]) },
		dns.RcodeRefused:        func(m *dns.Msg) { m.Question[0].Qclass = dns.ClassCHAOS },
		dns.RcodeBadVers:        func(m *dns.Msg) { m.SetEdns0(1232, false); m.IsEdns0().SetVersion(1) },
	} {
		if m := ask(t, d, true, "web.service.consul.", dns.TypeA, change); m.Rcode != rcode || len(m.Answer) != 0 {
			t.Errorf("%s: %v", dns.RcodeToString[rcode], m)
		}
	}
	for _, in := range [][]byte{nil, {1, 2, 3}, make([]byte, 11)} {
		if out := d.answer(in, true, send); out != nil {
			t.Errorf("%x is answered with %x", in, out)
		}
	}
	answer, _ := new(dns.Msg).SetReply(new(dns.Msg).SetQuestion("web.service.consul.", dns.TypeA)).Pack()
	if out := d.answer(answer, true, send); out != nil {
		t.Errorf("an answer is answered with %x", out)
	}
}

// TestRate: a network is answered so often, then told to come by TCP or not at all;
// others are not held up by it.
func TestRate(t *testing.T) {
	l := newLimiter(10)
	now := time.Unix(1000, 0)
	take := func(from string) verdict { return l.take(netip.MustParseAddr(from), now) }
	for i := range 10 {
		if v := take(fmt.Sprintf("192.0.2.%d", i)); v != send {
			t.Errorf("answer %d: %d", i, v)
		}
	}
	var counts [numVerdicts]int
	for range 100 {
		counts[take("192.0.2.200")]++
	}
	if counts != [numVerdicts]int{0, 50, 50} {
		t.Errorf("beyond the rate: %v", counts)
	}
	if take("198.51.100.1") != send || take("2001:db8::1") != send {
		t.Error("others are held up")
	}
	for range 100 {
		if take("127.0.0.1") != send {
			t.Fatal("the machine itself is held up")
		}
	}
	now = now.Add(500 * time.Millisecond)
	counts = [numVerdicts]int{}
	for range 10 {
		counts[take("192.0.2.1")]++
	}
	if counts[send] != 5 {
		t.Errorf("half a second later: %v", counts)
	}
	d := newDoor(t, nil)
	in, _ := new(dns.Msg).SetQuestion("web.service.consul.", dns.TypeA).Pack()
	var m dns.Msg
	if err := m.Unpack(d.answer(in, true, slip)); err != nil || !m.Truncated || len(m.Answer) != 0 {
		t.Errorf("an answer that says to come by TCP: %v %v", &m, err)
	}
}

// TestServe: over both transports, with the library's client.
func TestServe(t *testing.T) {
	d := newDoor(t, nil)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pc, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 2)
	go func() { ended <- d.ServeTCP(ln) }()
	go func() { ended <- d.ServeUDP(pc) }()
	for network, at := range map[string]string{"tcp": ln.Addr().String(), "udp": pc.LocalAddr().String()} {
		c, err := (&dns.Client{Net: network, Timeout: time.Minute}).Dial(at)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			q := new(dns.Msg).SetQuestion("n1.node.consul.", dns.TypeA)
			if err := c.WriteMsg(q); err != nil {
				t.Fatal(err)
			}
			m, err := c.ReadMsg()
			if err != nil || m.Id != q.Id || len(m.Answer) != 1 {
				t.Errorf("%s: %v %v", network, m, err)
			}
		}
		defer c.Close()
	}
	if n := d.Stats().Queries[0]; n.N != 6 || n.Type != "A" || n.Code != "NOERROR" {
		t.Errorf("counted %+v", n)
	}
	if err := d.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

// TestConfig: what cannot be is refused.
func TestConfig(t *testing.T) {
	names := func() (Names, time.Duration) { return sample(), 0 }
	for what, c := range map[string]Config{
		"no names":     {},
		"a ttl":        {Names: names, NodeTTL: -1},
		"another ttl":  {Names: names, ServiceTTL: map[string]time.Duration{"a": 1 << 62}},
		"a domain":     {Names: names, Domain: "a..b"},
		"a datacenter": {Names: names, Datacenter: "a.b"},
		"an age":       {Names: names, MaxAge: -1},
	} {
		if _, err := New(c); err == nil {
			t.Errorf("%s: no error", what)
		}
	}
}

// FuzzAnswer: whatever comes, an answer is a message of a bounded size that repeats the
// question, or nothing.
func FuzzAnswer(f *testing.F) {
	for _, name := range []string{"web.service.consul.", "_web._tcp.service.dc1.consul.", `a\.b\032.node.consul.`, "1.0.0.10.in-addr.arpa.", ".", "many.service.consul.", "dc.dc.dc.consul."} {
		for _, qtype := range []uint16{dns.TypeA, dns.TypeSRV, dns.TypeANY, dns.TypeTXT, dns.TypePTR} {
			m := new(dns.Msg).SetQuestion(name, qtype)
			if qtype == dns.TypeSRV {
				m.SetEdns0(4096, true)
			}
			b, err := m.Pack()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(b)
		}
	}
	d := newDoor(f, nil)
	f.Fuzz(func(t *testing.T, in []byte) {
		for _, datagram := range []bool{true, false} {
			out := d.answer(in, datagram, send)
			if out == nil {
				continue
			}
			var q, m dns.Msg
			if err := m.Unpack(out); err != nil {
				t.Fatalf("%x: %v", out, err)
			}
			if datagram && len(out) > MaxDatagram || !m.Response {
				t.Errorf("%d bytes, response %v", len(out), m.Response)
			}
			if q.Unpack(in) == nil && len(q.Question) == 1 && (len(m.Question) != 1 || m.Question[0] != q.Question[0] || m.Id != q.Id) {
				t.Errorf("%v for %v", m.Question, q.Question)
			}
		}
	})
}

// FuzzEscape: a name of the catalog comes back as it is.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{"n1", "a b", `a\b`, "a@b$", "ü", "a(b)c;d\"e\tf"} {
		f.Add(s)
	}
	d := newDoor(f, nil)
	f.Fuzz(func(t *testing.T, name string) {
		if name == "" || len(name) > 60 || strings.ToLower(name) != name || strings.ContainsAny(name, ".\x00") || isKind(name) {
			return
		}
		asked := new(dns.Msg).SetQuestion(d.nodeName(name), dns.TypeA)
		b, err := asked.Pack()
		if err != nil {
			return
		}
		var q dns.Msg
		if err := q.Unpack(b); err != nil {
			t.Fatal(err)
		}
		if l := d.lookupOf(q.Question[0].Name); l.kind != node || l.name != name {
			t.Errorf("%q is looked up as %+v", name, l)
		}
	})
}
