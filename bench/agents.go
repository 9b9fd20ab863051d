package bench

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// A fleet of agents of a control plane: each is alive by its session, follows the url
// of its application's charm, its own unit and its own relations; the first few follow
// which units there are. The fleet grows by the scenario's stages; then things happen to
// it, and who is told of what, when, is counted.

// What an agent is told of.
const (
	ToldMembers   = iota // which units there are
	ToldCharm            // the url of the charm
	ToldUnit             // its own unit
	ToldRelations        // its own relations
	ToldAnew             // that its session was opened anew: the one that it had was over
	numTold
)

// Of fleets.
const (
	agentMembers  = 10              // agents that follow which units there are
	agentBulk     = 400             // units that one transaction adds
	agentBulks    = 4               // transactions under way
	agentAlone    = 10              // units that are added alone, after all
	agentPatience = 2 * time.Minute // for all to be told, or back
	agentLull     = 2 * time.Second // in which who is woken in vain shows
)

// AgentSystem is a system that agents live on.
type AgentSystem struct {
	// Add adds units from number first on, in one transaction.
	Add func(ctx context.Context, first, n int) error
	// Start starts the agent of a unit and returns once it has all it follows. told is
	// called whenever something of what it follows has changed, but not when it is followed
	// no more, attached whenever it has begun again. Neither blocks. It goes on until stop is
	// called.
	Start func(ctx context.Context, unit int, members bool, told func(what int), attached func()) (stop func(), err error)
	// Charm changes the url of the application's charm, Other something else of the
	// application.
	Charm, Other func(ctx context.Context, value int) error
	// Relate adds a relation to n units in one transaction, or in as few as there can be.
	Relate func(ctx context.Context, n int) error
	// Presence calls down whenever somebody is called down who was alive, until ctx
	// ends. What an agent is called ends with its unit's number, behind a slash. nil: the
	// system has none of that.
	Presence func(ctx context.Context, down func(name string)) error
	// Silence has the agent of a unit fall silent: its session is not ended. Alive reports
	// whether somebody is alive under the name of a unit's agent. nil, both: the system has
	// none of that.
	Silence func(ctx context.Context, unit int) error
	Alive   func(ctx context.Context, unit int) (bool, error)
}

// agentFleet is the fleet of a run.
type agentFleet struct {
	*run
	sys      AgentSystem
	stops    []func()     // by unit
	attaches atomic.Int64 // how often agents have begun
	told     [numTold]atomic.Int64

	mu       sync.Mutex // protects the rest; held for accesses of fields and maps
	what     int        // the newest event is one of this
	wants    int        // agents that are to be told of it, those of the first units: once each
	heard    map[int]bool
	beyond   int // how often one was told again, or another was, of all events
	since    time.Duration
	reached  chan struct{}
	toldIn   *opRecord
	returned map[int]bool          // units whose agents have begun since it was emptied
	came     time.Duration         // when the last of them has
	silent   map[int]time.Duration // when which units' agents fell silent
	down     map[int]bool          // those of them that were called down since
}

// playAgents plays on Incumbent.
func playAgents(ctx context.Context, r *run) error {
	if _, ok := r.cluster.(Members); !ok && r.sc.Fault != "" {
		return incumbent.Errorf(incumbent.Invalid, "fault %s needs servers that this run starts: --members local:N", r.sc.Fault).
			WithHint("or leave it out with --set scale=cut")
	}
	task := r.agentsTask()
	native, err := newAgentsNative(task)
	if err != nil {
		return err
	}
	sys := native.system()
	units := r.sc.Stages[len(r.sc.Stages)-1].Leases
	if n := max(r.sc.Workers, (units+processConns-1)/processConns); n > 1 {
		team, err := newAgentsTeam(ctx, r, task, n)
		if err != nil {
			return err
		}
		defer team.close()
		sys.Start, sys.Silence = team.start, team.silence
	}
	return r.agentLife(ctx, sys)
}

func newAgentFleet(r *run, sys AgentSystem) *agentFleet {
	return &agentFleet{run: r, sys: sys, what: -1, returned: map[int]bool{}, silent: map[int]time.Duration{}, down: map[int]bool{}}
}

