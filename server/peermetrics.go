package server

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/node/peers"
)

// peers makes the counters of what happens between members. Members are never
// labels: how many there are is not a closed set.
func (m *metrics) peers() {
	m.elections = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "incumbent_leader_changes_total", Help: "Times that this member heard of another leader.",
	})
	// In the order of node.Control and node.Bulk.
	byClass := func(name, help string) []prometheus.Counter {
		v := prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{"class"})
		m.registry.MustRegister(v)
		return []prometheus.Counter{v.WithLabelValues("control"), v.WithLabelValues("bulk")}
	}
	m.peerDrops = byClass("incumbent_peer_dropped_total", "Messages to other members that could not be queued, by connection.")
	m.peerEnds = byClass("incumbent_peer_disconnects_total", "Connections with other members that ended, by connection.")
	refusals := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "incumbent_peer_refusals_total", Help: "Connections of other members that were refused, by reason.",
	}, []string{"reason"})
	for _, r := range peers.Reasons() {
		m.peerNo = append(m.peerNo, refusals.WithLabelValues(r.String()))
	}
	m.peerCrowd = prometheus.NewCounter(prometheus.CounterOpts{
		Name: "incumbent_peer_strangers_closed_total", Help: "Connections to the listener for members that had proven nothing and were closed to make room for others.",
	})
	m.registry.MustRegister(m.elections, refusals, m.peerCrowd)
}

// peerEvents counts what happens between members.
func (s *Server) peerEvents() peers.Events {
	return peers.Events{
		Connected: func(id uint64, c node.Class) {
			if c == node.Control {
				s.events.add(Event{What: "member connected", Subject: s.cluster.NameOf(id)})
			}
		},
		Disconnected: func(id uint64, c node.Class, err error) {
			s.metrics.peerEnds[c].Inc()
			if c == node.Control {
				detail := ""
				if err != nil {
					detail = err.Error()
				}
				s.events.add(Event{What: "member disconnected", Subject: s.cluster.NameOf(id), Detail: detail})
			}
		},
		Dropped: func(_ uint64, c node.Class, full bool) {
			s.metrics.peerDrops[c].Inc()
			if full { // that a member is not there has a warning of its own
				s.overflows.Add(1)
			}
		},
		Refused: func(r peers.Reason) { s.metrics.peerNo[r-1].Inc() },
		Crowded: s.metrics.peerCrowd.Inc,
	}
}

// registerPeerMetrics exports the numbers of the moment.
func (s *Server) registerPeerMetrics(gauge func(name, help string, read func() float64)) {
	roster := func(count func(*cluster.Roster) int) func() float64 {
		return func() float64 { return float64(count(s.cluster.Roster())) }
	}
	gauge("members_recorded", "Members of the cluster, as recorded.", roster(func(r *cluster.Roster) int { return len(r.View.Members()) }))
	gauge("members_voting", "Members that vote.", roster(func(r *cluster.Roster) int { return len(r.Voters()) }))
	gauge("cut_off", "1 while this member hears a leader, confirms nothing and sends its clients away.", func() float64 {
		if s.cutOff.now.Load() {
			return 1
		}
		return 0
	})
	links := func(f func(sum *float64, l *peers.Link)) func() float64 {
		return func() float64 {
			sum := 0.0
			for _, l := range s.cluster.Links() {
				f(&sum, &l)
			}
			return sum
		}
	}
	gauge("state_agreed_index", "Newest index at which this member's state was found to be that of a majority.", func() float64 { return float64(s.cluster.AgreedAt()) })
	gauge("states_differ", "1 while no grants are made because the members' states differ.", func() float64 {
		if s.cluster.StatesDiffer() {
			return 1
		}
		return 0
	})
	gauge("members_short_of_disk", "Other members whose disk is below its reserve.", func() float64 { return float64(s.cluster.ShortOfDisk()) })
	gauge("members_stuck", "Connected members that are behind and have taken nothing for ten seconds, or two minutes if they need a snapshot, as the leader knows; others say 0.", func() float64 { return float64(s.cluster.Stuck()) })
	gauge("peers_connected", "Other members that are connected with this one.", links(func(sum *float64, l *peers.Link) {
		if l.Connected {
			*sum++
		}
	}))
	gauge("peer_queued_bytes", "Bytes for other members that wait to be sent.", links(func(sum *float64, l *peers.Link) { *sum += float64(l.QueuedBytes) }))
	gauge("peer_rtt_seconds_max", "Longest of the last round trips to other members.", links(func(sum *float64, l *peers.Link) { *sum = max(*sum, l.RTT.Seconds()) }))
}
