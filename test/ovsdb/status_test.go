package ovsdb

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// neighbours are three servers of ovsdb-server in a cluster.
type neighbours struct {
	controls []string
	stops    []func()
}

// startNeighbours starts them with the southbound database.
func startNeighbours(t *testing.T) *neighbours {
	t.Helper()
	dir := t.TempDir()
	n := &neighbours{}
	var first string
	for i := range 3 {
		file := filepath.Join(dir, fmt.Sprintf("s%d.db", i+1))
		at := "tcp:" + freeAddress(t)
		args := []string{"join-cluster", file, "OVN_Southbound", at, first}
		if i == 0 {
			first, args = at, []string{"create-cluster", file, southbound, at}
		}
		if out, err := exec.Command("ovsdb-tool", args...).CombinedOutput(); err != nil {
			t.Fatalf("ovsdb-tool: %v\n%s", err, out)
		}
		control := filepath.Join(dir, fmt.Sprintf("c%d", i+1))
		cmd := exec.Command("ovsdb-server", "--remote=punix:"+file+".sock", "--unixctl="+control, file)
		cmd.Env = append(os.Environ(), "OVS_RUNDIR="+dir)
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		stopped := false
		stop := func() {
			if !stopped {
				stopped = true
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}
		}
		t.Cleanup(stop)
		n.controls, n.stops = append(n.controls, control), append(n.stops, stop)
	}
	return n
}

// freeAddress is one that nobody listened at a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	return ln.Addr().String()
}

// statuses are what the servers say of the cluster, "" of those that say nothing.
func statuses(controls []string) []string {
	var all []string
	for _, control := range controls {
		out, err := exec.Command("ovs-appctl", "-t", control, "cluster/status", "OVN_Southbound").Output()
		if err != nil {
			out = nil
		}
		all = append(all, string(out))
	}
	return all
}

// statusForms are the forms of what differs from one moment or cluster to another.
var statusForms = []struct {
	of   *regexp.Regexp
	form string
}{
	{uuids, "UUID"},
	{regexp.MustCompile(`(->|<-)[0-9a-f]{4}`), "CONNECTION"}, // which of two opens them is each server's own business
	{regexp.MustCompile(`tcp:127\.0\.0\.1:\d+`), "ADDRESS"},
	{regexp.MustCompile(`(?m)^[0-9a-f]{4}$`), "ID"},
	{regexp.MustCompile(`\b[0-9a-f]{4} \(`), "ID ("},
	{regexp.MustCompile(`\([0-9a-f]{4} at`), "(ID at"},
	{regexp.MustCompile(`(Leader|Vote): [0-9a-f]{4}\b`), "$1: ID"},
	{regexp.MustCompile(`Vote: unknown`), "Vote: ID"}, // of who joined in the middle of a term
	{regexp.MustCompile(` last msg \d+ ms ago`), ""},  // ovsdb-server's followers hear nothing of one another
	{regexp.MustCompile(`leader_lost`), "timeout"},
	{regexp.MustCompile(`\b\d+\b`), "N"},
}

// statusForm is the form of a status.
func statusForm(status string) []string {
	for _, f := range statusForms {
		status = f.of.ReplaceAllString(status, f.form)
	}
	lines := strings.Split(strings.TrimSpace(status), "\n")
	if i := slices.Index(lines, "Servers:"); i >= 0 {
		slices.Sort(lines[i+1:]) // by their ids, which are random
	}
	for i, l := range lines {
		if words, ok := strings.CutPrefix(l, "Connections: "); ok {
			// Of those that are down ovsdb-server forgets the half that others opened.
			list := slices.DeleteFunc(strings.Fields(words), func(w string) bool { return w[0] == '(' })
			slices.Sort(list)
			lines[i] = "Connections: " + strings.Join(list, " ")
		}
	}
	return lines
}

// settled reports whether as many servers as these are connected with one another under
// one leader.
func settled(all []string, up int) bool {
	leaders, connected := 0, 0
	for _, s := range all {
		if strings.Contains(s, "Role: leader") {
			leaders++
		}
		for _, l := range strings.Split(s, "\n") {
			if l, ok := strings.CutPrefix(l, "Connections:"); ok {
				connected += len(strings.Fields(l)) - strings.Count(l, "(")
			}
		}
		if strings.Contains(s, "Leader: unknown") {
			return false
		}
	}
	return leaders == 1 && connected == 2*up*(up-1)
}

func withoutElection(lines []string) []string {
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "Last Election started") })
}

// byRole puts the leader first.
func byRole(all []string) (list []string) {
	for _, s := range all {
		if strings.Contains(s, "Role: leader") {
			list = append([]string{s}, list...)
		} else if s != "" {
			list = append(list, s)
		}
	}
	return list
}

// A cluster's status has the lines of ovsdb-server's, of a leader and of followers, also
// when the leader has ended: those that differ say so.
func TestClusterStatusBesideOvsdbServer(t *testing.T) {
	need(t, "ovs-appctl", "ovsdb-server", "ovsdb-tool")
	theirs := startNeighbours(t)
	c := startCluster(t, "--ovsdb-schema", southbound, "--ovsdb-ctl", filepath.Join(t.TempDir(), "c"))
	var controls []string
	for _, m := range c.Members {
		controls = append(controls, m.Control)
	}
	compare := func(when string, up int) (ours, peers []string) {
		outside.Eventually(t, patience, "all are connected "+when, func() bool {
			ours, peers = statuses(controls), statuses(theirs.controls)
			return settled(ours, up) && settled(peers, up)
		})
		ours, peers = byRole(ours), byRole(peers)
		for i := range ours {
			want, got := statusForm(peers[i]), statusForm(ours[i])
			if up < 3 && i > 0 { // it may have stood as well, and lost
				want, got = withoutElection(want), withoutElection(got)
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s, - ovsdb-server, + ours: %s\n%s\n%s", when, diff, peers[i], ours[i])
			}
		}
		return ours, peers
	}
	before, _ := compare("at the start", 3)
	if strings.Contains(before[1], "Last Election") || !strings.Contains(before[0], "reason: timeout\n") {
		t.Errorf("elections of the first member alone:\n%s", strings.Join(before, "\n"))
	}
	if text := strings.Join(before, "\n"); strings.Count(text, "->") != 6 || strings.Count(text, "<-") != 6 {
		t.Errorf("each of six connections is opened by one and accepted by another:\n%s", text)
	}
	c.killLeader()
	for i, s := range statuses(theirs.controls) {
		if strings.Contains(s, "Role: leader") {
			theirs.stops[i]()
		}
	}
	after, _ := compare("without the first leader", 2)
	gone := regexp.MustCompile(`(?m)^Server ID: ([0-9a-f]{4})`).FindStringSubmatch(before[0])[1]
	for i, s := range after {
		for _, want := range []string{
			`(?m)^Connections:.* \((->|<-)` + gone + `\)`, `(?m)^Disconnections: 2$`,
		} {
			if !regexp.MustCompile(want).MatchString(s) {
				t.Errorf("survivor %d has no line %s:\n%s", i, want, s)
			}
		}
	}
	if !strings.Contains(after[0], "reason: leader_lost\n") {
		t.Errorf("why the survivor stood:\n%s", after[0])
	}
	leader := regexp.MustCompile(`(?m)^Server ID: ([0-9a-f]{4})`).FindStringSubmatch(after[0])[1]
	if !strings.Contains(after[1], "Leader: "+leader+"\n") {
		t.Errorf("%s leads:\n%s", leader, after[1])
	}
}
