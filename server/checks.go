package server

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/health"
	"github.com/incumbent-dev/incumbent/lease"
)

// reportWait is how long the outcome of a check may be on its way into the log: it is
// found again, or something else is.
const reportWait = 5 * time.Second

// checks are those of services that this member runs; nil: it runs none.
type checks struct {
	feed     health.Feed
	presence health.Presence
}

// openChecks has this member run checks, if it has the door at which they are
// registered. Nothing is applied meanwhile.
func (s *Server) openChecks() error {
	if s.consul == nil {
		return nil
	}
	self, namespace := s.cluster.ID(), s.consulNamespace()
	r, err := health.New(health.Config{
		Self: self, Report: s.reportCheck, AllowAll: s.cfg.Consul.ChecksAnywhere, Never: s.neverChecked,
		Alias: func(k health.Key, d *health.Definition) health.Outcome { return health.Alias(s.engine.View(), k, d) },
	})
	if err != nil {
		return err
	}
	c := &checks{
		feed: health.Feed{Runner: r, Namespace: namespace},
		presence: health.Presence{
			Self: self, Namespace: namespace, TTL: s.cfg.presence, Present: func() []uint64 { return health.Present(s.engine.View(), namespace) },
			Call: func(ctx context.Context, cmd core.Command) error {
				_, err := s.engine.Leases().Await(ctx, lease.Call{Origin: s.ownOrigin()}, cmd)
				return err
			},
		},
	}
	c.feed.Begin(s.engine.View())
	s.checks = c
	return nil
}

func (s *Server) ownOrigin() core.Origin {
	return core.Origin{At: time.Now().UTC(), Door: "server", Principal: s.cfg.Name}
}

// startChecks begins to run them, once this member has caught up.
func (s *Server) startChecks(ctx context.Context) {
	if s.checks == nil {
		return
	}
	s.running.Go(func() { s.checks.feed.Runner.Run(ctx) })
	s.running.Go(func() {
		select {
		case <-s.node.Ready():
			s.checks.presence.Run(ctx)
		case <-ctx.Done():
		}
	})
}

// leaveChecks has the others take this member's checks.
func (s *Server) leaveChecks(ctx context.Context) {
	if s.checks != nil && !s.cluster.Alone() {
		s.checks.presence.Leave(ctx)
	}
}

func (s *Server) checksApplied(a *engine.Applied) {
	if s.checks != nil {
		s.checks.feed.Applied(a)
	}
}

func (s *Server) checksRestored(v *core.View) {
	if s.checks != nil {
		s.checks.feed.Begin(v)
	}
}

// reportCheck writes what was found of a check into the log, if this member still holds what
// it ran the check by.
func (s *Server) reportCheck(k health.Key, o health.Outcome, done func(error)) {
	name := health.PresenceLease(s.cluster.ID(), k.Namespace)
	view := s.engine.View()
	presence := leases.Of(view).Lease(name)
	if presence == nil || presence.Token == 0 {
		done(incumbent.Errorf(incumbent.Conflict, "this member runs no checks now"))
		return
	}
	call := engine.Call{
		Meta: core.Meta{Origin: s.ownOrigin()}, Deadline: time.Now().Add(reportWait),
		Reserve: health.Turns(view, k, o), // the leader's clock goes by the status, and needs no growth
	}
	s.engine.Execute(call, health.Update(k, o, leases.IfHeld{Name: name, Token: presence.Token}), func(r core.Result) {
		switch {
		case r.Err != nil:
			done(r.Err)
		case r.Txn != nil && r.Txn.Unmet != 0:
			done(incumbent.Errorf(incumbent.Conflict, "this member was away for longer than its presence lasts"))
		default:
			done(nil)
		}
	})
}

// neverChecked says why no check may connect to an address: it is that of a listener
// of this cluster. This member may take whoever connects from its own machine for an
// operator (see guard.go), and a check sends what whoever registered it wants. At which
// ports other members listen for the clients of doors is not known: they are taken to be
// those of this one.
func (s *Server) neverChecked(to netip.AddrPort) string {
	own := []net.Addr{s.gate.Addr()}
	for _, g := range s.gates() {
		own = append(own, g.Addr())
	}
	if s.peerListener != nil {
		own = append(own, s.peerListener.Addr())
	}
	ours := false // its port is one of this member's
	for _, a := range own {
		if t, ok := a.(*net.TCPAddr); ok && t.AddrPort().Port() == to.Port() {
			ours = true
		}
	}
	if ours && ofThisMachine(to.Addr()) {
		return "it is a listener of this member"
	}
	for _, m := range s.engine.View().Members() {
		for _, text := range []string{m.PeerAddress, strings.TrimPrefix(strings.TrimPrefix(m.ClientURL, "https://"), "http://")} {
			a, err := netip.ParseAddrPort(text)
			if err != nil {
				continue
			}
			there := a.Addr().Unmap() == to.Addr()
			if there && ours || a.Port() == to.Port() && (there || to.Addr().IsLoopback() || to.Addr().IsUnspecified()) {
				return "it is a listener of a member"
			}
		}
	}
	return ""
}

// ofThisMachine reports whether an address is one of this machine's.
func ofThisMachine(ip netip.Addr) bool {
	if ip.IsLoopback() || ip.IsUnspecified() {
		return true
	}
	all, err := net.InterfaceAddrs()
	if err != nil {
		return true // it cannot be ruled out
	}
	for _, a := range all {
		if n, ok := a.(*net.IPNet); ok {
			if own, ok := netip.AddrFromSlice(n.IP); ok && own.Unmap() == ip {
				return true
			}
		}
	}
	return false
}

// registerCheckMetrics exports how checks are, and how they are run here.
func (s *Server) registerCheckMetrics() {
	if s.checks == nil {
		return
	}
	s.metrics.registerCatalog(s.consul.counts)
	r := s.checks.feed.Runner
	s.metrics.gauge("incumbent_checks_run", "Checks that this member runs.", nil, func() float64 { return float64(r.Stats().Checks) })
	s.metrics.gauge("incumbent_checks_running", "Of them, those under way.", nil, func() float64 { return float64(r.Stats().Running) })
	s.metrics.gauge("incumbent_checks_late_seconds", "How long the check that was due first has waited for others to end.", nil, func() float64 { return r.Stats().Late.Seconds() })
	s.metrics.counter("incumbent_checks_reports_total", "Outcomes of checks that were written into the log, or tried to be.", nil, func() float64 { return float64(r.Stats().Reports) })
	s.metrics.counter("incumbent_checks_reports_lost_total", "Of them, those that came to nothing, and are found again.", nil, func() float64 { return float64(r.Stats().Lost) })
	for i, x := range r.Stats().Found {
		s.metrics.counter("incumbent_checks_found_total", "Runs of checks by this member, by kind and what they found.",
			prometheus.Labels{"kind": x.Kind, "status": x.Status}, func() float64 { return float64(r.Stats().Found[i].N) })
	}
	var c scraped
	took := c.desc("incumbent_checks_run_seconds", "Time of one run of a check, by kind.", "kind")
	c.collect = func(out chan<- prometheus.Metric) {
		for _, x := range r.Stats().Runs {
			out <- prometheus.MustNewConstHistogram(took, x.Count, x.Sum, x.Buckets, x.Kind)
		}
	}
	s.metrics.registry.MustRegister(&c)
}
