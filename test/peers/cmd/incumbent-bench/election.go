//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/incumbent-dev/incumbent/bench"
	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// elections are candidates, each with a session and a connection of its own: the load of
// the scenario hand-over.
type elections struct {
	run    *bench.PeerRun
	ttl    time.Duration
	handed atomic.Int64
	held   atomic.Int64

	opOpen, opRelease, opHandOver *bench.PeerOp

	mu    sync.Mutex        // protects the rest; held for a look-up or a change of it
	heads []chan struct{}   // by lease: what has its holder resign; nil while nobody is known to hold
	freed map[int]time.Time // leases that are being handed over: since when
	errs  chan error
}

// playElections grows the candidates and has their holders resign at a rate.
func playElections(ctx context.Context, r *bench.PeerRun, members etcdload.Members) error {
	sc := r.Scenario()
	stage := sc.Stages[len(sc.Stages)-1]
	n := stage.Leases * sc.Candidates
	r.Phase("connecting")
	clients, err := etcdload.Connect(ctx, members, n)
	if err != nil {
		return err
	}
	defer etcdload.Disconnect(clients) //nolint:errcheck // measured already
	e := &elections{
		run: r, ttl: time.Duration(sc.TTL), heads: make([]chan struct{}, stage.Leases), freed: map[int]time.Time{}, errs: make(chan error, n),
		opOpen: r.Op("open"), opRelease: r.Op("release"), opHandOver: r.Op("hand-over"),
	}
	r.Holding(func() (int, int) { return int(e.held.Load()), n })
	running, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	r.Phase("ramp to %d leases", stage.Leases)
	began := time.Now()
	for i := range n {
		due := began.Add(time.Duration(float64(i) / (stage.Ramp * float64(sc.Candidates)) * float64(time.Second)))
		if err := pause(ctx, time.Until(due)); err != nil {
			return err
		}
		all.Go(func() {
			if err := e.stand(running, clients[i], i%stage.Leases); err != nil && running.Err() == nil {
				e.errs <- err
			}
		})
	}
	for e.held.Load() < int64(stage.Leases) {
		if err := errors.Join(e.failure(), pause(ctx, 20*time.Millisecond)); err != nil {
			return err
		}
	}
	r.Phase("%d leases", stage.Leases)
	err = r.HandOvers(ctx, time.Duration(stage.Hold), func() float64 { return float64(e.handed.Load()) }, e.resign)
	r.Step(stage.Leases, "")
	r.Fact("hand_overs", float64(e.handed.Load()))
	return errors.Join(err, e.failure())
}

func (e *elections) failure() error {
	select {
	case err := <-e.errs:
		return err
	default:
		return nil
	}
}

// resign has the holder of some lease resign.
func (e *elections) resign(due time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lease := rand.IntN(len(e.heads))
	if head := e.heads[lease]; head != nil {
		e.heads[lease], e.freed[lease] = nil, due
		close(head)
	}
}

// stand is the life of a candidate.
func (e *elections) stand(ctx context.Context, c *clientv3.Client, lease int) error {
	opened := time.Now()
	session, err := concurrency.NewSession(c, concurrency.WithTTL(int(e.ttl/time.Second)), concurrency.WithContext(ctx))
	if err != nil {
		return err
	}
	e.opOpen.Done(opened)
	election := concurrency.NewElection(session, fmt.Sprintf("election/%d", lease))
	for ctx.Err() == nil {
		if err := election.Campaign(ctx, "candidate"); err != nil {
			return err
		}
		head := e.won(lease)
		select {
		case <-head:
		case <-session.Done():
			return errors.New("a session has ended")
		}
		e.held.Add(-1)
		began := time.Now()
		if err := election.Resign(ctx); err != nil {
			return err
		}
		e.opRelease.Done(began)
	}
	return nil
}

// won takes note of a candidate that knows that it holds, and returns what ends that.
func (e *elections) won(lease int) chan struct{} {
	head := make(chan struct{})
	e.mu.Lock()
	due, handed := e.freed[lease]
	delete(e.freed, lease)
	e.heads[lease] = head
	e.mu.Unlock()
	e.held.Add(1)
	if handed {
		e.opHandOver.Done(due)
		e.handed.Add(1)
	}
	return head
}
