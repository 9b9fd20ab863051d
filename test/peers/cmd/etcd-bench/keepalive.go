//go:build linux

package main

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// stream is one stream of keepalives with the leases it keeps alive.
type stream struct {
	etcdload.Stream
	leases []clientv3.LeaseID
}

func openStreams(ctx context.Context, o options, clients []*clientv3.Client, leasesEach int) ([]stream, error) {
	leases, err := etcdload.GrantAll(ctx, clients, len(clients)*leasesEach, o.ttlSeconds())
	if err != nil {
		return nil, err
	}
	streams := make([]stream, len(clients))
	err = etcdload.Each(len(clients), func(i int) error {
		call, err := etcdload.OpenStream(ctx, clients[i])
		streams[i] = stream{call, leases[i*leasesEach : (i+1)*leasesEach]}
		return err
	})
	return streams, err
}

// keepAliveRunners makes one runner per client, with a stream and a lease each.
func keepAliveRunners(ctx context.Context, o options, clients []*clientv3.Client) ([]runner, error) {
	streams, err := openStreams(ctx, o, clients, 1)
	if err != nil {
		return nil, err
	}
	runners := make([]runner, len(streams))
	for i, s := range streams {
		runners[i] = caller{worker: i, last: true, call: func(context.Context) error {
			if err := s.Send(s.leases[0]); err != nil {
				return err
			}
			return s.Receive(s.leases[0])
		}}
	}
	return runners, nil
}

// pipelineRunners makes one runner per client that keeps several leases in
// flight on one stream.
func pipelineRunners(ctx context.Context, o options, clients []*clientv3.Client) ([]runner, error) {
	streams, err := openStreams(ctx, o, clients, o.pipelineDepth)
	if err != nil {
		return nil, err
	}
	runners := make([]runner, len(streams))
	for i, s := range streams {
		runners[i] = pipeline{worker: i, stream: s}
	}
	return runners, nil
}

// pipeline keeps as many keepalives in flight on its stream as it has leases.
// etcd answers a stream in the order of its requests.
type pipeline struct {
	worker int
	stream stream
}

// sent is a keepalive in flight.
type sent struct {
	lease clientv3.LeaseID
	began time.Time
}

func (l pipeline) run(ctx context.Context, p pacer, r *recorder) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	idle := make(chan clientv3.LeaseID, len(l.stream.leases))
	flying := make(chan sent, len(l.stream.leases))
	for _, lease := range l.stream.leases {
		idle <- lease
	}
	var receiver sync.WaitGroup
	receiver.Go(func() { cancel(l.receive(ctx, flying, idle, r)) })
	cancel(l.send(ctx, p, flying, idle))
	receiver.Wait()
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		r.failed(err)
	}
}

func (l pipeline) send(ctx context.Context, p pacer, flying chan<- sent, idle <-chan clientv3.LeaseID) error {
	defer close(flying)
	for {
		began, ok := p.wait(ctx)
		if !ok {
			return context.Cause(ctx)
		}
		select {
		case lease := <-idle:
			if p.every == 0 {
				began = time.Now() // closed loop: not the wait for a lease that is not in flight
			}
			flying <- sent{lease, began}
			if err := l.stream.Send(lease); err != nil {
				return err
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// receive ends with the stream or, once the sender has ended, with the last
// answer.
func (l pipeline) receive(ctx context.Context, flying <-chan sent, idle chan<- clientv3.LeaseID, r *recorder) error {
	for f := range flying {
		if err := l.stream.Receive(f.lease); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return err
		}
		if err := r.done(l.worker, time.Since(f.began)); err != nil {
			return err
		}
		idle <- f.lease
	}
	return context.Cause(ctx)
}
