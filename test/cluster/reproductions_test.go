package cluster

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// Calls that once stopped every member of a cluster, and each again at every
// restart, or held them all up for seconds. Each is played on one member and on
// three, through the binary.
var shapesOfCluster = []string{"1", "3"}

// batch does operations in calls of as many as one may have, and fails the test
// unless each succeeds or waits in a queue.
func batch(t *testing.T, c *client.Client, ops []*apiv1.Operation) {
	t.Helper()
	const most = 1000
	for len(ops) > 0 {
		n := min(most, len(ops))
		res, err := c.Leases().Batch(t.Context(), connect.NewRequest(&apiv1.BatchRequest{Operations: ops[:n]}))
		if err != nil {
			t.Fatal(client.AsError(err))
		}
		for i, r := range res.Msg.Results {
			if e := r.Error; e != nil && e.Kind != "held" {
				t.Fatalf("operation %v: %v", ops[i], e)
			}
		}
		ops = ops[n:]
	}
}

func opOpen(id string) *apiv1.Operation {
	return &apiv1.Operation{Op: &apiv1.Operation_OpenSession{OpenSession: &apiv1.OpenSessionRequest{Id: id, TtlMs: 600_000}}}
}

func opClose(id string) *apiv1.Operation {
	return &apiv1.Operation{Op: &apiv1.Operation_CloseSession{CloseSession: &apiv1.CloseSessionRequest{Id: id}}}
}

func opClaim(name, holder, session string, wait bool) *apiv1.Operation {
	return &apiv1.Operation{Op: &apiv1.Operation_Claim{Claim: &apiv1.ClaimRequest{
		Name: &apiv1.LeaseName{Name: name}, Holder: holder, Session: session, Wait: wait,
	}}}
}

// allServe waits until every member has applied what the others have, kills one,
// starts it again, and waits for the same: what stopped a member once would stop
// it again when it replays its log.
func (c *trio) allServe(t *testing.T) {
	t.Helper()
	equal := func() bool {
		var index uint64
		for _, m := range c.Members {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			res, err := c.clientOf(m).Cluster().Status(ctx, connect.NewRequest(&apiv1.StatusRequest{}))
			cancel()
			if err != nil || index != 0 && res.Msg.Index != index {
				return false
			}
			index = res.Msg.Index
		}
		return index != 0
	}
	eventually(t, patience, "all members serve and are at one index", equal)
	last := c.Members[len(c.Members)-1]
	last.kill(t)
	last.again(t, nil)
	eventually(t, patience, "they do after one was killed and has replayed its log", equal)
}

// The end of a session that holds several leases takes a further index for each
// that somebody waits for; what it told afterwards was told under its first.
func TestG15_TheEndOfASessionWithWaitersStopsNobody(t *testing.T) {
	for _, members := range shapesOfCluster {
		t.Run(members, func(t *testing.T) {
			c := start(t, "--members", members)
			cl := c.clientOf(c.from(0)...)
			for round, names := range [][]string{{"a", "b", "c"}, {"c", "a", "b"}, {"b", "c", "a"}} {
				one, two := incumbent.NewSessionID().String(), incumbent.NewSessionID().String()
				ops := []*apiv1.Operation{opOpen(one), opOpen(two)}
				for _, n := range names {
					ops = append(ops, opClaim(n, "h", one, false))
				}
				for _, n := range names[:2] {
					ops = append(ops, opClaim(n, "w", two, true))
				}
				batch(t, cl, append(ops, opClose(one), opClose(two)))
				if l, err := get(t.Context(), cl, names[0]); err != nil || l.Token != 0 {
					t.Fatalf("round %d: %v %v", round, l, err)
				}
			}
			c.allServe(t)
		})
	}
}

// A session may take every place of a queue under another holder each; its end had
// the queue copied once for each place, on every member.
func TestG32_TheEndOfSessionsWithFullQueuesHoldsNobodyUp(t *testing.T) {
	const sessions, places = 6, 4096
	for _, members := range shapesOfCluster {
		t.Run(members, func(t *testing.T) {
			c := start(t, "--members", members)
			cl := c.clientOf(c.from(0)...)
			holder := incumbent.NewSessionID().String()
			ops, ends := []*apiv1.Operation{opOpen(holder)}, []*apiv1.Operation(nil)
			for s := range sessions {
				id := incumbent.NewSessionID().String()
				name := fmt.Sprintf("queue-%d", s)
				ops = append(ops, opOpen(id), opClaim(name, "holder", holder, false))
				for i := range places {
					ops = append(ops, opClaim(name, fmt.Sprintf("w%d", i), id, true))
				}
				ends = append(ends, opClose(id))
			}
			batch(t, cl, ops)
			batch(t, cl, ends)
			res, err := cl.Sessions().GetSession(t.Context(), connect.NewRequest(&apiv1.GetSessionRequest{Id: holder}))
			if err != nil || !strings.EqualFold(res.Msg.GetSession().GetId(), holder) {
				t.Errorf("the holder's session: %v, %v", res, client.AsError(err))
			}
			c.allServe(t)
		})
	}
}
