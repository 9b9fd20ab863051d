package bench

import (
	"context"
	"errors"
	"net/http"

	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// A storm of logins: clients connect, one after the other, and prove nobody. Each asks over
// a connection of its own, as a fleet whose password was changed does.

// attempts makes the clients of a storm: each request is one attempt.
func attempts(try opener) func(context.Context, *flood, int, int) (*floodClient, error) {
	return func(_ context.Context, f *flood, member, n int) (*floodClient, error) {
		return &floodClient{ask: func(ctx context.Context, _ int) (int, error) {
			return doneIf(try(ctx, f, member, n), 1)
		}}, nil
	}
}

// guessNative asks with a credential that is nobody's.
func guessNative(ctx context.Context, f *flood, member, n int) error {
	conn, err := f.dialCallsOf(ctx, member, n, newTag(), "")
	if err != nil {
		return notLetIn(ctx, err)
	}
	defer conn.close()
	defer context.AfterFunc(ctx, conn.close)()
	switch err := conn.call(incumbentv1connect.ClusterServiceStatusProcedure, &apiv1.StatusRequest{}, new(emptypb.Empty)); {
	case err == nil:
		f.check.Violate("a wrong credential was taken for one that is known")
		return nil
	case incumbent.KindOf(err) == incumbent.Denied:
		return nil
	case isRefusal(err):
		return err
	default:
		return notLetIn(ctx, err)
	}
}

// guessJuju logs in with a wrong password, and has to be told so.
func guessJuju(ctx context.Context, f *flood, member, n int) error {
	conn, err := f.enterJuju(ctx, member, n, "wrong")
	var refused *loginError
	switch {
	case err == nil:
		conn.NetConn().Close()
		f.check.Violate("a wrong password was taken at the door for Juju's agents")
		return nil
	case errors.As(err, &refused) && refused.code != jujuTryAgain:
		return nil
	}
	return notLetIn(ctx, err)
}

// guessConsul reads a key with a token that is nobody's. Where no policy is, servers do as
// Consul does: the token means nothing, and whoever brings it is nobody in particular.
func guessConsul(ctx context.Context, f *flood, member, n int) error {
	conn, err := httpServer{address: f.doors[member], token: newTag()}.dial(ctx, f.source(n), false)
	if err != nil {
		return notLetIn(ctx, err)
	}
	defer conn.close()
	defer context.AfterFunc(ctx, conn.close)()
	a, _, err := conn.ask(http.MethodGet, "/v1/kv/of-nobody", nil)
	switch {
	case err == nil:
		f.check.Violate("a key that there is not was read with a token that is nobody's")
	case !isRefusal(err) || a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable:
		return notLetIn(ctx, err)
	}
	return nil
}

// knockOVSDB connects and begins to monitor: the protocol has no logins.
func knockOVSDB(ctx context.Context, f *flood, member, n int) error {
	return notLetIn(ctx, openOVSDB(ctx, f, member, n))
}

// notLetIn is the error of an attempt that was turned away: that is how servers refuse who
// has proven nothing. One that took all of its time has no answer.
func notLetIn(ctx context.Context, err error) error {
	if err == nil || ctx.Err() != nil {
		return err
	}
	return incumbent.Errorf(incumbent.Overloaded, "was not let in: %w", err)
}
