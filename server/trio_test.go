package server

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node"
)

// Three members that are closed, with sessions and watches on them, leave no
// goroutine behind.
func TestG48_ThreeMembersLeaveNoGoroutine(t *testing.T) {
	members := trio(t)
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	var after []func()
	for i, s := range members {
		c := clientOf(t, s)
		session, err := c.Open(testContext(t), client.SessionConfig{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := session.Claim(testContext(t), leaseNamed(fmt.Sprint("l", i)), client.ClaimOptions{}); err != nil {
			t.Fatal(err)
		}
		after = append(after, func() { _ = session.Close(gone); c.Close() })
	}
	order := slices.Clone(members)
	leader := leaderOf(t, members...)
	slices.SortFunc(order, func(a, b *Server) int { return boolRank(a == leader) - boolRank(b == leader) })
	for _, s := range order {
		if err := s.Close(testContext(t)); err != nil {
			t.Errorf("close of %s: %v", s.cfg.Name, err)
		}
	}
	for _, f := range after {
		f()
	}
	// Goroutines end a moment after what they signal.
	left := ours()
	for deadline := time.Now().Add(testTimeout); len(left) > 0 && time.Now().Before(deadline); left = ours() {
		runtime.Gosched()
	}
	if len(left) > 0 {
		t.Errorf("%d goroutines are left:\n%s", len(left), strings.Join(left, "\n\n"))
	}
}

func boolRank(b bool) int {
	if b {
		return 0
	}
	return 1
}

func leaseNamed(name string) incumbent.Name {
	return incumbent.Name{Namespace: incumbent.DefaultNamespace, Model: incumbent.DefaultModel, Lease: name}
}

// A member that was cut off for long gets a snapshot while it runs, with clients
// on it: their leases stay theirs, their watches are told that history is gone,
// and it knows who belongs to the cluster by then.
func TestG29_ASnapshotArrivesAtARunningServer(t *testing.T) {
	members := make([]*Server, 3)
	for i := range members {
		cfg := memberConfig(t, fmt.Sprintf("n%d", i+1))
		cfg.tailEntries = 1
		if i == 0 {
			members[i] = open(t, cfg)
			continue
		}
		members[i] = join(t, members[0], cfg)
	}
	leader := leaderOf(t, members...)
	behind := members[(slices.Index(members, leader)+1)%3]
	received := len(eventsOf(behind, "snapshot received"))
	c := clientOf(t, behind)
	session, err := c.Open(testContext(t), client.SessionConfig{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close(context.Background()) }) // it goes before the members do
	held, err := session.Claim(testContext(t), leaseNamed("kept"), client.ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	watching, seen := make(chan struct{}), make(chan error, 1)
	go func() { seen <- watchFor(testContext(t), c, "last", watching) }()
	<-watching

	behind.transport.Mute(true)
	until(t, "it is away: for who answers the log is kept", func() bool {
		peers := leader.node.Status().Peers
		return slices.ContainsFunc(peers, func(p node.PeerStatus) bool { return p.ID == behind.cluster.ID() && !p.Active })
	})
	at := clientOf(t, leader)
	for i := range 20 {
		if _, err := claim(t, at, fmt.Sprint("meanwhile-", i), "h"); err != nil {
			t.Fatal(err)
		}
	}
	newcomer := core.Member{ID: 99, Name: "n9", PeerAddress: "127.0.0.1:1", Schema: core.SchemaVersion, Learner: true}
	propose(t, leader, core.PutMemberCommand{Member: newcomer})
	until(t, "the newcomer is counted", func() bool { _, ok := leader.cluster.Roster().Counted[99]; return ok })
	if _, err := leader.operator().Snapshot(testContext(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := claim(t, at, "last", "h"); err != nil {
		t.Fatal(err)
	}
	behind.transport.Mute(false)
	until(t, "a snapshot has arrived", func() bool { return len(eventsOf(behind, "snapshot received")) > received })
	until(t, "the states are equal", func() bool {
		a, b := behind.engine.View(), leader.engine.View()
		return a.Index() == b.Index() && a.Hash() == b.Hash()
	})
	if err := <-seen; incumbent.KindOf(err) != incumbent.Compacted {
		t.Errorf("the watch ended with %v, want Compacted", err)
	}
	if err := watchFor(testContext(t), c, "last", make(chan struct{})); err != nil {
		t.Errorf("a watch that begins anew: %v", err)
	}
	if !held.Held() {
		t.Errorf("the lease was lost: %v", context.Cause(held.Context()))
	}
	if err := extend(t, behind, "meanwhile-3", "h", tokenFor(t, c, "meanwhile-3")); err != nil {
		t.Errorf("extend: %v", err)
	}
	if err := held.Release(testContext(t)); err != nil {
		t.Errorf("release: %v", err)
	}
	look := behind.cluster.Roster()
	if _, counted := look.Counted[99]; !counted || len(look.Others) != 3 {
		t.Errorf("it counts %v and wants to be connected with %v", look.Counted, look.Others)
	}
}

func tokenFor(t testing.TB, c *client.Client, name string) uint64 {
	t.Helper()
	res, err := c.Leases().Get(testContext(t), connect.NewRequest(&apiv1.GetRequest{Name: &apiv1.LeaseName{Name: name}}))
	if err != nil {
		t.Fatal(client.AsError(err))
	}
	return res.Msg.Lease.Token
}

// watchFor watches until a lease shows up, in an event or in the snapshot that a
// watch begins with.
func watchFor(ctx context.Context, c *client.Client, name string, begun chan struct{}) error {
	first := true
	for m, err := range c.Watch(ctx, client.WatchOptions{Name: leaseNamed(""), Prefix: true}) {
		if err != nil {
			return err
		}
		if first {
			close(begun)
			first = false
		}
		for _, e := range m.Events {
			if e.Lease.GetName().GetName() == name {
				return nil
			}
		}
	}
	return ctx.Err()
}
