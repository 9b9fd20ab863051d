package client

import (
	"context"
	"errors"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

type term struct {
	ctx   context.Context
	token incumbent.Token
	leave chan error
}

// candidate runs Elect and reports each term.
func candidate(ctx context.Context, t testing.TB, c *Client, ttl time.Duration) (terms chan term, ended chan error) {
	t.Helper()
	terms, ended = make(chan term), make(chan error, 1)
	go func() {
		ended <- Elect(ctx, c, "primary", ttl, func(ctx context.Context, token incumbent.Token) error {
			now := term{ctx, token, make(chan error, 1)}
			select {
			case terms <- now:
			case <-ctx.Done():
				return context.Cause(ctx)
			}
			select {
			case err := <-now.leave:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	return terms, ended
}

func nextTerm(t testing.TB, terms chan term) term {
	t.Helper()
	select {
	case now := <-terms:
		return now
	case <-time.After(testTimeout):
		t.Fatal("nobody was elected")
		return term{}
	}
}

// Ttls of candidates: short, where the test waits for it to pass, and still longer
// than a loaded machine stands still; and long, where it must not pass.
const (
	shortTTL = 6 * time.Second
	longTTL  = time.Minute
)

// A leader that cannot reach the server stops leading by its own clock, before
// another can be elected, and campaigns again once it can.
func TestElectLosesWhenTheServerStalls(t *testing.T) {
	s := startServer(t, serverConfig(t))
	r := newRelay(t, s.URL())
	ctx, stop := context.WithCancel(testContext(t))
	defer stop()
	cut, cutEnded := candidate(ctx, t, clientOf(t, r.url()), shortTTL)
	first := nextTerm(t, cut)
	other, otherEnded := candidate(ctx, t, clientOf(t, s.URL()), longTTL)
	follow(t, clientOf(t, s.URL()), "primary", func(l *apiv1.Lease) bool { return len(l.Queue) == 1 })
	r.stall()
	second := nextTerm(t, other)
	if first.ctx.Err() == nil {
		t.Error("two lead at once")
	}
	if err := await(first.ctx, t); incumbent.KindOf(err) != incumbent.Expired {
		t.Errorf("the first was told %v, want Expired", err)
	}
	if second.token <= first.token {
		t.Errorf("token %d after %d", second.token, first.token)
	}
	r.resume()
	enough := errors.New("enough")
	second.leave <- enough
	if err := <-otherEnded; !errors.Is(err, enough) {
		t.Errorf("Elect returned %v, want what lead returned", err)
	}
	third := nextTerm(t, cut)
	if third.token <= second.token {
		t.Errorf("token %d after %d", third.token, second.token)
	}
	stop()
	if err := <-cutEnded; !errors.Is(err, context.Canceled) {
		t.Errorf("Elect returned %v when its context ended", err)
	}
	// The lease is given up on the way out.
	follow(t, clientOf(t, s.URL()), "primary", func(l *apiv1.Lease) bool { return l.GetHolder() == "" })
}

// A leader whose session an operator closes, or whose lease is revoked, stops
// leading and campaigns again.
func TestElectCampaignsAgain(t *testing.T) {
	s := startServer(t, serverConfig(t))
	c := clientOf(t, s.URL())
	ctx, stop := context.WithCancel(testContext(t))
	defer stop()
	terms, ended := candidate(ctx, t, clientOf(t, s.URL()), shortTTL)
	first := nextTerm(t, terms)
	l := lookUp(t, c, "primary")
	if _, err := c.Sessions().CloseSession(testContext(t), connect.NewRequest(&apiv1.CloseSessionRequest{Id: l.Session})); err != nil {
		t.Fatal(err)
	}
	if err := await(first.ctx, t); incumbent.KindOf(err) != incumbent.Expired {
		t.Errorf("after its session was closed: %v", err)
	}
	second := nextTerm(t, terms)
	revoke := &apiv1.RevokeRequest{Name: apiName(named("primary")), Force: true, By: "ops"}
	if _, err := c.Leases().Revoke(testContext(t), connect.NewRequest(revoke)); err != nil {
		t.Fatal(err)
	}
	if err := await(second.ctx, t); incumbent.KindOf(err) != incumbent.NotHolder {
		t.Errorf("after it was revoked: %v", err)
	}
	third := nextTerm(t, terms)
	if !(first.token < second.token && second.token < third.token) {
		t.Errorf("tokens %d, %d, %d", first.token, second.token, third.token)
	}
	third.leave <- nil
	if err := <-ended; err != nil {
		t.Errorf("Elect returned %v after lead returned nil", err)
	}
}

func TestElectRefusesNonsense(t *testing.T) {
	c := clientOf(t, deadServer)
	lead := func(context.Context, incumbent.Token) error { return nil }
	if err := Elect(testContext(t), c, "x", time.Millisecond, lead); incumbent.KindOf(err) != incumbent.Invalid {
		t.Errorf("a ttl too short: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if err := Elect(ctx, c, "x", time.Second, lead); err == nil {
		t.Error("elected by nobody")
	}
}
