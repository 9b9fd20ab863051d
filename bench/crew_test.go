package bench

import (
	"context"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// crewRun plays leases of which each holder has a stream of its own, in two processes.
func crewRun(t *testing.T, c *fakeCluster, more ...string) *Summary {
	t.Helper()
	set := map[string]string{
		"ttl": "30s", "every": "100ms", "candidates": "1", "connections": "own", "workers": "2", "hand_overs": "0", "thresholds": "{}", "sources": "3",
		"stages": "[{leases: 5, ramp: 500, hold: 100ms}, {leases: 9, ramp: 500, hold: 500ms}]",
	}
	for i := 0; i < len(more); i += 2 {
		set[more[i]] = more[i+1]
	}
	s, err := Run(t.Context(), Options{
		Scenario: "juju-leases", Set: set, Members: len(c.all), Worker: []string{os.Args[0], "work"},
		Launch: func(context.Context, Launch) (Cluster, error) { return c, nil },
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// facts are some of a run's.
func facts(s *Summary, want map[string]float64) map[string]float64 {
	got := map[string]float64{}
	for name := range want {
		got[name] = s.Facts[name]
	}
	return got
}

// TestSessionsInSeveralProcesses: each process has its part of the leases, and all are
// held.
func TestSessionsInSeveralProcesses(t *testing.T) {
	t.Parallel()
	s := crewRun(t, newFakeCluster(t, 2))
	want := map[string]float64{"agents": 9, "holding_at_end": 9, "blocked_at_end": 0, "connections_at_end": 9, "members_back": 2}
	if d := cmp.Diff(want, facts(s, want)); d != "" || !s.Passed() {
		t.Errorf("%s %v", d, s.Texts)
	}
	if s.Ops["open"].Count != 9 || s.Ops["claim"].Count != 9 || s.Ops["extend"].Count < 9 || len(s.Steps) != 2 || s.Steps[0].Ops["claim"].Count != 5 {
		t.Errorf("%+v, steps %+v", s.Ops, s.Steps)
	}
}

// TestEveryoneReconnects: connections of all, or of those at one member, end at the same
// moment; the holders come back with what they held.
func TestEveryoneReconnects(t *testing.T) {
	const leases = 9
	for name, c := range map[string]struct {
		member string
		most   float64 // connections that end
		more   []string
	}{
		"all":                      {"all", leases, nil},
		"of one member":            {"follower", leases - 1, nil},
		"of all, in one process":   {"all", leases, []string{"workers", "1"}},
		"of all, streams of three": {"all", leases / 3, []string{"connections", "shared", "sessions_per_stream", "3"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newFakeCluster(t, 3)
			s := crewRun(t, cluster, append([]string{
				"stages", "[{leases: 9, ramp: 500, hold: 100ms}]", "settle", "1s", "ttl", "5s",
				"fault", "reconnect", "faults.reconnect", "[{after: 10ms, do: disconnect, member: " + c.member + "}]",
			}, c.more...)...)
			want := map[string]float64{"held_before_the_fault": leases, "not_recovered": 0, "elections": 0, "extensions_refused": 0}
			if d := cmp.Diff(want, facts(s, want)); d != "" || !s.Passed() {
				t.Errorf("%s %v", d, s.Texts)
			}
			ended := s.Facts["reconnects"] + s.Facts["connections_lost"] // of one process, of several
			if ended < 1 || ended > c.most || c.member == "all" && ended != c.most {
				t.Errorf("%v connections ended, want %v at most", ended, c.most)
			}
			if s.Ops["recovery"].Count != leases || s.Facts["renewing_again_seconds"] <= 0 {
				t.Errorf("%+v renewed, the last after %v s", s.Ops["recovery"], s.Facts["renewing_again_seconds"])
			}
			if len(cluster.did) > 0 {
				t.Errorf("did %v to the servers", cluster.did)
			}
		})
	}
}

// TestUnitsReconnect: so do Juju's.
func TestUnitsReconnect(t *testing.T) {
	for name, more := range map[string][]string{"one process": nil, "two": {"workers", "2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := jujuCluster(t, &fakeJuju{}, 3)
			s, err := jujuRun(t, nil, Options{
				Worker: []string{os.Args[0], "work"}, Members: 3,
				Launch: func(context.Context, Launch) (Cluster, error) { return cluster, nil },
			}, append([]string{"fault", "reconnect", "faults.reconnect.0.after", "0s", "settle", "3s", "stages", "[{leases: 6, ramp: 500, hold: 100ms}]"}, more...)...)
			if err != nil {
				t.Fatal(err)
			}
			want := map[string]float64{"held_before_the_fault": 6, "not_recovered": 0, "replaced_in_the_fault": 0, "holding_at_end": 6, "connections_at_end": 18}
			if d := cmp.Diff(want, facts(s, want)); d != "" || !s.Passed() {
				t.Errorf("%s %v", d, s.Texts)
			}
			if s.Ops["connect"].Count != 2*18 || s.Facts["renewing_again_seconds"] <= 0 {
				t.Errorf("%d connected, the last renewed after %v s", s.Ops["connect"].Count, s.Facts["renewing_again_seconds"])
			}
		})
	}
}

// TestModels: leases are in one model after the other.
func TestModels(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t, 1)
	cluster.all[0].models = map[string]int{}
	s := crewRun(t, cluster, "per_model", "4", "workers", "1")
	var sizes []int
	for model, n := range cluster.all[0].models {
		if model == "" {
			t.Errorf("%d claims without a model", n)
		}
		sizes = append(sizes, n)
	}
	total := 0
	for _, n := range sizes {
		total += n
	}
	if !s.Passed() || len(sizes) != 3 || total != 9 || max(sizes[0], sizes[1], sizes[2]) != 4 {
		t.Errorf("models of %v leases: %v", sizes, s.Texts)
	}
}

// TestWhatLivesByBeats: holders extend nothing, and their deadlines move with the beats of their
// stream; a session that a beat says is lost is found out.
func TestWhatLivesByBeats(t *testing.T) {
	t.Parallel()
	s := crewRun(t, newFakeCluster(t, 1), "beats", "true", "workers", "1", "connections", "shared", "sessions_per_stream", "3", "ttl", "5s",
		"stages", "[{leases: 9, ramp: 500, hold: 1s}]")
	beats, extended := s.Ops["beat"].Count, s.Ops["extend"].Count
	if !s.Passed() || s.Lapsed != 0 || beats < 9 || extended < 9 || extended > 3*beats || s.Facts["holding_at_end"] != 9 {
		t.Errorf("%d beats, %d extended, lapsed %d: %v", beats, extended, s.Lapsed, s.Texts)
	}
}

func TestShares(t *testing.T) {
	for n := range 20 {
		for of := 1; of < 6; of++ {
			sum := 0
			for i := range of {
				p := part{i, of}
				has := 0
				for lease := range n {
					if p.has(lease) {
						has++
					}
				}
				if p.share(n) != has {
					t.Errorf("%+v of %d: %d, has %d", p, n, p.share(n), has)
				}
				sum += has
			}
			if sum != n {
				t.Errorf("%d parts of %d: %d", of, n, sum)
			}
		}
	}
}

// TestMarksOfAnOverload: A and B are the first and the last of all floods.
func TestMarksOfAnOverload(t *testing.T) {
	for seconds, want := range map[string]string{ // refused of five, by second; blank: nothing comes
		"":          "",
		"00000":     "",
		"00990":     "A2 B4",
		"009911":    "A2 B4", // some are refused at any load that is carried
		"00110":     "A2 B4",
		"00909  00": "A2 B7",
		"0099":      "A2",
	} {
		var series []Sample
		for at, c := range seconds {
			s := Sample{At: float64(at), Ops: map[string]OpSample{}}
			if c != ' ' {
				s.Ops[floodDone] = OpSample{Count: 5}
				s.Ops[floodRefused] = OpSample{Count: uint64(c - '0')}
			}
			series = append(series, s)
		}
		var got []string
		for _, m := range floodMarks(series) {
			got = append(got, m.name[:1]+short(m.x))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %v, want %s", seconds, got, want)
		}
		if picture := string(rateChart([]string{floodDone}, series).draw()); strings.Count(picture, `class="mark"`) != len(got) {
			t.Errorf("%q: %s", seconds, picture)
		}
	}
}

// TestAProcessKeepsTime: times of a process count from the run's beginning, by a clock that
// nobody sets.
func TestAProcessKeepsTime(t *testing.T) {
	w := &workerProcess{ctx: t.Context()}
	began := time.Now().Add(-time.Minute)
	if err := w.Begin(&assignment{Scenario: &Scenario{TTL: Duration(time.Minute)}, Part: part{Of: 1}, Began: began.UnixNano()}, nil); err != nil {
		t.Fatal(err)
	}
	defer w.end()
	if now := w.run.now(); now < time.Minute || now > 2*time.Minute {
		t.Errorf("it is %v after the run's beginning, want a minute", now)
	}
	if text := w.run.begun.String(); !strings.Contains(text, " m=") {
		t.Errorf("the run began at %s by the wall clock", text)
	}
}
