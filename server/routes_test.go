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
	answered := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
	for _, c := range []struct {
		path, from string
		ends       bool
	}{
		{"GET /metrics", "127.0.0.1:1", true},
		{"/debug/pprof/profile", "127.0.0.1:1", false},
		{"/debug/pprof/profile", "192.0.2.1:1", true}, // is told that there is none
	} {
		w := &deadlined{ResponseWriter: httptest.NewRecorder()}
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.RemoteAddr = c.from
		route(c.path, answered).ServeHTTP(w, r)
		if in := time.Until(w.at); c.ends && (in <= 0 || in > routePatience) || !c.ends && !w.at.IsZero() {
			t.Errorf("%s from %s may take %v", c.path, c.from, in)
		}
	}
}
