package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent/door/consul"
)

// registerConsulMetrics exports the door's numbers.
func (s *Server) registerConsulMetrics() {
	if s.consul == nil {
		return
	}
	d, m := s.consul.door, s.metrics
	gauge := func(name, help string, read func() float64) { m.gauge("incumbent_consul_"+name, help, nil, read) }
	count := func(name, help string, read func(consul.Stats) uint64) {
		m.counter("incumbent_consul_"+name+"_total", help, nil, func() float64 { return float64(read(d.Stats())) })
	}
	gauge("connections", "Open connections of Consul's clients.", func() float64 { return float64(s.consul.connections()) })
	gauge("blocked", "Reads of Consul's clients that wait for another result.", func() float64 { return float64(d.Stats().Blocked) })
	count("malformed", "Connections of Consul's clients that ended because of what came on them.", func(st consul.Stats) uint64 { return st.Malformed })
	count("woken", "Reads of Consul's clients that waited, and were told of another result.", func(st consul.Stats) uint64 { return st.Woken })
	count("timed_out", "Reads of Consul's clients that waited, and were told what they had.", func(st consul.Stats) uint64 { return st.TimedOut })
	count("evaluations", "Evaluations of what Consul's clients read: one for all who ask the same.", func(st consul.Stats) uint64 { return st.Evaluations })
	count("body_bytes", "Bytes of bodies that were sent to Consul's clients.", func(st consul.Stats) uint64 { return st.Bytes })
	for reason, read := range map[string]func(consul.Stats) uint64{
		"full": func(st consul.Stats) uint64 { return st.Refused }, "no_room": func(st consul.Stats) uint64 { return st.NoRoom },
		"no_tls": func(st consul.Stats) uint64 { return st.NoTLS },
	} {
		m.counter("incumbent_consul_refused_total", "Connections of Consul's clients that were closed before a request was there, by reason.",
			prometheus.Labels{"reason": reason}, func() float64 { return float64(read(d.Stats())) })
	}
	for i, e := range d.Stats().Encodings {
		m.counter("incumbent_consul_encodings_total", "Encodings of what Consul's clients read: one for all who read it so.",
			prometheus.Labels{"encoding": e.Name}, func() float64 { return float64(d.Stats().Encodings[i].N) })
	}
	var c scraped
	requests := c.desc("incumbent_consul_requests_total", "Requests of Consul's clients, by route and the hundreds of their status.", "route", "status")
	seconds := c.desc("incumbent_consul_request_seconds", "Time from a request of Consul's clients to its answer, where it did not wait for another result.", "route")
	c.collect = func(out chan<- prometheus.Metric) {
		for _, r := range d.Routes() {
			for i, class := range [...]string{"1xx", "2xx", "3xx", "4xx", "5xx"} {
				out <- prometheus.MustNewConstMetric(requests, prometheus.CounterValue, float64(r.Answered[i]), r.Route, class)
			}
			out <- prometheus.MustNewConstHistogram(seconds, r.Count, r.Sum, r.Buckets, r.Route)
		}
	}
	m.registry.MustRegister(&c)
}
