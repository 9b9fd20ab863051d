package server

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/watch"
)

// operator answers what an operator asks of the member: native.Operator. What
// concerns membership is the cluster's.
type operator struct {
	*Server
	*cluster.Cluster
}

func (s *Server) operator() operator { return operator{s, s.cluster} }

// Ready implements native.Operator.
func (o operator) Ready() error { return o.ready() }

// EventsLast implements native.Operator.
func (o operator) EventsLast(n int) uint64 { return o.events.last(n) }

// EventsAfter implements native.Operator.
func (o operator) EventsAfter(from uint64, limit int, sees func(incumbent.Name) bool) ([]*apiv1.Event, uint64, <-chan struct{}) {
	kept, next, more := o.events.after(from, limit)
	out := make([]*apiv1.Event, 0, len(kept))
	for _, e := range kept {
		if e.Lease != (incumbent.Name{}) && !sees(e.Lease) {
			continue
		}
		out = append(out, &apiv1.Event{AtUnixMs: e.At.UnixMilli(), What: e.What, Subject: e.Subject, Detail: e.Detail, Index: e.Index, Member: o.cfg.Name})
	}
	return out, next, more
}

// Settings implements native.Operator.
func (o operator) Settings(context.Context) (*apiv1.SettingsResponse, error) {
	out := &apiv1.SettingsResponse{}
	for _, s := range *o.settings.Load() {
		s = o.inForce(s)
		out.Settings = append(out.Settings, &apiv1.Setting{Name: s.Name, Value: s.Value, Source: s.Source})
	}
	o.clusterSettings(out)
	return out, nil
}

// Snapshot implements native.Operator.
func (o operator) Snapshot(ctx context.Context) (*apiv1.SnapshotResponse, error) {
	began := time.Now()
	last, err := o.node.Snapshot(ctx)
	if err != nil {
		return nil, err
	}
	return &apiv1.SnapshotResponse{Index: last.Index, Bytes: uint64(last.Bytes), TookMs: uint32(time.Since(began).Milliseconds())}, nil
}

// StateHash implements native.Operator: a checkpoint in the log, and the hash of
// the state that this member has right behind it.
func (o operator) StateHash(ctx context.Context) (*apiv1.StateHashResponse, error) {
	view, err := o.Checkpoint(ctx)
	if err != nil {
		return nil, err
	}
	hash := view.Hash()
	return &apiv1.StateHashResponse{Index: uint64(view.Index()), Hash: hex.EncodeToString(hash[:])}, nil
}

// maxSharedReads is how many of the reads that callers share are shown.
const maxSharedReads = 20

// ofCatalog reports whether a shared read is of nodes, services and checks: whoever may
// see the status may see their names, which holds of no key and no session.
func ofCatalog(kind watch.Kind, params string) bool {
	return kind == watch.Kind(catalog.Number) || strings.HasPrefix(params, "consul catalog/") || strings.HasPrefix(params, "consul health/")
}

// Status implements native.Operator.
func (o operator) Status(ctx context.Context) (*apiv1.StatusResponse, error) {
	heard := o.Hear(ctx)
	st, view, loop := o.node.Status(), o.engine.View(), o.engine.Leases().Stats()
	hub, door := o.engine.Hub().Stats(), o.door.Stats()
	_, leader, _ := o.Standing()
	out := &apiv1.StatusResponse{
		Index: uint64(view.Index()), Term: st.Term, Leader: leader, Version: o.cfg.Version, ClusterId: hex.EncodeToString(st.Cluster[:]),
		Leases: uint64(leases.Of(view).HeldCount()), Sessions: uint64(view.SessionCount()), Waiters: uint64(leases.Of(view).WaiterCount()),
		Watches: uint64(hub.Readers + hub.Waiters), Connections: uint64(o.openConnections()),
		UptimeMs: uint64(time.Since(o.begun).Milliseconds()), RssBytes: residentBytes(), Rates: o.rates.now(),
		Members:  o.Show(heard),
		Doors:    o.doors(),
		Refusing: o.admission.refusing(),
		Storage: &apiv1.Storage{
			DataDir: o.DataDir(), LogBytes: uint64(o.logBytes()), FreeBytes: uint64(max(0, st.FreeBytes)),
			SnapshotIndex: st.Snapshot, LastSyncMs: float64(st.LastFlush.Microseconds()) / 1000, RefusingGrowth: st.GrowthRefused,
		},
		Limits:  o.showLimits(st, view, door.Streams),
		Backups: o.backups.show(view),
	}
	if o.consul != nil {
		out.Catalog = o.consul.counts.now()
	}
	for _, q := range o.engine.Queries().Busiest(maxSharedReads, ofCatalog) {
		out.SharedReads = append(out.SharedReads, &apiv1.SharedRead{What: strings.ReplaceAll(q.Params, "\x00", " "), Waiting: uint64(q.Users)})
	}
	if last := o.lastSnapshot.Load(); last != nil {
		out.Storage.SnapshotBytes = uint64(last.Bytes)
	}
	if st.GrowthRefused {
		out.Refusing = append(out.Refusing, "growth (disk)")
	}
	out.Refusing = append(out.Refusing, o.Refusing()...)
	out.Warnings = append(append(o.Warnings(out.Members, heard, o.cutOff.now.Load()), o.warnings(st, loop)...), o.quotaWarnings()...)
	out.Warnings = append(out.Warnings, o.overload.warnings()...)
	out.Warnings = append(out.Warnings, o.backups.warnings(view, out.Members)...)
	look := outlook{
		draining: o.draining.Load(), ready: st.Ready, cutOff: o.cutOff.now.Load(), leader: leader, members: out.Members, leases: out.Leases,
		connections: out.Connections, remarks: len(out.Warnings) + len(out.Refusing), alone: heard.Alone, confirmed: heard.Confirmed, age: heard.Age(),
	}
	out.ConfirmedMsAgo = uint32(heard.Confirmed.Milliseconds())
	out.Verdict = look.verdict()
	return out, nil
}

