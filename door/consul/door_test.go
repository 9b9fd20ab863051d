package consul

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/calls"
)

func indexOf(n int) incumbent.Index { return incumbent.Index(n) }

func TestStatusAndSelf(t *testing.T) {
	m := startMember(t, nil)
	if a := m.do("GET", "/v1/status/leader", ""); a.StatusCode != http.StatusOK || a.body != `"127.0.0.1:8300"` {
		t.Errorf("leader: %d %s", a.StatusCode, a.body)
	}
	if a := m.do("GET", "/v1/status/peers", ""); a.body != `["127.0.0.1:8300"]` {
		t.Errorf("peers: %s", a.body)
	}
	a := m.do("GET", "/v1/agent/self", "")
	var self struct {
		Config struct{ NodeName, Datacenter, Version string }
		Member struct {
			Name string
			Port int
		}
	}
	if err := json.Unmarshal([]byte(a.body), &self); err != nil {
		t.Fatal(err)
	}
	if self.Config.NodeName != "agent" || self.Config.Datacenter != "dc1" || self.Config.Version != Version || self.Member.Name != "n1" || self.Member.Port != 8300 {
		t.Errorf("self: %+v", self)
	}
}

func TestRoutes(t *testing.T) {
	m := startMember(t, nil)
	for _, tt := range []struct {
		method, path  string
		status        int
		body, allowed string
	}{
		{"GET", "/v1/nothing", 404, "Invalid URL path: not a recognized HTTP API endpoint\n", ""},
		{"PUT", "/v1/status/leader", 405, "method PUT not allowed", "OPTIONS,GET"},
		{"OPTIONS", "/v1/status/leader", 200, "", "OPTIONS,GET"},
		{"GET", "/v1/status/peers?dc=elsewhere", 500, "No path to datacenter", ""},
		{"GET", "/v1/agent/members?wait=long", 400, "Invalid wait time", ""},
		{"GET", "/v1/agent/members?index=-1", 400, "Invalid index", ""},
		{"GET", "/v1/agent/members?stale&consistent", 400, "Cannot specify ?stale with ?consistent, conflicting semantics.", ""},
	} {
		a := m.do(tt.method, tt.path, "")
		if a.StatusCode != tt.status || a.body != tt.body || a.Header.Get("Allow") != tt.allowed {
			t.Errorf("%s %s: %d %q, allow %q", tt.method, tt.path, a.StatusCode, a.body, a.Header.Get("Allow"))
		}
	}
}

// Every endpoint has a row in the table of calls, and every row of this door's is served.
func TestG12_EveryEndpointHasARow(t *testing.T) {
	ways := map[string]bool{}
	for _, r := range routes() {
		for m := range r.methods {
			way := wayOf(m, r.path)
			ways[way] = true
			if _, ok := calls.Of(way); !ok {
				t.Errorf("%s has no row", way)
			}
		}
	}
	for c := range calls.NumCalls {
		for _, w := range c.Row().Ways {
			if strings.HasPrefix(w, doorName+".") && !ways[w] {
				t.Errorf("nobody serves %s", w)
			}
		}
	}
}

// However many reads are waiting for a goroutine, a change is made.
func TestChangesDoNotQueueBehindReads(t *testing.T) {
	m := startMember(t, nil)
	busy, over := make(chan struct{}), make(chan struct{})
	for range workers {
		m.door.work.Put(func() {
			busy <- struct{}{}
			<-over
		})
		<-busy // one takes many at once
	}
	defer close(over)
	if a := m.do("PUT", "/v1/kv/key", "value"); a.StatusCode != http.StatusOK || a.body != "true" {
		t.Errorf("put: %d %s", a.StatusCode, a.body)
	}
}
