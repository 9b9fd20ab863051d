package client

import (
	"context"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// releaseTimeout bounds giving a lease up when the leader's function returned.
const releaseTimeout = 5 * time.Second

// Elect runs lead whenever this process is elected for name, in the default
// namespace and model. It waits for its turn, keeps the lease while lead runs,
// and cancels lead's context when the lease is lost; then it waits again. It
// returns what lead returns while it still leads, or when ctx ends.
//
//	err := client.Elect(ctx, c, "db/primary", 15*time.Second,
//		func(ctx context.Context, token incumbent.Token) error { … })
func Elect(ctx context.Context, c *Client, name string, ttl time.Duration, lead func(ctx context.Context, token incumbent.Token) error) error {
	for {
		over, err := electOnce(ctx, c, incumbent.Name{Lease: name}, ttl, lead)
		if over || ctx.Err() != nil {
			return err
		}
	}
}

// electOnce leads at most once. over: the caller is done.
func electOnce(ctx context.Context, c *Client, name incumbent.Name, ttl time.Duration, lead func(context.Context, incumbent.Token) error) (over bool, err error) {
	s, err := c.Open(ctx, SessionConfig{TTL: ttl})
	if err != nil {
		return true, err
	}
	defer func() {
		leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout)
		defer cancel()
		// Not told, the session ends at the server when its ttl passes.
		_ = s.Close(leave)
	}()
	lease, err := s.Campaign(ctx, name)
	if err != nil {
		return !retryable(err) && !gone(err), err
	}
	leading, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	unlink := context.AfterFunc(lease.Context(), func() { cancel(context.Cause(lease.Context())) })
	defer unlink()
	err = lead(leading, lease.Token())
	return lease.Held(), err
}

// Campaign is [Session.Claim] with Wait for who has nothing to do but wait for the
// lease: a claim that was refused for now is followed by another, no sooner than the
// member asked for, until ctx or the session ends.
func (s *Session) Campaign(ctx context.Context, name incumbent.Name) (*Lease, error) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		lease, err := s.Claim(ctx, name, ClaimOptions{Wait: true})
		if err == nil || !retryable(err) || ctx.Err() != nil {
			return lease, err
		}
		if err := sleep(ctx, jitter(pause, err)); err != nil {
			return nil, err
		}
	}
}
