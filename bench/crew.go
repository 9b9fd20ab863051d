package bench

import (
	"context"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// processConns is how many connections one process opens at most: it may have 20,000
// files, and some are being dialled.
const processConns = 18_000

// crew is the agents that a run has with a connection each, in this process or in others:
// Juju's units, or sessions with a stream each.
type crew interface {
	victims
	grow(ctx context.Context, leases int, rate float64) error
	hold(ctx context.Context, d time.Duration) error
	count() (tally, error)
	close()
}

// spread reports whether the agents of a ladder are in other processes. Juju's units may
// be in this one, and are a crew nevertheless.
func (sc *Scenario) spread() bool { return sc.Connections == "own" && sc.processes() > 1 }

// processes is how many processes hold the agents of a ladder that have a connection each.
func (sc *Scenario) processes() int {
	agents := sc.Stages[len(sc.Stages)-1].Leases * max(1, sc.Candidates)
	return max(sc.Workers, (agents+processConns-1)/processConns)
}

// playCrew plays a ladder with a crew: each stage ramps up and is held, and the fault, if
// there is one, is played on each, or on the last if it leaves a member down or is a flood.
func playCrew(ctx context.Context, r *run) error {
	base := r.rss()
	c, err := r.newCrew(ctx)
	if err != nil {
		return err
	}
	defer c.close()
	r.setAgents(func() (int, int, int) {
		t, _ := c.count()
		return t.Leading, t.Blocked, t.Open
	})
	script := r.sc.script()
	for i, stage := range r.sc.Stages {
		struck := len(script) > 0 && (i == len(r.sc.Stages)-1 || !onceOnly(script))
		if err := r.climb(ctx, c, stage, base, struck); err != nil {
			return err
		}
		if !struck {
			r.step(stage.Leases, "")
			continue
		}
		if err := r.strikeCrew(ctx, c, stage, script); err != nil {
			return err
		}
	}
	if !leavesDown(script) {
		if err := r.awaitMembers(ctx, membersTimeout); err != nil {
			return err
		}
	}
	t, err := c.count()
	r.crewFacts(t)
	return err
}

// strikeCrew plays the fault on a stage, and waits until all agents lead or wait again.
func (r *run) strikeCrew(ctx context.Context, c crew, stage Stage, script []Action) error {
	before := r.faultFacts()
	o := &ordeal{run: r, settle: time.Duration(r.sc.Settle), victims: c}
	if err := o.playFaults(ctx, script); err != nil {
		return err
	}
	now := r.faultFacts()
	for name := range now {
		r.fact(name, now[name]+before[name])
	}
	return c.grow(ctx, stage.Leases, stage.Ramp)
}

// faultFacts are the counts that each fault notes: a ladder's are the sums of its
// stages'.
func (r *run) faultFacts() map[string]float64 {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := map[string]float64{}
	for _, name := range []string{"elections", "leadership_moves", "held_before_the_fault", "not_recovered", "replaced_in_the_fault"} {
		if v, ok := r.facts[name]; ok {
			out[name] = v
		}
	}
	return out
}

// climb ramps up to a stage and holds it. If it is struck afterwards, its ramp is a step of
// its own.
func (r *run) climb(ctx context.Context, c crew, stage Stage, base uint64, struck bool) error {
	r.setPhase("ramp to %d leases", stage.Leases)
	began := r.now()
	before, _ := c.count()
	if err := c.grow(ctx, stage.Leases, stage.Ramp); err != nil {
		return err
	}
	now, _ := c.count()
	took := (r.now() - began).Seconds()
	r.fact("connect_seconds", took)
	r.fact("connects_per_second", float64(now.Open-before.Open)/took)
	if struck {
		r.step(stage.Leases, rampPhase)
	}
	r.setPhase("%d leases", stage.Leases)
	if err := c.hold(ctx, time.Duration(stage.Hold)); err != nil {
		return err
	}
	r.fact("servers_rss_bytes", float64(r.perConnection(base, now.Open)))
	return nil
}

// onceOnly reports whether a fault is played on the last stage alone.
func onceOnly(script []Action) bool {
	return leavesDown(script) || slices.ContainsFunc(script, func(a Action) bool { return a.Do == "flood" })
}

// leavesDown reports whether a fault ends members that do not come back.
func leavesDown(script []Action) bool {
	for _, a := range script {
		if a.Do == "kill" {
			return true
		}
	}
	return false
}

// crewFacts notes what the agents came to, the slowest step with no fault, ramps
// included, and the most memory that the servers had together.
func (r *run) crewFacts(t tally) {
	want := r.sc.Stages[len(r.sc.Stages)-1].Leases
	for name, n := range map[string]int{
		"holding_at_end": t.Leading, "blocked_at_end": t.Blocked, "connections_at_end": t.Open, "holders_ended": t.Ended,
		"connections_lost": t.Closed, "hand_overs": t.Moved, "wakes": t.Wakes, "agents": want * max(1, r.sc.Candidates),
	} {
		r.fact(name, float64(n))
	}
	r.notePeak()
	if r.sc.HandOvers == 0 && t.Leading < want {
		r.check.Violate("%d of %d leases are held at the end", t.Leading, want)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, op := range []string{"claim", "extend"} {
		worst := 0.0
		for _, s := range r.steps {
			if s.Phase == "" || s.Phase == rampPhase || s.Phase == quietPhase {
				worst = max(worst, s.Ops[op].P99)
			}
		}
		r.facts[op+"_p99_worst_step_ms"] = worst
	}
}

// judgeTally says how the leaders of a crew fared in a fault. One whose member went comes back elsewhere
// and claims or extends: it leads on if it is in time.
func (r *run) judgeTally(t tally, err error) error {
	for name, n := range map[string]int{
		"held_before_the_fault": t.Struck, "not_recovered": t.Waiting, "replaced_in_the_fault": t.Replaced,
		"extensions_refused": t.Refused, "extensions_unconfirmed": t.Unsure,
	} {
		r.fact(name, float64(n))
	}
	r.fact("renewing_again_seconds", t.Renewed.Seconds())
	if t.Waiting > 0 {
		r.check.Violate("%d leaders have had no good extension since the fault", t.Waiting)
	}
	return err
}

// part is the share of one process: the leases whose number leaves this remainder.
type part struct {
	Number int `json:"number"`
	Of     int `json:"of"`
}

func (p part) has(lease int) bool { return lease%p.Of == p.Number }

// share is how many of the first n leases are the process's.
func (p part) share(n int) int { return (n - p.Number + p.Of - 1) / p.Of }

// tally counts what a fleet is and what has happened to it.
type tally struct {
	Leading  int `json:"leading"` // of Juju's units, those whose own deadline is ahead
	Blocked  int `json:"blocked"`
	Open     int `json:"open"`     // connections that are logged in
	Ended    int `json:"ended"`    // answers that end a holder of Juju's load tool; of others 0
	Closed   int `json:"closed"`   // connections that the server ended
	Moved    int `json:"moved"`    // leases that another unit has got
	Wakes    int `json:"wakes"`    // blocked units that were told that the lease is free
	Struck   int `json:"struck"`   // leaders when the fault began
	Waiting  int `json:"waiting"`  // of them, without an answer since
	Replaced int `json:"replaced"` // of them, that another agent has replaced
	Refused  int `json:"refused"`  // extensions of those who lead
	Unsure   int `json:"unsure"`   // and those that were not confirmed
	// Renewed is when the last of those that were struck and no longer wait had its good
	// extension, since the fault.
	Renewed time.Duration `json:"renewed"`
}

func (t *tally) add(o tally) {
	t.Leading += o.Leading
	t.Blocked += o.Blocked
	t.Open += o.Open
	t.Ended += o.Ended
	t.Closed += o.Closed
	t.Moved += o.Moved
	t.Wakes += o.Wakes
	t.Struck += o.Struck
	t.Waiting += o.Waiting
	t.Replaced += o.Replaced
	t.Refused += o.Refused
	t.Unsure += o.Unsure
	t.Renewed = max(t.Renewed, o.Renewed)
}

// newCrew starts the agents: in this process, or, where it may not open so many
// connections, in several that it starts.
func (r *run) newCrew(ctx context.Context) (crew, error) {
	a := &assignment{Scenario: r.sc, Began: r.begun.UnixNano(), Lines: r.opts.LogFormat == "juju"}
	n := r.sc.processes()
	if r.sc.Door != doorJuju {
		a.Native = r.agentsTask()
		return newTeam(ctx, r, a, n)
	}
	hosts, err := r.jujuHosts(ctx)
	if err != nil {
		return nil, err
	}
	// A model of the run's own: its applications are nobody else's.
	login := jujuLogin{Model: incumbent.NewSessionID().String(), Agent: r.opts.JujuAgent, Password: r.opts.JujuPassword}
	if n == 1 {
		return newJujuFleet(ctx, r, login, hosts, part{Of: 1})
	}
	a.Login, a.Hosts = login, hosts
	return newTeam(ctx, r, a, n)
}
