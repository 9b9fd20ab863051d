package server

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

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

// deadlined notes the deadline of an answer.
type deadlined struct {
	http.ResponseWriter
	at time.Time
}

func (d *deadlined) SetWriteDeadline(at time.Time) error { d.at = at; return nil }

// What the member serves itself is given up if it is not read; profiles take longer.
func TestG47_RoutesHaveADeadline(t *testing.T) {
	w := &deadlined{ResponseWriter: httptest.NewRecorder()}
	inTime(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if in := time.Until(w.at); in <= 0 || in > routePatience {
		t.Errorf("it may take %v", in)
	}
}