// warnings say what an operator should look at, and what helps.
func (s *Server) warnings(st node.Status, loop lease.Stats) []string {
	var out []string
	if st.FlushStalled {
		out = append(out, fmt.Sprintf("a flush of the log has been out for %v: look at the disk", st.FlushOut.Round(time.Millisecond)))
	}
	if st.Paused != "" {
		out = append(out, "writing is paused: "+st.Paused)
	}
	if st.GrowthRefused {
		out = append(out, fmt.Sprintf("%d MiB free on disk, reserve is %d MiB: free some, or lower --disk-reserve-bytes", st.FreeBytes>>20, st.ReserveBytes>>20))
	}
	if loop.Due > 10_000 {
		out = append(out, fmt.Sprintf("%d leases are due and wait to be freed", loop.Due))
	}
	if refused := s.gate.Refused(); refused > 0 && s.nativeConnections() >= s.limits.Load().MaxConnections {
		out = append(out, fmt.Sprintf("%d connections were refused: raise --max-connections or add members", refused))
	}
	if s.juju != nil && s.juju.connections() >= s.limits.Load().MaxConnections {
		if refused := s.juju.door.Stats().Full + s.juju.refused(); refused > 0 {
			out = append(out, fmt.Sprintf("%d connections of Juju's agents were refused: raise --max-connections or add members", refused))
		}
	}
	refused := uint64(0)
	for _, g := range s.gates() {
		refused += g.Stats().Closed[gate.NoDescriptors]
	}
	if refused > 0 && s.fewDescriptors() {
		out = append(out, fmt.Sprintf("%d connections were refused, for few file descriptors are left: raise LimitNOFILE or add members", refused))
	}
	if n := s.rates.dropsPerSecond(); n >= 1 {
		out = append(out, fmt.Sprintf("%.0f messages a second to other members are dropped: the network or a member is too slow", n))
	}
	return append(out, s.certificateWarnings()...)
}

// showLimits lists what is bounded and how much of it is used.
func (s *Server) showLimits(st node.Status, view *core.View, streams int) []*apiv1.Limit {
	bounds := s.limits.Load()
	one := func(name, unit string, value, used uint64, setting string) *apiv1.Limit {
		return &apiv1.Limit{Name: name, Unit: unit, Value: value, Used: used, Setting: setting}
	}
	limits := []*apiv1.Limit{
		one("connections", "connections", uint64(bounds.MaxConnections), uint64(s.nativeConnections()), "--max-connections"),
		one("streams", "streams", uint64(bounds.MaxConnections), uint64(streams), "--max-connections"),
		one("keys and values", "bytes", uint64(view.Terms().KeyBytes), uint64(s.keyBytes()), "kv.quota-bytes"),
		one("memory", "bytes", uint64(bounds.MemoryLimit), residentBytes(), "--memory-limit"),
		one("proposals waiting", "commands", uint64(st.InboxLimit), uint64(st.Inbox), ""),
		one("idempotency keys", "results", core.MaxKeptResults, uint64(view.KeptCount()), ""),
		one("sessions", "sessions", core.MaxSessions, uint64(view.SessionCount()), ""),
		one("lease records", "leases", leases.MaxLeases, uint64(leases.Of(view).Len()), ""),
		one("leases with pins", "leases", leases.MaxPinned, uint64(leases.Of(view).PinnedCount()), ""),
	}
	if s.juju != nil { // each door has its own --max-connections
		limits = append(limits, one("connections of juju's agents", "connections", uint64(bounds.MaxConnections),
			uint64(s.juju.connections()), "--max-connections"))
	}
	limits = append(limits, s.consumerLimits()...)
	return append(limits, s.quotaLimits(view)...)
}

// logBytes is what the files of the log take on disk: they are preallocated.
func (s *Server) logBytes() int64 { return int64(s.node.Status().LogSegments) * s.cfg.SegmentBytes }
