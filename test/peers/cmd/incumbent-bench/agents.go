//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/incumbent-dev/incumbent/bench"
	"github.com/incumbent-dev/incumbent/test/peers/etcdload"
)

// etcdTxnOps is how many operations a transaction of etcd's may have, as it comes.
const etcdTxnOps = 128

// playAgents has agents live on etcd: each on a connection of its own, with a lease, a
// key under it, a get and a watch of each thing that it follows.
func playAgents(ctx context.Context, r *bench.PeerRun, members etcdload.Members) error {
	r.Phase("connecting")
	clients, err := etcdload.Connect(ctx, members, 1)
	if err != nil {
		return err
	}
	defer etcdload.Disconnect(clients) //nolint:errcheck // measured already
	a := &etcdAgents{members: members, own: clients[0], ttl: time.Duration(r.Scenario().TTL)}
	return r.Agents(ctx, bench.AgentSystem{Add: a.add, Start: a.start, Charm: a.charm, Other: a.other, Relate: a.relate, Presence: a.presence})
}

type etcdAgents struct {
	members etcdload.Members
	own     *clientv3.Client // of who adds and changes
	ttl     time.Duration
	url     int
}

const (
	agentApp   = "app"
	agentUnits = "units/"
	agentAlive = "presence/"
)

func agentUnit(unit int) string    { return fmt.Sprintf("%s%06d", agentUnits, unit) }
func agentRelated(unit int) string { return fmt.Sprintf("relations/%06d/", unit) }

func (a *etcdAgents) add(ctx context.Context, first, n int) error {
	return a.puts(ctx, n, func(i int) (string, string) { return agentUnit(first + i), `{"status":"waiting"}` })
}

func (a *etcdAgents) relate(ctx context.Context, n int) error {
	return a.puts(ctx, n, func(i int) (string, string) { return agentRelated(i) + "0", `{"endpoint":"db"}` })
}

// puts stores n keys in as few transactions as there can be.
func (a *etcdAgents) puts(ctx context.Context, n int, of func(i int) (key, value string)) error {
	for from := 0; from < n; from += etcdTxnOps {
		var ops []clientv3.Op
		for i := from; i < min(n, from+etcdTxnOps); i++ {
			key, value := of(i)
			ops = append(ops, clientv3.OpPut(key, value))
		}
		if _, err := a.own.Txn(ctx).Then(ops...).Commit(); err != nil {
			return err
		}
	}
	return nil
}

func (a *etcdAgents) charm(ctx context.Context, value int) error {
	a.url = value
	return a.store(ctx, 0)
}

func (a *etcdAgents) other(ctx context.Context, value int) error { return a.store(ctx, value) }

func (a *etcdAgents) store(ctx context.Context, other int) error {
	_, err := a.own.Put(ctx, agentApp, fmt.Sprintf(`{"charm":{"url":"ch:mysql-%d"},"constraints":%d}`, a.url, other))
	return err
}

func (a *etcdAgents) start(ctx context.Context, unit int, members bool, told func(int), attached func()) (stop func(), err error) {
	c, err := etcdload.Dial(ctx, a.members, unit)
	if err != nil {
		return nil, err
	}
	life, end := context.WithCancel(context.Background())
	stop = func() {
		end()
		_ = c.Close() // measured already
	}
	if err := a.live(ctx, life, c, unit); err != nil {
		stop()
		return nil, err
	}
	follows := []struct {
		what int
		key  string
		opts []clientv3.OpOption
	}{
		{bench.ToldCharm, agentApp, nil}, {bench.ToldUnit, agentUnit(unit), nil}, {bench.ToldRelations, agentRelated(unit), []clientv3.OpOption{clientv3.WithPrefix()}},
		{bench.ToldMembers, agentUnits, []clientv3.OpOption{clientv3.WithPrefix(), clientv3.WithKeysOnly()}},
	}
	if !members {
		follows = follows[:len(follows)-1]
	}
	for _, f := range follows {
		got, err := c.Get(ctx, f.key, f.opts...)
		if err != nil {
			stop()
			return nil, err
		}
		var opts []clientv3.OpOption
		if len(f.opts) > 0 {
			opts = append(opts, clientv3.WithPrefix())
		}
		events := c.Watch(life, f.key, append(opts, clientv3.WithRev(got.Header.Revision+1))...)
		go func() {
			for e := range events {
				if len(e.Events) > 0 {
					told(f.what)
				}
			}
		}()
	}
	attached()
	return stop, nil
}

// live has a key say that the agent is alive, under a lease that is kept.
func (a *etcdAgents) live(ctx, life context.Context, c *clientv3.Client, unit int) error {
	lease, err := c.Grant(ctx, int64(a.ttl.Seconds()))
	if err != nil {
		return err
	}
	kept, err := c.KeepAlive(life, lease.ID)
	if err != nil {
		return err
	}
	go func() {
		for range kept { //nolint:revive // it has to be read
		}
	}()
	_, err = c.Put(ctx, fmt.Sprintf("%s%06d", agentAlive, unit), "", clientv3.WithLease(lease.ID))
	return err
}

func (a *etcdAgents) presence(ctx context.Context, down func(string)) error {
	for r := range a.own.Watch(ctx, agentAlive, clientv3.WithPrefix()) {
		if err := r.Err(); err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
		for _, e := range r.Events {
			if e.Type == clientv3.EventTypeDelete {
				down(strings.TrimPrefix(string(e.Kv.Key), agentAlive))
			}
		}
	}
	return nil
}
