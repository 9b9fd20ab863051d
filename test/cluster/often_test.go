package cluster

import (
	"testing"

	"github.com/incumbent-dev/incumbent/test/outside"
)

// A follower that is asked to extend one session over and over hands it on once: the
// leader has no more work than it.
func TestG40_ASessionNamedOftenThroughAFollower(t *testing.T) {
	c := start(t, "--members", "3")
	leader := c.leader()
	follower := c.others(leader)[0]
	outside.ExtendOften(t, c.clientOf(follower), leader.URL, follower.URL)
}
