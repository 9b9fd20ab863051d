package server

import (
	"context"
	"encoding/hex"
	"errors"
	"net"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	dto "github.com/prometheus/client_model/go"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/park"
)

func TestOperatorCalls(t *testing.T) {
	cfg := testConfig(t)
	cfg.Settings = []Setting{{"name", "n1", "flag"}, {"grace", "500ms", "default"}, {"data-dir", "", "default"}, {"snapshot-bytes", "0", "default"}}
	s := open(t, cfg)
	c := clientOf(t, s)
	if _, err := claim(t, c, "db", "a"); err != nil {
		t.Fatal(err)
	}
	ctx := testContext(t)
	st, err := c.Cluster().Status(ctx, connect.NewRequest(&apiv1.StatusRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	m := st.Msg
	if m.Leader != "n1" || m.Leases != 1 || m.Version != "test" || len(m.Members) != 1 || !m.Members[0].Ready || m.Members[0].Role != "leader" {
		t.Errorf("status: %v", m)
	}
	if !strings.HasPrefix(m.Verdict, "healthy: 1 lease held") {
		t.Errorf("verdict %q, warnings %v", m.Verdict, m.Warnings)
	}
	if m.Connections == 0 || m.Storage.LogBytes < uint64(cfg.SegmentBytes) || m.RssBytes == 0 || len(m.Limits) == 0 {
		t.Errorf("status lacks numbers: %v", m)
	}
	set, err := c.Cluster().Settings(ctx, connect.NewRequest(&apiv1.SettingsRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if got := set.Msg.Settings; len(got) < 5 || got[4].Source != "cluster default" || got[1].Name != "grace" || got[1].Value != "500ms" || got[1].Source != "default" {
		t.Errorf("settings: %v", got)
	} else if got[2].Value != cfg.DataDir || got[3].Value != strconv.FormatInt(4*cfg.SegmentBytes, 10) {
		t.Errorf("what was chosen for those not set: %v", got[2:4])
	}
	hash, err := c.Cluster().StateHash(ctx, connect.NewRequest(&apiv1.StateHashRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	want := s.engine.View().Hash()
	if hash.Msg.Hash != hex.EncodeToString(want[:]) || hash.Msg.Index != uint64(s.engine.View().Index()) {
		t.Errorf("state hash: %v, want %x at %d", hash.Msg, want, s.engine.View().Index())
	}
	snap, err := c.Cluster().Snapshot(ctx, connect.NewRequest(&apiv1.SnapshotRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if snap.Msg.Bytes == 0 || snap.Msg.Index == 0 {
		t.Errorf("snapshot: %v", snap.Msg)
	}
	st, err = c.Cluster().Status(ctx, connect.NewRequest(&apiv1.StatusRequest{}))
	if err != nil {
		t.Fatal(err)
	}
	if got := st.Msg.Storage; got.SnapshotIndex != snap.Msg.Index || got.SnapshotBytes != snap.Msg.Bytes {
		t.Errorf("storage %v after snapshot %v", got, snap.Msg)
	}
}

// Where nothing is new since the last snapshot, which an earlier life of the member
// has written, or another member, that one is the answer.
func TestASnapshotOfNothingNew(t *testing.T) {
	s := open(t, testConfig(t))
	c := clientOf(t, s)
	for range 2 {
		got, err := c.Cluster().Snapshot(t.Context(), connect.NewRequest(&apiv1.SnapshotRequest{}))
		if err != nil {
			t.Fatal(err)
		}
		if got.Msg.Index == 0 || got.Msg.Bytes == 0 {
			t.Errorf("snapshot: %v", got.Msg)
		}
		s.lastSnapshot.Store(nil)
	}
}

func TestEventsFollow(t *testing.T) {
	s := open(t, testConfig(t))
	c := clientOf(t, s)
	stream, err := c.Cluster().Events(testContext(t), connect.NewRequest(&apiv1.EventsRequest{Follow: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	seen := map[string]bool{}
	until := func(what string) {
		t.Helper()
		for !seen[what] {
			if !stream.Receive() {
				t.Fatalf("no event %q: %v; seen %v", what, stream.Err(), seen)
			}
			for _, e := range stream.Msg().Events {
				seen[e.What] = true
			}
		}
	}
	until("role changed")
	until("ready")
	got, err := claim(t, c, "db", "a")
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Leases().Revoke(testContext(t), connect.NewRequest(&apiv1.RevokeRequest{Name: &apiv1.LeaseName{Name: "db"}, Token: got.Lease.Token, Force: true, By: "ops"}))
	if err != nil {
		t.Fatal(err)
	}
	until("lease revoked")
	s.Reload()
	until("reloaded")
	s.Reload("log level")
	until("reload failed")
}

// scrape gathers the metrics, and checks that the page shows them all.
func scrape(t testing.TB, s *Server) map[string]*dto.MetricFamily {
	t.Helper()
	code, page := get(t, s.URL()+"/metrics")
	if code != http.StatusOK {
		t.Fatalf("metrics: %d", code)
	}
	gathered, err := s.metrics.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	families := map[string]*dto.MetricFamily{}
	for _, f := range gathered {
		families[f.GetName()] = f
		if !strings.Contains(page, "# TYPE "+f.GetName()+" ") {
			t.Errorf("%s is not on the page", f.GetName())
		}
	}
	return families
}

// A dashboard made on the first day has every series: labels are from closed
// sets and all there before anything has happened.
func TestMetricsAreThereFromTheStart(t *testing.T) {
	s := open(t, testConfig(t))
	c := clientOf(t, s)
	before := scrape(t, s)
	for name, want := range map[string]int{
		"incumbent_commands_total":          len(incumbent.Kinds()) + 1,
		"incumbent_changes_total":           len(core.Whats()) + len(leases.Whats()),
		"incumbent_connections_ended_total": int(park.NumReasons),
		"incumbent_admitted_total":          int(admit.NumLanes),
		"incumbent_refused_total":           int(admit.NumLanes) * int(admit.NumReasons),
		"incumbent_leases_held":             1,
		"incumbent_log_sync_seconds":        1,
		"incumbent_apply_seconds":           1,
		"incumbent_apply_wait_seconds":      1,
		"incumbent_expiry_lateness_seconds": 1,
		"go_goroutines":                     1,
	} {
		if got := len(before[name].GetMetric()); got != want {
			t.Errorf("%s has %d series, want %d", name, got, want)
		}
	}
	if _, err := claim(t, c, "db", "a"); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(t, c, "db", "b"); incumbent.KindOf(err) != incumbent.Held {
		t.Fatalf("a second claim: %v", err)
	}
	after := scrape(t, s)
	for name, f := range after {
		if strings.HasPrefix(name, "incumbent_") && len(f.Metric) != len(before[name].GetMetric()) {
			t.Errorf("%s grew from %d to %d series", name, len(before[name].GetMetric()), len(f.Metric))
		}
		if strings.HasPrefix(name, "incumbent_") && f.GetHelp() == "" {
			t.Errorf("%s has no help", name)
		}
	}
	if got := after["incumbent_leases_held"].Metric[0].GetGauge().GetValue(); got != 1 {
		t.Errorf("leases held: %v", got)
	}
	for _, m := range after["incumbent_changes_total"].Metric {
		if m.Label[0].GetValue() == leases.Granted.String() && m.GetCounter().GetValue() != 1 {
			t.Errorf("grants: %v", m)
		}
	}
}

// One connection too many is closed at once, and there is room again when one
// of the others has gone.
func TestGateRefusesOneTooMany(t *testing.T) {
	cfg := testConfig(t)
	cfg.MaxConnections = 2
	path, tokens := credentialFile(t, map[string]auth.Kind{"eyes": auth.Observer, "ops": auth.Operator})
	cfg.CredentialFile = path
	s := open(t, cfg)
	dial := func() net.Conn {
		t.Helper()
		c, err := net.Dial("tcp", s.gate.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		if err := c.SetDeadline(time.Now().Add(testTimeout)); err != nil {
			t.Fatal(err)
		}
		return c
	}
	// serves reports whether the connection gets what it asks for.
	serves := func(c net.Conn, who string) bool {
		if _, err := c.Write([]byte("GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer " + tokens[who] + "\r\n\r\n")); err != nil {
			return false
		}
		got := make([]byte, 512)
		n, err := c.Read(got)
		if err != nil && (errors.Is(err, context.DeadlineExceeded) || isTimeout(err)) {
			t.Fatal("neither served nor refused")
		}
		return strings.Contains(string(got[:n]), "member") || strings.Contains(string(got[:n]), "/livez")
	}
	first, second := dial(), dial()
	if !serves(first, "eyes") || !serves(second, "eyes") {
		t.Fatal("one of two is refused")
	}
	third := dial()
	if serves(third, "eyes") {
		t.Error("a third of two is served")
	}
	third.Close()
	if got := s.gate.Refused(); got != 1 {
		t.Errorf("%d refused, want 1", got)
	}
	operator := dial()
	if !serves(operator, "ops") {
		t.Error("an operator has no place")
	}
	if out := s.warnings(s.node.Status(), s.engine.Leases().Stats()); len(out) != 1 || !strings.Contains(out[0], "--max-connections") {
		t.Errorf("warnings: %q", out)
	}
	first.Close()
	operator.Close()
	for deadline := time.Now().Add(testTimeout); s.gate.Open() > 1 && time.Now().Before(deadline); {
		serves(second, "eyes") // gives the server time to see the end
	}
	if !serves(dial(), "eyes") {
		t.Error("no room after one has gone")
	}
}

func isTimeout(err error) bool {
	var t interface{ Timeout() bool }
	return errors.As(err, &t) && t.Timeout()
}
