package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Peer is another system that plays a scenario in the same shape, through its
// own client. Its program brings the load; pacing, recording, progress, summary
// and report are this package's, so that both sides are counted alike.
type Peer struct {
	// Versions go into the summary: the system's name and its version.
	Versions map[string]string
	// Play is the load. It takes the place of the scenario's play.
	Play func(ctx context.Context, r *PeerRun) error
}

// PeerRun is one run of a peer under way.
//
// Concurrency: everything but Closed may be called from any goroutine.
type PeerRun struct{ run *run }

// PeerOp records one operation of a peer.
type PeerOp struct {
	run *run
	rec *opRecord
}

// RunPeer plays a scenario against the peer. Of the options count Scenario, Set,
// PIDs, Dir, Out, Terminal and Command. The scenario's thresholds are goals of
// Incumbent's and judge no peer.
func RunPeer(ctx context.Context, opts Options, p Peer) (*Summary, error) {
	sc, err := Load(opts.Scenario, opts.Set)
	if err != nil {
		return nil, err
	}
	sc.Thresholds = nil
	r := newRun(sc, opts)
	r.versions = p.Versions
	return r.play(ctx, func(ctx context.Context, r *run) error { return p.Play(ctx, &PeerRun{r}) })
}

// Scenario is what is to be played.
func (p *PeerRun) Scenario() *Scenario { return p.run.sc }

// Phase names what the run is doing now.
func (p *PeerRun) Phase(format string, args ...any) { p.run.setPhase(format, args...) }

// Note prints a line between those of the progress.
func (p *PeerRun) Note(format string, args ...any) {
	fmt.Fprintf(p.run.opts.Out, format+"\n", args...)
}

// Fact notes a figure for the summary.
func (p *PeerRun) Fact(name string, v float64) { p.run.fact(name, v) }

// Holding tells how many leases are held over how many connections, from now on.
func (p *PeerRun) Holding(counts func() (holding, connections int)) {
	p.run.setAgents(func() (int, int, int) {
		holding, connections := counts()
		return holding, 0, connections
	})
}

// Lost counts a lease that was lost although it was extended in time.
func (p *PeerRun) Lost(format string, args ...any) { p.run.check.Lost(format, args...) }

// Lapsed counts a holder whose own deadline passed before an answer came.
func (p *PeerRun) Lapsed() { p.run.check.Lapsed() }

// Violate counts what else should not be.
func (p *PeerRun) Violate(format string, args ...any) { p.run.check.Violate(format, args...) }

// HoldFor is how long a holder counts on a ttl from when it sent.
func (p *PeerRun) HoldFor(ttl time.Duration) time.Duration { return holdFor(ttl) }

// Step closes the figures of a part of the run, such as the time before a fault.
func (p *PeerRun) Step(leases int, phase string) { p.run.step(leases, phase) }

// Effect notes what the part that was closed last did to extensions, beside the
// one before it.
func (p *PeerRun) Effect() { p.run.noteEffect() }

// HandOvers has holders release for d at the scenario's rate: release has one of them
// do so, due at a moment; handed is how many leases have gone from one to another.
func (p *PeerRun) HandOvers(ctx context.Context, d time.Duration, handed func() float64, release func(due time.Time)) error {
	return p.run.handOvers(ctx, d, handed, func(due time.Duration) { release(p.run.begun.Add(due)) })
}

// Fault is what is to be done to the servers, by time.
func (p *PeerRun) Fault() []Action { return p.run.sc.script() }

// RSS is the servers' resident memory now, in bytes.
func (p *PeerRun) RSS() uint64 { return p.run.rss() }

// Connections tells how many connections there are, from now on.
func (p *PeerRun) Connections(n int) { p.run.connected(n) }

// Op returns the record of an operation.
func (p *PeerRun) Op(name string) *PeerOp { return &PeerOp{p.run, p.run.rec.op(name)} }

// Do does one operation and records it, unless the end of the run cut it short.
func (o *PeerOp) Do(ctx context.Context, do func() error) error { return o.run.timed(ctx, o.rec, do) }

// Done records one operation that began at began and has its answer now.
func (o *PeerOp) Done(began time.Time) { o.rec.done(o.run.now(), time.Since(began), 1) }

// Failed records one operation that did not do what it should.
func (o *PeerOp) Failed() { o.rec.failed(o.run.now(), 1) }

// Closed runs the workers of a closed loop through the scenario's warm-up and
// measurement. A worker goes on until its context ends; one that returns an
// error before ends the run.
func (p *PeerRun) Closed(ctx context.Context, workers []func(context.Context) error) error {
	if p.run.sc.Closed == nil {
		return incumbent.Errorf(incumbent.Invalid, "scenario %s is no closed loop", p.run.sc.Name)
	}
	return p.run.closed(ctx, workers)
}

// Agents plays a scenario of agents on the peer.
func (p *PeerRun) Agents(ctx context.Context, system AgentSystem) error {
	if p.run.sc.Play != "agents" {
		return incumbent.Errorf(incumbent.Invalid, "scenario %s is none of agents", p.run.sc.Name)
	}
	return p.run.agentLife(ctx, system)
}

// FanOut plays a scenario of watchers on the peer.
func (p *PeerRun) FanOut(ctx context.Context, system FanOut) error {
	if p.run.sc.Play != "watch" {
		return incumbent.Errorf(incumbent.Invalid, "scenario %s is none of watchers", p.run.sc.Name)
	}
	return p.run.fanOut(ctx, system)
}
