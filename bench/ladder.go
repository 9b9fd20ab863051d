package bench

import (
	"context"
	"fmt"
	"syscall"
	"time"
)

// playLadder grows the fleet stage by stage, with a steady load on each, and
// plays the fault, if the scenario has one, on the last.
func playLadder(ctx context.Context, r *run) error {
	f := newFleet(r)
	f.running.Go(f.drive)
	defer f.close()
	for i, stage := range r.sc.Stages {
		r.setPhase("ramp to %d leases", stage.Leases)
		if err := f.grow(ctx, stage.Leases, stage.Ramp); err != nil {
			return err
		}
		r.setPhase("%d leases", stage.Leases)
		if err := f.hold(ctx, time.Duration(stage.Hold)); err != nil {
			return err
		}
		if r.sc.Fault != nil && i == len(r.sc.Stages)-1 {
			if err := f.playFault(ctx, r.sc.Fault); err != nil {
				return err
			}
		}
		r.step(stage.Leases)
	}
	r.countAll(f)
	return nil
}

// step closes a rung of the ladder: its own histograms.
func (r *run) step(leases int) {
	s := Step{Leases: leases, Ops: map[string]OpSummary{}}
	for name, o := range r.rec.all() {
		if sum := o.closeStep(); sum.Count > 0 {
			s.Ops[name] = sum
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.steps = append(r.steps, s)
}

// countAll compares what the agents believe with what they should have.
func (r *run) countAll(f *fleet) {
	f.mu.Lock()
	defer f.mu.Unlock()
	r.facts["holding_at_end"] = float64(f.holding)
	r.facts["agents"] = float64(len(f.agents))
	r.facts["hand_overs"] = float64(f.handed.Load())
	if want := len(f.heldBy); f.strict && f.holding != want {
		r.check.Violate("%d of %d leases are held at the end", f.holding, want)
	}
}

// playFault stops the servers for a while; the fleet goes on asking. Afterwards
// every holder must go on with the token it had.
func (f *fleet) playFault(ctx context.Context, fault *Fault) error {
	if f.cluster == nil {
		return fmt.Errorf("a fault needs servers that this run started: --members local:1")
	}
	if err := sleep(ctx, time.Duration(fault.After)); err != nil {
		return err
	}
	f.mu.Lock()
	before := make(map[int]uint64, len(f.agents))
	for _, a := range f.agents {
		if a.token != 0 {
			before[a.id] = a.token
		}
	}
	f.mu.Unlock()
	f.setPhase("servers stopped")
	if err := f.signalAll(syscall.SIGSTOP); err != nil {
		return err
	}
	err := sleep(ctx, time.Duration(fault.For))
	if cerr := f.signalAll(syscall.SIGCONT); cerr != nil {
		return cerr
	}
	if err != nil {
		return err
	}
	f.setPhase("servers go on")
	// Two ttls: whoever was to lose a lease by the stall would have by then.
	if err := sleep(ctx, 2*f.ttl); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	kept := 0
	for _, a := range f.agents {
		if token, held := before[a.id]; held && a.token == token {
			kept++
		} else if held {
			f.check.Violate("agent %d had token %d before the stall and %d after", a.id, token, a.token)
		}
	}
	f.run.facts["kept_their_token"] = float64(kept)
	f.run.facts["held_before_the_stall"] = float64(len(before))
	return f.failure
}

func (f *fleet) signalAll(sig syscall.Signal) error {
	for i := range f.cluster.PIDs() {
		if err := f.cluster.Signal(i, sig); err != nil {
			return err
		}
	}
	return nil
}
