//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/incumbent-dev/incumbent/bench"
	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

const (
	leaseSeconds = 3600 // where the scenario says nothing else: outlives any run, so that nothing expires
	maxInFlight  = 200_000
	value        = "holder"
)

// closedPlays are the operations of closed loops that etcd has a form of.
//
// A worker of Incumbent's has one message with a batch of operations under way.
// etcd has no such message, so that a batch here is so many calls under way at
// once, on the connection that the worker shares; each is counted by itself, and
// none waits for the slowest of its batch.
func closedPlays() map[string]func(*etcdLoad) ([]worker, error) {
	return map[string]func(*etcdLoad) ([]worker, error){
		"extend": extendWorkers, "session": sessionWorkers, "create": createWorkers, "claim": claimWorkers, "refuse": refuseWorkers, "turn": turnWorkers,
		"kv-put": putWorkers, "kv-create": createKeyWorkers, "kv-get": readers(false), "kv-get-stale": readers(true),
		"txn": txnWorkers(false), "txn-guarded": txnWorkers(true),
	}
}

type worker = func(context.Context) error

// etcdLoad is one closed loop on etcd.
type etcdLoad struct {
	run     *bench.PeerRun
	ctx     context.Context // of the preparation
	clients []*clientv3.Client
	flights int // calls under way: workers × batch
	spread  int // workers
	errs    firsterr
}

// firsterr keeps the first error of an operation that was counted as failed.
type firsterr struct{ first atomic.Pointer[error] }

func (f *firsterr) note(err error) { f.first.CompareAndSwap(nil, &err) }

// playable says whether etcd has a form of the scenario.
func playable(sc *bench.Scenario) error {
	switch {
	case sc.Play == "idle", sc.Play == "watch", sc.Play == "agents":
		return nil
	case sc.Play == "ladder":
		return playableFleet(sc)
	case sc.Play != "closed":
		return fmt.Errorf("scenario %s: etcd plays idle, closed, watch and agents scenarios and faults, not %s", sc.Name, sc.Play)
	case sc.Closed.Beside != nil:
		return fmt.Errorf("scenario %s: etcd takes no transactions of so many operations", sc.Name)
	case closedPlays()[sc.Closed.Op] == nil:
		return fmt.Errorf("scenario %s: etcd has no form of %s", sc.Name, sc.Closed.Op)
	case sc.Closed.Rate > 0 && (sc.Closed.Op != "extend" || sc.Closed.Streams != 0 || sc.Closed.Batch > 1):
		return errors.New("closed.rate: only extensions on a stream each are sent to etcd at a rate")
	case sc.Closed.Workers*max(1, sc.Closed.Batch) > maxInFlight:
		return fmt.Errorf("closed.workers × closed.batch is over %d calls under way", maxInFlight)
	}
	return nil
}

// playEtcd plays the scenario of the run.
func playEtcd(ctx context.Context, r *bench.PeerRun, members etcdload.Members, signal func(int, syscall.Signal) error) error {
	switch r.Scenario().Play {
	case "idle":
		return playIdle(ctx, r, members)
	case "watch":
		return playWatch(ctx, r, members)
	case "agents":
		return playAgents(ctx, r, members)
	case "ladder":
		if r.Scenario().HandOvers > 0 {
			return playElections(ctx, r, members)
		}
		return playFleet(ctx, r, members, signal)
	}
	cfg := r.Scenario().Closed
	streams := cfg.Streams
	if streams == 0 {
		streams = cfg.Workers
	}
	r.Phase("connecting")
	clients, err := etcdload.Connect(ctx, members, streams)
	if err != nil {
		return err
	}
	defer etcdload.Disconnect(clients) //nolint:errcheck // measured already
	r.Connections(streams)
	l := &etcdLoad{run: r, ctx: ctx, clients: clients, spread: cfg.Workers, flights: cfg.Workers * max(1, cfg.Batch)}
	r.Phase("preparing")
	workers, err := closedPlays()[cfg.Op](l)
	if err != nil {
		return err
	}
	err = r.Closed(ctx, workers)
	if first := l.errs.first.Load(); err == nil && first != nil {
		r.Note("the first error: %v", *first)
	}
	return err
}

// client is the connection that flight i uses: that of its worker.
func (l *etcdLoad) client(i int) *clientv3.Client { return l.clients[i%l.spread%len(l.clients)] }

