package consul

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"
)

// How old an answer may be is asked for by an age above 0: no other makes a read one of the
// member's own view, and with ?stale no other bounds that.
func TestOwnViewByAge(t *testing.T) {
	for query, want := range map[string]string{
		"": "", "max_stale=0s": "", "max_stale=-1s": "", "max_stale=1s": "new", "stale": "new old", "stale&max_stale=0s": "new old", "stale&max_stale=-1s": "new old",
		"stale&max_stale=1s": "new", "cached": "new old",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		r := &request{door: &Door{}, method: http.MethodGet, path: "/v1/kv/k", query: values}
		if !r.parse() {
			t.Fatal(query)
		}
		var got []string
		for _, of := range []struct {
			name string
			age  time.Duration
		}{{"new", time.Second}, {"old", time.Hour}} {
			if r.opts.own(of.age) {
				got = append(got, of.name)
			}
		}
		if text := strings.Join(got, " "); text != want {
			t.Errorf("?%s: by a view that is %q, want %q", query, text, want)
		}
	}
}

// A datacenter that is none of ours fails what is asked there. What an agent does itself, and
// what a registration says in its body, is no matter of the parameter.
func TestDatacenterOfRequests(t *testing.T) {
	m := startMember(t, func(c *Config) { c.Operator.TransferLeader = func(uint64) error { return nil } })
	for _, tt := range []struct {
		request string
		status  int
	}{
		{"PUT /v1/agent/service/register?dc=none {\"Name\":\"a\",\"Check\":{\"TTL\":\"10s\"}}", 200},
		{"PUT /v1/agent/check/pass/service:a?dc=none", 200},
		{"GET /v1/agent/services?dc=none", 200},
		{"GET /v1/agent/service/a?datacenter=none", 200},
		{"GET /v1/agent/members?dc=none", 200},
		{"GET /v1/agent/connect/ca/roots?dc=none", 500},
		{"PUT /v1/catalog/register?dc=none {\"Node\":\"n\",\"Address\":\"a\"}", 200},
		{"PUT /v1/catalog/register {\"Node\":\"n\",\"Address\":\"a\",\"Datacenter\":\"none\"}", 500},
		{"PUT /v1/catalog/deregister?dc=none {\"Node\":\"n\"}", 200},
		{"GET /v1/catalog/datacenters?dc=none", 200},
		{"GET /v1/coordinate/datacenters?dc=none", 200},
		{"GET /v1/event/list?dc=none", 200},
		{"POST /v1/operator/raft/transfer-leader?dc=none", 200},
		{"GET /v1/catalog/nodes?dc=none", 500},
		{"GET /v1/kv/a?dc=none", 500},
		{"GET /v1/kv/a?dc=dc1", 404},
		{"GET /v1/kv/a?dc=dc1&datacenter=none", 500},
		{"GET /v1/kv/a?dc=none&datacenter=dc1", 404},
	} {
		parts := append(strings.SplitN(tt.request, " ", 3), "")
		if a := m.do(parts[0], parts[1], parts[2]); a.StatusCode != tt.status || tt.status == 500 && a.body != textNoDatacenter {
			t.Errorf("%s: %s %q", tt.request, a.Status, a.body)
		}
	}
}
