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
	f.perStream = 1
	f.running.Go(func() { f.drive(&f.mu, f.now, &f.ended, f.perform) })
	defer f.close()
	stage := r.sc.Stages[len(r.sc.Stages)-1]
	r.setPhase("connecting %d streams", stage.Leases)
	if err := f.grow(ctx, stage.Leases, stage.Ramp); err != nil {
		return err
	}
	connected := r.now()
	r.setPhase("idle")
	if err := f.hold(ctx, time.Duration(r.sc.Settle)); err != nil {
		return err
	}
	grown := r.rss()
	r.fact("rss_before_bytes", float64(base))
	r.fact("rss_after_bytes", float64(grown))
	r.fact("connect_seconds", connected.Seconds())
	if grown > base {
		r.fact("rss_per_connection_bytes", float64(grown-base)/float64(stage.Leases))
	}
	r.step(stage.Leases, "")
	return nil
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
