package bench

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// newTestFleet is a fleet of agents that have been started, but for what they do.
func newTestFleet(agents int, sys AgentSystem) *agentFleet {
	f := newAgentFleet(newRun(&Scenario{TTL: Duration(time.Minute), Fault: "restart"}, Options{}), sys)
	f.begun = time.Now()
	f.stops = make([]func(), agents)
	return f
}

// wantViolation fails unless there is that violation alone; "": none at all.
func wantViolation(t *testing.T, f *agentFleet, want string) {
	t.Helper()
	texts := strings.Join(f.check.drain().Texts, "\n")
	if strings.Count(texts, "\n") > 0 || (texts == "") != (want == "") || !strings.Contains(texts, want) {
		t.Errorf("violations %q, want %q", texts, want)
	}
}

// oneMember is a cluster of one member, which does what a test has it do.
type oneMember struct {
	Members
	kill, start func()
}

func (m oneMember) Servers() []Server { return make([]Server, 1) }

func (m oneMember) Kill(int, syscall.Signal) error {
	m.kill()
	return nil
}

func (m oneMember) Start(context.Context, int, Start) error {
	m.start()
	return nil
}

// All agents are told when each is. One that is told twice does not stand for another, nor does
// one that nothing has changed for.
func TestAllAreToldWhenEachIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFleet(3, AgentSystem{})
		err := f.tellAll(t.Context(), "charm", ToldCharm, 3, func() error {
			f.hear(0, ToldCharm)
			f.hear(0, ToldCharm)
			f.hear(3, ToldCharm)
			f.hear(1, ToldCharm)
			f.hear(2, ToldRelations)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		wantViolation(t, f, "charm: 1 of 3 were not told")
		if _, known := f.facts["charm_told_ms"]; known || f.beyondRight() != 2 || f.rec.op("charm").summary().Count != 2 {
			t.Errorf("facts %v, %d told beyond what is right", f.facts, f.beyondRight())
		}
		err = f.tellAll(t.Context(), "charm", ToldCharm, 3, func() error {
			for unit := range 3 {
				f.hear(unit, ToldCharm)
			}
			return nil
		})
		if _, known := f.facts["charm_told_ms"]; err != nil || !known {
			t.Errorf("%v; facts %v", err, f.facts)
		}
		wantViolation(t, f, "")
		f.hear(1, ToldAnew)
		wantViolation(t, f, "unit 1 was opened anew")
	})
}

// All are back after a restart of all when each is, and has begun since the last member ended.
func TestAllAreBackWhenEachIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFleet(3, AgentSystem{})
		begin := func(units ...int) func() {
			return func() {
				for _, unit := range units {
					f.attached(unit)
				}
			}
		}
		if err := f.restartAll(t.Context(), oneMember{kill: begin(2), start: begin(0, 1, 0)}); err != nil {
			t.Fatal(err)
		}
		wantViolation(t, f, "1 of 3 agents were not back in time")
		if _, known := f.facts["restart_all_resumed_seconds"]; known {
			t.Errorf("facts %v", f.facts)
		}
		if err := f.restartAll(t.Context(), oneMember{kill: begin(), start: begin(0, 2, 1, 0)}); err != nil {
			t.Fatal(err)
		}
		wantViolation(t, f, "")
		if _, known := f.facts["restart_all_resumed_seconds"]; !known || f.facts["restart_all_starts_per_agent"] != 4.0/3 {
			t.Errorf("facts %v", f.facts)
		}
	})
}

// The last is back when it has begun for the first time: that one begins twice is not later.
func TestTheLastIsBackWhenItBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newTestFleet(3, AgentSystem{})
		f.attached(2)
		f.allAway()
		for _, unit := range []int{0, 1, 0} {
			time.Sleep(time.Second)
			f.attached(unit)
		}
		if got := f.lastBack(); f.back() != 2 || got != 2*time.Second {
			t.Errorf("%d are back, the last after %v", f.back(), got)
		}
	})
}

// A watch that did not come back after the restarts is noticed by what it does not tell.
func TestWatchesOutliveRestarts(t *testing.T) {
	for name, c := range map[string]struct {
		charm, relations int // units that are told
		want             string
	}{
		"all":                  {2, 2, ""},
		"one has lost its app": {1, 2, "charm_after_restart: 1 of 2 were not told"},
		"one its relations":    {2, 1, "relation_after_restart: 1 of 2 were not told"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f *agentFleet
				tell := func(what, units int) error {
					for unit := range units {
						f.hear(unit, what)
					}
					return nil
				}
				f = newTestFleet(2, AgentSystem{
					Charm:  func(context.Context, int) error { return tell(ToldCharm, c.charm) },
					Relate: func(context.Context, int) error { return tell(ToldRelations, c.relations) },
				})
				f.cluster = oneMember{kill: func() {}, start: func() { f.attached(0); f.attached(1) }}
				if err := f.restarts(t.Context()); err != nil {
					t.Fatal(err)
				}
				wantViolation(t, f, c.want)
				if f.facts["reread"] != 0 {
					t.Error("what is changed after the restarts counts as read again")
				}
			})
		})
	}
}

