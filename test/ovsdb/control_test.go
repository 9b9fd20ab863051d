package ovsdb

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// The program that operators' scripts use gives commands, and reads what they look for.
func TestAppctl(t *testing.T) {
	need(t, "ovs-appctl", "ovsdb-client")
	path := filepath.Join(t.TempDir(), "ctl")
	s := start(t, "--ovsdb-ctl", path)
	appctl := func(args ...string) string { return s.do("ovs-appctl", append([]string{"-t", path}, args...)...) }
	want(t, "list-dbs", appctl("ovsdb-server/list-dbs"), "OVN_Northbound\nOVN_Southbound\n_Server\n")
	want(t, "sync-status", appctl("ovsdb-server/sync-status"), "state: active\n")
	want(t, "sid", appctl("cluster/sid", "OVN_Southbound"), "UUID\n")
	want(t, "cid", appctl("cluster/cid", "OVN_Southbound"), "UUID\n")
	want(t, "compact", appctl("ovsdb-server/compact"), "")
	want(t, "list-remotes", appctl("ovsdb-server/list-remotes"), "p"+s.unix+"\n")
	want(t, "vlog/set", appctl("vlog/set", "ANY:console:dbg"), "")
	for _, pattern := range []string{
		`(?m)^Name: OVN_Southbound$`, `(?m)^Cluster ID: [0-9a-f]{4} \([0-9a-f-]{36}\)$`, `(?m)^Status: cluster member$`, `(?m)^Role: leader$`,
		`(?m)^Term: \d+$`, `(?m)^Leader: self$`, `(?m)^Log: \[\d+, \d+\]$`, `(?m)^Entries not yet committed: \d+$`, `(?m)^    \S+ \([0-9a-f]{4} at \S+\) \(self\) next_index=\d+ match_index=\d+$`,
	} {
		if status := appctl("cluster/status", "OVN_Southbound"); !regexp.MustCompile(pattern).MatchString(status) {
			t.Errorf("no line %s in\n%s", pattern, status)
		}
	}
	if out, err := s.try("ovs-appctl", "-t", path, "cluster/status", "nothing"); err == nil || !strings.Contains(out, "server returned an error") {
		t.Errorf("a database that there is not: %v\n%s", err, out)
	}
	want(t, "exit", appctl("exit"), "")
	outside.Eventually(t, patience, "the server has ended", func() bool {
		_, err := os.Stat(path)
		return os.IsNotExist(err)
	})
}
