//go:build linux

package main

import (
	"context"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// idleResult is the servers' resident memory per idle connection, in bytes,
// above what they need for one.
type idleResult struct {
	Connections int   `json:"connections"`
	Plain       int64 `json:"plain"`
	Watch       int64 `json:"watch"` // with one watch of a key of its own
}

// measureIdle opens connections on two fresh servers, plain on one and with a
// watch each on the other, and waits until their memory has settled.
func measureIdle(ctx context.Context, o options) (*idleResult, error) {
	plain, err := idleBytes(ctx, o, false)
	if err != nil {
		return nil, err
	}
	watch, err := idleBytes(ctx, o, true)
	if err != nil {
		return nil, err
	}
	return &idleResult{Connections: o.idle, Plain: plain, Watch: watch}, nil
}

func idleBytes(ctx context.Context, o options, watch bool) (int64, error) {
	var each int64
	err := withServers(ctx, o, func(s servers) error {
		first, err := openIdle(ctx, s, 1, watch)
		if err != nil {
			return err
		}
		defer etcdload.Disconnect(first) //nolint:errcheck // the servers are stopped next
		if err := pause(ctx, o.load.warmup); err != nil {
			return err
		}
		before, err := s.usage()
		if err != nil {
			return err
		}
		clients, err := openIdle(ctx, s, o.idle, watch)
		if err != nil {
			return err
		}
		defer etcdload.Disconnect(clients) //nolint:errcheck // the servers are stopped next
		if err := pause(ctx, o.settle); err != nil {
			return err
		}
		after, err := s.usage()
		each = (after.RSSBytes - before.RSSBytes) / int64(o.idle)
		return err
	})
	return each, err
}

func openIdle(ctx context.Context, s servers, count int, watch bool) ([]*clientv3.Client, error) {
	clients, err := etcdload.Connect(ctx, s.members, count)
	if err != nil || !watch {
		return clients, err
	}
	return clients, etcdload.Each(count, func(i int) error {
		return etcdload.Watch(ctx, clients[i], fmt.Sprintf("watched/%d", i))
	})
}
