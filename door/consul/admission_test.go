package consul

import (
	"math"
	"net/http"
	"testing"

	"github.com/incumbent-dev/incumbent/admit"
)

// What admission refuses says where to try again: elsewhere, or later where it is what
// the leader does. By its mode it refuses, only counts, or does neither.
func TestG41_RefusalsSayWhereToTry(t *testing.T) {
	lanes, err := admit.New(hardlyHeldBack, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	m.ok("PUT /v1/kv/k x")
	lanes.SetMemory(math.MaxInt64/2, math.MaxInt64/2) // nothing is left
	for _, tt := range []struct {
		mode          admit.Mode
		method, path  string
		status        int
		says          string
		countsRefused bool
	}{
		{admit.Enforce, "GET", "/v1/kv/k?raw", http.StatusTooManyRequests, textOverloaded, true},
		{admit.Enforce, "GET", "/v1/health/service/web?index=1", http.StatusTooManyRequests, textOverloaded, true},
		{admit.Enforce, "PUT", "/v1/kv/k", http.StatusServiceUnavailable, textLeaderBusy, true},
		{admit.Observe, "GET", "/v1/kv/k?raw", http.StatusOK, "x", true},
		{admit.Observe, "PUT", "/v1/kv/k?cas=0", http.StatusOK, "false", true},
		{admit.Off, "GET", "/v1/kv/k?raw", http.StatusOK, "x", false},
	} {
		lanes.SetMode(tt.mode)
		before := refusedOf(lanes)
		a := m.do(tt.method, tt.path, "")
		if a.StatusCode != tt.status || a.body != tt.says {
			t.Errorf("mode %d: %s %s: %d %s", tt.mode, tt.method, tt.path, a.StatusCode, a.body)
		}
		if counted := refusedOf(lanes) > before; counted != tt.countsRefused {
			t.Errorf("mode %d: %s %s: counted as refused: %v", tt.mode, tt.method, tt.path, counted)
		}
	}
}

func refusedOf(lanes *admit.Controller) (n uint64) {
	for _, s := range lanes.Stats() {
		for _, refused := range s.Refused {
			n += refused
		}
	}
	return n
}
