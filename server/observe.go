package server

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/park"
)

// nodeEvents turns what happens inside the node into timeline, log and metrics.
func (s *Server) nodeEvents() node.Events {
	note := func(what, detail string) {
		s.events.add(Event{What: what, Subject: s.cfg.Name, Detail: detail})
		s.log.Info("node", "event", what, "detail", detail)
	}
	return node.Events{
		RoleChanged: func(r node.Role) {
			if s.cluster.RoleChanged(r) {
				s.metrics.elections.Inc()
			}
			note("role changed", fmt.Sprintf("%v in term %d, leader %s", r.State, r.Term, s.cluster.NameOf(r.Leader)))
		},
		MembersChanged: s.cluster.Configured,
		Mute: func(muted bool) {
			s.transport.Mute(muted)
			if muted {
				note("silent", "the disk hangs and leadership could not be handed over: the others elect another leader")
				return
			}
			note("speaking again", "")
		},
		SnapshotSent: func(d node.SnapshotSent) {
			if d.Err != nil {
				note("snapshot not sent", fmt.Sprintf("to %s: %v", s.cluster.NameOf(d.To), d.Err))
				return
			}
			note("snapshot sent", fmt.Sprintf("to %s: log index %d, %d bytes in %v", s.cluster.NameOf(d.To), d.Index, d.Bytes, d.Took.Round(time.Millisecond)))
		},
		SnapshotReceived: func(d node.SnapshotDone) {
			if d.Err != nil {
				note("snapshot not received", d.Err.Error())
				return
			}
			note("snapshot received", fmt.Sprintf("log index %d, %d bytes in %v", d.Index, d.Bytes, d.Took.Round(time.Millisecond)))
		},
		Synced: func(took time.Duration, _, _ int) { s.metrics.sync.Observe(took.Seconds()) },
		Applied: func(a node.AppliedEntries) {
			s.metrics.apply.Observe(a.Took.Seconds())
			s.metrics.applyWait.Observe(a.Waited.Seconds())
			select {
			case <-s.node.Ready(): // what was in the log waits for nobody's work
				s.admission.Applied(a.Waited)
			default:
			}
		},
		FlushStalled: func(stalled bool, out time.Duration) {
			if stalled {
				note("flush stalled", "out for "+out.String())
				return
			}
			note("flush returned", "after "+out.String())
		},
		Snapshot: func(d node.SnapshotDone) {
			if d.Err != nil {
				note("snapshot failed", d.Err.Error())
				return
			}
			s.lastSnapshot.Store(&d)
			note("snapshot written", fmt.Sprintf("log index %d, %d bytes in %v", d.Index, d.Bytes, d.Took.Round(time.Millisecond)))
		},
		Growth: func(refused bool, free, reserve int64) {
			if refused {
				note("refusing growth", fmt.Sprintf("%d bytes free, reserve is %d", free, reserve))
				return
			}
			note("growing again", fmt.Sprintf("%d bytes free", free))
		},
		Paused: func(paused bool, err error) {
			if paused {
				note("writing paused", fmt.Sprint(err))
				return
			}
			note("writing again", "")
		},
		Failed: s.fail, // at once: what hangs meanwhile must not keep the process
	}
}

