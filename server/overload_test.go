package server

import (
	"log/slog"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// What the cluster sets for lanes holds in a server that runs, and in one that is
// started again; whatever may be set, they take.
func TestSettingsOfAdmissionReachTheLanes(t *testing.T) {
	s := open(t, testConfig(t))
	set := func(list map[string]string) {
		t.Helper()
		for name, value := range list {
			if _, err := clientOf(t, s).Settings().Set(testContext(t), name, value); err != nil {
				t.Fatal(err)
			}
		}
	}
	reached := func(want admit.Limits) {
		t.Helper()
		until(t, "the limits are those", func() bool {
			is := s.admission.Limits()
			is.Interval = 0
			return is == want
		})
	}
	set(map[string]string{"admission.target": "80ms", "admission.least": "20", "admission.most": "2000", "admission.retry": "100ms", "admission.most-retry": "5s"})
	want := admit.Limits{Target: 80 * time.Millisecond, Min: 20, Max: 2000, Retry: 100 * time.Millisecond, MaxRetry: 5 * time.Second}
	reached(want)
	cfg := s.cfg
	cfg.Listen = "127.0.0.1:0"
	if err := s.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	s = open(t, cfg)
	reached(want)
	set(map[string]string{"admission.least": "1024", "admission.most": "1024", "admission.retry": "1s", "admission.most-retry": "1s"}) // as near as they come
	reached(admit.Limits{Target: want.Target, Min: 1024, Max: 1024, Retry: time.Second, MaxRetry: time.Second})
}

// An operator whose client has heard nothing of the cluster yet changes what is the
// matter in the middle of an overload: by none of its calls is it refused.
func TestG40_AFreshClientOfAnOperatorIsNotRefused(t *testing.T) {
	s := open(t, testConfig(t))
	until(t, "a claim is refused", func() bool {
		s.admission.SetMemory(1, 1) // until the member looks at its memory again
		_, err := clientOf(t, s).Leases().Claim(testContext(t), connect.NewRequest(&apiv1.ClaimRequest{Name: &apiv1.LeaseName{Name: "db"}, Holder: "a", TtlMs: 5000}))
		return incumbent.KindOf(client.AsError(err)) == incumbent.Overloaded
	})
	s.admission.SetMemory(1, 1)
	if _, err := clientOf(t, s).Settings().Set(testContext(t), "admission.mode", "observe"); err != nil {
		t.Errorf("a setting: %v", err)
	}
}

// The beginning and the end of an overload are events, with what was refused between; in
// it status has a sentence and the log a line a second, whatever the number of refusals.
func TestG41_AnOverloadIsToldOnceASecond(t *testing.T) {
	now := time.Unix(0, 0)
	var lines strings.Builder
	tl := newTimeline(func() time.Time { return now })
	o := overloadWatch{events: tl, log: slog.New(slog.NewTextHandler(&lines, nil))}
	var stats [admit.NumLanes]admit.LaneStats
	for l := range stats {
		stats[l].Lane = admit.Lane(l)
	}
	look := func(mode admit.Mode) { o.look(now, stats, mode, 1, 2); now = now.Add(time.Second) }
	events := func() (out []string) {
		list, _, _ := tl.after(0, 100)
		for _, e := range list {
			out = append(out, e.What+": "+e.Detail)
		}
		return out
	}

	stats[admit.Claims].Admitted = 7
	look(admit.Enforce)
	if len(events()) != 0 || lines.Len() != 0 || o.warnings() != nil {
		t.Fatalf("without an overload: %v, %s, %v", events(), lines.String(), o.warnings())
	}
	for range 3 {
		stats[admit.Logins].Refused[admit.Order] += 10
		stats[admit.Claims].Refused[admit.Delay] += 1000
		look(admit.Enforce)
	}
	if n := strings.Count(lines.String(), "\n"); n != 3 {
		t.Errorf("%d lines in 3 seconds:\n%s", n, lines.String())
	}
	if w := o.warnings(); len(w) != 1 || w[0] != "logins, claims are refused: they wait too long or make others wait, 3030 requests in 2s" {
		t.Errorf("status says %q", w)
	}
	for range 6 {
		look(admit.Enforce)
	}
	want := []string{"overload: logins, claims are refused: they wait too long or make others wait", "overload over: after 3s, 3030 requests refused"}
	if got := events(); len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
		t.Errorf("events %q, want %q", got, want)
	}
	if o.warnings() != nil {
		t.Errorf("after it: %q", o.warnings())
	}
	stats[admit.Claims].Refused[admit.Memory]++
	look(admit.Observe)
	if w := o.warnings(); len(w) != 1 || !strings.Contains(w[0], "claims would be refused: memory is short") {
		t.Errorf("observed: %q", w)
	}
}

