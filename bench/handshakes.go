package bench

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// jujuRefused is the pause after a handshake that failed.
const jujuRefused = 10 * time.Millisecond

// validateHandshakes is for a loop that opens connections and closes them.
func (c *Closed) validateHandshakes() error {
	if c.Workers < 1 || c.Workers > maxConnections || c.Duration <= 0 {
		return fmt.Errorf("handshakes need workers, 1 to %d, and a duration that is positive", maxConnections)
	}
	return nil
}

// besideBare plays something between two runs of the scenario's bare handshakes,
// and notes their rate beside that of the connections: a machine that others use
// is not twice the same, and so only what is close in time compares.
//
// Servers that this run has not started may be on another machine: with those there
// is nothing to compare.
func (r *run) besideBare(ctx context.Context, play func(context.Context, *run) error) error {
	if r.sc.Bare == nil || r.cluster == nil {
		return play(ctx, r)
	}
	before, err := r.bareRate(ctx)
	if err == nil {
		err = play(ctx, r)
	}
	if err != nil {
		return err
	}
	after, err := r.bareRate(ctx)
	if err != nil {
		return err
	}
	bare := (before + after) / 2
	r.fact("bare_handshakes_per_second", bare)
	r.fact("connects_per_bare_handshake", r.noted("connects_per_second")/bare)
	return nil
}

// bareRate starts a server that only accepts, and ends it.
func (r *run) bareRate(ctx context.Context) (perSecond float64, err error) {
	if r.opts.LaunchEcho == nil {
		return 0, incumbent.Errorf(incumbent.Invalid, "no server can be started to compare with").WithHint("leave out the scenario's bare")
	}
	r.setPhase("bare handshakes")
	cl, err := r.opts.LaunchEcho(ctx, true)
	if err != nil {
		return 0, err
	}
	defer cl.Stop()
	var urls []string
	for _, s := range cl.Servers() {
		urls = append(urls, s.URL)
	}
	sum, err := r.handshakes(ctx, r.sc.Bare, urls)
	return sum.Rate, err
}

// handshakes performs TLS handshakes in closed loop, as Juju's clients would, with
// servers that do nothing else: what the cores give.
func (r *run) handshakes(ctx context.Context, how *Closed, urls []string) (OpSummary, error) {
	var addresses []string
	for _, server := range urls {
		u, err := url.Parse(server)
		if err != nil || u.Scheme != "https" {
			return OpSummary{}, incumbent.Errorf(incumbent.Invalid, "%s is not served with TLS", server)
		}
		addresses = append(addresses, u.Host)
	}
	// A rate is of two at least.
	bare, err := r.bareLoop(ctx, how, nil, 2, how.Workers, func(ctx context.Context, b *run, i int) error {
		b.shakeHands(ctx, b.rec.op("handshake"), i, addresses[i%len(addresses)])
		return nil
	})
	return bare.rec.op("handshake").summary(), err
}

// shakeHands opens connections one after the other and closes each.
func (r *run) shakeHands(ctx context.Context, op *opRecord, i int, address string) {
	cfg := jujuTLS()
	for ctx.Err() == nil {
		began := r.now()
		conn, err := dialTLS(ctx, cfg, r.source(i), address)
		now := r.now()
		if err != nil {
			if ctx.Err() == nil {
				op.failed(now, 1)
				_ = sleep(ctx, jujuRefused)
			}
			continue
		}
		op.done(now, now-began, 1)
		conn.Close()
	}
}