// How often agents ask to begin is what members have had, refusals included; nothing is said of
// it where one does not tell.
func TestRequestsToBeginAreTheMembers(t *testing.T) {
	t.Parallel()
	admitted, refused := new(atomic.Int64), new(atomic.Int64)
	member := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, "incumbent_admitted_total{lane=\"claims\"} 70\nincumbent_admitted_total{lane=\"small\"} %d\n", admitted.Load())
		for _, reason := range []string{"delay", "memory", "order"} {
			fmt.Fprintf(w, "incumbent_refused_total{lane=\"small\",reason=%q} %d\n", reason, refused.Load())
		}
	}))
	defer member.Close()
	f := newTestFleet(10, AgentSystem{})
	f.urls = []string{member.URL, member.URL}
	admitted.Store(100)
	before := f.startRequests(t.Context())
	admitted.Store(105)
	refused.Store(1)
	f.noteStartRequests(t.Context(), "restart_1", before, 10)
	if got := f.facts["restart_1_start_requests_per_agent"]; got != 1.6 {
		t.Errorf("%v of each of ten agents, and there were 2 × (5 + 3) more", got)
	}
	mute := httptest.NewServer(http.NotFoundHandler())
	defer mute.Close()
	f.urls[1] = mute.URL
	f.noteStartRequests(t.Context(), "restart_2", before, 10)
	f.noteStartRequests(t.Context(), "restart_3", nil, 10)
	if got := f.startRequests(t.Context()); got != nil || len(f.facts) != 1 {
		t.Errorf("%v; facts %v", got, f.facts)
	}
}

// Those that fall silent are called down, once, when their ttl is over, and nobody else is; a
// successor begins before its name is free, and has it in the end.
func TestWhoFallsSilentIsCalledDown(t *testing.T) {
	const first, second = "x/unit/000000", "x/unit/000100"
	due := time.Minute - time.Second
	for name, c := range map[string]struct {
		down  []string
		after time.Duration
		alive bool
		want  string
	}{
		"those":                       {[]string{first, second}, due, true, ""},
		"nobody":                      {nil, due, true, "2 of 2 agents that fell silent were not called down within 1m2.1s"},
		"one of them":                 {[]string{second}, due, true, "1 of 2 agents that fell silent were not called down"},
		"too late":                    {[]string{first, second}, 63 * time.Second, true, "2 of 2 agents that fell silent were not called down"},
		"one that lives":              {[]string{first, second, "x/unit/000001"}, due, true, "x/unit/000001 was called down, and lived"},
		"somebody":                    {[]string{first, second, "x/unit/"}, due, true, "x/unit/ was called down, and lived"},
		"the successor":               {[]string{first, second, first}, due, true, first + " was called down, and lived"},
		"one when its stream ends":    {[]string{second}, time.Second, true, second + " was called down 1s after it fell silent, and its ttl is 1m0s\n1 of 2"},
		"a successor without a place": {[]string{first, second}, due, false, "the agent of unit 0 lives, and was not called alive within 1m0s"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var f *agentFleet
				silent := map[int]bool{}
				f = newTestFleet(150, AgentSystem{
					Silence: func(_ context.Context, unit int) error {
						silent[unit] = true
						return nil
					},
					Start: func(_ context.Context, unit int, members bool, _ func(int), attached func()) (func(), error) {
						if unit != 0 || !members || len(silent) != 2 {
							return nil, errors.New("not the successor")
						}
						time.AfterFunc(c.after, func() {
							for _, name := range c.down {
								f.calledDown(name)
							}
						})
						attached()
						return func() {}, nil
					},
					Alive: func(_ context.Context, unit int) (bool, error) { return c.alive && unit == 0, nil },
				})
				if err := f.silence(t.Context()); err != nil {
					t.Fatal(err)
				}
				if !maps.Equal(silent, map[int]bool{0: true, 100: true}) || f.facts["silence_starts"] != 1 {
					t.Errorf("silent are %v, facts %v", silent, f.facts)
				}
				time.Sleep(2 * time.Second) // whoever is called down too late is not of interest any more
				if texts := strings.Join(f.check.drain().Texts, "\n"); (texts == "") != (c.want == "") || !strings.HasPrefix(texts, c.want) {
					t.Errorf("violations %q, want %q", texts, c.want)
				}
			})
		})
	}
	f := newTestFleet(1, AgentSystem{})
	if err := f.silence(t.Context()); err != nil || len(f.facts) != 0 {
		t.Errorf("a system of which nobody falls silent: %v, %v", err, f.facts)
	}
}

// fakeCache calls as a [client.KeyCache] does: locked.
type fakeCache struct {
	mu     sync.Mutex
	err    error
	notify func()
}

func (c *fakeCache) Notify(f func()) { c.notify = f }

func (c *fakeCache) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

func (c *fakeCache) change(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	c.notify()
}

// A watch that has died has not told anything.
func TestAWatchThatDiesTellsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, begun := &fakeCache{}, 0
		var told atomic.Int64
		hearFrom(c, func() { begun++ }, func() { told.Add(1) })
		for _, err := range []error{nil, nil, errors.New("denied"), nil} {
			c.change(err)
			synctest.Wait()
		}
		if begun != 1 || told.Load() != 2 {
			t.Errorf("begun %d times, told of %d changes, want 1 and 2", begun, told.Load())
		}
	})
}

// A session that is opened once it has begun before is another one.
func TestASessionIsOpenedOnce(t *testing.T) {
	var told []int
	attached := 0
	begins := beginsBy(func(what int) { told = append(told, what) }, func() { attached++ })
	begins("a", true)
	begins("b", false)
	if len(told) != 0 {
		t.Errorf("told %v by who has come back", told)
	}
	begins("c", true)
	if len(told) != 1 || told[0] != ToldAnew || attached != 3 {
		t.Errorf("told %v, attached %d times", told, attached)
	}
}
