//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/incumbent-dev/incumbent/bench"
	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// baseSettle is how long the server rests after its first connection before its
// memory is read: what it makes once is not charged to the others.
const baseSettle = time.Second

// playIdle opens connections with one watch each, at the ramp of the scenario's
// last stage, and lets them be.
func playIdle(ctx context.Context, r *bench.PeerRun, members etcdload.Members) (err error) {
	sc := r.Scenario()
	stage := sc.Stages[len(sc.Stages)-1]
	if stage.Leases < 1 {
		return errors.New("the last stage has no connections")
	}
	r.Phase("first connection")
	clients := make([]*clientv3.Client, stage.Leases+1)
	defer etcdload.Disconnect(clients) //nolint:errcheck // measured already
	open := func(i int) error {
		c, err := etcdload.Dial(ctx, members, i)
		if err != nil {
			return err
		}
		clients[i] = c
		return etcdload.Watch(ctx, c, fmt.Sprintf("watched/%d", i))
	}
	if err := open(stage.Leases); err != nil {
		return err
	}
	if err := pause(ctx, baseSettle); err != nil {
		return err
	}
	base, began := r.RSS(), time.Now()
	r.Phase("connecting %d", stage.Leases)
	err = etcdload.Each(stage.Leases, func(i int) error {
		due := began.Add(time.Duration(float64(i) / stage.Ramp * float64(time.Second)))
		if err := pause(ctx, time.Until(due)); err != nil {
			return err
		}
		return open(i)
	})
	if err != nil {
		return err
	}
	r.Connections(stage.Leases)
	r.Fact("connect_seconds", time.Since(began).Seconds())
	r.Phase("idle")
	if err := pause(ctx, time.Duration(sc.Settle)); err != nil {
		return err
	}
	grown := r.RSS()
	r.Fact("rss_before_bytes", float64(base))
	r.Fact("rss_after_bytes", float64(grown))
	if grown > base {
		r.Fact("rss_per_connection_bytes", float64(grown-base)/float64(stage.Leases))
	}
	return nil
}

func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(max(0, d))
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
