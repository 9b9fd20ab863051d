package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/door/ovsdb"
)

// registerOVSDBMetrics exports the door's numbers.
func (s *Server) registerOVSDBMetrics() {
	if s.ovsdb == nil {
		return
	}
	d, m := s.ovsdb.door, s.metrics
	count := func(name, help string, labels prometheus.Labels, read func(ovsdb.Stats) uint64) {
		m.counter("incumbent_ovsdb_"+name+"_total", help, labels, func() float64 { return float64(read(d.Stats())) })
	}
	m.gauge("incumbent_ovsdb_connections", "Open connections of clients of Open vSwitch's databases.", nil, func() float64 { return float64(s.ovsdb.connections()) })
	m.gauge("incumbent_ovsdb_monitors", "Monitors of Open vSwitch's databases that are told of changes.", nil, func() float64 { return float64(d.Stats().Monitors) })
	var c scraped
	seconds := c.desc("incumbent_ovsdb_transaction_seconds", "Time from a transaction on Open vSwitch's databases to its answer, where it did not wait for a change.")
	rows := c.desc("incumbent_ovsdb_rows", "Rows of Open vSwitch's databases.", "database") // there are a few databases, which those define who may
	bytes := c.desc("incumbent_ovsdb_row_bytes", "What these rows cost in memory, about.", "database")
	c.collect = func(out chan<- prometheus.Metric) {
		took := d.Stats().Took
		out <- prometheus.MustNewConstHistogram(seconds, took.Count, took.Sum, took.Buckets)
		table.Of(s.engine.View()).Databases(s.controlNamespace(), func(d *table.Database) bool {
			out <- prometheus.MustNewConstMetric(rows, prometheus.GaugeValue, float64(d.Len()), d.Name)
			out <- prometheus.MustNewConstMetric(bytes, prometheus.GaugeValue, float64(d.Bytes()), d.Name)
			return true
		})
	}
	m.registry.MustRegister(&c)
	count("probes", "Echoes that silent clients of Open vSwitch's databases were asked for.", nil, func(st ovsdb.Stats) uint64 { return st.Probes })
	count("updates", "Updates that monitors of Open vSwitch's databases were told.", nil, func(st ovsdb.Stats) uint64 { return st.Updates })
	count("encodings", "Different updates among those: one for all who monitor the same.", nil, func(st ovsdb.Stats) uint64 { return st.Encoded })
	count("resumed", "Monitors of Open vSwitch's databases that were told what they had missed, in the place of everything.", nil, func(st ovsdb.Stats) uint64 { return st.Resumed })
	for reason, read := range map[string]func(ovsdb.Stats) uint64{
		"full": func(st ovsdb.Stats) uint64 { return st.Refused }, "no_tls": func(st ovsdb.Stats) uint64 { return st.NoTLS },
		"unknown": func(st ovsdb.Stats) uint64 { return st.Unknown }, "malformed": func(st ovsdb.Stats) uint64 { return st.Malformed },
		"silent": func(st ovsdb.Stats) uint64 { return st.Silent }, "slow": func(st ovsdb.Stats) uint64 { return st.Slow },
	} {
		count("closed", "Connections of clients of Open vSwitch's databases that were closed by this side, by reason.", prometheus.Labels{"reason": reason}, read)
	}
	for i, c := range d.Stats().Transactions {
		count("transactions", "Transactions on Open vSwitch's databases, by how they ended.", prometheus.Labels{"outcome": c.Name},
			func(st ovsdb.Stats) uint64 { return st.Transactions[i].N })
	}
	for i, c := range d.Stats().Requests {
		count("requests", "Requests of clients of Open vSwitch's databases, by method.", prometheus.Labels{"method": c.Name},
			func(st ovsdb.Stats) uint64 { return st.Requests[i].N })
	}
}
