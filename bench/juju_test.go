package bench

import (
	"bytes"
	"context"
	"flag"
	"io"
	"net"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"github.com/google/go-cmp/cmp"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/park"
)

// atOnce is how many tests of this package run at the same time, unless
// -test.parallel says otherwise: they wait for most of their time.
const atOnce = "8"

// TestMain is a process of a team where one is asked for.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "work" {
		if err := Work(context.Background(), os.Stdin, os.Stdout); err != nil {
			os.Stderr.WriteString(err.Error() + "\n")
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		if err := flag.Set("test.parallel", atOnce); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// jujuCluster is a fake cluster with doors for Juju's agents.
func jujuCluster(t *testing.T, f *fakeJuju, members int) *fakeCluster {
	c := newFakeCluster(t, members)
	for _, s := range c.all {
		s.juju = f.open(t)
	}
	return c
}

// jujuRun plays two stages over a fake's doors. The ttl is longer than a loaded
// machine stands still: only who is denied loses a lease.
func jujuRun(t *testing.T, f *fakeJuju, opts Options, more ...string) (*Summary, error) {
	t.Helper()
	opts.Scenario = "juju-leases"
	opts.Set = map[string]string{
		"door": "juju", "ttl": "30s", "every": "200ms", "stages": "[{leases: 4, ramp: 500, hold: 100ms}, {leases: 8, ramp: 500, hold: 2500ms}]",
		"thresholds": "{holders_ended: 0}", "sources": "3",
	}
	for i := 0; i < len(more); i += 2 {
		opts.Set[more[i]] = more[i+1]
	}
	if opts.Launch == nil {
		opts.Targets = jujuCluster(t, f, 2).urls
	}
	return Run(t.Context(), opts)
}

func TestJujuLadder(t *testing.T) {
	for _, c := range []struct {
		name string
		fake *fakeJuju
		more []string
		text string // of a violation; empty: none
		over bool   // holders end
	}{
		{name: "honest", fake: &fakeJuju{}},
		{name: "in two processes", fake: &fakeJuju{}, more: []string{"workers", "2"}},
		{name: "two holders", fake: &fakeJuju{shared: true}, text: "held it for another"},
		{name: "two holders in other processes", fake: &fakeJuju{shared: true}, more: []string{"workers", "3"}, text: "held it for another"},
		{name: "extensions denied", fake: &fakeJuju{forgets: true}, text: "before its own deadline"},
		{name: "answered twice", fake: &fakeJuju{twice: true}, text: "was not asked for or came twice"},
		{name: "connections end", fake: &fakeJuju{hangsUp: true}, more: []string{"stages", "[{leases: 1, ramp: 500, hold: 0s}]", "candidates", "1"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := jujuRun(t, c.fake, Options{Worker: []string{os.Args[0], "work"}}, c.more...)
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(s.Texts, "\n")
			if s.Passed() != (c.text == "") || !strings.Contains(text, c.text) {
				t.Errorf("passed %v, want a violation %q: %s, %v", s.Passed(), c.text, text, s.Thresholds)
			}
			if c.text != "" || c.name == "connections end" {
				return
			}
			want := map[string]float64{"members": 2, "members_back": 2, "agents": 24, "holding_at_end": 8, "blocked_at_end": 16, "connections_at_end": 24, "holders_ended": 0, "hand_overs": 0, "wakes": 0}
			got := map[string]float64{}
			for name := range want {
				got[name] = s.Facts[name]
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Error(d)
			}
			if s.Ops["claim"].Count != 8 || s.Ops["claim-denied"].Count != 16 || s.Ops["connect"].Count != 24 || s.Ops["handshake"].Count != 24 || s.Ops["extend"].Count < 24 || s.Ops["extend"].P50 <= 0 {
				t.Errorf("%+v", s.Ops)
			}
			if len(s.Steps) != 2 || s.Steps[0].Ops["claim"].Count != 4 || s.Steps[1].Ops["claim-denied"].Count != 8 {
				t.Errorf("steps %+v", s.Steps)
			}
		})
	}
}

// TestJujuHandsOver: of a leader that falls silent, the lease expires, and of those
// who are blocked another gets it.
func TestJujuHandsOver(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	s, err := jujuRun(t, &fakeJuju{}, Options{Out: &out, LogFormat: "juju"}, "ttl", "6s", "hand_overs", "20", "stages", "[{leases: 8, ramp: 500, hold: 11s}]")
	if err != nil {
		t.Fatal(err)
	}
	// Juju's own script takes the claims less those that were lost for the leaders there are.
	lead := map[string]int{}
	for _, m := range regexp.MustCompile(`(?m)s (claimed  |lost     )(\w+)/`).FindAllStringSubmatch(out.String(), -1) {
		lead[m[2]]++
		if strings.HasPrefix(m[1], "lost") {
			lead[m[2]] -= 2
		}
	}
	for application, n := range lead {
		if n < 0 || n > 1 {
			t.Errorf("by the lines %d units of %s lead", n, application)
		}
	}
	if len(lead) != 8 {
		t.Errorf("the lines name %d applications", len(lead))
	}
	if !s.Passed() || s.Facts["hand_overs"] < 1 || s.Facts["wakes"] < s.Facts["hand_overs"] || s.Ops["hand-over"].Count != uint64(s.Facts["hand_overs"]) {
		t.Errorf("passed %v, facts %v: %v", s.Passed(), s.Facts, s.Texts)
	}
}

// TestJujuMembersAreBack: a member that is not in its role after the load, or has
// not caught up, is a violation.
func TestJujuMembersAreBack(t *testing.T) {
	for name, c := range map[string]struct {
		standing *apiv1.Member
		text     string
	}{
		"learner":   {&apiv1.Member{Self: true, Ready: true, Learner: true, Role: "learner"}, ""},
		"leader":    {&apiv1.Member{Self: true, Ready: true, Role: "leader"}, ""},
		"not ready": {&apiv1.Member{Self: true, Role: "follower"}, "is not ready"},
		"candidate": {&apiv1.Member{Self: true, Ready: true, Role: "candidate"}, "is candidate"},
		"no voter":  {&apiv1.Member{Self: true, Ready: true, Role: "learner"}, "is learner"},
		"voter":     {&apiv1.Member{Self: true, Ready: true, Role: "follower", Learner: true}, "is follower"},
		"current":   {&apiv1.Member{Self: true, Ready: true, Role: "follower", CommitIndex: 7, AppliedIndex: 7}, ""},
		"behind":    {&apiv1.Member{Self: true, Ready: true, Role: "follower", CommitIndex: 7, AppliedIndex: 6}, "is behind"},
		"removed":   {&apiv1.Member{Ready: true, Role: "follower"}, "is no member"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newFakeCluster(t, 2)
			cluster.all[0].standing = &apiv1.Member{Self: true, Ready: true, Role: "leader", AppliedIndex: c.standing.CommitIndex}
			cluster.all[1].standing = c.standing
			// A machine that stands still may take the time that one look has.
			var text string
			var back float64
			for range 5 {
				text, back = membersFound(t, cluster)
				if (text == "") == (c.text == "") && strings.Contains(text, c.text) && (back == 2) == (c.text == "") {
					return
				}
			}
			t.Errorf("found %q, want %q; %v are back", text, c.text, back)
		})
	}
}

// membersFound is what a run finds lacking of its members, and how many are back.
func membersFound(t *testing.T, cluster *fakeCluster) (text string, back float64) {
	t.Helper()
	sc, err := Load("juju-run", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(sc, Options{Targets: cluster.urls})
	if err := r.connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer r.disconnect()
	r.begun = time.Now()
	if err := r.awaitMembers(t.Context(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	return strings.Join(r.check.Texts(), "\n"), r.facts["members_back"]
}

// TestJujuFault: units of a member that is killed go on at another.
func TestJujuFault(t *testing.T) {
	for name, more := range map[string][]string{"one process": nil, "two": {"workers", "2"}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := jujuCluster(t, &fakeJuju{}, 3)
			opts := Options{Worker: []string{os.Args[0], "work"}, Members: 3, Launch: func(_ context.Context, what Launch) (Cluster, error) {
				if what.Juju == "" {
					t.Error("no door for Juju's agents is asked for")
				}
				return cluster, nil
			}}
			more := append([]string{"ttl", "6s", "every", "300ms", "fault", "leader", "faults.leader.0.after", "0s", "stages", "[{leases: 6, ramp: 500, hold: 100ms}]"}, more...)
			s, err := jujuRun(t, nil, opts, more...)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(cluster.did, " "); got != "kill n1 start n1" {
				t.Errorf("did %q", got)
			}
			if !s.Passed() || s.Facts["connections_lost"] < 1 || s.Facts["held_before_the_fault"] != 6 || s.Facts["not_recovered"] != 0 || s.Ops["recovery"].Count != 6 {
				t.Errorf("passed %v, facts %v, %v", s.Passed(), s.Facts, s.Texts)
			}
			if len(s.Steps) != 3 || s.Steps[0].Phase != rampPhase || s.Steps[1].Phase != quietPhase || s.Steps[2].Phase != "fault leader" {
				t.Errorf("steps %+v", s.Steps)
			}
		})
	}
}

// twoUnits are a fleet of two units of one application, whose connections are parked and
// answer nothing.
func twoUnits(t *testing.T) (f *jujuFleet, units [2]*unit) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	sc, err := Load("juju-run", nil)
	if err != nil {
		t.Fatal(err)
	}
	r := newRun(sc, Options{})
	r.begun = time.Now()
	f, err = newJujuFleet(t.Context(), r, jujuLogin{}, []string{ln.Addr().String()}, part{Of: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.close)
	f.leases = make([]jujuLease, 1)
	for n := range units {
		conn, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		units[n] = &unit{n: n, id: n}
		units[n].conn = &jujuConn{f: f, u: units[n]}
		if units[n].conn.parked, err = f.park.Park(park.NewSocket(conn), nil, units[n].conn); err != nil {
			t.Fatal(err)
		}
	}
	return f, units
}

// TestJujuReplacedIsNotLost: a leader that comes back only after its lease has passed
// to another is denied, and has lost nothing; one that is denied in time has.
func TestJujuReplacedIsNotLost(t *testing.T) {
	t.Parallel()
	f, units := twoUnits(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	late := 2 * f.ttl
	f.granted(units[0], jujuCall{what: stepClaim}, 1)
	f.granted(units[1], jujuCall{what: stepClaim, sent: late}, late+1)
	f.denied(units[0], jujuCall{what: stepExtend, sent: late + 2}, late+3)
	if lost, _, violations := f.check.Counts(); lost+violations != 0 {
		t.Errorf("who was replaced: lost %d, violations %d: %v", lost, violations, f.check.Texts())
	}
	f.denied(units[1], jujuCall{what: stepExtend, sent: late + 4}, late+5)
	if lost, _, _ := f.check.Counts(); lost != 1 {
		t.Errorf("who was denied in time: lost %d, want 1", lost)
	}
}

// TestJujuLostToAnotherInTime: a leader that sent its extension in time has lost its lease if
// that was kept waiting until it expired, another was granted it, and then the leader denied.
func TestJujuLostToAnotherInTime(t *testing.T) {
	t.Parallel()
	f, units := twoUnits(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	late := 2 * f.ttl
	f.granted(units[0], jujuCall{what: stepClaim}, 1)
	f.granted(units[1], jujuCall{what: stepClaim, sent: late}, late+1)
	f.denied(units[0], jujuCall{what: stepExtend, sent: f.ttl / 2}, late+3)
	if lost, lapsed, _ := f.check.Counts(); lost != 1 || lapsed != 1 || !strings.Contains(violationsOf(f.run), "before its own deadline") {
		t.Errorf("lost %d, lapsed %d: %v", lost, lapsed, f.check.Texts())
	}
}

// TestJujuLapsesAreSeenInAnswers: a leader whose extension is answered after its own deadline
// has lapsed, once.
func TestJujuLapsesAreSeenInAnswers(t *testing.T) {
	t.Parallel()
	f, units := twoUnits(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.granted(units[0], jujuCall{what: stepClaim}, 1)
	for _, c := range []struct {
		sent, heard time.Duration // in quarters of a ttl
		lapsed      uint64        // since the beginning
	}{{1, 2, 0}, {3, 6, 1}, {6, 6, 1}, {6, 11, 2}, {7, 12, 2}, {12, 12, 2}} {
		f.granted(units[0], jujuCall{what: stepExtend, sent: c.sent * f.ttl / 4}, c.heard*f.ttl/4)
		if _, lapsed, _ := f.check.Counts(); lapsed != c.lapsed {
			t.Errorf("extended after %d quarters of a ttl: lapsed %d, want %d", c.heard, lapsed, c.lapsed)
		}
	}
}

// TestJujuLapsesAreSeenWithoutConnection: a leader that cannot connect lapses, once, and is
// not counted as leading until it has extended, or is another's.
func TestJujuLapsesAreSeenWithoutConnection(t *testing.T) {
	t.Parallel()
	f, units := twoUnits(t)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.units = units[:]
	f.granted(units[0], jujuCall{what: stepClaim}, 1)
	f.hangUp(units[0])
	for _, c := range []struct {
		name    string
		do      func(now time.Duration)
		at      time.Duration // in quarters of a ttl
		lapsed  uint64        // since the beginning
		leading int
	}{
		{"before its deadline", f.sweep, 3, 0, 1},
		{"after it", f.sweep, 4, 1, 0},
		{"later", f.sweep, 5, 1, 0},
		{"extended too late again", func(now time.Duration) { f.granted(units[0], jujuCall{what: stepExtend, sent: now / 6}, now) }, 6, 1, 0},
		{"extended", func(now time.Duration) { f.granted(units[0], jujuCall{what: stepExtend, sent: now}, now) }, 7, 1, 1},
		{"after that deadline", f.sweep, 11, 2, 0},
		{"denied", func(now time.Duration) { f.denied(units[0], jujuCall{what: stepExtend, sent: now}, now) }, 12, 2, 0},
		{"another's", func(now time.Duration) { f.granted(units[1], jujuCall{what: stepClaim, sent: now}, now) }, 12, 2, 1},
	} {
		if c.name == "denied" { // it has connected
			units[0].conn = units[1].conn
		}
		c.do(c.at * f.ttl / 4)
		if _, lapsed, _ := f.check.Counts(); lapsed != c.lapsed || f.tally.Leading != c.leading {
			t.Errorf("%s: lapsed %d, want %d; %d lead, want %d", c.name, lapsed, c.lapsed, f.tally.Leading, c.leading)
		}
	}
}

// TestJujuUnansweredIsFound: a claim or an extension that is never answered is a violation,
// once; who waits for a lease to be free waits.
func TestJujuUnansweredIsFound(t *testing.T) {
	for what, want := range map[step]uint64{stepClaim: 1, stepExtend: 1, stepBlock: 0} {
		r := newRun(&Scenario{}, Options{})
		f := &jujuFleet{run: r, ttl: 10 * time.Second, agenda: newAgenda(), units: []*unit{{}, {call: jujuCall{what: what, id: 2, sent: time.Second}}}}
		for at, want := range map[time.Duration]uint64{11 * time.Second: 0, 12 * time.Second: want} {
			f.units[1].call.missed = false
			before := r.check.violations
			f.sweep(at)
			f.sweep(at)
			if n := r.check.violations - before; n != want {
				t.Errorf("step %d at %v: %d violations, want %d: %s", what, at, n, want, violationsOf(r))
			}
		}
		if len(f.schedule.heap) == 0 {
			t.Error("nobody looks again")
		}
	}
}

// TestJujuFaultIsOver: a connection that ends in a fault is expected to; one that ends in a
// later stage, when all lead or are blocked again, is the end of a holder.
func TestJujuFaultIsOver(t *testing.T) {
	t.Parallel()
	f, units := twoUnits(t)
	f.strike()
	f.closed(units[0].conn, nil)
	during, _ := f.count()
	if err := f.grow(t.Context(), 1, 1000); err != nil {
		t.Fatal(err)
	}
	f.closed(units[1].conn, nil)
	if after, _ := f.count(); during.Ended != 0 || after.Ended != 1 || after.Closed != 2 {
		t.Errorf("%d holders ended in the fault, %d with the next: %+v", during.Ended, after.Ended, after)
	}
}

// TestJujuErrorsEndHolders: what ends a holder of Juju's own tool fails the run,
// though nothing is violated.
func TestJujuErrorsEndHolders(t *testing.T) {
	t.Parallel()
	s, err := jujuRun(t, &fakeJuju{trouble: "try again"}, Options{}, "candidates", "1", "stages", "[{leases: 3, ramp: 500, hold: 1s}]")
	if err != nil {
		t.Fatal(err)
	}
	if s.Passed() || s.Violations != 0 || s.Facts["holders_ended"] < 1 || s.Ops["claim"].Errors+s.Ops["extend"].Errors == 0 {
		t.Errorf("passed %v, facts %v, %v", s.Passed(), s.Facts, s.Texts)
	}
}

func TestJujuLogin(t *testing.T) {
	for _, c := range []struct {
		name, want string
		fake       *fakeJuju
	}{
		{"wrong password", "invalid entity name or password", &fakeJuju{password: "another"}},
		{"another model", "the login was answered with", &fakeJuju{model: "1"}},
		{"come back", "", &fakeJuju{shed: 2}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s, err := jujuRun(t, c.fake, Options{JujuPassword: "pw"}, "stages", "[{leases: 1, ramp: 500, hold: 0s}]")
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v, want %q", err, c.want)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if o := s.Ops["connect"]; !s.Passed() || o.Errors != 2 || o.Count != 3 || o.Max < 2000 {
				t.Errorf("%+v %v", o, s.Texts)
			}
		})
	}
}

// TestJujuTranscript is what a unit that is denied says, from the upgrade on.
func TestJujuTranscript(t *testing.T) {
	t.Parallel()
	f := &fakeJuju{leases: map[string]*fakeHolding{"app0": {unit: "unit-app0-9", left: 500 * time.Millisecond}}}
	if _, err := jujuRun(t, f, Options{JujuPassword: `p"w`}, "candidates", "1", "every", "500ms", "stages", "[{leases: 1, ramp: 500, hold: 9s}]"); err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	heard := strings.Join(f.heard, "\n")
	f.mu.Unlock()
	got := strings.Split(regexp.MustCompile(`/model/[0-9a-f-]{36}/`).ReplaceAllString(heard, "/model/UUID/"), "\n")
	claim := `"type":"LeadershipService","version":2,"request":"ClaimLeadership","params":{"params":[{"application-tag":"application-app0","unit-tag":"unit-app0-0","duration":30}]}}`
	want := []string{
		`GET /model/UUID/api protocol="" origin="" auth=""`,
		`{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":"unit-app0-0","credentials":"p\"w","nonce":"","macaroons":null,"bakery-version":3,"cli-args":"incumbent bench","user-data":"","client-version":"2.9.52"}}`,
		`{"request-id":2,` + claim,
		`{"request-id":3,"type":"LeadershipService","version":2,"request":"BlockUntilLeadershipReleased","params":{"Name":"app0"}}`,
		`{"request-id":4,` + claim,
		`{"request-id":5,` + claim,
	}
	if d := cmp.Diff(want, got[:min(len(got), len(want))]); d != "" {
		t.Error(d)
	}
	ping := string(appendJujuPing(nil, 7))
	if want := `{"request-id":7,"type":"Pinger","version":1,"request":"Ping","params":{}}`; ping != want {
		t.Errorf("ping %s", ping)
	}
}

// TestJujuLines: what Juju's own tool prints.
func TestJujuLines(t *testing.T) {
	for name, workers := range map[string]string{"one process": "1", "two": "2"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var out bytes.Buffer
			_, err := jujuRun(t, &fakeJuju{}, Options{Out: &out, LogFormat: "juju", Worker: []string{os.Args[0], "work"}}, "workers", workers)
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range []string{`^ *\d+\.\d{3}s claimed  app[0-7]/[0-2] in \d+m?s$`, `^ *\d+\.\d{3}s extended app[0-7]/[0-2] held for \d+s in \d+m?s$`} {
				if got := regexp.MustCompile("(?m)"+line).FindAllString(out.String(), -1); len(got) < 8 {
					t.Errorf("%d lines like %s in\n%s", len(got), line, out.String())
				}
			}
		})
	}
}

// TestJujuScenario: the door brings its preset, and scale that of both.
func TestJujuScenario(t *testing.T) {
	full, err := Load("juju-leases", map[string]string{"door": "juju"})
	if err != nil {
		t.Fatal(err)
	}
	if last := full.Stages[len(full.Stages)-1]; last.Leases != 16_000 || last.Ramp != 300 || full.HandOvers != 0 || full.Candidates != 3 || time.Duration(full.TTL) != time.Minute {
		t.Errorf("%+v", full)
	}
	small, err := Load("juju-leases", map[string]string{"door": "juju", "scale": "smoke", "hand_overs": "7"})
	if err != nil {
		t.Fatal(err)
	}
	if small.HandOvers != 7 || small.Sources != full.Sources || time.Duration(small.TTL) != 10*time.Second || small.Stages[0].Leases != 20 {
		t.Errorf("%+v", small)
	}
	for scale, stages := range map[string]int{"faults": 5, "faults-short": 2} {
		sc, err := Load("juju-leases", map[string]string{"door": "juju", "scale": scale, "fault": "leader"})
		if err != nil || len(sc.Stages) != stages || sc.Stages[stages-1].Leases != 16_000 || sc.Settle <= sc.TTL || sc.Candidates != 3 {
			t.Errorf("ladder with faults: %+v, %v", sc, err)
		}
	}
	memory, err := Load("juju-leases", map[string]string{"door": "juju", "scale": "memory"})
	if err != nil || memory.Stages[0].Leases*memory.Candidates < 16_000 || memory.Thresholds["rss_per_connection_bytes"] != 16<<10 {
		t.Errorf("memory: %+v, %v", memory, err)
	}
	for want, set := range map[string]map[string]string{
		"native or juju":    {"door": "ssh"},
		"workers is 17":     {"door": "juju", "workers": "17"},
		"a run may open":    {"door": "juju", "stages": "[{leases: 200000, ramp: 1, hold: 0s}]"},
		"native or juju, w": {"door": "juju", "play": "idle"},
	} {
		if _, err := Load("juju-leases", set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %q", set, err, want)
		}
	}
}

// TestJujuEndsWhileDialling: a run that is interrupted does not wait for a server
// that takes connections and says nothing.
func TestJujuEndsWhileDialling(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	cluster := newFakeCluster(t, 1)
	cluster.all[0].juju = &fakeJujuDoor{fakeJuju: &fakeJuju{}, address: ln.Addr().String()}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	began := time.Now()
	s, err := Run(ctx, Options{Scenario: "juju-run", Set: map[string]string{"scale": "smoke"}, Targets: cluster.urls})
	if took := time.Since(began); err != nil || !s.Interrupted || took >= jujuDialTimeout {
		t.Errorf("%v after %v: %+v", err, took, s)
	}
}

func TestJujuAddresses(t *testing.T) {
	for _, c := range [][3]string{
		{"127.0.0.2:17070", "http://127.0.0.1:7600", "127.0.0.2:17070"},
		{"[::]:17070", "https://db.example:7600", "db.example:17070"},
		{"0.0.0.0:17070", "http://[::1]:7600", "[::1]:17070"},
	} {
		if got, err := reachable(c[0], c[1]); err != nil || got != c[2] {
			t.Errorf("%s of %s: %s, %v", c[0], c[1], got, err)
		}
	}
	if got, err := reachable("nowhere", "http://127.0.0.1:7600"); err == nil {
		t.Errorf("an address without a port is %s", got)
	}
	_, err := Run(t.Context(), Options{Scenario: "juju-run", Set: map[string]string{"scale": "smoke"}, Targets: newFakeCluster(t, 1).urls})
	if err == nil || !strings.Contains(err.Error(), "no door for juju") {
		t.Errorf("a server without the door: %v", err)
	}
}

func TestHandshakes(t *testing.T) {
	t.Parallel()
	r := newRun(&Scenario{Sources: 2}, Options{})
	r.begun = time.Now()
	how := &Closed{Workers: 3, Duration: Duration(6 * time.Second)}
	address := (&fakeJuju{}).open(t).address
	sum, err := r.handshakes(t.Context(), how, []string{"https://" + address})
	if err != nil {
		t.Fatal(err)
	}
	if sum.Count == 0 || sum.Errors != 0 || sum.Rate <= 0 {
		t.Errorf("%+v", sum)
	}
	if _, err := r.handshakes(t.Context(), how, []string{"http://" + address}); err == nil || !strings.Contains(err.Error(), "not served with TLS") {
		t.Errorf("without TLS: %v", err)
	}
}

// TestConnectsBesideBareHandshakes: a bare accept loop is measured before a ladder
// and after it, on servers of its own, and nothing of it is in the ladder's figures.
func TestConnectsBesideBareHandshakes(t *testing.T) {
	t.Parallel()
	var started []*fakeEcho
	opts := Options{LaunchEcho: func(_ context.Context, tls bool) (Cluster, error) {
		if !tls {
			t.Error("the bare loop has no TLS")
		}
		started = append(started, &fakeEcho{fakeCluster: &fakeCluster{
			all: []*fakeServer{{name: "bare"}}, urls: []string{"https://" + (&fakeJuju{}).open(t).address},
		}})
		return started[len(started)-1], nil
	}}
	fake := &fakeJuju{}
	opts.Launch = func(context.Context, Launch) (Cluster, error) { return jujuCluster(t, fake, 2), nil }
	s, err := jujuRun(t, fake, opts, "bare", "{workers: 2, duration: 300ms}")
	if err != nil {
		t.Fatal(err)
	}
	rate, share := s.Facts["bare_handshakes_per_second"], s.Facts["connects_per_bare_handshake"]
	if want := s.Facts["connects_per_second"] / rate; rate <= 0 || share != want {
		t.Errorf("%v handshakes a second, share %v, want %v", rate, share, want)
	}
	if len(started) != 2 || !started[0].stopped || !started[1].stopped || s.Ops["handshake"].Count != 24 {
		t.Errorf("%d servers started, %d handshakes of the ladder's units", len(started), s.Ops["handshake"].Count)
	}
	opts.LaunchEcho = nil
	if _, err := jujuRun(t, fake, opts, "bare", "{workers: 2, duration: 300ms}"); err == nil || !strings.Contains(err.Error(), "to compare with") {
		t.Errorf("nothing to compare with: %v", err)
	}
	for want, bare := range map[string]string{"bare: handshakes need workers": "{workers: 0, duration: 1s}", "for the door juju": "{workers: 1, duration: 1s}"} {
		set := map[string]string{"bare": bare, "door": "juju"}
		if strings.HasPrefix(want, "for") {
			delete(set, "door")
		}
		if _, err := Load("juju-leases", set); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v", set, err)
		}
	}
}

// fakeEcho is a server that only accepts.
type fakeEcho struct {
	*fakeCluster
	stopped bool
}

func (e *fakeEcho) Stop() { e.stopped = true }

func TestJujuFrames(t *testing.T) {
	for _, n := range []int{0, 1, 125, 126, 127, 65_535} {
		payload := bytes.Repeat([]byte{'x'}, n)
		r := bytes.NewReader(jujuFrame(append(make([]byte, jujuFrameHeader), payload...), ws.OpText))
		h, err := ws.ReadHeader(r)
		sent := make([]byte, r.Len())
		if _, rerr := io.ReadFull(r, sent); rerr != nil {
			t.Fatal(rerr)
		}
		ws.Cipher(sent, h.Mask, 0)
		if err != nil || !h.Masked || !h.Fin || h.OpCode != ws.OpText || h.Length != int64(n) || !bytes.Equal(sent, payload) {
			t.Errorf("%d bytes sent: %+v, %v", n, h, err)
		}
		got := ws.MustCompileFrame(ws.NewTextFrame(payload))
		for cut := range len(got) {
			if in, err := nextFrame(got[:cut]); err != nil || in.size != 0 {
				t.Fatalf("%d of %d bytes: %+v, %v", cut, len(got), in, err)
			}
		}
		if in, err := nextFrame(append(got, 1)); err != nil || in.size != len(got) || !bytes.Equal(in.payload, payload) {
			t.Errorf("%d bytes received: size %d, %v", n, in.size, err)
		}
	}
	for _, bad := range [][]byte{{0x01, 0}, {0x81, 0x80, 0, 0, 0, 0}, {0xc1, 0}, {0x81, 127, 0, 0, 0, 0, 0, 2, 0, 0}} {
		if in, err := nextFrame(bad); err == nil {
			t.Errorf("% x is read: %+v", bad, in)
		}
	}
}

