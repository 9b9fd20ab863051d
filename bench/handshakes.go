package bench

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// jujuRefused is the pause after a handshake that failed.
const jujuRefused = 10 * time.Millisecond

// validateHandshakes is for the play that opens connections and closes them.
func (c *Closed) validateHandshakes() error {
	switch {
	case c == nil:
		return fmt.Errorf("play handshakes needs closed")
	case c.Workers < 1 || c.Workers > maxConnections || c.Duration <= 0:
		return fmt.Errorf("closed.workers must be 1 to %d, duration positive", maxConnections)
	}
	return nil
}

// playHandshakes performs TLS handshakes in closed loop, as Juju's clients would,
// with servers that do nothing else: what the cores give.
func playHandshakes(ctx context.Context, r *run) error {
	var addresses []string
	for _, server := range r.urls {
		u, err := url.Parse(server)
		if err != nil || u.Scheme != "https" {
			return incumbent.Errorf(incumbent.Invalid, "%s is not served with TLS", server)
		}
		addresses = append(addresses, u.Host)
	}
	// Not a deadline: dialling would fail by it a moment before it is over.
	measured, stop := context.WithCancel(ctx)
	defer stop()
	over := time.AfterFunc(time.Duration(r.sc.Closed.Warmup+r.sc.Closed.Duration), stop)
	defer over.Stop()
	r.setPhase("handshakes")
	warm := time.AfterFunc(time.Duration(r.sc.Closed.Warmup), r.rec.reset)
	defer warm.Stop()
	var workers sync.WaitGroup
	for i := range r.sc.Closed.Workers {
		workers.Go(func() { r.shakeHands(measured, i, addresses[i%len(addresses)]) })
	}
	workers.Wait()
	sum := r.rec.op("handshake").summary()
	r.fact("handshakes_per_second", sum.Rate)
	if sum.Count == 0 {
		return incumbent.Errorf(incumbent.Unavailable, "no handshake succeeded")
	}
	return ctx.Err()
}

// shakeHands opens connections one after the other and closes each.
func (r *run) shakeHands(ctx context.Context, i int, address string) {
	cfg, op := jujuTLS(), r.rec.op("handshake")
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
