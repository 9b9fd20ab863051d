package bench

import (
	"context"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/client"
)

// fakeCluster is a set of fake members of one cluster, in this process.
type fakeCluster struct {
	t    *testing.T
	urls []string
	all  []*fakeServer
	// still is how long a member that is stopped stands still, see awake.
	still time.Duration

	mu  sync.Mutex // protects did
	did []string
}

// newFakeCluster starts members that share their state.
func newFakeCluster(t *testing.T, members int) *fakeCluster {
	c := &fakeCluster{t: t}
	shared := &fakeState{}
	for i := range members {
		srv := &fakeServer{fakeState: shared, name: "n" + strconv.Itoa(i+1)}
		c.urls = append(c.urls, srv.start(t))
		c.all = append(c.all, srv)
	}
	shared.leader.Store(&c.all[0].name)
	freeing, stop := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.all[0].free(freeing)
	}()
	t.Cleanup(func() { stop(); <-ended })
	return c
}

func (c *fakeCluster) Servers() []Server {
	var all []Server
	for i, s := range c.all {
		all = append(all, Server{Name: s.name, URL: c.urls[i]})
	}
	return all
}

func (c *fakeCluster) note(what string, i int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.did = append(c.did, what+" "+c.all[i].name)
}

func (c *fakeCluster) Signal(i int, sig syscall.Signal) error {
	switch sig {
	case syscall.SIGSTOP:
		c.note("stop", i)
		c.all[i].pause(true)
		c.elect(i)
	case syscall.SIGCONT:
		awake(c.still)
		c.note("continue", i)
		c.all[i].pause(false)
	}
	return nil
}

// awake returns when this process has run for so long: what the machine stands
// still meanwhile counts for one tick at most, so that whoever is to notice a fault
// has the time that it lasts.
func awake(d time.Duration) {
	const every = 10 * time.Millisecond
	tick := time.NewTicker(every)
	defer tick.Stop()
	for range d / every {
		<-tick.C
	}
}

// elect makes another than member i the leader, if i leads.
func (c *fakeCluster) elect(i int) {
	if s := c.all[i]; len(c.all) > 1 && s.leader.Load() == &s.name {
		s.term.Add(1)
		s.leader.Store(&c.all[(i+1)%len(c.all)].name)
	}
}

func (c *fakeCluster) Kill(i int, _ syscall.Signal) error {
	c.note("kill", i)
	c.all[i].down(true)
	c.elect(i)
	return nil
}

func (c *fakeCluster) Start(_ context.Context, i int, how Start) error {
	c.note("start", i)
	if how.Wiped {
		c.note("wipe", i)
	}
	if how.SyncDelay > 0 {
		c.note("slow", i)
	}
	c.all[i].down(false)
	return nil
}

func (c *fakeCluster) Cut(i int, out, in bool) error {
	if out || in {
		c.note("cut", i)
	} else {
		c.note("join", i)
	}
	c.all[i].mu.Lock()
	c.all[i].cutOff = out
	c.all[i].mu.Unlock()
	if out {
		c.elect(i)
	}
	return nil
}

func (c *fakeCluster) Lead(_ context.Context, i int) error {
	c.note("lead", i)
	c.all[i].term.Add(1)
	c.all[i].leader.Store(&c.all[i].name)
	return nil
}

func (c *fakeCluster) Client() client.Config { return client.Config{} }
func (c *fakeCluster) Stop()                 {}

var _ Members = (*fakeCluster)(nil)