// registerMetrics exports what the parts count themselves.
func (s *Server) registerMetrics() {
	gauge := func(name, help string, read func() float64) { s.metrics.gauge("incumbent_"+name, help, nil, read) }
	count := func(name, help string, read func() float64) {
		s.metrics.counter("incumbent_"+name+"_total", help, nil, read)
	}
	gauge("leases_held", "Leases that somebody holds.", func() float64 { return float64(leases.Of(s.engine.View()).HeldCount()) })
	gauge("sessions_open", "Open sessions.", func() float64 { return float64(s.engine.View().SessionCount()) })
	gauge("waiters", "Places in queues of leases.", func() float64 { return float64(leases.Of(s.engine.View()).WaiterCount()) })
	gauge("keys", "Keys that have a value.", func() float64 { return float64(kv.Of(s.engine.View()).Len()) })
	gauge("keys_bytes", "Bytes of keys and values.", func() float64 { return float64(s.keyBytes()) })
	gauge("keys_locked", "Keys that a session has locked.", func() float64 { return float64(kv.Of(s.engine.View()).Locks()) })
	gauge("index", "Index of the newest applied command.", func() float64 { return float64(s.engine.View().Index()) })
	gauge("leading", "1 while this member leads.", func() float64 {
		if s.cluster.Leader() == s.cluster.ID() {
			return 1
		}
		return 0
	})
	gauge("raft_term", "Term of the log.", func() float64 { return float64(s.node.Status().Term) })
	gauge("raft_applied_index", "Log index that is applied.", func() float64 { return float64(s.node.Status().Applied) })
	gauge("log_bytes", "Bytes of the log on disk.", func() float64 { return float64(s.logBytes()) })
	gauge("disk_free_bytes", "Free bytes of the data directory's disk.", func() float64 { return float64(s.node.Status().FreeBytes) })
	gauge("connections", "Open connections.", func() float64 { return float64(s.openConnections()) })
	gauge("connections_parked", "Connections that are parked.", func() float64 { return float64(s.park.Stats().Parked) })
	gauge("connections_unread", "Parked connections that are left unread: no more of what they send is served yet.", func() float64 { return float64(s.park.Stats().Unread) })
	gauge("watch_history_bytes", "Bytes of changes kept for resuming.", func() float64 { return float64(s.engine.Hub().Stats().HistoryBytes) })
	gauge("watches", "Watches and waits.", func() float64 { h := s.engine.Hub().Stats(); return float64(h.Readers + h.Waiters) })
	count("extensions", "Extensions acknowledged.", func() float64 { return float64(s.engine.Leases().Stats().Extensions) })
	count("confirmations", "Rounds of read confirmation.", func() float64 { return float64(s.engine.Leases().Stats().Rounds) })
	count("confirmations_vouched", "Confirmations that needed no round: other members vouched for the leader.", func() float64 { return float64(s.engine.Leases().Stats().Vouched) })
	count("claims_denied", "Claims denied from a confirmed read.", func() float64 { return float64(s.engine.Leases().Stats().ClaimsDenied) })
	count("deadlines_moved_seconds", "Seconds by which deadlines were moved, for the loop or the quorum was silent for longer than the grace.",
		func() float64 { return s.engine.Leases().Stats().StalledFor.Seconds() })
	count("commands_unknown", "Commands whose callers were told that the outcome is unknown.", func() float64 { return float64(s.engine.Leases().Stats().Unknown) })
	count("calls", "Calls that reached the lease loop.", func() float64 { return float64(s.engine.Leases().Stats().Calls) })
	count("watch_events", "Changes published to watchers.", func() float64 { return float64(s.engine.Hub().Stats().Events) })
	count("watch_evaluations", "Evaluations of queries that many share.", func() float64 { return float64(s.engine.Hub().Stats().Evaluations) })
	count("watch_wakes", "Watchers and waits that were woken by a change.", func() float64 { return float64(s.engine.Hub().Stats().Wakes) })
	count("watch_cut_off", "Watchers cut off because history had moved past them.", func() float64 { return float64(s.engine.Hub().Stats().CutOff) })
	gauge("frames_waiting", "Frames of streams that wait for their turn: starts, and watches that are to begin.", func() float64 { return float64(s.door.Stats().Waiting) })
	count("connections_refused", "Connections refused for lack of room.", func() float64 { return float64(s.gate.Refused()) })
	count("log_lines_dropped", "Lines of this member's log that were dropped, since they could not be written.", func() float64 { return float64(s.cfg.DroppedLines()) })
	for r := range park.NumReasons {
		s.metrics.counter("incumbent_connections_ended_total", "Parked connections that ended, by reason.",
			prometheus.Labels{"reason": r.String()}, func() float64 { return float64(s.park.Stats().Ended[r]) })
	}
	s.registerGates()
	s.admission.register(s.metrics)
	s.registerQuotas()
	s.registerConsumers()
	s.registerPeerMetrics(gauge)
	s.registerJujuMetrics()
	s.registerConsulMetrics()
	s.registerOVSDBMetrics()
	s.registerDNSMetrics()
	s.registerCheckMetrics()
	s.registerDenials()
}

// rateKeeper gives the rates of `status`: one sample a second.
type rateKeeper struct {
	mu   sync.Mutex // held for one sample
	ring rates
}

// What rates are of, in this order.
const (
	rateClaims = iota
	rateExtensions
	rateReleases
	rateExpiries
	rateRefusals
	rateEvents
	ratePeerDrops
	numRates
)

func (s *Server) keepRates(ctx context.Context) {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	garbage := newCollector()
	defer garbage.end()
	over := &s.overload
	over.events, over.log = s.events, s.log
	for near := false; ; {
		near = s.watchQuota(near)
		s.rates.sample(time.Now(), s.counts())
		s.trail.denials.flush(time.Now())
		resident, limit := int64(residentBytes()), s.limits.Load().MemoryLimit
		garbage.settle(limit)
		s.defendMemory(resident, limit)
		over.look(time.Now(), s.admission.Stats(), s.admission.Mode(), resident, limit)
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *Server) counts() []float64 {
	loop := s.engine.Leases().Stats()
	out := make([]float64, numRates)
	out[rateClaims] = s.metrics.leasesChanged(leases.Granted) + s.metrics.leasesChanged(leases.Queued) + float64(loop.ClaimsDenied)
	out[rateExtensions] = float64(loop.Extensions)
	out[rateReleases] = s.metrics.leasesChanged(leases.Released)
	out[rateExpiries] = float64(loop.Expired)
	out[rateRefusals] = float64(loop.Refused) + s.admission.refused()
	out[rateEvents] = float64(s.engine.Hub().Stats().Events)
	out[ratePeerDrops] = float64(s.overflows.Load())
	return out
}

func (k *rateKeeper) sample(now time.Time, values []float64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ring.sample(now, values)
}

func (k *rateKeeper) now() *apiv1.Rates {
	k.mu.Lock()
	defer k.mu.Unlock()
	r := k.ring.perSecond(numRates)
	return &apiv1.Rates{
		Claims: r[rateClaims], Extensions: r[rateExtensions], Releases: r[rateReleases],
		Expiries: r[rateExpiries], Refusals: r[rateRefusals], Events: r[rateEvents],
	}
}

// dropsPerSecond is how many messages to other members are dropped, as of the last
// second: what is over is no reason to warn.
func (k *rateKeeper) dropsPerSecond() float64 {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ring.over(1, numRates)[ratePeerDrops]
}

// residentBytes is this process's resident memory; 0 where /proc is missing.
func residentBytes() uint64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := bytes.Fields(data)
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseUint(string(fields[1]), 10, 64)
	if err != nil {
		return 0
	}
	return pages * uint64(os.Getpagesize())
}

// quietLog takes what net/http logs of broken clients: of no interest unless
// somebody looks for it.
func quietLog(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }
