// Fencing shows why a lock alone does not protect what it is for, and what does.
//
// One claims a lease, and then stands still for longer than the lease lasts: a long
// collection of garbage, a suspended machine. Two claims it meanwhile and writes. When
// one goes on it knows nothing of that, and writes, too. Both writes are transactions
// that name the token of their writer's own holding: so only one of them happens.
//
//	incumbent server --dev
//	go run ./examples/fencing
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/client"
)

// lease is what both want, state is what only its holder may write.
const (
	lease = "examples/fencing"
	state = "examples/fencing/state"
)

// ttl is the shortest there is: one has only to stand still for longer.
const ttl = incumbent.MinTTL

func main() {
	server := flag.String("server", "http://127.0.0.1:7600", "URL of a member")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	err := run(ctx, *server, os.Stdout)
	cancel()
	if err != nil {
		fmt.Fprintln(os.Stderr, "fencing:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, server string, out io.Writer) error {
	c, err := client.New(client.Config{Servers: []string{server}})
	if err != nil {
		return err
	}
	defer c.Close()
	one, err := claim(ctx, c, "one")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "one holds the lease, and stands still")
	if err := untilReleased(ctx, c, one); err != nil {
		return err
	}
	two, err := claim(ctx, c, "two")
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "two holds the lease")
	for _, w := range []struct {
		who   string
		token incumbent.Token
	}{{"two", two}, {"one", one}} { // one goes on, and believes that it holds the lease
		wrote, err := write(ctx, c, w.token, w.who)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s writes: %v\n", w.who, wrote)
	}
	e, err := c.KV("").Get(ctx, state)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "what is written is of %s\n", e.Value)
	_, err = c.Txn("").Release(name(), two).Delete(state).Commit(ctx)
	return err
}

// write writes if the lease is held under the token, and reports whether it was.
func write(ctx context.Context, c *client.Client, token incumbent.Token, value string) (bool, error) {
	res, err := c.Txn("").IfHeld(name(), token).Put(state, []byte(value)).Commit(ctx)
	return res.GetSucceeded(), err
}

func name() incumbent.Name {
	return incumbent.Name{Namespace: incumbent.DefaultNamespace, Model: incumbent.DefaultModel, Lease: lease}
}

// claim claims the lease for a holder who does not extend it.
func claim(ctx context.Context, c *client.Client, holder string) (incumbent.Token, error) {
	res, err := c.Leases().Claim(ctx, connect.NewRequest(&apiv1.ClaimRequest{
		Name: &apiv1.LeaseName{Name: lease}, Holder: holder, TtlMs: uint32(ttl.Milliseconds()), Idempotency: c.NewKey(),
	}))
	if err != nil {
		return 0, client.AsError(err)
	}
	return incumbent.Token(res.Msg.Lease.Token), nil
}

// untilReleased waits until the holding under a token has ended.
func untilReleased(ctx context.Context, c *client.Client, token incumbent.Token) error {
	for {
		res, err := c.Leases().WaitReleased(ctx, connect.NewRequest(&apiv1.WaitReleasedRequest{
			Name: &apiv1.LeaseName{Name: lease}, AfterToken: uint64(token),
		}))
		if err != nil {
			return client.AsError(err)
		}
		if res.Msg.Released {
			return nil
		}
	}
}
