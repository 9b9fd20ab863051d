package bench

import (
	"context"
	"errors"
	"syscall"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// claimBatch is how many claims one call makes while a run is prepared.
const claimBatch = 500

// claimMany claims n leases with a few bulk calls and returns their tokens. A
// server that is overloaded by this preparation is given the time it asks for.
func claimMany(ctx context.Context, c *client.Client, n int, claim func(i int) *apiv1.ClaimRequest) ([]uint64, error) {
	tokens := make([]uint64, 0, n)
	for len(tokens) < n {
		req := &apiv1.BatchRequest{}
		for i := len(tokens); i < min(n, len(tokens)+claimBatch); i++ {
			req.Operations = append(req.Operations, &apiv1.Operation{Op: &apiv1.Operation_Claim{Claim: claim(i)}})
		}
		part, err := claimBulk(ctx, c, req)
		var refused *incumbent.Error
		if errors.As(err, &refused) && refused.Kind == incumbent.Overloaded {
			if err := sleep(ctx, refused.RetryAfter); err != nil {
				return nil, err
			}
			continue // what was granted is its holder's own already, under the same token
		}
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, part...)
	}
	return tokens, nil
}

func claimBulk(ctx context.Context, c *client.Client, req *apiv1.BatchRequest) ([]uint64, error) {
	res, err := c.Leases().Batch(ctx, connect.NewRequest(req))
	if err != nil {
		return nil, client.AsError(err)
	}
	if got, want := len(res.Msg.Results), len(req.Operations); got != want {
		return nil, incumbent.Errorf(incumbent.Corrupt, "a bulk call of %d claims was answered with %d results", want, got)
	}
	tokens := make([]uint64, len(res.Msg.Results))
	for i, one := range res.Msg.Results {
		if one.Error != nil {
			return nil, client.DetailError(one.Error)
		}
		tokens[i] = one.GetClaim().GetLease().GetToken()
	}
	return tokens, nil
}

// selfCPU is the CPU time of the load tool's own process.
func selfCPU() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