// ordealOf plays a scenario's fault on a fake cluster of three.
func ordealOf(t *testing.T, c *fakeCluster, script string, more ...string) *Summary {
	t.Helper()
	set := map[string]string{
		// The ttl is longer than a loaded machine stands still and takes to catch up with
		// what was to be sent meanwhile: no holder may lapse.
		"ttl": "10s", "every": "100ms", "sessions_per_stream": "8", "silent": "200ms", "stages": "[{leases: 24, ramp: 1000, hold: 200ms}]",
		"thresholds": "{}", "fault": "x", "faults": "{x: " + script + "}",
	}
	for i := 0; i < len(more); i += 2 {
		set[more[i]] = more[i+1]
	}
	s, err := Run(t.Context(), Options{Scenario: "leader-kill", Set: set, Members: 3, Launch: func(_ context.Context, what Launch) (Cluster, error) {
		if what.Members != 3 || what.Cuts != strings.Contains(script, "cut") {
			t.Errorf("asked for %+v", what)
		}
		if everyDoor := what.Juju != "" && what.Consul && what.DNS && len(what.OVSDB) > 0; everyDoor != strings.Contains(script, "strangers") {
			t.Errorf("asked for %+v", what)
		}
		return c, nil
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestFleetGoesOnAtAnotherMember: whether the leader is gone or silent, every
// holder goes on with its session and its token, and nobody waits for it.
func TestFleetGoesOnAtAnotherMember(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		did    string
		least  float64 // ms until the last holder is served again
	}{
		"killed":    {"[{after: 0s, do: kill, member: leader}]", "kill n1", 0},
		"stopped":   {"[{after: 0s, do: stop, member: leader, for: 10ms}]", "stop n1 continue n1", 150},
		"restarted": {"[{after: 0s, do: restart, member: leader}]", "kill n1 start n1", 0},
		"cut off":   {"[{after: 0s, do: cut, member: leader, way: out}]", "cut n1 join n1", 150},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cluster := newFakeCluster(t, 3)
			cluster.still = time.Second
			s := ordealOf(t, cluster, c.script)
			if !s.Passed() || s.Lapsed != 0 {
				t.Errorf("lapsed %d: %v", s.Lapsed, s.Texts)
			}
			if got := strings.Join(cluster.did, " "); got != c.did {
				t.Errorf("did %q, want %q", got, c.did)
			}
			for fact, want := range map[string]float64{
				"kept_their_token": 24, "held_before_the_fault": 24, "not_recovered": 0, "elections": 1, "leadership_moves": 1, "extensions_refused": 0,
			} {
				if got, ok := s.Facts[fact]; !ok || got != want {
					t.Errorf("%s is %v, want %v", fact, got, want)
				}
			}
			if r := s.Ops["recovery"]; r.Count != 24 || r.Max < c.least || s.Facts["reconnects"] < 1 {
				t.Errorf("recovery %+v after %v reconnects", r, s.Facts["reconnects"])
			}
			if len(s.Servers) != 0 && s.Placement != "round robin" {
				t.Errorf("placement %q", s.Placement)
			}
		})
	}
}

// TestALinkIsOverdue: a member has its patience from the first extension that was
// sent and not judged. What it answers besides buys it no more time.
func TestALinkIsOverdue(t *testing.T) {
	const never = -1
	ms := func(n int) time.Duration { return time.Duration(n) * time.Millisecond }
	ask := func(l *fleetLink, at int, what step) uint64 { return l.note(pending{what: what, sent: ms(at)}, ms(at)) }
	refuse := func(l *fleetLink, at int, id uint64) {
		delete(l.pending, id)
		l.quiet = ms(at)
	}
	for name, c := range map[string]struct {
		play         func(l *fleetLink)
		alone, among int // ms until which the only member, or one of several, has time
	}{
		"nothing is asked for": {func(*fleetLink) {}, never, never},
		"silence":              {func(l *fleetLink) { ask(l, 100, stepExtend) }, 1100, 1100},
		"silence of another":   {func(l *fleetLink) { ask(l, 100, stepAttach) }, 1100, 1100},
		"silence, refusals": {func(l *fleetLink) {
			first := ask(l, 100, stepExtend)
			refuse(l, 1090, ask(l, 1090, stepExtend))
			refuse(l, 1095, first)
		}, never, 1100},
		"refusals": {func(l *fleetLink) {
			refuse(l, 100, ask(l, 100, stepExtend))
			refuse(l, 900, ask(l, 900, stepAccept))
		}, never, 1100},
		"refused and judged": {func(l *fleetLink) {
			refuse(l, 100, ask(l, 100, stepExtend))
			refuse(l, 900, ask(l, 900, stepExtend))
			l.owing = 0
		}, never, never},
	} {
		l := &fleetLink{pending: map[uint64]pending{}}
		c.play(l)
		for others, until := range map[bool]int{false: c.alone, true: c.among} {
			if until == never && l.overdue(time.Hour, time.Second, others) {
				t.Errorf("%s, others %v: overdue", name, others)
			}
			if until != never && (l.overdue(ms(until), time.Second, others) || !l.overdue(ms(until+1), time.Second, others)) {
				t.Errorf("%s, others %v: not overdue exactly after %d ms", name, others, until)
			}
		}
	}
}

// TestARefusedAttachmentEndsWithItsStream: what is to be tried again is not, once
// the next stream has attached the session with its own counter.
func TestARefusedAttachmentEndsWithItsStream(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t, 3)
	cluster.all[1].cutsAttach = true
	s, err := Run(t.Context(), Options{Scenario: "juju-leases", Set: map[string]string{
		"ttl": "1m", "every": "100ms", "candidates": "1", "hand_overs": "0", "sessions_per_stream": "1", "thresholds": "{}",
		"stages": "[{leases: 3, ramp: 1000, hold: 1s}]",
	}, Targets: cluster.urls})
	if err != nil {
		t.Fatal(err)
	}
	// A machine that stands still has links go on at another member besides.
	if a := s.Ops["attach"]; !s.Passed() || a.Count < 3 || a.Errors < 1 {
		t.Errorf("%d attached, %d refused: %v", a.Count, a.Errors, s.Texts)
	}
}

