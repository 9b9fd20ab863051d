package server

import (
	"cmp"
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/gate"
)

// reservedConnections are places beyond --max-connections of the native listener, for
// operators: who finds out why there is no room for agents is one.
const reservedConnections = 16

// SpareDescriptors is how many file descriptors clients do not get: they are for the log,
// snapshots, other members and checks. Of fewer than four times as many it is a quarter.
const SpareDescriptors = 256

// fewDescriptors reports whether clients have all the file descriptors that are for them.
func (s *Server) fewDescriptors() bool {
	n := uint64(s.park.Stats().Parked) //nolint:gosec // it is not negative
	for _, g := range s.gates() {
		n += uint64(g.Open()) //nolint:gosec // it is not negative
	}
	return n >= s.descriptors
}

// descriptorsForClients is how many connections a process may have that may have so many
// file descriptors.
func descriptorsForClients(all uint64) uint64 { return all - min(SpareDescriptors, all/4) }

// gateOf guards a listener for clients; parked counts the connections that are parked.
func (s *Server) gateOf(ln net.Listener, name string, reserved int, parked func() int) *gate.Gate {
	cfg := gate.Config{
		Name: name, Max: s.cfg.MaxConnections, Reserved: reserved, Proxies: s.cfg.Proxies, Parked: parked, Few: s.fewDescriptors, Pace: s.pace, Logger: s.log,
	}
	if name == dnsListener { // where nobody proves anything
		cfg.Pace = nil
	}
	return gate.New(ln, cfg)
}

// ParseProxies reads addresses and networks whose connections begin with a PROXY
// header.
func ParseProxies(list []string) (out []netip.Prefix, err error) {
	for _, text := range list {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			a, single := netip.ParseAddr(text)
			if single != nil {
				return nil, invalid("proxy-from", "%q is neither an address nor a network like 192.0.2.0/24", text)
			}
			p = netip.PrefixFrom(a.Unmap().WithZone(""), a.Unmap().BitLen())
		}
		out = append(out, p.Masked())
	}
	return out, nil
}

// gates are those of the listeners for clients, by name.
func (s *Server) gates() map[string]*gate.Gate {
	all := map[string]*gate.Gate{nativeListener: s.gate}
	for _, o := range s.opened {
		for i, g := range o.gates {
			all[listenerName(o.name, i)] = g
		}
	}
	if s.ovsdb != nil {
		for i, g := range s.ovsdb.rows.all() {
			all[ovsdbRows+"-"+strconv.Itoa(i+1)] = g
		}
	}
	if s.dns != nil {
		all[dnsListener] = s.dns.gate
	}
	return all
}

// The listeners, as metrics and log name them.
const (
	nativeListener = "native"
	jujuListener   = "juju"
	consulListener = "consul"
	dnsListener    = "dns"
	ovsdbListener  = "ovsdb"
	ovsdbRows      = "ovsdb-rows" // all that rows of databases say
)

// registerGates exports who is at the listeners, and who was closed there.
func (s *Server) registerGates() {
	for name, g := range s.gates() {
		s.registerGate(name, g.Stats)
	}
	if s.ovsdb != nil {
		s.registerGate(ovsdbRows, s.ovsdb.rows.stats)
	}
	s.metrics.counter("incumbent_strangers_failed_total", "Connections of whoever was served and has proven nothing, or brought what is nobody's.",
		nil, func() float64 { return float64(s.pace.Stats().Failed) })
	s.metrics.gauge("incumbent_strangers_failing_addresses", "Addresses from which such connections came in the last seconds: who comes from there may have to wait.",
		nil, func() float64 { return float64(s.pace.Stats().Failing) })
}

func (s *Server) registerGate(listener string, stats func() gate.Stats) {
	for state, of := range map[string]func(gate.Stats) int{
		"silent": func(st gate.Stats) int { return st.Silent }, "waiting": func(st gate.Stats) int { return st.Waiting },
		"unproven": func(st gate.Stats) int { return st.Unproven },
	} {
		s.metrics.gauge("incumbent_strangers", "Connections that have not shown who they are, by listener and state.",
			prometheus.Labels{"listener": listener, "state": state}, func() float64 { return float64(of(stats())) })
	}
	for r := range gate.NumReasons {
		s.metrics.counter("incumbent_strangers_closed_total", "Connections that were closed before they had shown who they are, by listener and reason.",
			prometheus.Labels{"listener": listener, "reason": r.String()}, func() float64 { return float64(stats().Closed[r]) })
	}
}

// connState is for http.Server.ConnState.
func (s *Server) connState(c net.Conn, state http.ConnState) {
	s.arrivals.connState(c, state)
	if state == http.StateHijacked {
		gate.Leave(c) // who parks it counts it
	}
}

// connContext is for http.Server.ConnContext.
func (s *Server) connContext(ctx context.Context, c net.Conn) context.Context {
	return gate.NewContext(s.arrivals.connContext(ctx, c), c)
}

// wantsPeers reports whether this member is to listen for others.
func (c Config) wantsPeers(r *cluster.Record) bool {
	return c.PeerListen != "" || c.JoinToken != "" || c.JoinFile != "" || r != nil && r.Clustered
}

// listenForPeers opens the listener for other members, if there is to be one.
func (s *Server) listenForPeers() error {
	r, err := cluster.ReadRecord(s.cfg.DataDir)
	if err != nil || !s.cfg.wantsPeers(r) {
		return err
	}
	s.cfg.PeerListen = cmp.Or(s.cfg.PeerListen, DefaultPeerListen)
	if err := s.cfg.peerPolicy(s.cfg.expectsOwnTLS()); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", s.cfg.PeerListen)
	if err != nil {
		return cannotListen("peer-listen", err)
	}
	s.peerListener = ln
	if s.peerAddress, err = reachable("peer-listen", ln.Addr().String(), "peer-advertise", s.cfg.PeerAdvertise); err != nil {
		ln.Close()
		return err
	}
	if _, err := reachable("listen", s.gate.Addr().String(), "advertise", s.cfg.Advertise); err != nil {
		ln.Close()
		return err
	}
	return nil
}

// PeerAddr is where other members reach this one; "" if it listens for none.
func (s *Server) PeerAddr() string { return s.peerAddress }
