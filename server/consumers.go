package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent/admit"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core/parts"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/door/consul"
	"github.com/incumbent-dev/incumbent/door/juju"
	"github.com/incumbent-dev/incumbent/door/native"
	"github.com/incumbent-dev/incumbent/door/ovsdb"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/node/peers"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/watch"
)

// consumer is what takes memory beside the state itself, and has a bound in bytes.
type consumer struct {
	name    string
	bound   int64
	setting string // that changes the bound; "": none does
	used    func() int64
}

// consumers are all of them.
func (s *Server) consumers() []consumer {
	within := func(bound, most int64, name string, used func() int64) consumer {
		c := consumer{name: name, bound: bound, used: used}
		if bound < most {
			c.setting = "--memory-limit"
		}
		return c
	}
	part := func(name string, most int64, used func() int64) consumer {
		return within(s.admission.Bound(most), most, name, used)
	}
	out := []consumer{
		{"watch history", s.cfg.HistoryBytes, "--history-bytes", func() int64 { return s.engine.Hub().Stats().HistoryBytes }},
		{"log in memory", s.cfg.SnapshotBytes + node.MaxNeededBytes, "--snapshot-bytes", func() int64 { return s.node.Status().EntryBytes }},
		{"proposals waiting, bytes", node.MaxInboxBytes, "", func() int64 { return int64(s.node.Status().WaitingBytes) }},
		{"large commands waiting", parts.MaxBytes, "", s.engine.LargeBytes},
		part("unread and unsent of connections", park.DefaultMaxHeldBytes, func() int64 { return s.park.Stats().HeldBytes }),
		part("results of shared reads", watch.DefaultQueryBytes, s.engine.Queries().Bytes),
		{"changes kept of the database with most", table.HistoryBytes, "", s.mostHistory},
		part("incomplete bodies of calls", native.MaxBodiesBytes, s.door.BodyBytes),
		part("answers to calls that are not read", native.MaxUnsentBytes, s.door.UnsentBytes),
		part("frames waiting for their turn", native.MaxWaitingBytes, s.door.WaitingBytes),
		{"refused calls held back", admit.MaxHeldBackBytes, "", s.door.HeldBackBytes},
		{"frames waiting for one member", peers.MaxQueuedBytes, "", s.mostQueued},
	}
	if s.juju != nil {
		out = append(out, part("calls of Juju's agents that wait", juju.MaxWaitingBytes, s.juju.door.WaitingBytes))
	}
	if s.ovsdb != nil {
		out = append(out,
			part("messages to OVSDB", ovsdb.DefaultMaxPartialBytes, s.ovsdb.door.PartialBytes),
			part("unread by OVSDB's clients", ovsdb.DefaultMaxUnsentBytes, s.ovsdb.door.UnsentBytes),
			within(s.ovsdb.door.WishBound(), ovsdb.MaxWishBytes, "conditions of OVSDB's monitors", s.ovsdb.door.WishBytes))
	}
	if s.consul != nil {
		out = append(out,
			part("incomplete bodies to Consul's API", consul.DefaultMaxBodies, s.consul.door.BodyBytes),
			consumer{"refused requests to Consul's API held back", admit.MaxHeldBackBytes, "", s.consul.door.HeldBackBytes})
	}
	return out
}

// mostQueued is what waits for the member for which most does.
func (s *Server) mostQueued() (most int64) {
	for _, l := range s.cluster.Links() {
		most = max(most, int64(l.QueuedBytes))
	}
	return most
}

// mostHistory is what the changes cost that the database keeps which keeps most.
func (s *Server) mostHistory() (most int64) {
	table.Of(s.engine.View()).All(func(d *table.Database) bool {
		most = max(most, d.HistoryBytes())
		return true
	})
	return most
}

// registerConsumers exports what each takes.
func (s *Server) registerConsumers() {
	for i, c := range s.consumers() {
		labels := prometheus.Labels{"consumer": c.name}
		s.metrics.gauge("incumbent_memory_consumer_bytes", "Memory taken beside the state, by what takes it.", labels, func() float64 { return float64(c.used()) })
		s.metrics.gauge("incumbent_memory_consumer_limit_bytes", "How much that may be.", labels, func() float64 { return float64(s.consumers()[i].bound) })
	}
}

// consumerLimits are they for status.
func (s *Server) consumerLimits() (out []*apiv1.Limit) {
	for _, c := range s.consumers() {
		out = append(out, &apiv1.Limit{Name: c.name, Unit: "bytes", Value: uint64(c.bound), Used: uint64(max(0, c.used())), Setting: c.setting})
	}
	return out
}
