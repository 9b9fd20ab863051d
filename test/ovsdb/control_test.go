package ovsdb

import (
	"os"
	"path/filepath"
	"regexp"
	"strconv"
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

// OVN's script of pacemaker finds every member active: it can be promoted, and is no
// backup.
func TestOvnCtl(t *testing.T) {
	const script = "/usr/share/ovn/scripts/ovn-ctl"
	need(t, script, "ovn-appctl")
	path := filepath.Join(t.TempDir(), "ctl")
	s := start(t, "--ovsdb-ctl", path)
	t.Setenv("OVN_SYSCONFDIR", s.dir)
	if err := os.Mkdir(filepath.Join(s.dir, "ovn"), 0o700); err != nil {
		t.Fatal(err)
	}
	pid := filepath.Join(s.dir, "pid") // by which the script knows that somebody runs
	if err := os.WriteFile(pid, []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, db := range []string{"nb", "sb"} {
		status := func() string {
			return s.do(script, "--db-"+db+"-ctrl-sock="+path, "--db-"+db+"-pidfile="+pid, "status_ovn"+db)
		}
		socket := "--db-" + db + "-ctrl-sock=" + path
		want(t, "status", status(), "running/active\n")
		want(t, "promote", s.do(script, socket, "promote_ovn"+db), "")
		out, _ := s.try(script, socket, "--db-"+db+"-sync-from-addr=127.0.0.1", "demote_ovn"+db)
		if !strings.Contains(out, "every member is active") {
			t.Errorf("demote_ovn%s: %s", db, out)
		}
		want(t, "status behind it", status(), "running/active\n")
	}
}
