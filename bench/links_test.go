package bench

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// loneFleet is a fleet of one stream, which is down, with agents for so many leases.
func loneFleet(t *testing.T, sc *Scenario, agents int) (*fleet, *fleetLink) {
	r := newRun(sc, Options{})
	r.begun = time.Now()
	f := newGroup(t.Context(), r, group{every: time.Duration(sc.TTL) / 3, candidates: max(1, sc.Candidates), perStream: max(1, agents)})
	t.Cleanup(f.cancel)
	l := &fleetLink{f: f, pending: map[uint64]pending{}}
	for i := range agents {
		a := &agent{id: i, lease: i, link: l}
		f.agents, l.agents, f.heldBy = append(f.agents, a), append(l.agents, a), append(f.heldBy, nil)
	}
	f.links = []*fleetLink{nil, l}
	return f, l
}

// TestUnansweredExtensionsAreFound: an extension that is never answered is a violation,
// though its member answers all others and so is not left.
func TestUnansweredExtensionsAreFound(t *testing.T) {
	const ttl = 10 * time.Second
	for name, look := range map[string]func(f *fleet){
		"while it goes on": func(f *fleet) { f.sweep(f.now()) },
		"by its judge":     func(f *fleet) { _ = f.judge() },
		"at the end":       func(f *fleet) { f.countAll(f) },
	} {
		for what, want := range map[step]uint64{stepExtend: 1, stepAccept: 1, stepBeat: 1, stepAttach: 0} {
			synctest.Test(t, func(t *testing.T) {
				f, l := loneFleet(t, &Scenario{TTL: Duration(ttl)}, 0)
				l.stream = &client.Stream{}
				l.note(pending{what: what, sent: f.now()}, f.now())
				for after, want := range []uint64{0, want, want} { // once
					time.Sleep(ttl/2 + 1)
					l.quiet, l.owing = f.now(), 0 // it goes on with others
					if look(f); l.stream == nil {
						t.Fatal("the member is left")
					}
					if _, _, n := f.check.Counts(); n != want {
						t.Errorf("%s, step %d: %d violations after %d halves of a ttl, want %d: %s", name, what, n, after+1, want, violationsOf(f.run))
					}
				}
			})
		}
	}
}

// TestNobodyHearsWhatTheSilentAreNotTold: nor is an answer that it does not have a violation.
func TestNobodyHearsWhatTheSilentAreNotTold(t *testing.T) {
	f, l := loneFleet(t, &Scenario{TTL: Duration(time.Second)}, 0)
	l.stream, l.mute = &client.Stream{}, true
	l.note(pending{what: stepExtend, sent: -time.Hour}, 0)
	f.sweep(f.now())
	f.countAll(f)
	if text := violationsOf(f.run); text != "" {
		t.Error(text)
	}
}

// TestLapsesAreSeenInAnswers: a holder whose extension is answered after its own deadline has
// lapsed, though it has sent no other meanwhile; and it has lost the lease if it was denied
// one that was sent in time, whoever holds it by then.
func TestLapsesAreSeenInAnswers(t *testing.T) {
	const ttl = 10 * time.Second
	for name, c := range map[string]struct {
		after        time.Duration // the answer, from the claim
		sent         time.Duration
		denied       bool
		again        bool // another extension is sent before
		twice        bool // another is answered at the same time
		moved        bool // another is granted the lease before
		lost, lapsed uint64
	}{
		"in time":                         {after: 5 * time.Second},
		"late":                            {after: ttl, lapsed: 1},
		"late, and another was sent":      {after: ttl, again: true, lapsed: 1},
		"both late":                       {after: 2 * ttl, twice: true, lapsed: 1},
		"late, and denied":                {after: ttl, sent: 9900 * time.Millisecond, denied: true, lapsed: 1},
		"denied in time":                  {after: 5 * time.Second, denied: true, lost: 1},
		"sent in time, and moved":         {after: 2 * ttl, denied: true, moved: true, lost: 1, lapsed: 1},
		"sent too late, and moved by now": {after: 2 * ttl, sent: ttl, denied: true, moved: true, lapsed: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, _ := loneFleet(t, &Scenario{TTL: Duration(ttl)}, 1)
				a := f.agents[0]
				f.granted(a, 1, f.now(), f.now())
				time.Sleep(c.after)
				p, now := pending{what: stepExtend, agent: a, token: 1, sent: c.sent}, f.now()
				if c.moved {
					f.check.Granted(f.leaseName(0), 7, 2, now, now+ttl)
				}
				if c.again {
					f.extend(a, now)
				}
				if c.twice {
					f.goesOn(p, ttl, now)
				}
				if c.denied {
					f.notHeld(p, f.leaseName(0))
				} else {
					f.goesOn(p, now+ttl, now)
				}
				if lost, lapsed, violations := f.check.Counts(); lost != c.lost || lapsed != c.lapsed || violations != c.lost {
					t.Errorf("lost %d, lapsed %d, want %d and %d: %s", lost, lapsed, c.lost, c.lapsed, violationsOf(f.run))
				}
			})
		})
	}
}

