//go:build linux

// Package etcdload is what a load on etcd is made of, with etcd's own Go client:
// connections, and the single calls that are counted. It neither paces nor
// counts; whoever measures does that.
//
// Concurrency: a client may be used by any number of goroutines; a Stream has
// one sender and one receiver.
package etcdload

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

// Connect opens count clients, a connection each, and makes sure by a read that
// each is connected. A client speaks to one member, so that no connection moves.
func Connect(ctx context.Context, endpoints []string, count int) ([]*clientv3.Client, error) {
	clients := make([]*clientv3.Client, count)
	err := Each(count, func(i int) (err error) {
		clients[i], err = Dial(ctx, endpoints[i%len(endpoints)])
		return err
	})
	if err != nil {
		return nil, errors.Join(err, Disconnect(clients))
	}
	return clients, nil
}

// Dial opens one client to one member.
func Dial(ctx context.Context, endpoint string) (*clientv3.Client, error) {
	c, err := clientv3.New(clientv3.Config{
		Endpoints: []string{endpoint},
		Logger:    zap.NewNop(), // each client would build a logger of its own
	})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	if _, err := c.Get(ctx, "connected"); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

// Disconnect closes the clients that were opened.
func Disconnect(clients []*clientv3.Client) error {
	return Each(len(clients), func(i int) error {
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

// Each calls f for 0 to count-1, several at once, and returns the first error.
func Each(count int, f func(i int) error) error {
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

// Version asks a member which version of etcd it is.
func Version(ctx context.Context, endpoint string) (string, error) {
	c, err := Dial(ctx, endpoint)
	if err != nil {
		return "", err
	}
	defer Disconnect([]*clientv3.Client{c}) //nolint:errcheck // it has said what it was asked
	status, err := c.Status(ctx, endpoint)
	if err != nil {
		return "", err
	}
	return status.Version, nil
}
