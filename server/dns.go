package server

import (
	"cmp"
	"context"
	"net"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/door/dns"
	"github.com/incumbent-dev/incumbent/gate"
)

// ConsulDNS configures the door by which services and nodes are looked up by DNS.
type ConsulDNS struct {
	Listen      string        // UDP and TCP; "": the door is closed
	Domain      string        // dns.DefaultDomain
	NodeTTL     time.Duration // of records of nodes
	ServiceTTL  string        // of those of services: NAME=DURATION, joined by commas; see parseServiceTTL
	OnlyPassing bool          // instances that warn are left out, too
	MaxAge      time.Duration // of what is answered from; 0: dns.DefaultMaxAge
}

func (c Consul) validateDNS(policy auth.ListenerPolicy) error {
	d := c.DNS
	if d.Listen == "" {
		if d != (ConsulDNS{}) {
			return invalid("consul-dns-listen", "is not set, but another --consul-dns setting is").WithHint("give --consul-dns-listen 127.0.0.1:8600")
		}
		return nil
	}
	if err := cluster.ValidAddress("consul-dns-listen", d.Listen); err != nil {
		return err
	}
	if c.Listen == "" {
		return invalid("consul-dns-listen", "goes with --consul-listen")
	}
	policy.Address = d.Listen
	if c.Anonymous == "" && !policy.OnlyLoopback() {
		return invalid("consul-dns-listen", "on another address than loopback, whoever asks brings nothing").
			WithHint("give --consul-anonymous KIND:NAME: who that may see is what DNS answers")
	}
	ttls, err := parseServiceTTL(d.ServiceTTL)
	if err != nil {
		return err
	}
	check := d.config(c, ttls)
	check.Names = func() (dns.Names, time.Duration) { return nil, 0 }
	if _, err := dns.New(check); err != nil {
		return invalid("consul-dns-listen", "%w", err)
	}
	return nil
}

// parseServiceTTL reads NAME=DURATION, joined by commas. A name that ends in * is all
// that begin so.
func parseServiceTTL(text string) (map[string]time.Duration, error) {
	out := map[string]time.Duration{}
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		name, value, ok := strings.Cut(part, "=")
		ttl, err := time.ParseDuration(value)
		if !ok || name == "" || err != nil {
			return nil, invalid("consul-dns-service-ttl", "%q is not like web=5s or *=1s", part)
		}
		out[strings.ToLower(name)] = ttl
	}
	return out, nil
}

func (d ConsulDNS) config(c Consul, ttls map[string]time.Duration) dns.Config {
	return dns.Config{
		Domain: d.Domain, Datacenter: c.Datacenter, NodeTTL: d.NodeTTL, ServiceTTL: ttls, OnlyPassing: d.OnlyPassing, MaxAge: d.MaxAge,
	}
}

// dnsDoor is the open door.
type dnsDoor struct {
	door *dns.Door
	gate *gate.Gate // over TCP
	udp  *net.UDPConn
}

// listenForDNS opens both sockets, on one port.
func (s *Server) listenForDNS(undo *undoing) error {
	at := s.cfg.Consul.DNS.Listen
	if at == "" {
		return nil
	}
	ln, err := net.Listen("tcp", at)
	if err != nil {
		return cannotListen("consul-dns-listen", err)
	}
	undo.later(func() { ln.Close() })
	pc, err := net.ListenPacket("udp", ln.Addr().String()) // the port that was chosen, where none is named
	if err != nil {
		return cannotListen("consul-dns-listen", err)
	}
	undo.later(func() { pc.Close() })
	s.dns = &dnsDoor{udp: pc.(*net.UDPConn), gate: s.gateOf(ln, dnsListener, 0, func() int { return 0 })}
	return nil
}

// openDNS makes the door; it answers from startDNS on.
func (s *Server) openDNS(undo *undoing) error {
	if s.dns == nil {
		return nil
	}
	who, err := anonymous(s.cfg.Consul.Anonymous)
	if err != nil {
		return err
	}
	ttls, err := parseServiceTTL(s.cfg.Consul.DNS.ServiceTTL)
	if err != nil {
		return err
	}
	names := &dns.Catalog{
		View: s.engine.View, Age: s.cluster.Age, Namespace: s.consulNamespace(), As: who, Members: s.dnsMembers, Now: time.Now,
		Knows: s.guard.Knows, Agent: s.cfg.Consul.Node,
	}
	cfg := s.cfg.Consul.DNS.config(s.cfg.Consul, ttls)
	cfg.Names, cfg.Logger = names.Names, s.log
	if s.dns.door, err = dns.New(cfg); err != nil {
		return err
	}
	undo.later(func() { s.dns.door.Close(context.Background()) })
	return nil
}

func (s *Server) consulNamespace() string {
	return cmp.Or(s.cfg.Consul.Namespace, incumbent.DefaultNamespace)
}

// dnsMembers are the members as nodes.
func (s *Server) dnsMembers() (out []dns.Node) {
	for _, m := range (consulCluster{s}).Members() {
		host, _, err := net.SplitHostPort(m.Address)
		if err == nil && m.Alive {
			out = append(out, dns.Node{Name: m.Name, Address: host})
		}
	}
	return out
}

// startDNS lets questions in, once this member has caught up.
func (s *Server) startDNS(ctx context.Context) {
	if s.dns == nil {
		return
	}
	for what, serve := range map[string]func() error{
		"tcp": func() error { return s.dns.door.ServeTCP(s.dns.gate) },
		"udp": func() error { return s.dns.door.ServeUDP(s.dns.udp) },
	} {
		s.running.Go(func() {
			select {
			case <-s.node.Ready():
			case <-ctx.Done():
				return
			}
			if err := serve(); err != nil && !s.draining.Load() {
				s.fail(incumbent.Errorf(incumbent.Unavailable, "dns listener over %s: %w", what, err))
			}
		})
	}
	s.log.Info("listening for questions by dns", "address", s.DNSAddr())
}

// DNSAddr is where the door for DNS listens, by UDP and TCP; "" if it is closed.
func (s *Server) DNSAddr() string {
	if s.dns == nil {
		return ""
	}
	return s.dns.gate.Addr().String()
}

func (s *Server) closeDNS(ctx context.Context) error {
	if s.dns == nil {
		return nil
	}
	s.dns.gate.Close()
	s.dns.udp.Close()
	return s.dns.door.Close(ctx)
}

// registerDNSMetrics exports the door's numbers.
func (s *Server) registerDNSMetrics() {
	if s.dns == nil {
		return
	}
	d := s.dns.door
	for i, q := range d.Stats().Queries {
		s.metrics.counter("incumbent_dns_queries_total", "Questions by DNS, by type and code of the answer.",
			prometheus.Labels{"type": q.Type, "rcode": q.Code}, func() float64 { return float64(d.Stats().Queries[i].N) })
	}
	for what, read := range map[string]func(dns.Stats) uint64{
		"tcp":       func(st dns.Stats) uint64 { return st.Slipped },
		"dropped":   func(st dns.Stats) uint64 { return st.Dropped },
		"malformed": func(st dns.Stats) uint64 { return st.Malformed },
	} {
		s.metrics.counter("incumbent_dns_refused_total", "Questions by DNS that got no answer: their network asked too much and was told to come by TCP, or nothing; or they were none.",
			prometheus.Labels{"reason": what}, func() float64 { return float64(read(d.Stats())) })
	}
	s.metrics.counter("incumbent_dns_answer_bytes_total", "Bytes of answers by DNS.", nil, func() float64 { return float64(d.Stats().Bytes) })
}
