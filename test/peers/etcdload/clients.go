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
	"crypto/tls"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

const (
	dialTimeout = 30 * time.Second // for the first answer on a new connection
	dialing     = 64               // connections being opened at once

	statusTimeout = 5 * time.Second // a member that is stopped does not answer
)

// Connect opens count clients, a connection each, and makes sure by a read that
// each is connected. A client speaks to one member, so that no connection moves.
func Connect(ctx context.Context, to Members, count int) ([]*clientv3.Client, error) {
	clients := make([]*clientv3.Client, count)
	err := Each(count, func(i int) (err error) {
		clients[i], err = Dial(ctx, to, i)
		return err
	})
	if err != nil {
		return nil, errors.Join(err, Disconnect(clients))
	}
	return clients, nil
}

// Members are the servers under load.
type Members struct {
	Endpoints []string
	TLS       *tls.Config // nil: plaintext
}

// Open makes a client of member i, counted round robin, that connects when it is
// used.
func Open(to Members, i int) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{
		Endpoints: []string{to.Endpoints[i%len(to.Endpoints)]},
		TLS:       to.TLS,
		Logger:    zap.NewNop(), // each client would build a logger of its own
	})
}

// Dial opens one client to member i, counted round robin.
func Dial(ctx context.Context, to Members, i int) (*clientv3.Client, error) {
	c, err := Open(to, i)
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
func Version(ctx context.Context, to Members) (string, error) {
	status, err := statusOf(ctx, to, 0)
	if err != nil {
		return "", err
	}
	return status.Version, nil
}

// Leader asks the members which of them leads, and in which term. Members that do
// not answer in time are passed over; none leads is an error.
func Leader(ctx context.Context, to Members) (member int, term uint64, err error) {
	for i := range to.Endpoints {
		status, err := statusOf(ctx, to, i)
		if err == nil && status.Leader == status.Header.MemberId {
			return i, status.RaftTerm, nil
		}
	}
	return 0, 0, errors.New("no member of etcd says that it leads")
}

func statusOf(ctx context.Context, to Members, i int) (*clientv3.StatusResponse, error) {
	c, err := Open(to, i)
	if err != nil {
		return nil, err
	}
	defer Disconnect([]*clientv3.Client{c}) //nolint:errcheck // it has said what it was asked
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	return c.Status(ctx, to.Endpoints[i])
}
