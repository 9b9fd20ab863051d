package server

import (
	"bytes"
	"context"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core/trust"
)

// An exchange of the secret of which it is not known whether it began is not begun with
// another secret: the first may be what the members agree on, and must not be lost.
func TestAnExchangeIsBegunAgainWithTheSameSecret(t *testing.T) {
	members := trio(t)
	first := members[0]
	rotate := func(ctx context.Context) incumbent.Kind {
		_, err := first.operator().RotateTrust(ctx, &apiv1.RotateRequest{What: apiv1.Rotation_ROTATION_SECRET}, "operator:test")
		return incumbent.KindOf(err)
	}
	secret := func() trust.Turn { return trust.Of(first.engine.View()).Secret }
	before := secret().Current
	gone, cancel := context.WithCancel(context.Background())
	cancel()
	if kind := rotate(gone); kind != incumbent.Unknown && kind != incumbent.OK {
		t.Fatalf("whose call has ended hears %v", kind)
	}
	if kind := rotate(testContext(t)); kind != incumbent.OK && kind != incumbent.Conflict { // it has begun
		t.Fatalf("again: %v", kind)
	}
	until(t, "the members have exchanged it", func() bool { return len(secret().Next) == 0 && !bytes.Equal(secret().Current, before) })
	join(t, first, memberConfig(t, "n4"))
}

// A secret whose exchange was abandoned makes no join tokens: who was not there does not
// have it.
func TestAnAbandonedSecretMakesNoTokens(t *testing.T) {
	members := trio(t)
	first, second, third := members[0], members[1], members[2]
	if err := third.Close(testContext(t)); err != nil {
		t.Fatal(err)
	}
	leaderOf(t, first, second)
	rotate := func(r *apiv1.RotateRequest) {
		t.Helper()
		r.What = apiv1.Rotation_ROTATION_SECRET
		if _, err := first.operator().RotateTrust(testContext(t), r, "operator:test"); err != nil {
			t.Fatal(err)
		}
	}
	rotate(&apiv1.RotateRequest{})
	until(t, "n2 has the next secret", func() bool {
		view := trust.Of(first.engine.View())
		m := view.Member(second.cluster.ID())
		return m != nil && bytes.Equal(m.Secret[:], view.Secret.Next)
	})
	rotate(&apiv1.RotateRequest{Abandon: true})
	cfg := third.cfg
	cfg.Listen, cfg.PeerListen, cfg.JoinToken = strings.TrimPrefix(third.URL(), "http://"), third.PeerAddr(), ""
	third = open(t, cfg)
	until(t, "n3 leads", func() bool {
		leader := leaderOf(t, first, second, third)
		if leader == third {
			return true
		}
		_, err := leader.operator().TransferLeader(testContext(t), &apiv1.TransferLeaderRequest{Member: "n3"})
		return err == nil && leaderOf(t, first, second, third) == third
	})
	join(t, first, memberConfig(t, "n4"))
}
