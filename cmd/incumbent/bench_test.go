package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
)

// peerLine resolves a command line as the binary does and returns what the peer's
// tool would be started with.
func peerLine(t *testing.T, getenv map[string]string, args ...string) (line []string, err error) {
	t.Helper()
	env := &environment{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: func(k string) (string, bool) {
		v, ok := getenv[k]
		return v, ok
	}}
	root := newRoot(env)
	run, _, ferr := root.Find([]string{"bench", "run"})
	if ferr != nil {
		t.Fatal(ferr)
	}
	run.RunE = func(c *cobra.Command, args []string) error {
		line, err = peerArgs(c, args[0])
		return err
	}
	root.SetArgs(args)
	return line, root.Execute()
}

func TestPeerToolGetsResolvedSettings(t *testing.T) {
	file := filepath.Join(t.TempDir(), "settings.yaml")
	if err := os.WriteFile(file, []byte("data-dir: /data\nmembers: local:5\nlog-format: juju\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	got, err := peerLine(t, map[string]string{"INCUMBENT_MEMBERS": "local:3", "INCUMBENT_TARGET": "http://a,http://b"},
		"--config", file, "bench", "run", "idle-fleet", "--peer", "etcd", "--tls", "--pid", "1,2",
		"--set", "stages=[{leases: 5, ramp: 1}]", "--set", `"a=b=c,d"`)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"run", "--data-dir=/data", "--members=local:3", "--peer=etcd", "--pid=1", "--pid=2",
		`--set="a=b=c,d"`, "--set=stages=[{leases: 5, ramp: 1}]", "--target=http://a", "--target=http://b", "--tls=true", "--", "idle-fleet",
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := peerLine(t, nil, "bench", "run", "x", "--peer", "etcd", "--log-format", "juju"); exitCode(err) != exitUsage {
		t.Errorf("a flag that the tool does not have: %v", err)
	}
}

func TestLocalMembers(t *testing.T) {
	for text, want := range map[string][2]int{"local:1": {1, 0}, "local:3": {3, 0}, "local:3+2": {3, 2}} {
		if members, learners, err := localMembers(text); err != nil || members != want[0] || learners != want[1] {
			t.Errorf("%s: %d, %d, %v", text, members, learners, err)
		}
	}
	for _, text := range []string{"", "3", "local:", "local:0", "local:3+", "local:3+-1", "local:17", "local:3+1+1", "far:3"} {
		if _, _, err := localMembers(text); exitCode(err) != exitUsage {
			t.Errorf("%q: %v", text, err)
		}
	}
}
