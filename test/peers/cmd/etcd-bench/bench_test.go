//go:build linux

package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestEveryOperation runs the whole program against real servers for a moment:
// each operation must do something, none may fail, and CPU must be counted.
func TestEveryOperation(t *testing.T) {
	etcd := filepath.Join(t.TempDir(), "etcd")
	if out, err := exec.Command("go", "build", "-o", etcd, "../etcd").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	o, err := parse([]string{
		"--etcd", etcd, "--dir", t.TempDir(), "--duration", "500ms", "--warmup", "100ms", "--workers", "8", "--conns", "4",
		"--streams", "8", "--pipeline-streams", "2", "--pipeline-depth", "4", "--idle", "50", "--settle", "1s",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var progress strings.Builder
	rep, err := run(t.Context(), o, &progress)
	if err != nil {
		t.Fatal(err)
	}
	t.Log(progress.String())
	for _, op := range operations {
		r := rep.Ops[op.name]
		if r.Count == 0 || r.Errors != 0 || r.CPUEach <= 0 || r.P50 <= 0 || r.P50 > r.P99 || r.P99 > r.Max*1.01 {
			t.Errorf("%s: %+v", op.name, r)
		}
	}
	if rep.Idle == nil || rep.Idle.Plain <= 0 || rep.Idle.Watch <= 0 {
		t.Errorf("idle connections: %+v", rep.Idle)
	}
}

func TestReportKeys(t *testing.T) {
	text, err := json.Marshal(report{
		Peer: "etcd", Version: "3.7.3", Members: 1,
		Ops:  map[string]result{"put": {Count: 1, CPUEach: 2.5}},
		Idle: &idleResult{Connections: 10, Plain: 3, Watch: 4},
	})
	if err != nil {
		t.Fatal(err)
	}
	const want = `{"peer":"etcd","version":"3.7.3","members":1,"ops":{"put":{"count":1,"errors":0,"rate":0,` +
		`"p50_ms":0,"p90_ms":0,"p99_ms":0,"max_ms":0,"cpu_us_per_op":2.5}},` +
		`"rss_per_connection_bytes":{"connections":10,"plain":3,"watch":4}}`
	if string(text) != want {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}

func TestParseRefuses(t *testing.T) {
	for _, args := range []string{
		"--workers 0", "--streams 20000", "--idle -1", "--ttl 1ms", "--duration 0s", "--rate -1",
		"--endpoints http://127.0.0.1:1", "--pids 12", "--endpoints http://127.0.0.1:1 --pids 12 --idle 5", "put", "--no-such 1",
	} {
		if _, err := parse(strings.Fields(args), io.Discard); err == nil {
			t.Errorf("%s was accepted", args)
		}
	}
	if _, err := pick("put,nothing"); err == nil {
		t.Error("an unknown operation was accepted")
	}
}

func TestRecorderCountsOnlyWhileOpen(t *testing.T) {
	r := newRecorder()
	record := func(worker int, took time.Duration) {
		t.Helper()
		if err := r.done(worker, took); err != nil {
			t.Fatal(err)
		}
	}
	record(0, time.Second)
	r.open.Store(true)
	record(1, 2*time.Millisecond)
	record(2, 4*time.Millisecond)
	record(3, time.Hour) // counts as the longest that can be held
	r.failed(errors.New("first"))
	r.failed(errors.New("second"))
	r.open.Store(false)
	record(4, time.Second)

	got := r.result(2*time.Second, 30*time.Microsecond)
	if got.Count != 3 || got.Errors != 2 || got.Rate != 1.5 || got.CPUEach != 10 {
		t.Errorf("got %+v", got)
	}
	if got.P50 < 3.99 || got.P50 > 4.01 || got.Max < 59_900 || got.Max > 60_100 {
		t.Errorf("p50 %v ms, max %v ms", got.P50, got.Max)
	}
	if got.firstError == nil || got.firstError.Error() != "first" {
		t.Errorf("first error %v", got.firstError)
	}
}

// TestPacerCountsFromTheIntendedStart: a worker that is late gets the moments it
// missed, one after the other and without a wait.
func TestPacerCountsFromTheIntendedStart(t *testing.T) {
	begin := time.Now().Add(-time.Minute)
	p := newPacer(begin, 3, 10, 100) // every 10 ms one operation, of each worker every 100 ms
	for i := range 5 {
		got, ok := p.wait(context.Background())
		want := begin.Add(30*time.Millisecond + time.Duration(i)*100*time.Millisecond)
		if !ok || !got.Equal(want) {
			t.Errorf("start %d: %v, want %v", i, got, want)
		}
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, ok := p.wait(ended); ok {
		t.Error("a start after the end")
	}
}
