package consul

import (
	"net/http"
	"strings"
	"testing"
)

// TestPathsAreCleaned: who asks for a path with empty elements or dots is sent to the one
// without, and what only shows once it is decoded is taken for that.
func TestPathsAreCleaned(t *testing.T) {
	m := startMember(t, nil)
	for _, c := range []struct{ method, path, to string }{
		{"GET", "/v1/kv//a", "/v1/kv/a"},
		{"PUT", "/v1/kv/a//b/../c/?flags=1&cas=0", "/v1/kv/a/c/?flags=1&cas=0"},
		{"GET", "/v1//kv/%2Fa", "/v1/kv/%2Fa"},
		{"GET", "/../v1/kv/./a", "/v1/kv/a"},
		{"GET", "/v1/kv?recurse", "/v1/kv/?recurse"},
		{"PUT", "/v1/kv", "/v1/kv/"},
		{"GET", "/v1//health/./state", "/v1/health/state/"},
		{"GET", "/v1/agent/health/service/id", "/v1/agent/health/service/id/"},
	} {
		a := m.do(c.method, c.path, "")
		if a.StatusCode != http.StatusTemporaryRedirect || a.Header.Get("Location") != c.to || (a.body == "") != (c.method == "PUT") {
			t.Errorf("%s %s: %d to %q, %q", c.method, c.path, a.StatusCode, a.Header.Get("Location"), a.body)
		}
	}
	m.exchange([]exchange{
		{"an element that is empty once decoded", "PUT", "/v1/kv/a/%2Fb", "x", 200, "true"},
		{"one that begins with a dot", "PUT", "/v1/kv/a/.hidden", "x", 200, "true"},
		{"a slash at the end", "PUT", "/v1/kv/a/c/", "x", 200, "true"},
		{"no slash that would make a route", "GET", "/v1/health", "", 404, "Invalid URL path: not a recognized HTTP API endpoint\n"},
		{"a route with one and without", "GET", "/v1/query", "", 200, "[]"},
		{"they are as they are stored", "GET", "/v1/kv/a?keys", "", 200, `["a/.hidden","a/b","a/c/"]`},
	})
}

// TestPathsArePrintable: what is on a path is printed, or nobody serves it, whether its body
// has come or not.
func TestPathsArePrintable(t *testing.T) {
	m := startMember(t, nil)
	for _, path := range []string{
		"/v1/kv/a%00b", "/v1/kv/a%0ab", "/v1/kv/a%7fb", "/v1/kv/a%C2%A0b", "/v1/kv/%E2%80%8B?recurse", "/v1/kv//a%09", "/v1/catalog/service/a%00", "/v1/agent/service/a%0a",
		"/v1/nothing%00", "/%7f",
	} {
		for _, method := range []string{"GET", "PUT", "OPTIONS"} {
			a := m.do(method, path, "")
			if a.StatusCode != http.StatusBadRequest || a.body != "" || a.Header.Get("Content-Type") != "" || a.Header.Get("X-Consul-Default-Acl-Policy") != "" || a.Header.Get("Vary") != "" {
				t.Errorf("%s %s: %s %v %q", method, path, a.Status, a.Header, a.body)
			}
		}
	}
	early := m.dial()
	early.write("PUT /v1/kv/a%00 HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n")
	if a := early.read("PUT"); a.StatusCode != http.StatusBadRequest || a.body != "" {
		t.Errorf("before its body: %s %q", a.Status, a.body)
	}
	m.exchange([]exchange{
		{"a space", "PUT", "/v1/kv/a%20b", "x", 200, "true"},
		{"other letters", "PUT", "/v1/kv/%C3%BC", "x", 200, "true"},
		{"in a parameter", "GET", "/v1/kv/?keys&separator=%00", "", 200, `["a b","ü"]`},
	})
}

// TestServicesInOneLine: the numbers are those of the instances that are seen.
func TestServicesInOneLine(t *testing.T) {
	m := startMember(t, nil)
	for _, body := range []string{
		`{"Node":"a","Address":"10.0.0.1","Service":{"ID":"1","Service":"web","Tags":["x","y"],"Meta":{"external-source":"nomad"}},"Check":{"CheckID":"c","Status":"critical","ServiceID":"1"}}`,
		`{"Node":"a","Address":"10.0.0.1","Service":{"ID":"2","Service":"web","Tags":["x"]},"Check":{"CheckID":"n","Status":"passing"}}`,
		`{"Node":"b","Address":"10.0.0.2","Service":{"ID":"3","Service":"web"},"Check":{"CheckID":"c","Status":"warning","ServiceID":"3"}}`,
	} {
		if a := m.do("PUT", "/v1/catalog/register", body); a.StatusCode != http.StatusOK {
			t.Fatal(a.body)
		}
	}
	a := m.do("GET", "/v1/internal/ui/services", "")
	for _, want := range []string{
		`"Tags":["x","y"],"Nodes":["a","b"],"ExternalSources":["nomad"],"InstanceCount":3,"ChecksPassing":2,"ChecksWarning":1,"ChecksCritical":1,`,
	} {
		if !strings.Contains(a.body, want) || a.Header.Get("X-Consul-Index") == "1" {
			t.Errorf("%s, index %s", a.body, a.Header.Get("X-Consul-Index"))
		}
	}
	if a := m.do("GET", "/v1/internal/ui/services?filter=Node.Node==b", ""); !strings.Contains(a.body, `"InstanceCount":1,`) {
		t.Error(a.body)
	}
}
