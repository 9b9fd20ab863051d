package cluster

import (
	"testing"

	"github.com/incumbent-dev/incumbent/client"
	"github.com/incumbent-dev/incumbent/test/outside"
)

// As on one member, on every member of three.
func TestG15_G18_TheEndOfALargeSession(t *testing.T) {
	c := start(t)
	var clients []*client.Client
	for _, m := range c.Members {
		clients = append(clients, c.clientOf(m))
	}
	outside.EndsForAll(t, 9_900, clients...)
}
