package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// consulWith answers as a Consul does that has one node beside its own server.
func consulWith(t *testing.T, checks int) *httptest.Server {
	var list []string
	for i := range checks {
		list = append(list, fmt.Sprintf(`{"Node":"db","CheckID":"c%d","Name":"up","Status":"passing","ServiceID":"web-1"}`, i))
	}
	answers := map[string]string{
		"/v1/catalog/nodes":         `[{"ID":"","Node":"consul-1","Address":"10.0.0.9"},{"ID":"9d55f9ab-6a10-4fc0-8d0c-b5a7b1a5e9aa","Node":"db","Address":"10.0.0.1","Meta":{"zone":"a"}}]`,
		"/v1/catalog/node/db":       `{"Node":{},"Services":{"web-1":{"ID":"web-1","Service":"web","Tags":["v1"],"Ports":[{"Name":"m","Port":81},{"Name":"http","Port":80,"Default":true}]}}}`,
		"/v1/health/node/db":        `[{"Node":"db","CheckID":"serfHealth","Status":"critical"},{"Node":"db","CheckID":"disk","Name":"disk","Status":"warning"}` + strings.Join(append([]string{""}, list...), ",") + `]`,
		"/v1/health/node/consul-1":  `[{"Node":"consul-1","CheckID":"serfHealth","Status":"passing"}]`,
		"/v1/catalog/node/consul-1": `{"Services":{"consul":{"ID":"consul","Service":"consul","Port":8300}}}`,
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, ok := answers[r.URL.Path]
		switch {
		case r.Header.Get("X-Consul-Token") == "wrong":
			http.Error(w, "Permission denied", http.StatusForbidden)
		case !ok:
			http.NotFound(w, r)
		default:
			fmt.Fprint(w, body)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func TestCatalogFromTheCommandLine(t *testing.T) {
	s := openServer(t)
	consul := consulWith(t, 250)
	for _, step := range []struct {
		args []string
		code int
		out  string // all of it, unless it ends with …
		err  string // part of it
	}{
		{args: []string{"health", "web"}, code: exitHeld, err: "no such instance"},
		{args: []string{"register"}, code: exitUsage, err: "give --node"},
		{args: []string{"register", "--node", "a", "--port", "5"}, code: exitUsage, err: "give SERVICE"},
		{args: []string{"register", "web", "--node", "a"}, code: exitHeld, err: "node"},
		{args: []string{"register", "--node", "a", "--address", "10.0.0.1"}, out: "a registered at index …"},
		{args: []string{"register", "web", "--node", "a", "--port", "80", "--tag", "v1", "--ttl", "1h"}, out: "web on a registered at index …"},
		{args: []string{"services"}, out: "SERVICE  PASSING  WARNING  CRITICAL  TAGS\nweb      0        0        1         v1\n"},
		{args: []string{"health", "web"}, out: "NODE  ID   ADDRESS      STATUS    TAGS\na     web  10.0.0.1:80  critical  v1\n"},
		{args: []string{"health", "web", "--passing"}, code: exitHeld, err: "no such instance"},
		{args: []string{"health", "web", "-o", "jsonl"}, out: `{"checks":[…`},
		{args: []string{"nodes"}, out: "NODE  ADDRESS   ID  MODIFIED\na     10.0.0.1  -   …"},
		{args: []string{"import", "nonsense"}, code: exitUsage, err: "not the URL of a Consul"},
		{args: []string{"import", s.URL()}, code: exitUnavailable, err: "consul answered"},
		{args: []string{"import", consul.URL}, out: "2 nodes, 1 services, 251 checks registered\n"},
		{args: []string{"import", consul.URL, "-o", "json"}, out: "{\n  \"nodes\": 2,\n  \"services\": 1,\n  \"checks\": 251\n}\n"},
		{args: []string{"health", "web", "--tag", "v1"}, out: "NODE  ID     ADDRESS      STATUS    TAGS\na     web    10.0.0.1:80  critical  v1\ndb    web-1  10.0.0.1:80  warning   v1\n"},
		{args: []string{"watch", ""}, code: exitUsage, err: "service"},
		{args: []string{"watch", "web", "--after", "99999"}, code: exitConflict, err: "does not exist yet"},
		{args: []string{"deregister", "db"}, out: "deregistered at index …"},
		{args: []string{"deregister", "a", "--service", "web"}, out: "deregistered at index …"},
		{args: []string{"services", "-o", "json"}, out: "[]\n"},
	} {
		got := execute(t, nil, append([]string{"catalog", step.args[0], "--server", s.URL()}, step.args[1:]...)...)
		begin, part := strings.CutSuffix(step.out, "…")
		ok := got.stdout == step.out || part && strings.HasPrefix(got.stdout, begin)
		if got.code != step.code || !ok || !strings.Contains(got.stderr, step.err) {
			t.Errorf("%q: code %d, output %q, error %q", step.args, got.code, got.stdout, got.stderr)
		}
	}
	t.Setenv("CONSUL_HTTP_TOKEN", "wrong")
	if got := execute(t, nil, "catalog", "import", consul.URL, "--server", s.URL()); got.code != exitDenied || !strings.Contains(got.stderr, "Permission denied") {
		t.Errorf("with a wrong token: code %d, error %q", got.code, got.stderr)
	}
}

func TestChangesOfServicesForPeople(t *testing.T) {
	var out strings.Builder
	err := printCatalogEvents(&out, formTable, &apiv1.WatchServiceResponse{Events: []*apiv1.CatalogEvent{
		{Index: 7, What: "present", Record: &apiv1.CatalogEvent_Node{Node: &apiv1.Node{Name: "a", Address: "10.0.0.1"}}},
		{Index: 8, What: "stored", Record: &apiv1.CatalogEvent_Service{Service: &apiv1.Service{Node: "a", Id: "web", Port: 80}}},
		{Index: 9, What: "stored", Was: apiv1.CheckStatus_CHECK_STATUS_PASSING, Record: &apiv1.CatalogEvent_Check{
			Check: &apiv1.Check{Node: "a", Id: "up", Status: apiv1.CheckStatus_CHECK_STATUS_CRITICAL},
		}},
	}})
	want := "       7  present  node     a  10.0.0.1\n       8  stored   service  a/web  :80\n       9  stored   check    a/up  passing → critical\n"
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, &out)
	}
}