func TestJujuReplies(t *testing.T) {
	for text, want := range map[string]jujuReply{
		`{"request-id":7,"response":{}}`:                                                                                             {ID: 7},
		`{"request-id":18,"response":{"results":[{}]}}`:                                                                              {ID: 18},
		`{"response":{"results":[{}]},"request-id":3}`:                                                                               {ID: 3},
		`{"request-id":2,"error":"no such","error-code":"not implemented"}`:                                                          {ID: 2, Error: "no such", Code: "not implemented"},
		`{"request-id":2,"response":{"results":[{"error":{"message":"m","code":"leadership claim denied"}}]}}`:                       {ID: 2, Error: "m", Code: jujuDenied},
		`{"request-id":5,"response":{"results":[{"error":{"message":"leadership claim denied","code":"leadership claim denied"}}]}}`: {ID: 5, Error: jujuDenied, Code: jujuDenied},
		`{"request-id":2,"response":{"error":{"message":"m","code":"c"}}}`:                                                           {ID: 2, Error: "m", Code: "c"},
	} {
		got, err := readReply([]byte(text))
		got.Response = nil
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v %s", text, err, d)
		}
	}
	for _, bad := range []string{"", "{}", `{"request-id":0,"response":{}}`, `{"request-id":1,"response":[]}`, `{"request-id":1,`} {
		if r, err := readReply([]byte(bad)); err == nil {
			t.Errorf("%q is read: %+v", bad, r)
		}
	}
}
