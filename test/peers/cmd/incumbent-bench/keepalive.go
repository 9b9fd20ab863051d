//go:build linux

package main

import (
	"context"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/incumbent-dev/incumbent/bench"
	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// sharedStream is one stream of keepalives with all leases of the workers that
// share its connection: so many are under way at any time.
type sharedStream struct {
	client *clientv3.Client
	leases []clientv3.LeaseID
	op     *bench.PeerOp
	// every and first: in open loop, when keepalives are due; 0 in closed loop.
	every, first time.Duration
}

// flight is a keepalive under way.
type flight struct {
	lease clientv3.LeaseID
	began time.Time
}

func extendWorkers(l *etcdLoad) ([]worker, error) {
	leases, err := l.leases()
	if err != nil {
		return nil, err
	}
	op := l.run.Op("extend")
	streams := make([]*sharedStream, len(l.clients))
	workers := make([]worker, len(l.clients))
	for i, c := range l.clients {
		streams[i] = &sharedStream{client: c, op: op}
		if rate := l.run.Scenario().Closed.Rate; rate > 0 {
			each := float64(time.Second) / rate
			streams[i].first, streams[i].every = time.Duration(each*float64(i)), time.Duration(each*float64(len(l.clients)))
		}
		workers[i] = streams[i].run
	}
	for i, lease := range leases {
		s := streams[i%l.spread%len(streams)]
		s.leases = append(s.leases, lease)
	}
	return workers, nil
}

// run extends until the context and with it the stream ends.
func (s *sharedStream) run(ctx context.Context) error {
	stream, err := etcdload.OpenStream(ctx, s.client)
	if err != nil {
		return err
	}
	if len(s.leases) == 1 {
		return s.oneByOne(ctx, stream, s.leases[0])
	}
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	answered := make(chan clientv3.LeaseID, len(s.leases))
	flying := make(chan flight, len(s.leases))
	for _, lease := range s.leases {
		answered <- lease
	}
	var receiver sync.WaitGroup
	receiver.Go(func() { stop(s.receive(stream, flying, answered)) })
	stop(s.send(ctx, stream, flying, answered))
	receiver.Wait()
	return context.Cause(ctx)
}

// oneByOne has one keepalive under way, without a second goroutine. In open loop
// one that is late counts from when it was due.
func (s *sharedStream) oneByOne(ctx context.Context, stream etcdload.Stream, lease clientv3.LeaseID) error {
	start := time.Now()
	for k := 0; ctx.Err() == nil; k++ {
		began := time.Now()
		if s.every > 0 {
			began = start.Add(s.first + time.Duration(k)*s.every)
			if err := pause(ctx, time.Until(began)); err != nil {
				return err
			}
		}
		if err := stream.Send(lease); err != nil {
			return err
		}
		if err := stream.Receive(lease); err != nil {
			return err
		}
		s.op.Done(began)
	}
	return nil
}

func (s *sharedStream) send(ctx context.Context, stream etcdload.Stream, flying chan<- flight, answered <-chan clientv3.LeaseID) error {
	defer close(flying)
	for {
		select {
		case lease := <-answered:
			flying <- flight{lease, time.Now()} // has room for all
			if err := stream.Send(lease); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// receive ends with the stream or, once the sender has ended, with the last
// answer.
func (s *sharedStream) receive(stream etcdload.Stream, flying <-chan flight, answered chan<- clientv3.LeaseID) error {
	for f := range flying {
		if err := stream.Receive(f.lease); err != nil {
			return err
		}
		s.op.Done(f.began)
		answered <- f.lease
	}
	return nil
}
