package server

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// What the leader refuses, the others refuse to their own clients, with the time to come
// back, though hardly anybody extends by them; what their clients hold is extended by
// the leader all the same. When the leader has room again, so have they.
func TestG40_FollowersPassOnThatTheLeaderRefuses(t *testing.T) {
	members := trio(t)
	leader := leaderOf(t, members...)
	var at *Server
	for _, s := range members {
		if s != leader {
			at = s
		}
	}
	c := clientOf(t, at)
	session, err := c.Open(testContext(t), client.SessionConfig{TTL: time.Hour}) // it beats every twenty minutes
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { session.Detach() })
	if _, err := session.Claim(testContext(t), leaseNamed("kept"), client.ClaimOptions{}); err != nil {
		t.Fatal(err)
	}
	got, err := claim(t, c, "held", "h")
	if err != nil {
		t.Fatal(err)
	}
	room := *leader.limits.Load()
	leader.limits.Store(&Limits{MaxConnections: room.MaxConnections, MemoryLimit: 1})
	n := 0
	refusal := func() error {
		n++
		_, err := claim(t, c, fmt.Sprint("more-", n), "h")
		return err
	}
	var typed *incumbent.Error
	until(t, "a follower refuses claims", func() bool { return errors.As(refusal(), &typed) })
	if typed.Kind != incumbent.Overloaded || typed.RetryAfter <= 0 {
		t.Errorf("claims are refused with %v, to come back after %v", typed, typed.RetryAfter)
	}
	if err := extend(t, at, "held", "h", got.Lease.Token); err != nil {
		t.Errorf("an extension by the follower: %v", err)
	}
	if s := at.admission.Stats()[admit.Extensions]; s.Refused != [admit.NumReasons]uint64{} {
		t.Errorf("extensions are refused: %v", s.Refused)
	}
	leader.limits.Store(&room)
	until(t, "the follower takes claims", func() bool { return refusal() == nil })
}

// A follower hears of it by whatever kind of work its own clients have it do, though there is
// nothing else: claims, sessions, keys, transactions, tables and the catalog are refused there
// while the leader refuses them, and taken again afterwards.
func TestG40_FollowersPassItOnForEveryKindOfWork(t *testing.T) {
	members := trio(t)
	leader := leaderOf(t, members...)
	at := members[0]
	if at == leader {
		at = members[1]
	}
	c := clientOf(t, at)
	const schema = `{"name": "T", "version": "1.0.0", "tables": {"P": {"columns": {"n": {"type": "integer"}}, "isRoot": true}}}`
	if _, err := c.TableCalls().DefineSchema(testContext(t), connect.NewRequest(&apiv1.DefineSchemaRequest{Schema: schema})); err != nil {
		t.Fatal(err)
	}
	room := *leader.limits.Load()
	short := &Limits{MaxConnections: room.MaxConnections, MemoryLimit: 1}
	n := 0
	kinds := map[string]struct {
		lane admit.Lane
		ask  func(ctx context.Context, name string) error
	}{
		"claims": {admit.Claims, func(ctx context.Context, name string) error {
			_, err := c.Leases().Claim(ctx, connect.NewRequest(&apiv1.ClaimRequest{Name: &apiv1.LeaseName{Name: name}, Holder: "h", TtlMs: 60_000}))
			return err
		}},
		"sessions": {admit.Claims, func(ctx context.Context, _ string) error {
			_, err := c.Sessions().OpenSession(ctx, connect.NewRequest(&apiv1.OpenSessionRequest{Id: incumbent.NewSessionID().String(), TtlMs: 60_000}))
			return err
		}},
		"keys": {admit.Small, func(ctx context.Context, name string) error {
			_, err := c.Keys().Put(ctx, connect.NewRequest(&apiv1.PutRequest{Key: name}))
			return err
		}},
		"transactions": {admit.Transactions, func(ctx context.Context, name string) error {
			put := &apiv1.TxnOperation{Op: &apiv1.TxnOperation_Put{Put: &apiv1.PutRequest{Key: name}}}
			_, err := c.Transactions().Txn(ctx, connect.NewRequest(&apiv1.TxnRequest{Then: []*apiv1.TxnOperation{put}}))
			return err
		}},
		"tables": {admit.Transactions, func(ctx context.Context, _ string) error {
			_, err := c.TableCalls().Transact(ctx, connect.NewRequest(&apiv1.TransactRequest{Database: "T", Operations: `[{"op": "insert", "table": "P", "row": {"n": 1}}]`}))
			return err
		}},
		"catalog": {admit.Claims, func(ctx context.Context, name string) error {
			_, err := c.Catalog().Register(ctx, connect.NewRequest(&apiv1.RegisterRequest{NodeName: name, Node: &apiv1.Node{Name: name, Address: "192.0.2.1"}}))
			return err
		}},
	}
	for kind, of := range kinds {
		ask := func() error {
			n++
			return client.AsError(of.ask(testContext(t), fmt.Sprint(kind, n)))
		}
		until(t, kind+" are taken", func() bool { return ask() == nil })
		refused := func() uint64 { return at.admission.Stats()[of.lane].Refused[admit.Order] }
		before := refused()
		leader.limits.Store(short)
		var typed *incumbent.Error
		until(t, kind+" are refused by the follower", func() bool { return errors.As(ask(), &typed) && refused() > before })
		if typed.Kind != incumbent.Overloaded || typed.RetryAfter <= 0 || typed.Member != at.cfg.Name {
			t.Errorf("%s are refused with %v by %q, to come back after %v", kind, typed, typed.Member, typed.RetryAfter)
		}
		leader.limits.Store(&room)
		until(t, kind+" are taken again", func() bool { return ask() == nil })
	}
}