// TestAnAttachmentExtendsWhatASilentHolderLeft: the session lives from then on for a ttl, and
// what it holds with it.
func TestAnAttachmentExtendsWhatASilentHolderLeft(t *testing.T) {
	const ttl = 10 * time.Second
	for after, want := range map[time.Duration]string{ // of its due time by the extension that was the last
		3*time.Second + lateAllowed:                    "",
		3*time.Second + lateAllowed + time.Millisecond: "after its due time",
	} {
		synctest.Test(t, func(t *testing.T) {
			f, l := loneFleet(t, &Scenario{TTL: Duration(ttl)}, 1)
			holder, next := f.agents[0], &agent{id: 1, link: &fleetLink{f: f, pending: map[uint64]pending{}}}
			holder.began = true
			f.granted(holder, 1, f.now(), f.now())
			time.Sleep(3 * time.Second)
			f.attached(l, holder, &apiv1.Attached{}, f.now())
			f.silence(l)
			time.Sleep(dueAfter(ttl) + after - 3*time.Second)
			f.granted(next, 2, f.now(), f.now())
			if text := violationsOf(f.run); (text == "") != (want == "") || !strings.Contains(text, want) {
				t.Errorf("%v: %q, want %q", after, text, want)
			}
		})
	}
}

// TestWhoIsNotAttachedIsNotElsewhere: one whose attachment was refused asks again after a
// while, and is nowhere until then.
func TestWhoIsNotAttachedIsNotElsewhere(t *testing.T) {
	f, l := loneFleet(t, &Scenario{TTL: Duration(time.Minute)}, 2)
	f.links = f.links[1:]
	l.stream, l.member, l.opened = &client.Stream{}, 1, 2
	f.agents[0].stream, f.agents[1].stream = 2, 1
	for gone, want := range map[int]int{0: 1, 1: 2} {
		if n := f.agentsWithout(gone); n != want {
			t.Errorf("member %d is gone: %d agents are not elsewhere, want %d", gone, n, want)
		}
	}
	f.agents[1].stream = 2
	if n := f.agentsWithout(0); n != 0 {
		t.Errorf("all are attached: %d agents are not elsewhere", n)
	}
}

// TestEachLeaseIsHeld: that all wait for a lease is no way to hold it.
func TestEachLeaseIsHeld(t *testing.T) {
	const ttl = 10 * time.Second
	for name, c := range map[string]struct {
		held      int
		handOvers float64
		settle    func(t *testing.T, sc *Scenario, held int) *run
		text      string
	}{
		"a fleet":                       {2, 0, settledFleet, ""},
		"a fleet, all wait":             {1, 0, settledFleet, "1 of 2 leases are held"},
		"a fleet, all wait for one":     {1, 9, settledFleet, "1 of 2 leases are held"},
		"units":                         {2, 0, settledUnits, ""},
		"units, all wait":               {1, 0, settledUnits, "1 of 2 leases are held"},
		"units, one has just retired":   {1, 9, settledUnits, ""},
		"at the end":                    {2, 0, countedFleet, ""},
		"at the end, all wait":          {1, 0, countedFleet, "1 of 2 leases are held at the end"},
		"at the end of hand-overs":      {1, 9, countedFleet, ""},
		"a crew's end":                  {2, 0, countedCrew, ""},
		"a crew's end, all wait":        {1, 0, countedCrew, "1 of 2 leases are held at the end"},
		"a crew's end, after hand-over": {1, 9, countedCrew, ""},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sc := &Scenario{TTL: Duration(ttl), Candidates: 3, HandOvers: c.handOvers, Stages: []Stage{{Leases: 2}}}
				if text := violationsOf(c.settle(t, sc, c.held)); (text == "") != (c.text == "") || !strings.Contains(text, c.text) {
					t.Errorf("%q, want %q", text, c.text)
				}
			})
		})
	}
}

