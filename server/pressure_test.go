package server

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
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