// agentLife is the life of a fleet.
func (r *run) agentLife(ctx context.Context, sys AgentSystem) error {
	f := newAgentFleet(r, sys)
	defer func() {
		for _, stop := range f.stops {
			stop()
		}
	}()
	base := r.rss()
	r.setAgents(func() (int, int, int) { return f.back(), 0, 0 })
	watching, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		if f.sys.Presence == nil {
			ended <- nil
			return
		}
		ended <- f.sys.Presence(watching, f.calledDown)
	}()
	if err := f.sys.Charm(ctx, 0); err != nil {
		return err
	}
	for _, stage := range r.sc.Stages {
		if err := f.grow(ctx, stage); err != nil {
			return err
		}
	}
	n := len(f.stops)
	if grown := r.rss(); grown > base {
		r.fact("rss_per_agent_bytes", float64(grown-base)/float64(n))
	}
	for _, step := range []func(context.Context) error{f.alone, f.quiet, f.charm, f.relate, f.restarts, f.silence} {
		if err := step(ctx); err != nil {
			return err
		}
		r.notePeak()
	}
	f.fact("told_beyond", float64(f.beyondRight()))
	r.noteDisk()
	stop()
	if err := <-ended; err != nil && ctx.Err() == nil {
		return fmt.Errorf("the watch of who is there: %w", err)
	}
	return nil
}

// grow adds units, and starts their agents.
func (f *agentFleet) grow(ctx context.Context, stage Stage) error {
	from, n := len(f.stops), stage.Leases-len(f.stops)
	f.setPhase("growing to %d", stage.Leases)
	began, was := f.now(), f.tally()
	adds := f.op("add")
	bulks := (n + agentBulk - 1) / agentBulk
	err := inParallelOf(ctx, agentBulks, bulks, func(i int) error {
		first := from + i*agentBulk
		return f.timed(ctx, adds, func() error { return f.addAsTold(ctx, first, min(agentBulk, stage.Leases-first)) })
	})
	if err != nil {
		return err
	}
	f.fact(fmt.Sprintf("add_%d_seconds", stage.Leases), (f.now() - began).Seconds())
	starts, stops := f.op("start"), make([]func(), n)
	err = f.ramp(ctx, n, stage.Ramp, func(i int) error {
		return f.timed(ctx, starts, func() (err error) {
			stops[i], err = f.start(ctx, from+i)
			return err
		})
	})
	for _, stop := range stops {
		if stop != nil {
			f.stops = append(f.stops, stop)
		}
	}
	if err != nil {
		return err
	}
	f.fact(fmt.Sprintf("grow_%d_seconds", stage.Leases), (f.now() - began).Seconds())
	f.noteWakes(fmt.Sprintf("grow_%d", stage.Leases), was, n)
	f.step(stage.Leases, "")
	return sleep(ctx, time.Duration(stage.Hold))
}

// start starts the agent of a unit.
func (f *agentFleet) start(ctx context.Context, unit int) (stop func(), err error) {
	return f.sys.Start(ctx, unit, unit < agentMembers, func(what int) { f.hear(unit, what) }, func() { f.attached(unit) })
}

// addAsTold adds units, again for as long as it is refused for the load, when it is told
// to: nothing of what was refused has happened.
func (f *agentFleet) addAsTold(ctx context.Context, first, n int) error {
	for {
		err := f.sys.Add(ctx, first, n)
		wait, overloaded := overloadOf(err)
		if !overloaded {
			return err
		}
		f.turnedAway()
		if err := sleep(ctx, wait); err != nil {
			return err
		}
	}
}

// op is the record of an operation.
func (f *agentFleet) op(name string) *opRecord { return f.rec.op(name) }

func (f *agentFleet) tally() (t [numTold]int64) {
	for i := range t {
		t[i] = f.told[i].Load()
	}
	return t
}

// noteWakes notes how often who follows the members was woken for each of n added units,
// and how often anybody else was.
func (f *agentFleet) noteWakes(phase string, was [numTold]int64, n int) {
	is := f.tally()
	f.fact(phase+"_wakes_per_unit", float64(is[ToldMembers]-was[ToldMembers])/float64(n))
	f.fact(phase+"_other_wakes", float64(is[ToldCharm]-was[ToldCharm]+is[ToldUnit]-was[ToldUnit]+is[ToldRelations]-was[ToldRelations]))
}

// attached counts that an agent has begun.
func (f *agentFleet) attached(unit int) {
	f.attaches.Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.returned[unit] {
		f.returned[unit], f.came = true, f.now()
	}
}

// back is how many agents have begun since allAway. One that has begun twice is one.
func (f *agentFleet) back() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.returned)
}

// lastBack is when the last of them has begun for the first time.
func (f *agentFleet) lastBack() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.came
}

// allAway takes all agents as away until they begin again, and returns how often any have begun.
func (f *agentFleet) allAway() int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.returned = map[int]bool{}
	return f.attaches.Load()
}

// hear counts what the agent of a unit is told of.
func (f *agentFleet) hear(unit, what int) {
	f.told[what].Add(1)
	if what == ToldAnew {
		f.check.Violate("the session of unit %d was opened anew, for it was over", unit)
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if what != f.what {
		return
	}
	if f.heard[unit] || unit >= f.wants {
		f.beyond++
		return
	}
	f.heard[unit] = true
	now := f.now()
	f.toldIn.done(now, now-f.since, 1)
	if len(f.heard) == f.wants {
		close(f.reached)
	}
}

// beyondRight is how often agents were told of events that were not theirs, or again.
func (f *agentFleet) beyondRight() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.beyond
}

