//go:build linux

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	dialTimeout = 30 * time.Second // for the first answer on a new connection
	dialing     = 64               // connections being opened at once
)

// connect opens count clients, a connection each, and makes sure by a read that
// each is connected. A client speaks to one member, so that no connection moves.
func connect(ctx context.Context, endpoints []string, count int) ([]*clientv3.Client, error) {
	clients := make([]*clientv3.Client, count)
	err := each(count, func(i int) error {
		c, err := clientv3.New(clientv3.Config{
			Endpoints: endpoints[i%len(endpoints) : i%len(endpoints)+1],
			Logger:    zap.NewNop(), // each client would build a logger of its own
		})
		if err != nil {
			return err
		}
		clients[i] = c
		ctx, cancel := context.WithTimeout(ctx, dialTimeout)
		defer cancel()
		_, err = c.Get(ctx, "connected")
		return err
	})
	if err != nil {
		return nil, errors.Join(err, disconnect(clients))
	}
	return clients, nil
}

// disconnect closes the clients that were opened.
func disconnect(clients []*clientv3.Client) error {
	return each(len(clients), func(i int) error {
		if clients[i] == nil {
			return nil
		}
		err := clients[i].Close()
		if errors.Is(err, context.Canceled) {
			return nil // says only that the client's context has ended, by Close
		}
		return err
	})
}

// each calls f for 0 to count-1, several at once, and returns the first error.
func each(count int, f func(i int) error) error {
	var (
		group sync.WaitGroup
		once  sync.Once
		first error
	)
	slots := make(chan struct{}, dialing)
	for i := range count {
		slots <- struct{}{}
		group.Go(func() {
			defer func() { <-slots }()
			if err := f(i); err != nil {
				once.Do(func() { first = err })
			}
		})
	}
	group.Wait()
	return first
}
