//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// Keys and values, as the load tool's own workers use them: each has a key of its
// own, or ever new ones.

func (l *etcdLoad) value() string { return strings.Repeat("v", l.run.Scenario().Closed.ValueBytes) }

func ownKey(i int) string { return fmt.Sprintf("key/%d", i) }

func putWorkers(l *etcdLoad) ([]worker, error) {
	op, value := l.run.Op("put"), l.value()
	return l.callers(func(ctx context.Context, i int, c *clientv3.Client) error {
		return op.Do(ctx, func() error {
			_, err := etcdload.Put(ctx, c, ownKey(i), value)
			return err
		})
	}), nil
}

func createKeyWorkers(l *etcdLoad) ([]worker, error) {
	op, value := l.run.Op("create"), l.value()
	var serial atomic.Int64
	return l.callers(func(ctx context.Context, _ int, c *clientv3.Client) error {
		key := fmt.Sprintf("created/%d", serial.Add(1))
		return op.Do(ctx, func() error { return etcdload.Create(ctx, c, key, value, clientv3.NoLease, true) })
	}), nil
}

func readers(stale bool) func(*etcdLoad) ([]worker, error) {
	return func(l *etcdLoad) ([]worker, error) {
		op, value := l.run.Op("get"), l.value()
		err := etcdload.Each(l.flights, func(i int) error {
			_, err := etcdload.Put(l.ctx, l.client(i), ownKey(i), value)
			return err
		})
		return l.callers(func(ctx context.Context, i int, c *clientv3.Client) error {
			return op.Do(ctx, func() error {
				got, err := etcdload.Get(ctx, c, ownKey(i), stale)
				if err == nil && !bytes.Equal(got, []byte(value)) {
					l.run.Violate("%s: read %d bytes that nobody put", ownKey(i), len(got))
				}
				return err
			})
		}), err
	}
}

// txnWorkers put keys of their own in transactions of closed.batch operations.
func txnWorkers(guarded bool) func(*etcdLoad) ([]worker, error) {
	return func(l *etcdLoad) ([]worker, error) {
		op, value := l.run.Op("txn"), l.value()
		operations := max(1, l.run.Scenario().Closed.Batch)
		l.flights = l.spread // a transaction, and not each of its operations, is a call
		last := make([]int64, l.flights)
		return l.callers(func(ctx context.Context, i int, c *clientv3.Client) error {
			keys := make([]string, operations)
			for k := range keys {
				keys[k] = fmt.Sprintf("%s/%d", ownKey(i), k)
			}
			return op.Do(ctx, func() (err error) {
				last[i], err = etcdload.PutAll(ctx, c, keys, value, guarded, last[i])
				return err
			})
		}), nil
	}
}