// settledFleet is the run of a fleet of six agents that want two leases, so many of which are
// held, while all others wait.
func settledFleet(t *testing.T, sc *Scenario, held int) *run {
	f, _ := loneFleet(t, sc, 2)
	f.holding, f.waiting = held, 6-held
	if err := f.settle(t.Context(), 6, time.Minute); err != nil {
		t.Error(err)
	}
	return f.run
}

// settledUnits is that of as many units.
func settledUnits(t *testing.T, sc *Scenario, held int) *run {
	r := newRun(sc, Options{})
	r.begun = time.Now()
	f := &jujuFleet{run: r, ttl: time.Duration(sc.TTL), units: make([]*unit, 6), tally: tally{Leading: held, Blocked: 6 - held}}
	if err := f.settle(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	return r
}

// countedFleet is the run of the same fleet at its end, countedCrew that of such a crew.
func countedFleet(t *testing.T, sc *Scenario, held int) *run {
	f, _ := loneFleet(t, sc, 2)
	f.holding, f.waiting = held, 6-held
	f.countAll(f)
	return f.run
}

func countedCrew(_ *testing.T, sc *Scenario, held int) *run {
	r := newRun(sc, Options{})
	r.crewFacts(tally{Leading: held, Blocked: 6 - held})
	return r
}

// TestARampIsNoQuietTime: what is before a fault is held, and nobody begins in it.
func TestARampIsNoQuietTime(t *testing.T) {
	for _, connections := range []string{"shared", "own"} {
		t.Run(connections, func(t *testing.T) {
			t.Parallel()
			s := crewRun(t, newFakeCluster(t, 3), "connections", connections, "stages", "[{leases: 9, ramp: 500, hold: 500ms}]", "settle", "1s", "ttl", "5s",
				"fault", "reconnect", "faults.reconnect", "[{after: 10ms, do: disconnect, member: all}]")
			var phases []string
			for _, step := range s.Steps {
				phases = append(phases, step.Phase)
			}
			if want := []string{rampPhase, quietPhase, "fault reconnect"}; !slices.Equal(phases, want) {
				t.Fatalf("steps %q, want %q", phases, want)
			}
			ramp, quiet := s.Steps[0].Ops, s.Steps[1].Ops
			if ramp["claim"].Count != 9 || quiet["claim"].Count != 0 || quiet["extend"].Count == 0 || s.Facts["extend_p99_before_ms"] != quiet["extend"].P99 {
				t.Errorf("ramp %+v, before the fault %+v: %v", ramp, quiet, s.Facts)
			}
		})
	}
}

// TestFloodsAreJudgedByTheirWorst: a flood may cost no holder an extension, in whichever of its
// phases, and by whatever way it fails.
func TestFloodsAreJudgedByTheirWorst(t *testing.T) {
	for name, most := range map[string]string{
		"overload-recover": "extend_p99_fault_ms", "consul-flood": "extend_p99_fault_ms", "ovn-flood": "extend_p99_fault_ms",
		"juju-claim-flood": "extend_p99_fault_ms", "login-storm": "extend_p99_times", "denied-storm": "extend_p99_times",
	} {
		for _, scale := range []string{"", "short"} {
			sc, err := Load(name, map[string]string{"scale": scale})
			if err != nil {
				t.Fatal(err)
			}
			for _, zero := range []string{"lost", "lapsed", "violations", "extend.errors", "critical-extend.errors"} {
				if limit, ok := sc.Thresholds[zero]; !ok || limit != 0 {
					t.Errorf("%s, scale %q: %s may be %v, %v", name, scale, zero, limit, ok)
				}
			}
			if sc.Thresholds[most] == 0 {
				t.Errorf("%s, scale %q: no threshold %s", name, scale, most)
			}
		}
	}
	sc, err := Load("juju-claim-flood", map[string]string{"scale": "stages"})
	if _, judged := sc.Thresholds["critical-extend.errors"]; err != nil || judged || sc.Thresholds["extend.p99_ms"] == 0 {
		t.Errorf("without the flood: %v, %v", sc.Thresholds, err)
	}
}