func TestG39_TheDefaultLimitIsThreeQuartersOfWhatThereIs(t *testing.T) {
	meminfo := func(kib string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("MemTotal:  " + kib + " kB\nMemFree: 1 kB\n")}
	}
	text := func(s string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(s)} }
	for name, tt := range map[string]struct {
		root fstest.MapFS
		want int64
	}{
		"nothing is known":         {fstest.MapFS{}, memoryUnknown},
		"the machine's":            {fstest.MapFS{"proc/meminfo": meminfo("4194304")}, 3 << 30},
		"a group without a limit":  {fstest.MapFS{"proc/meminfo": meminfo("4194304"), "sys/fs/cgroup/memory.max": text("max\n")}, 3 << 30},
		"a container's":            {fstest.MapFS{"proc/meminfo": meminfo("4194304"), "sys/fs/cgroup/memory.max": text("1073741824\n")}, 768 << 20},
		"of version 1, and none":   {fstest.MapFS{"proc/meminfo": meminfo("4194304"), "sys/fs/cgroup/memory/memory.limit_in_bytes": text("9223372036854771712\n")}, 3 << 30},
		"of a group above its own": {fstest.MapFS{"proc/self/cgroup": text("0::/a.slice/b.service\n"), "sys/fs/cgroup/a.slice/memory.max": text("2147483648\n"), "sys/fs/cgroup/a.slice/b.service/memory.max": text("max\n")}, 1536 << 20},
		"slowed down before":       {fstest.MapFS{"proc/meminfo": meminfo("4194304"), "sys/fs/cgroup/memory.max": text("2147483648\n"), "sys/fs/cgroup/memory.high": text("1073741824\n")}, 768 << 20},
		"a group above slows down": {fstest.MapFS{"proc/meminfo": meminfo("4194304"), "proc/self/cgroup": text("0::/a.slice/b.service\n"), "sys/fs/cgroup/a.slice/memory.high": text("1073741824\n"), "sys/fs/cgroup/a.slice/b.service/memory.high": text("max\n")}, 768 << 20},
		"of version 1":             {fstest.MapFS{"proc/meminfo": meminfo("4194304"), "proc/self/cgroup": text("4:memory:/x\n3:cpu:/y\n"), "sys/fs/cgroup/memory/x/memory.limit_in_bytes": text("1073741824\n")}, 768 << 20},
		"with another controller":  {fstest.MapFS{"proc/meminfo": meminfo("4194304"), "proc/self/cgroup": text("4:cpuset,memory:/x\n"), "sys/fs/cgroup/memory/x/memory.limit_in_bytes": text("1073741824\n")}, 768 << 20},
		"mounted by both names":    {fstest.MapFS{"proc/meminfo": meminfo("4194304"), "proc/self/cgroup": text("4:cpuset,memory:/x\n"), "sys/fs/cgroup/cpuset,memory/x/memory.limit_in_bytes": text("1073741824\n")}, 768 << 20},
		"very little":              {fstest.MapFS{"proc/meminfo": meminfo("1024")}, minMemoryLimit},
	} {
		if got := defaultMemoryLimit(tt.root); got != tt.want {
			t.Errorf("%s: %d, want %d", name, got, tt.want)
		}
	}
}