// tellAll does something that the agents of the first n units are to be told of, and waits
// until each is.
func (f *agentFleet) tellAll(ctx context.Context, name string, what, n int, do func() error) error {
	f.setPhase("%s", name)
	f.mu.Lock()
	f.what, f.wants, f.heard, f.since, f.reached, f.toldIn = what, n, make(map[int]bool, n), f.now(), make(chan struct{}), f.op(name)
	since, reached := f.since, f.reached
	f.mu.Unlock()
	if err := do(); err != nil {
		return err
	}
	f.fact(name+"_stored_ms", (f.now()-since).Seconds()*1000)
	late := time.NewTimer(agentPatience)
	defer late.Stop()
	select {
	case <-reached:
		f.fact(name+"_told_ms", (f.now()-since).Seconds()*1000)
	case <-late.C:
		f.mu.Lock()
		left := n - len(f.heard)
		f.mu.Unlock()
		f.check.Violate("%s: %d of %d were not told", name, left, n)
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// alone adds units one by one: each wakes those who follow the members.
func (f *agentFleet) alone(ctx context.Context) error {
	was := f.tally()
	watchers := min(agentMembers, len(f.stops))
	for i := range agentAlone {
		err := f.tellAll(ctx, "unit_added", ToldMembers, watchers, func() error { return f.sys.Add(ctx, len(f.stops)+i, 1) })
		if err != nil {
			return err
		}
	}
	if err := sleep(ctx, agentLull); err != nil {
		return err
	}
	f.noteWakes("alone", was, agentAlone)
	f.fact("members_watchers", float64(watchers))
	return nil
}

// quiet lets the fleet be.
func (f *agentFleet) quiet(ctx context.Context) error {
	f.setPhase("quiet")
	was, began := f.meter.cpu(), f.now()
	_, lines, seen := f.logged()
	if err := sleep(ctx, time.Duration(f.sc.Settle)); err != nil {
		return err
	}
	if spent := f.now() - began; spent > 0 {
		if _, now, _ := f.logged(); seen {
			f.fact("quiet_log_lines_per_minute", float64(now-lines)/spent.Minutes())
		}
		f.fact("quiet_cpu_cores", (f.meter.cpu()-was).Seconds()/spent.Seconds())
		f.fact("quiet_cpu_us_per_agent_second", (f.meter.cpu()-was).Seconds()/spent.Seconds()/float64(len(f.stops))*1e6)
	}
	return nil
}

// charm changes the charm's url, which all follow, and something else beside it.
func (f *agentFleet) charm(ctx context.Context) error {
	was := f.tally()
	f.setPhase("other")
	if err := f.sys.Other(ctx, 1); err != nil {
		return err
	}
	if err := sleep(ctx, agentLull); err != nil {
		return err
	}
	is := f.tally()
	f.fact("other_field_wakes", float64(is[ToldCharm]-was[ToldCharm]))
	return f.tellAll(ctx, "charm", ToldCharm, len(f.stops), func() error { return f.sys.Charm(ctx, 1) })
}

// relate adds a relation to all.
func (f *agentFleet) relate(ctx context.Context) error {
	n := len(f.stops)
	return f.tellAll(ctx, "relation", ToldRelations, n, func() error { return f.sys.Relate(ctx, n) })
}

// noteDisk notes what the servers have written, where that can be seen.
func (r *run) noteDisk() {
	if d, ok := r.cluster.(interface{ DiskBytes() int64 }); ok {
		r.fact("disk_bytes", float64(d.DiskBytes()))
	}
	if bytes, _, ok := r.logged(); ok {
		r.fact("log_bytes", float64(bytes))
	}
}

// logged is how much the servers have said in their logs, where that can be seen.
func (r *run) logged() (bytes, lines int64, ok bool) {
	if d, ok := r.cluster.(interface{ Logged() (bytes, lines int64) }); ok {
		bytes, lines = d.Logged()
		return bytes, lines, true
	}
	return 0, 0, false
}

// validateAgents checks what a fleet is to be.
func (sc *Scenario) validateAgents() error {
	if sc.Connections != "own" {
		return fmt.Errorf("agents have a connection each: connections must be own")
	}
	if err := incumbent.ValidateTTL(time.Duration(sc.TTL)); err != nil {
		return err
	}
	if len(sc.Stages) == 0 {
		return fmt.Errorf("no stages")
	}
	return sc.validateStages()
}
