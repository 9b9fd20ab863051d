//go:build linux

package main

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/bench"
)

// TestEveryScenario plays, on a real etcd, each scenario that etcd has a form of:
// all its operations do something, none fails, and CPU or memory is counted.
func TestEveryScenario(t *testing.T) {
	etcd := filepath.Join(t.TempDir(), "etcd")
	build := exec.Command("go", "build", "-o", etcd, "./cmd/etcd")
	build.Dir = "../.."
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	closed := "--set closed.workers=8 --set closed.warmup=100ms --set closed.duration=500ms"
	const fleet = "--members local:3 --set scale=smoke --set ttl=3s --set stages=[{leases:_30,ramp:_200,hold:_500ms}] --set fault="
	for _, c := range []struct {
		scenario, flags string
		ops             []string
	}{
		{"extend-single", closed, []string{"extend"}},
		{"extend-batch", closed + " --set closed.streams=2 --set closed.batch=5", []string{"extend"}},
		{"session-open", closed + " --set closed.streams=2", []string{"session"}},
		{"create-closed", closed + " --set closed.streams=2 --set closed.batch=3", []string{"create"}},
		{"claim-closed", closed + " --set closed.streams=2", []string{"claim", "release"}},
		{"refuse-closed", closed + " --set closed.streams=2", []string{"refuse"}},
		{"extend-single", closed + " --set closed.rate=200 --members local:3 --tls", []string{"extend"}},
		{"cluster-closed", "--set scale=smoke --set closed.workers=9 --set closed.warmup=100ms --set closed.duration=500ms --members local:3", []string{"claim", "refused", "release"}},
		{"kv-put", closed + " --set closed.streams=2", []string{"put"}},
		{"kv-create", closed, []string{"create"}},
		{"kv-get", closed, []string{"get"}},
		{"kv-get-stale", closed + " --members local:3", []string{"get"}},
		{"kv-watch", "--set scale=smoke", []string{"delivery", "put"}},
		{"txn-16", closed + " --set closed.streams=2", []string{"txn"}},
		{"txn-guarded-16", closed, []string{"txn"}},
		{"hand-over", "--members local:3 --set scale=smoke", []string{"hand-over", "open", "release"}},
		{"agents-2013", "--set scale=smoke", []string{"add", "charm", "relation", "start", "unit_added"}},
		{"idle-fleet", "--set scale=smoke --set settle=500ms", nil},
		{"leader-kill", fleet + "kill", []string{"claim", "extend", "open", "recovery"}},
		{"leader-kill", fleet + "stop --set faults.stop.0.for=2s", []string{"claim", "extend", "open", "recovery"}},
	} {
		t.Run(c.scenario, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "results")
			var progress bytes.Buffer
			root := newRoot(io.Discard, &progress)
			args := strings.Fields(c.flags)
			for i := range args {
				args[i] = strings.ReplaceAll(args[i], ":_", ": ") // YAML wants the space
			}
			root.SetArgs(append([]string{"run", c.scenario, "--peer", "etcd", "--etcd", etcd, "--dir", dir}, args...))
			if err := root.ExecuteContext(t.Context()); err != nil {
				t.Fatalf("%v\n%s", err, &progress)
			}
			s, err := bench.ReadSummary(dir)
			if err != nil {
				t.Fatal(err)
			}
			if s.Versions["etcd"] != "3.7.3" || s.Versions["incumbent"] != "" || !s.Passed() || len(s.Ops) != len(c.ops) {
				t.Errorf("versions %v, passed %v, operations %v", s.Versions, s.Passed(), s.Ops)
			}
			for _, name := range c.ops {
				o := s.Ops[name]
				if o.Count == 0 || o.Errors != 0 && c.scenario != "leader-kill" || o.P50 <= 0 || o.P50 > o.Max || (o.CPUMicros <= 0 && s.Facts["elections"] == 0 && s.Facts["cpu_us_per_hand_over"] == 0) {
					t.Errorf("%s: %+v\n%s", name, o, &progress)
				}
			}
			if c.ops == nil && s.RSSPerConn <= 0 {
				t.Errorf("no memory per connection: %v", s.Facts)
			}
			if c.scenario == "leader-kill" && (s.Ops["recovery"].Count != 30 || s.Facts["kept_their_token"] != 30 || s.Facts["elections"] < 1 || s.Facts["reconnects"] < 1) {
				t.Errorf("recovery %+v, facts %v", s.Ops["recovery"], s.Facts)
			}
			var table strings.Builder
			if err := bench.Compare(&table, s, s); err != nil || !strings.Contains(table.String(), "etcd 3.7.3") {
				t.Errorf("%v\n%s", err, &table)
			}
		})
	}
}

// TestRefuses: what cannot be played is a mistake on the command line, told
// before anything is started.
func TestRefuses(t *testing.T) {
	for _, args := range []string{
		"", "one two", "no-such", "echo", "juju-leases", "create-closed --peer consul", "create-closed -o xml",
		"create-closed --members local:0", "create-closed --members 3", "create-closed --set closed.rate=5", "leader-kill --set fault=cut", "leader-kill --set candidates=2",
		"extend-batch --set closed.workers=10000 --set closed.batch=100", "leader-kill --set ttl=10500ms",
	} {
		root := newRoot(io.Discard, io.Discard)
		root.SetArgs(append([]string{"run", "--etcd", "/nonexistent"}, strings.Fields(args)...))
		var usage usageError
		if err := root.ExecuteContext(t.Context()); !errors.As(err, &usage) {
			t.Errorf("%q: %v", args, err)
		}
	}
}
