package bench

import (
	"context"
	"slices"
	"time"
)

// rampPhase is the part of a step in which it grows, where a fault follows: what beginning
// takes is no measure of the quiet time.
const rampPhase = "ramp"

// playLadder grows the fleet stage by stage, with a steady load on each, and
// plays the fault, if the scenario has one, on the last.
func playLadder(ctx context.Context, r *run) error {
	if r.sc.Door == doorJuju || r.sc.spread() {
		return r.besideBare(ctx, playCrew)
	}
	f := newFleet(ctx, r)
	f.running.Go(func() { f.drive(&f.mu, f.now, &f.ended, f.perform) })
	defer f.close()
	script := r.sc.script()
	for i, stage := range r.sc.Stages {
		struck := script != nil && i == len(r.sc.Stages)-1
		r.setPhase("ramp to %d leases", stage.Leases)
		began := r.now()
		if err := f.grow(ctx, stage.Leases, stage.Ramp); err != nil {
			return err
		}
		r.fact("held_seconds", (r.now() - began).Seconds()) // since the stage's first candidate
		if struck {
			r.step(stage.Leases, rampPhase)
		}
		r.setPhase("%d leases", stage.Leases)
		if err := f.hold(ctx, time.Duration(stage.Hold)); err != nil {
			return err
		}
		if struck {
			o := &ordeal{run: r, victims: f}
			if err := o.playFaults(ctx, script); err != nil {
				return err
			}
			break
		}
		r.step(stage.Leases, "")
	}
	r.countAll(f)
	return nil
}

// step closes a rung of the ladder: its own histograms. Before and during a fault
// are two steps of the same rung.
func (r *run) step(leases int, phase string) {
	s := Step{Leases: leases, Phase: phase, Ops: map[string]OpSummary{}}
	for name, o := range r.rec.all() {
		if sum := o.closeStep(); sum.Count > 0 {
			s.Ops[name] = sum
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
}

// noteEffect notes what the worst of the steps since the quiet time did to the extensions of
// all, and to those of critical leases.
func (r *run) noteEffect() {
	r.mu.Lock()
	defer r.mu.Unlock()
	quiet := slices.IndexFunc(r.steps, func(s Step) bool { return s.Phase == quietPhase })
	if quiet >= 0 && quiet < len(r.steps)-1 {
		for op, name := range map[string]string{"extend": "extend", criticalPrefix + "extend": "critical_extend"} {
			before, fault := r.steps[quiet].Ops[op].P99, 0.0
			for _, s := range r.steps[quiet+1:] {
				if s.Phase == rampPhase || s.Phase == quietPhase { // of a later stage
					continue
				}
				fault = max(fault, s.Ops[op].P99)
			}
			if fault == 0 && op != "extend" {
				continue // there are none
			}
			r.facts[name+"_p99_before_ms"], r.facts[name+"_p99_fault_ms"] = before, fault
			if before > 0 {
				r.facts[name+"_p99_times"] = fault / before
			}
		}
	}
}

// countAll compares what the agents believe with what they should have.
func (r *run) countAll(f *fleet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.facts["holding_at_end"] = float64(f.holding)
	r.facts["agents"] = float64(len(f.agents))
	r.facts["hand_overs"] = float64(f.handed.Load())
	f.noteAllUnanswered(r.now())
	if want := len(f.heldBy); (f.strict || r.sc.HandOvers == 0) && f.holding != want {
		r.check.Violate("%d of %d leases are held at the end", f.holding, want)
	}
}
