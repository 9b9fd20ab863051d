//go:build linux

package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// operation is one kind of work: how many clients it needs (each is a
// connection) and the runners that drive it over them.
type operation struct {
	name    string
	what    string
	clients func(o options) int
	runners func(ctx context.Context, o options, clients []*clientv3.Client) ([]runner, error)
}

// operations in the order in which they are run and listed.
var operations = []operation{
	{"grant", "lease grant", shared, grantRunners},
	{"keepalive", "keepalive, each stream on a connection of its own, one in flight", perStream, keepAliveRunners},
	{"keepalive-pipelined", "keepalive, many in flight on each of a few streams", perPipeline, pipelineRunners},
	{"create", "transaction: put under a lease if the key does not exist", shared, createRunners},
	{"create-refused", "the same transaction on keys that exist", shared, refusedRunners},
	{"put", "put of a key that no other put touches", shared, putRunners},
}

func shared(o options) int      { return min(o.conns, o.workers) }
func perStream(o options) int   { return o.streams }
func perPipeline(o options) int { return o.pipelineStreams }

// pick returns the operations that a comma-separated list names, in its order;
// "all" is all of them.
func pick(list string) ([]operation, error) {
	if list == "all" {
		return operations, nil
	}
	var picked []operation
	for name := range strings.SplitSeq(list, ",") {
		op, found := find(name)
		if !found {
			return nil, fmt.Errorf("there is no operation %q", name)
		}
		picked = append(picked, op)
	}
	return picked, nil
}

func find(name string) (operation, bool) {
	for _, op := range operations {
		if op.name == name {
			return op, true
		}
	}
	return operation{}, false
}

// callers makes one runner per worker; workers take the clients in turn.
func callers(o options, clients []*clientv3.Client, call func(worker int, c *clientv3.Client) func(context.Context) error) []runner {
	runners := make([]runner, o.workers)
	for i := range runners {
		runners[i] = caller{worker: i, call: call(i, clients[i%len(clients)])}
	}
	return runners
}

func grantRunners(_ context.Context, o options, clients []*clientv3.Client) ([]runner, error) {
	return callers(o, clients, func(_ int, c *clientv3.Client) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := etcdload.Grant(ctx, c, o.ttlSeconds())
			return err
		}
	}), nil
}

func createRunners(ctx context.Context, o options, clients []*clientv3.Client) ([]runner, error) {
	leases, err := etcdload.GrantAll(ctx, clients, o.workers, o.ttlSeconds())
	if err != nil {
		return nil, err
	}
	var serial atomic.Int64
	return callers(o, clients, func(worker int, c *clientv3.Client) func(context.Context) error {
		return func(ctx context.Context) error {
			key := fmt.Sprintf("created/%d", serial.Add(1))
			return etcdload.Create(ctx, c, key, o.value(), leases[worker], true)
		}
	}), nil
}

func refusedRunners(ctx context.Context, o options, clients []*clientv3.Client) ([]runner, error) {
	leases, err := etcdload.GrantAll(ctx, clients, o.workers, o.ttlSeconds())
	if err != nil {
		return nil, err
	}
	err = etcdload.Each(o.workers, func(i int) error {
		return etcdload.Create(ctx, clients[i%len(clients)], taken(i), o.value(), leases[i], true)
	})
	return callers(o, clients, func(worker int, c *clientv3.Client) func(context.Context) error {
		return func(ctx context.Context) error {
			return etcdload.Create(ctx, c, taken(worker), o.value(), leases[worker], false)
		}
	}), err
}

func taken(worker int) string { return fmt.Sprintf("taken/%d", worker) }

func putRunners(_ context.Context, o options, clients []*clientv3.Client) ([]runner, error) {
	var serial atomic.Int64
	return callers(o, clients, func(_ int, c *clientv3.Client) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := c.Put(ctx, fmt.Sprintf("put/%d", serial.Add(1)), o.value())
			return err
		}
	}), nil
}