func TestOrdealsActions(t *testing.T) {
	for _, c := range []struct{ name, script, did string }{
		{
			"in order of time",
			`[{after: 120ms, do: stop, member: follower, for: 10ms}, {after: 0s, do: saturate, for: 10ms},
			{after: 20ms, do: cut, member: leader, way: out, for: 20ms}, {after: 60ms, do: restart, member: last}, {after: 90ms, do: wipe, member: follower}]`,
			"cut n1 join n1 kill n1 start n1 kill n1 start n1 wipe n1 stop n1 continue n1",
		},
		{
			"slow disks",
			"[{after: 0s, do: slow-disk, member: follower, count: 2, delay: 1ms}, {after: 1ms, do: slow-disk, member: leader, delay: 1ms}]",
			"kill n2 start n2 slow n2 kill n3 start n3 slow n3 kill n1 start n1 slow n1 lead n1",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			cluster := newFakeCluster(t, 3)
			s := ordealOf(t, cluster, c.script)
			if got := strings.Join(cluster.did, " "); got != c.did || !s.Passed() {
				t.Errorf("did %q, want %q; %v", got, c.did, s.Texts)
			}
			if strings.HasPrefix(c.name, "slow") && s.Facts["leadership_moves"] != 0 {
				t.Errorf("%v moves are counted that the run made itself", s.Facts["leadership_moves"])
			}
		})
	}
}

// TestOrdealFindsLosses: a member that forgets what is held is found out.
func TestOrdealFindsLosses(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t, 3)
	cluster.all[1].forgets, cluster.all[2].forgets = true, true
	s := ordealOf(t, cluster, "[{after: 0s, do: kill, member: leader}]")
	if s.Passed() || s.Lost == 0 || !strings.Contains(strings.Join(s.Texts, "\n"), "before its own deadline") {
		t.Errorf("lost %d: %v", s.Lost, s.Texts[:min(3, len(s.Texts))])
	}
}

// TestExtensionsThatAreRefusedAreCounted apart from those that could not be
// confirmed, and both are tried again at once.
func TestExtensionsThatAreRefusedAreCounted(t *testing.T) {
	for kind, want := range map[string]struct{ refused, unconfirmed bool }{
		"overloaded": {refused: true}, "unavailable": {}, unconfirmed: {unconfirmed: true},
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			cluster := newFakeCluster(t, 3)
			cluster.all[1].extendError, cluster.all[2].extendError = kind, kind
			s := ordealOf(t, cluster, "[{after: 0s, do: stop, member: follower, for: 10ms}]")
			refused, unsure := s.Facts["extensions_refused"], s.Facts["extensions_unconfirmed"]
			if refused > 0 != want.refused || unsure > 0 != want.unconfirmed || s.Ops["extend"].Errors == 0 {
				t.Errorf("%v refused, %v unconfirmed, %d errors", refused, unsure, s.Ops["extend"].Errors)
			}
		})
	}
}

// Strangers sit and flood while the fleet goes on and somebody logs in.
func TestStrangers(t *testing.T) {
	t.Parallel()
	s := ordealOf(t, newFakeCluster(t, 3), "[{after: 0s, do: strangers, member: all, silent: 9, flood: 1, slow: 3}]")
	if s.Facts["strangers_silent"] < 9 || s.Facts["strangers_requests"] == 0 || s.Facts["strangers_slow"] < 3 || s.Ops["login"].Count == 0 || s.Ops["login"].Errors > 0 || !s.Passed() {
		t.Errorf("silent: %v, %+v: %v", s.Facts, s.Ops["login"], s.Texts)
	}
	if s.Facts["extend_p99_times"] <= 0 {
		t.Errorf("extensions beside those before: %v", s.Facts)
	}
}

