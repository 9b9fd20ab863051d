package bench

import (
	"context"
	"math/rand/v2"
	"time"
)

// playIdle opens many streams with one attached session each and lets them be:
// what does one cost?
func playIdle(ctx context.Context, r *run) error {
	if r.sc.Door == doorConsul {
		return playConsulIdle(ctx, r)
	}
	if r.sc.Door == doorOVSDB {
		return playOVNIdle(ctx, r)
	}
	base := r.rss()
	f := newFleet(ctx, r)
	f.idle = true
	if r.sc.Edges {
		if err := f.settleAtEdges(ctx); err != nil {
			return err
		}
	} else {
		f.perStream = 1
	}
	f.running.Go(func() { f.drive(&f.mu, f.now, &f.ended, f.perform) })
	defer f.close()
	agents := 0
	for _, stage := range r.sc.Stages {
		agents = stage.Leases
		r.setPhase("connecting %d agents", agents)
		if err := f.grow(ctx, agents, stage.Ramp); err != nil {
			return err
		}
		connected := r.now()
		r.setPhase("idle")
		used := r.meter.read()
		if err := f.hold(ctx, time.Duration(r.sc.Settle)); err != nil {
			return err
		}
		f.edges.note(r, agents, used, r.meter.read(), r.now()-connected)
		r.noteMemory(base, agents)
		r.fact("connect_seconds", connected.Seconds())
		r.step(agents, "")
	}
	return f.loseAnEdge(ctx)
}

// idle measures what connections cost that do nothing.
func (r *run) idle(ctx context.Context, base uint64, connections int) error {
	r.setPhase("idle")
	used, at := r.meter.cpu(), r.now()
	if err := sleep(ctx, time.Duration(r.sc.Settle)); err != nil {
		return err
	}
	r.noteMemory(base, connections)
	r.fact("idle_server_cores", (r.meter.cpu()-used).Seconds()/max(0.001, (r.now()-at).Seconds()))
	return nil
}

// noteMemory notes what the servers have more than the base.
func (r *run) noteMemory(base uint64, connections int) {
	r.fact("rss_before_bytes", float64(base))
	r.fact("rss_after_bytes", float64(r.perConnection(base, connections)))
}

// perConnection notes how much more the servers have than the base for each connection,
// and returns what they have.
func (r *run) perConnection(base uint64, connections int) (grown uint64) {
	grown = r.rss()
	if grown > base && connections > 0 {
		r.fact("rss_per_connection_bytes", float64(grown-base)/float64(connections))
	}
	return grown
}

// rest makes an idle agent's next beat due: anywhere in the first interval, so
// that a fleet which connected at once does not beat at once.
func (f *fleet) rest(l *fleetLink, now time.Duration) {
	f.holding++ // an idle agent has all it wants
	if !l.beating {
		l.beating = true
		f.plan(now+time.Duration(rand.Int64N(int64(f.every))), stepBeat, nil, l)
	}
}