// callers makes a worker of each flight that repeats its call.
func (l *etcdLoad) callers(call func(ctx context.Context, flight int, c *clientv3.Client) error) []worker {
	workers := make([]worker, l.flights)
	for i := range workers {
		c := l.client(i)
		workers[i] = func(ctx context.Context) error {
			for ctx.Err() == nil {
				if err := call(ctx, i, c); err != nil && ctx.Err() == nil {
					l.errs.note(err)
				}
			}
			return nil
		}
	}
	return workers
}

func sessionWorkers(l *etcdLoad) ([]worker, error) {
	op := l.run.Op("session")
	return l.callers(func(ctx context.Context, _ int, c *clientv3.Client) error {
		return op.Do(ctx, func() error {
			_, err := etcdload.Grant(ctx, c, l.ttlSeconds())
			return err
		})
	}), nil
}

// ttlSeconds is what leases are granted for. etcd counts in seconds.
func (l *etcdLoad) ttlSeconds() int64 {
	if ttl := time.Duration(l.run.Scenario().Closed.TTL); ttl > 0 {
		return int64(max(time.Second, ttl) / time.Second)
	}
	return leaseSeconds
}

func (l *etcdLoad) leases() ([]clientv3.LeaseID, error) {
	return etcdload.GrantAll(l.ctx, l.clients, l.flights, l.ttlSeconds())
}

func createWorkers(l *etcdLoad) ([]worker, error) {
	leases, err := l.leases()
	if err != nil {
		return nil, err
	}
	op := l.run.Op("create")
	var serial atomic.Int64
	return l.callers(func(ctx context.Context, i int, c *clientv3.Client) error {
		key := fmt.Sprintf("created/%d", serial.Add(1))
		return op.Do(ctx, func() error { return etcdload.Create(ctx, c, key, value, leases[i], true) })
	}), nil
}

// claimWorkers: the transaction that creates the key, and its deletion.
func claimWorkers(l *etcdLoad) ([]worker, error) {
	leases, err := l.leases()
	if err != nil {
		return nil, err
	}
	claim, release := l.run.Op("claim"), l.run.Op("release")
	return l.callers(func(ctx context.Context, i int, c *clientv3.Client) error {
		key := fmt.Sprintf("claimed/%d", i)
		err := claim.Do(ctx, func() error { return etcdload.Create(ctx, c, key, value, leases[i], true) })
		if err != nil {
			return err
		}
		return release.Do(ctx, func() error { return etcdload.Delete(ctx, c, key) })
	}), nil
}

// turnWorkers: candidates for the same keys, each with a lease of its own. Who
// creates the key holds it for a while and deletes it; who finds it there pauses.
func turnWorkers(l *etcdLoad) ([]worker, error) {
	leases, err := l.leases()
	if err != nil {
		return nil, err
	}
	cfg := l.run.Scenario().Closed
	claim, release, refused := l.run.Op("claim"), l.run.Op("release"), l.run.Op("refused")
	return l.callers(func(ctx context.Context, i int, c *clientv3.Client) error {
		key := fmt.Sprintf("contested/%d", i/max(1, cfg.Candidates))
		began := time.Now()
		won, err := etcdload.TryCreate(ctx, c, key, value, leases[i])
		switch {
		case err != nil && ctx.Err() == nil:
			claim.Failed()
			return errors.Join(err, retryLater(ctx, cfg))
		case err != nil:
			return err
		case !won:
			refused.Done(began)
			return retryLater(ctx, cfg)
		}
		claim.Done(began)
		if err := pause(ctx, time.Duration(cfg.Hold)); err != nil {
			return err
		}
		return release.Do(ctx, func() error { return etcdload.Delete(ctx, c, key) })
	}), nil
}

func retryLater(ctx context.Context, cfg *bench.Closed) error {
	if cfg.Pause == 0 {
		return nil
	}
	return pause(ctx, time.Duration(cfg.Pause)/2+rand.N(time.Duration(cfg.Pause)))
}

func refuseWorkers(l *etcdLoad) ([]worker, error) {
	leases, err := l.leases()
	if err != nil {
		return nil, err
	}
	key := func(i int) string { return fmt.Sprintf("taken/%d", i) }
	err = etcdload.Each(l.flights, func(i int) error {
		return etcdload.Create(l.ctx, l.client(i), key(i), value, leases[i], true)
	})
	op := l.run.Op("refuse")
	return l.callers(func(ctx context.Context, i int, c *clientv3.Client) error {
		return op.Do(ctx, func() error { return etcdload.Create(ctx, c, key(i), value, leases[i], false) })
	}), err
}
