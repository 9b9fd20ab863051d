package server

import (
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/calls"
)

// Every path that a member serves has rows in the table of calls, and the table has
// no path that nobody serves.
func TestG12_EveryRouteHasARow(t *testing.T) {
	s := &Server{metrics: newMetrics()}
	routes := s.routes()
	for path := range routes {
		if _, ok := calls.Of(path); !ok {
			t.Errorf("%s has no row in the table of calls", path)
		}
	}
	for c := range calls.NumCalls {
		for _, w := range c.Row().Ways {
			if (strings.HasPrefix(w, "GET ") || strings.HasPrefix(w, "/debug/")) && routes[w] == nil {
				t.Errorf("the table has %s, which nobody serves", w)
			}
		}
	}
}