func TestEdgesNeedLearners(t *testing.T) {
	_, err := Run(t.Context(), Options{Scenario: "learner-edges", Set: map[string]string{"scale": "smoke"}, Members: 3, Launch: func(context.Context, Launch) (Cluster, error) {
		return newFakeCluster(t, 3), nil
	}})
	if err == nil || !strings.Contains(err.Error(), "two learners") {
		t.Errorf("%v", err)
	}
}

func TestFaultsNeedServersOfTheRun(t *testing.T) {
	_, err := Run(t.Context(), Options{Scenario: "leader-kill", Set: map[string]string{
		"scale": "smoke", "stages": "[{leases: 2, ramp: 100, hold: 0s}]",
	}, Targets: []string{(&fakeServer{}).start(t)}})
	if err == nil || !strings.Contains(err.Error(), "needs servers that this run starts") {
		t.Errorf("%v", err)
	}
}

func TestIdleFleet(t *testing.T) {
	srv := &fakeServer{}
	s, err := Run(t.Context(), Options{Scenario: "idle-fleet", Set: map[string]string{
		"stages": "[{leases: 20, ramp: 1000, hold: 0s}]", "settle": "2s", "every": "100ms", "thresholds": "{}", "sources": "0",
	}, Targets: []string{srv.start(t)}})
	if err != nil {
		t.Fatal(err)
	}
	if s.Ops["open"].Count != 20 || s.Ops["attach"].Count != 20 || s.Ops["beat"].Count < 20 || s.Ops["claim"].Count != 0 || !s.Passed() {
		t.Errorf("%+v %v", s.Ops, s.Texts)
	}
	if len(s.Steps) != 1 || s.Steps[0].Leases != 20 || s.Facts["connect_seconds"] <= 0 {
		t.Errorf("steps %v, facts %v", s.Steps, s.Facts)
	}
}

func avalancheOf(t *testing.T, srv *fakeServer, ttl string) *Summary {
	t.Helper()
	s, err := Run(t.Context(), Options{Scenario: "expiry-avalanche", Set: map[string]string{
		"ttl": ttl, "every": "500ms", "stages": "[{leases: 700, ramp: 1000, hold: 0s}]", "thresholds": "{}", "late": "1m",
	}, Targets: []string{srv.start(t)}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestAvalanche(t *testing.T) {
	for name, c := range map[string]struct {
		ttl   string
		early time.Duration
		again bool
		text  string
	}{
		"in time":    {ttl: "1s"},
		"too early":  {ttl: "1m", early: time.Minute, text: "before its holder's own deadline"},
		"told twice": {ttl: "1s", again: true, text: "its expiry was told twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := avalancheOf(t, &fakeServer{expires: true, early: c.early, offerMore: c.again}, c.ttl)
			text := strings.Join(s.Texts, "\n")
			if s.Passed() != (c.text == "") || !strings.Contains(text, c.text) {
				t.Errorf("passed %v: %s", s.Passed(), text)
			}
			if s.Facts["freed"] != 700 || s.Ops["claim"].Count != 700 || s.Ops["freed late"].Count != 700 || s.Ops["extend"].Count != 700 {
				t.Errorf("facts %v, operations %v", s.Facts, s.Ops)
			}
		})
	}
}

// TestStallOfOneServer: with nowhere else to go, a fleet waits, and lapses.
func TestStallOfOneServer(t *testing.T) {
	t.Parallel()
	cluster := newFakeCluster(t, 1)
	cluster.still = 1500 * time.Millisecond
	cluster.all[0].leader.Store(&cluster.all[0].name)
	s, err := Run(t.Context(), Options{Scenario: "leader-stall", Set: map[string]string{
		"ttl": "1s", "every": "100ms", "stages": "[{leases: 10, ramp: 1000, hold: 0s}]", "faults.stop.0.after": "0s", "faults.stop.0.for": "10ms",
	}, Launch: func(context.Context, Launch) (Cluster, error) { return cluster, nil }})
	if err != nil {
		t.Fatal(err)
	}
	if !s.Passed() || s.Lapsed < 10 || s.Facts["kept_their_token"] != 10 || s.Facts["reconnects"] != 0 || s.Ops["recovery"].Max < 1000 {
		t.Errorf("passed %v, lapsed %d, facts %v, recovery %+v: %v", s.Passed(), s.Lapsed, s.Facts, s.Ops["recovery"], s.Texts)
	}
}
