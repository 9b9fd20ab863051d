package bench

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/rpc"
	"net/rpc/jsonrpc"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// fakeAgents is a system whose agents are told by who changes something, as it says.
type fakeAgents struct {
	mu     sync.Mutex
	told   map[int]func(int)
	others bool // wake who follows the charm's url for anything of the application
	down   string
	stored []int // units of each transaction
	refuse int   // so many transactions are refused for the load
}

func (f *fakeAgents) each(what int, of func(unit int) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for unit, told := range f.told {
		if of(unit) {
			told(what)
		}
	}
}

func (f *fakeAgents) system() AgentSystem {
	return AgentSystem{
		Add: func(_ context.Context, _, n int) error {
			f.mu.Lock()
			refused := f.refuse > 0
			f.refuse--
			if !refused {
				f.stored = append(f.stored, n)
			}
			f.mu.Unlock()
			if refused {
				e := incumbent.Errorf(incumbent.Overloaded, "transactions wait too long")
				e.RetryAfter = time.Millisecond
				return e
			}
			f.each(ToldMembers, func(unit int) bool { return unit < agentMembers })
			return nil
		},
		Start: func(_ context.Context, unit int, _ bool, told func(int), attached func()) (func(), error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.told[unit] = told
			attached()
			return func() {}, nil
		},
		Charm: func(context.Context, int) error {
			f.each(ToldCharm, func(int) bool { return true })
			return nil
		},
		Other: func(context.Context, int) error {
			f.each(ToldCharm, func(int) bool { return f.others })
			return nil
		},
		Relate: func(_ context.Context, n int) error {
			f.each(ToldRelations, func(unit int) bool { return unit < n })
			return nil
		},
		Presence: func(ctx context.Context, down func(string)) error {
			if f.down != "" {
				down(f.down)
			}
			<-ctx.Done()
			return nil
		},
	}
}

