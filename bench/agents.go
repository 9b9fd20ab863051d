package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
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
	// called whenever something of what it follows has changed, attached whenever it has
	// begun again. Neither blocks. It goes on until stop is called.
	Start func(ctx context.Context, unit int, members bool, told func(what int), attached func()) (stop func(), err error)
	// Charm changes the url of the application's charm, Other something else of the
	// application.
	Charm, Other func(ctx context.Context, value int) error
	// Relate adds a relation to n units in one transaction, or in as few as there can be.
	Relate func(ctx context.Context, n int) error
	// Presence calls down whenever somebody is called down who was alive, until ctx
	// ends. nil: the system has none of that.
	Presence func(ctx context.Context, down func(name string)) error
}

// agentFleet is the fleet of a run.
type agentFleet struct {
	*run
	sys      AgentSystem
	stops    []func()
	attaches atomic.Int64
	told     [numTold]atomic.Int64

	mu      sync.Mutex // protects the rest; held for field accesses
	waits   int        // for how many to be told of what
	what    int
	since   time.Duration
	reached chan struct{}
	toldIn  *opRecord
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
		sys.Start = team.start
	}
	return r.agentLife(ctx, sys)
}

// agentLife is the life of a fleet.
func (r *run) agentLife(ctx context.Context, sys AgentSystem) error {
	f := &agentFleet{run: r, sys: sys, what: -1}
	defer func() {
		for _, stop := range f.stops {
			stop()
		}
	}()
	base := r.rss()
	r.setAgents(func() (int, int, int) { return int(f.attaches.Load()), 0, 0 })
	watching, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		if f.sys.Presence == nil {
			ended <- nil
			return
		}
		ended <- f.sys.Presence(watching, func(name string) { f.check.Violate("%s was called down, and lived", name) })
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
	for _, step := range []func(context.Context) error{f.alone, f.quiet, f.charm, f.relate, f.restarts} {
		if err := step(ctx); err != nil {
			return err
		}
		r.notePeak()
	}
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
			stops[i], err = f.sys.Start(ctx, from+i, from+i < agentMembers, f.hear, func() { f.attaches.Add(1) })
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

// hear counts what an agent is told of.
func (f *agentFleet) hear(what int) {
	f.told[what].Add(1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if what != f.what {
		return
	}
	now := f.now()
	f.toldIn.done(now, now-f.since, 1)
	if f.waits--; f.waits == 0 {
		f.what = -1
		close(f.reached)
	}
}

// tellAll does something that so many are to be told of, and waits until they are.
func (f *agentFleet) tellAll(ctx context.Context, name string, what, n int, do func() error) error {
	f.setPhase("%s", name)
	f.mu.Lock()
	f.what, f.waits, f.since, f.reached, f.toldIn = what, n, f.now(), make(chan struct{}), f.op(name)
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
		left := f.waits
		f.what = -1
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

// restarts ends and starts the members, one after the other and then all at once.
func (f *agentFleet) restarts(ctx context.Context) error {
	members, ok := f.cluster.(Members)
	if !ok || f.sc.Fault == "" {
		return nil
	}
	n := len(members.Servers())
	was := f.tally()
	if n > 1 {
		for i := range n {
			f.setPhase("restart of member %d", i+1)
			began, before := f.now(), f.attaches.Load()
			if err := f.restartMember(ctx, members, i); err != nil {
				return err
			}
			if err := sleep(ctx, agentLull); err != nil {
				return err
			}
			f.fact(fmt.Sprintf("restart_%d_moved", i+1), float64(f.attaches.Load()-before))
			f.fact(fmt.Sprintf("restart_%d_seconds", i+1), (f.now() - began).Seconds())
		}
	}
	f.setPhase("restart of all")
	began, before := f.now(), f.attaches.Load()
	if err := inParallel(ctx, n, func(i int) error { return members.Kill(i, syscall.SIGTERM) }); err != nil {
		return err
	}
	down := f.now()
	f.fact("restart_all_stopped_seconds", (down - began).Seconds())
	if err := inParallel(ctx, n, func(i int) error { return members.Start(ctx, i, Start{}) }); err != nil {
		return err
	}
	first := time.Duration(0)
	for {
		back := f.attaches.Load() - before
		if back > 0 && first == 0 {
			first = f.now()
		}
		if back >= int64(len(f.stops)) {
			break
		}
		if f.now()-down > agentPatience {
			f.check.Violate("%d of %d agents were not back in time", int64(len(f.stops))-back, len(f.stops))
			break
		}
		if err := sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	f.fact("restart_all_first_seconds", (first - down).Seconds())
	f.fact("restart_all_resumed_seconds", (f.now() - down).Seconds())
	if err := sleep(ctx, agentLull); err != nil {
		return err
	}
	f.fact("restart_all_starts_per_agent", float64(f.attaches.Load()-before)/float64(len(f.stops)))
	reread := int64(0)
	for i, is := range f.tally() {
		reread += is - was[i]
	}
	f.fact("reread", float64(reread))
	return nil
}

// restartMember returns once the member serves again, so that never two are away.
func (f *agentFleet) restartMember(ctx context.Context, members Members, i int) error {
	if err := members.Kill(i, syscall.SIGTERM); err != nil {
		return err
	}
	if err := members.Start(ctx, i, Start{}); err != nil {
		return err
	}
	for began := f.now(); f.now()-began < agentPatience; {
		res, err := f.clients[i].Cluster().Members(ctx, connect.NewRequest(&apiv1.MembersRequest{}))
		if err == nil && slices.ContainsFunc(res.Msg.Members, func(m *apiv1.Member) bool { return m.Self && m.Ready }) {
			return nil
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return incumbent.Errorf(incumbent.Unavailable, "member %d did not serve again within %v", i+1, agentPatience)
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
