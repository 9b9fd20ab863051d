package bench

import (
	"context"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// A process that was killed has its sockets until its last thread has ended.
func TestRunsUntilItsLastThreadHasEnded(t *testing.T) {
	for _, c := range []struct {
		state, threads string
		want           bool
	}{
		{"R", "9", true},
		{"S", "1", true},
		{"T", "9", true},
		{"D", "1", true},
		{"Z", "4", true},
		{"Z", "1", false},
		{"X", "0", false},
	} {
		stat := "42 (a) b) " + c.state + " 1 42 42 0 -1 4194304 103 0 0 0 0 0 0 0 20 0 " + c.threads + " 0 1489698 3133440 415 1"
		if got := runs(stat); got != c.want {
			t.Errorf("state %s with %s threads: %v, want %v", c.state, c.threads, got, c.want)
		}
	}
	if runs("42 (a) S") {
		t.Error("what is no stat runs")
	}
}

// failing is a cluster whose members end as soon as they are started.
type failing struct {
	*fakeCluster
	pid int
}

func (f *failing) Servers() []Server {
	all := f.fakeCluster.Servers()
	for i := range all {
		all[i].PID = f.pid
	}
	return all
}

func (f *failing) Start(context.Context, int, Start) error { return nil }

// A member that does not come back is not waited for.
func TestMemberThatEndsAgainEndsTheRun(t *testing.T) {
	over := exec.Command("true")
	if err := over.Run(); err != nil {
		t.Skip(err)
	}
	cluster := &failing{newFakeCluster(t, 1), over.Process.Pid}
	cluster.all[0].down(true)
	sc, err := Load("juju-run", map[string]string{"fault": "leader"})
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(sc, Options{Targets: cluster.urls})
	if err := r.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer r.disconnect()
	r.begun, r.cluster = time.Now(), cluster
	o := &ordeal{run: r, servers: cluster}
	if err := o.back(t.Context(), 0, Start{}, 0); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("%v", err)
	}
}