// What a fleet counts is what its system did: who was woken for what, and who was
// called down.
func TestAgentsCountWhoIsWoken(t *testing.T) {
	t.Parallel()
	f := &fakeAgents{told: map[int]func(int){}, others: true, down: "unit/7", refuse: 3}
	settings := map[string]string{"stages": "[{leases: 20, ramp: 10000, hold: 0s}, {leases: 820, ramp: 10000, hold: 0s}]", "settle": "1ms", "thresholds": "{}"}
	s, err := RunPeer(t.Context(), Options{Scenario: "agents-2013", Set: settings}, Peer{
		Play: func(ctx context.Context, r *PeerRun) error { return r.Agents(ctx, f.system()) },
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]float64{
		"members_watchers": 10, "alone_wakes_per_unit": 10, "alone_other_wakes": 0, "other_field_wakes": 820,
		"grow_820_wakes_per_unit": 20.0 / 800, "grow_820_other_wakes": 0,
	} {
		if got := s.Facts[name]; got != want {
			t.Errorf("%s is %v, want %v", name, got, want)
		}
	}
	if s.Ops["charm"].Count != 820 || s.Ops["relation"].Count != 820 || s.Ops["unit_added"].Count != 100 || s.Ops["start"].Count != 820 {
		t.Errorf("operations %v", s.Ops)
	}
	slices.Sort(f.stored)
	if n := len(f.stored); n != 3+agentAlone || f.stored[n-1] != agentBulk || f.stored[n-3] != 20 {
		t.Errorf("units were added by %v", f.stored)
	}
	if s.Refused != 3 {
		t.Errorf("%d refusals, want 3, each made good", s.Refused)
	}
	if s.Violations != 1 || !strings.Contains(strings.Join(s.Texts, "\n"), "unit/7 was called down") {
		t.Errorf("%d violations: %v", s.Violations, s.Texts)
	}
}

// otherProcess is a process of agents that says what a test has it say.
type otherProcess struct {
	asked  chan agentOrder
	silent chan int
	news   chan agentNews
	end    chan struct{} // closed: it has ended
}

// Start starts every agent but the third, and never comes to an end with the fifth.
func (o *otherProcess) Start(a *agentOrder, _ *struct{}) error {
	o.asked <- *a
	switch a.Unit {
	case 3:
		return errors.New("no")
	case 5:
		<-o.end
	}
	return nil
}

func (o *otherProcess) Silence(unit int, _ *struct{}) error {
	o.silent <- unit
	return nil
}

func (o *otherProcess) News(_ *struct{}, news *agentNews) error {
	select {
	case *news = <-o.news:
	case <-o.end:
	}
	return nil
}

// An agent that is started in another process is started when that says so, and what each of
// its agents was told is heard here as that one's. Who waits for one that ends is told.
func TestAgentsOfAnotherProcess(t *testing.T) {
	t.Parallel()
	other := &otherProcess{asked: make(chan agentOrder, 3), silent: make(chan int, 1), news: make(chan agentNews), end: make(chan struct{})}
	near, far := net.Pipe()
	calls := rpc.NewServer()
	if err := calls.RegisterName(workerService, other); err != nil {
		t.Fatal(err)
	}
	go calls.ServeCodec(jsonrpc.NewServerCodec(far))
	p := &process{number: 2, calls: jsonrpc.NewClient(near)}
	team := &agentsTeam{processes: processes{nil, p}, ears: map[int]agentEars{}} // the first of two has the even units
	team.listening.Go(func() { team.listen(p) })
	told, attached := map[int][]int{}, map[int]int{} // of who listens
	errs := make(map[int]chan error)
	for _, unit := range []int{1, 3, 5} {
		err := make(chan error, 1)
		errs[unit] = err
		go func() {
			_, e := team.start(t.Context(), unit, unit == 1,
				func(what int) { told[unit] = append(told[unit], what) }, func() { attached[unit]++ })
			err <- e
		}()
	}
	members := map[int]bool{}
	for range errs {
		a := <-other.asked
		members[a.Unit] = a.Members
	}
	if !maps.Equal(members, map[int]bool{1: true, 3: false, 5: false}) {
		t.Errorf("asked for %v", members)
	}
	other.news <- agentNews{Told: [numTold][]int{ToldUnit: {1, 3, 1}}}
	other.news <- agentNews{Told: [numTold][]int{ToldMembers: {3}}, Attached: []int{1, 3, 3}}
	for unit, want := range map[int]string{1: "", 3: "process 2 of agents: no"} {
		if err := <-errs[unit]; want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("unit %d: %v, want %q", unit, err, want)
		}
	}
	if err := team.silence(t.Context(), 3); err != nil || <-other.silent != 3 {
		t.Errorf("it was not told who is to fall silent: %v", err)
	}
	// What it has said it is asked for more before it ends.
	other.news <- agentNews{}
	far.Close()
	close(other.end)
	if err := <-errs[5]; err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("unit 5: %v", err)
	}
	team.listening.Wait()
	if want := map[int][]int{1: {ToldUnit, ToldUnit}, 3: {ToldUnit, ToldMembers}}; !maps.EqualFunc(told, want, slices.Equal) {
		t.Errorf("told %v, want %v", told, want)
	}
	if want := map[int]int{1: 1, 3: 2}; !maps.Equal(attached, want) {
		t.Errorf("attached %v, want %v", attached, want)
	}
	if _, err := team.start(t.Context(), 7, false, nil, nil); err == nil {
		t.Error("an agent of a process that has ended was started")
	}
}

func TestScenariosOfAgents(t *testing.T) {
	for settings, want := range map[string]string{
		"connections=shared": "connections must be own", "stages=[]": "no stages", "ttl=0s": "ttl", "server_cpus=all": "it lists processors",
		"stages=[{leases: 300000, ramp: 1, hold: 0s}]": "a run may open",
	} {
		key, value, _ := strings.Cut(settings, "=")
		if _, err := Load("agents-2013", map[string]string{key: value}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", settings, err, want)
		}
	}
}
