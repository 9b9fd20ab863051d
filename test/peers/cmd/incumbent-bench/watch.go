//go:build linux

package main

import (
	"context"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/incumbent-dev/incumbent/bench"
	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// playWatch changes one key over a connection of its own, as many calls under way as
// the load tool makes, and watches it over a connection for each watcher.
func playWatch(ctx context.Context, r *bench.PeerRun, members etcdload.Members) error {
	const key = "changed"
	r.Phase("connecting")
	clients, err := etcdload.Connect(ctx, members, r.Scenario().Closed.Workers+1)
	if err != nil {
		return err
	}
	defer etcdload.Disconnect(clients) //nolint:errcheck // measured already
	watchers, writer := clients[1:], clients[0]
	var errs firsterr
	err = r.FanOut(ctx, bench.FanOut{
		Put: func(ctx context.Context, _ int, value []byte) error {
			_, err := etcdload.Put(ctx, writer, key, string(value))
			if err != nil {
				errs.note(err)
			}
			return err
		},
		Watch: func(ctx context.Context, i int, began func(), seen func(uint64, []byte)) error {
			return etcdload.Follow(ctx, watchers[i], key, began, func(e *clientv3.Event) {
				seen(uint64(e.Kv.ModRevision), e.Kv.Value)
			})
		},
	})
	if first := errs.first.Load(); err == nil && first != nil {
		r.Note("the first error: %v", *first)
	}
	return err
}
