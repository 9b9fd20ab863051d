//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/incumbent-dev/incumbent/bench"
	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// silentAfter is how long a member may owe an answer, as for Incumbent's agents.
const silentAfter = time.Second

// etcdFleet is a fleet of holders that extend on etcd, in open loop, while its
// leader is killed or stopped: the load of the scenario leader-kill, member for
// member and stream for stream. A holder is a lease with one key.
type etcdFleet struct {
	run        *bench.PeerRun
	members    etcdload.Members
	signal     func(member int, s syscall.Signal) error
	ttl, every time.Duration
	silent     time.Duration

	opOpen, opClaim, opExtend, opRecovery *bench.PeerOp

	streams []*etcdStream
	struck  atomic.Pointer[time.Time] // when the leader was struck
	moved   atomic.Int64              // streams that were opened again
	open    atomic.Int64
	holding atomic.Int64
}

// playableFleet says whether etcd has a form of a ladder.
func playableFleet(sc *bench.Scenario) error {
	script := sc.Faults[sc.Fault]
	switch {
	case time.Duration(sc.TTL)%time.Second != 0:
		return errors.New("ttl: etcd counts in seconds")
	case sc.HandOvers > 0 && sc.Candidates > 1 && sc.Connections == "own" && len(script) == 0:
		return nil
	case sc.Candidates > 1 || sc.HandOvers > 0:
		return fmt.Errorf("scenario %s: etcd plays fleets of one candidate for each lease, and hand-overs between candidates with a connection each", sc.Name)
	case len(script) != 1 || script[0].Member != "leader" || script[0].Do != "kill" && script[0].Do != "stop":
		return fmt.Errorf("scenario %s: etcd plays one fault, to kill or to stop the leader", sc.Name)
	}
	return nil
}

func playFleet(ctx context.Context, r *bench.PeerRun, members etcdload.Members, signal func(int, syscall.Signal) error) error {
	sc := r.Scenario()
	if signal == nil {
		return errors.New("a fault needs members that this run starts")
	}
	f := &etcdFleet{
		run: r, members: members, signal: signal, ttl: time.Duration(sc.TTL), every: time.Duration(sc.Every), silent: silentAfter,
		opOpen: r.Op("open"), opClaim: r.Op("claim"), opExtend: r.Op("extend"), opRecovery: r.Op("recovery"),
	}
	if sc.Silent > 0 {
		f.silent = time.Duration(sc.Silent)
	}
	r.Holding(func() (int, int) { return int(f.holding.Load()), int(f.open.Load()) })
	stage := sc.Stages[len(sc.Stages)-1]
	perStream := max(1, sc.SessionsPerStream)
	if sc.Connections == "own" {
		perStream = 1
	}
	running, stop := context.WithCancel(ctx)
	var all sync.WaitGroup
	defer all.Wait()
	defer stop()
	for n := range (stage.Leases + perStream - 1) / perStream {
		s := &etcdStream{f: f, member: n % len(members.Endpoints)}
		f.streams = append(f.streams, s)
		all.Go(func() { s.keep(running) })
	}
	r.Phase("ramp to %d leases", stage.Leases)
	if err := f.grow(ctx, stage, perStream); err != nil {
		return err
	}
	r.Phase("%d leases", stage.Leases)
	if err := pause(ctx, time.Duration(stage.Hold)); err != nil {
		return err
	}
	return f.strike(ctx, r.Fault()[0], stage.Leases)
}

// grow grants the leases at the stage's rate, each with its key, and hands each
// to its stream.
func (f *etcdFleet) grow(ctx context.Context, stage bench.Stage, perStream int) error {
	clients, err := etcdload.Connect(ctx, f.members, len(f.members.Endpoints)*4)
	if err != nil {
		return err
	}
	defer etcdload.Disconnect(clients) //nolint:errcheck // the leases are there
	began := time.Now()
	return etcdload.Each(stage.Leases, func(i int) error {
		due := began.Add(time.Duration(float64(i) / stage.Ramp * float64(time.Second)))
		if err := pause(ctx, time.Until(due)); err != nil {
			return err
		}
		c, sent := clients[i%len(clients)], time.Now()
		lease, err := etcdload.Grant(ctx, c, int64(f.ttl/time.Second))
		if err != nil {
			return err
		}
		f.opOpen.Done(due)
		if err := etcdload.Create(ctx, c, fmt.Sprintf("app/%d", i), value, lease, true); err != nil {
			return err
		}
		f.opClaim.Done(due)
		f.holding.Add(1)
		f.streams[i/perStream].add(&holder{lease: lease, until: sent.Add(f.run.HoldFor(f.ttl))})
		return nil
	})
}

// strike does to the leader what the scenario says, waits until whoever was to
// lose a lease by it would have, and judges.
func (f *etcdFleet) strike(ctx context.Context, a bench.Action, leases int) error {
	if err := pause(ctx, time.Duration(a.After)); err != nil {
		return err
	}
	leader, term, err := etcdload.Leader(ctx, f.members)
	if err != nil {
		return err
	}
	f.run.Step(leases, "before the fault")
	now := time.Now()
	f.struck.Store(&now)
	held := 0
	for _, s := range f.streams {
		held += s.strike()
	}
	f.run.Phase("%s leader", a.Do)
	if a.Do == "kill" {
		err = f.signal(leader, syscall.SIGKILL)
	} else {
		err = f.stop(ctx, leader, time.Duration(a.For))
	}
	if err != nil {
		return err
	}
	if err := pause(ctx, max(2*f.ttl, time.Duration(f.run.Scenario().Settle))); err != nil {
		return err
	}
	f.run.Step(leases, "fault "+a.Do)
	f.run.Effect()
	waiting := 0
	for _, s := range f.streams {
		waiting += s.stillStruck()
	}
	if waiting > 0 {
		f.run.Violate("%d holders have had no good extension since the fault", waiting)
	}
	// What the members say is over is compared with what is there: a lease that
	// was revoked took its key along.
	keys, kerr := etcdload.Count(ctx, f.members, "app/")
	_, after, err := etcdload.Leader(ctx, f.members)
	for name, v := range map[string]float64{
		"elections": float64(after) - float64(term), "held_before_the_fault": float64(held), "kept_their_token": float64(f.holding.Load()),
		"not_recovered": float64(waiting), "reconnects": float64(f.moved.Load()),
		"keys_at_end": float64(keys),
	} {
		f.run.Fact(name, v)
	}
	return errors.Join(err, kerr)
}

func (f *etcdFleet) stop(ctx context.Context, leader int, d time.Duration) error {
	if err := f.signal(leader, syscall.SIGSTOP); err != nil {
		return err
	}
	err := pause(ctx, d)
	return errors.Join(err, f.signal(leader, syscall.SIGCONT))
}

// holder is one lease that is kept alive.
type holder struct {
	lease  clientv3.LeaseID
	due    time.Time // of its next keepalive
	owed   time.Time // when the oldest keepalive without a good answer was due; zero: none
	until  time.Time // its own deadline
	lapsed bool
	struck bool // it held when the leader was struck and has had no good answer since
}
