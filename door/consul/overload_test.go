package consul

import (
	"net/http"
	"strconv"
	"testing"

	"github.com/incumbent-dev/incumbent/admit"
)

// A refusal is 429, of a write at the leader 503, and says when to come back; what is refused
// last is not yet.
func TestG41_ARefusalSaysWhenToComeBack(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	session := m.open()
	lanes.SetMemory(95, 100) // all but extensions
	for _, tt := range []struct{ method, path, body string }{
		{"PUT", "/v1/kv/a", "x"},
		{"PUT", "/v1/catalog/register", `{"Node": "n", "Address": "1.1.1.1"}`},
		{"GET", "/v1/catalog/nodes", ""},
		{"GET", "/v1/kv/a?index=1", ""},
		{"PUT", "/v1/session/create", ""},
		{"PUT", "/v1/txn", "[]"},
	} {
		a := m.do(tt.method, tt.path, tt.body)
		after, err := strconv.Atoi(a.Header.Get("Retry-After"))
		want := http.StatusServiceUnavailable // the leader is busy, and no other member could do it
		if tt.method == http.MethodGet {
			want = http.StatusTooManyRequests
		}
		if a.StatusCode != want || err != nil || after < 1 || after > 4 {
			t.Errorf("%s %s: %s, Retry-After %q", tt.method, tt.path, a.Status, a.Header.Get("Retry-After"))
		}
	}
	if a := m.do("PUT", "/v1/session/renew/"+session.String(), ""); a.StatusCode != http.StatusOK {
		t.Errorf("an extension: %s %q", a.Status, a.body)
	}
	lanes.SetMemory(0, 100)
	if a := m.do("PUT", "/v1/kv/a", "x"); a.StatusCode != http.StatusOK || a.Header.Get("Retry-After") != "" {
		t.Errorf("afterwards: %s", a.Status)
	}
}
