package consul

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/prepared"
)

// created creates a query and returns its id.
func (m *member) created(body string, headers ...string) string {
	m.tb.Helper()
	a := m.do("POST", "/v1/query", body, headers...)
	var out struct{ ID string }
	if err := json.Unmarshal([]byte(a.body), &out); err != nil || out.ID == "" {
		m.tb.Fatalf("%s: %d %s", body, a.StatusCode, a.body)
	}
	return out.ID
}

// executed executes a query and returns the nodes that it finds, joined.
func (m *member) executed(path string, headers ...string) string {
	m.tb.Helper()
	a := m.do("GET", "/v1/query/"+path, "", headers...)
	var out executedJSON
	if err := json.Unmarshal([]byte(a.body), &out); err != nil {
		m.tb.Fatalf("%s: %d %s", path, a.StatusCode, a.body)
	}
	var names []string
	for _, n := range out.Nodes {
		names = append(names, n.Node.Node)
	}
	return strings.Join(names, ",")
}

func (m *member) registered(node, address, service string) {
	m.tb.Helper()
	body := `{"Node":"` + node + `","Address":"` + address + `","Service":{"Service":"` + service + `"}}`
	if a := m.do("PUT", "/v1/catalog/register", body); a.StatusCode != http.StatusOK {
		m.tb.Fatal(a.body)
	}
}

// TestQueriesNearAndLimited: what is near comes first, and no more than was asked for.
func TestQueriesNearAndLimited(t *testing.T) {
	m := startMember(t, nil)
	for node, address := range map[string]string{"a": "10.0.0.1", "agent": "10.0.0.2", "c": "127.0.0.1", "d": "10.0.0.4"} {
		m.registered(node, address, "web")
	}
	m.created(`{"Name":"near-agent","Service":{"Service":"web","Near":"_agent"}}`)
	for path, want := range map[string]string{
		"near-agent/execute?limit=1": "agent", "near-agent/execute?near=_ip&limit=1": "c", "near-agent/execute?near=d&limit=1": "d",
	} {
		for range 8 { // without that, they come in any order
			if got := m.executed(path); got != want {
				t.Errorf("%s: %s", path, got)
			}
		}
	}
	if got := m.executed("near-agent/execute"); strings.Count(got, ",") != 3 {
		t.Errorf("all: %s", got)
	}
	if got := m.executed("near-agent/execute?connect=true"); got != "" {
		t.Errorf("in a mesh: %s", got)
	}
}

// TestQueriesOfOneNameAreOne: of many that create a query of one name at once, one does.
func TestQueriesOfOneNameAreOne(t *testing.T) {
	m := startMember(t, nil)
	var mu sync.Mutex
	created := 0
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			a := m.do("POST", "/v1/query", `{"Name":"one","Service":{"Service":"web"}}`)
			mu.Lock()
			defer mu.Unlock()
			switch {
			case a.StatusCode == http.StatusOK:
				created++
			case a.body != "raft apply failed: name 'one' aliases an existing query name":
				t.Errorf("%d %s", a.StatusCode, a.body)
			}
		})
	}
	if all.Wait(); created != 1 {
		t.Errorf("%d queries have the name", created)
	}
}

// TestAQueryEndsWithItsSession: and is no longer found by its name.
func TestAQueryEndsWithItsSession(t *testing.T) {
	m := startMember(t, nil)
	a := m.do("PUT", "/v1/session/create", "{}")
	var session struct{ ID string }
	if err := json.Unmarshal([]byte(a.body), &session); err != nil {
		t.Fatal(a.body)
	}
	id := m.created(`{"Name":"bound","Session":"` + session.ID + `","Service":{"Service":"web"}}`)
	if a := m.do("GET", "/v1/query/"+id, ""); !strings.Contains(a.body, `"Session":"`+session.ID+`"`) {
		t.Error(a.body)
	}
	waits := m.dial()
	waits.get("/v1/query/" + id + "?wait=5m&index=" + m.do("GET", "/v1/query/"+id, "").Header.Get("X-Consul-Index"))
	m.blocked(1)
	m.do("PUT", "/v1/session/destroy/"+session.ID, "")
	if a := waits.read("GET"); a.StatusCode != http.StatusNotFound || a.body != "Query not found" {
		t.Errorf("who waited for its definition is told %d %s", a.StatusCode, a.body)
	}
	m.exchange([]exchange{
		{"its definition", "GET", "/v1/query/" + id, "", 404, "Query not found"},
		{"its name", "GET", "/v1/query/bound/execute", "", 404, "Query not found"},
		{"bound to what has ended", "POST", "/v1/query", `{"Session":"` + session.ID + `","Service":{"Service":"web"}}`, 500, `raft apply failed: invalid session "` + session.ID + `"`},
		{"a mesh that may be", "GET", "/v1/query/bound/execute?connect=x", "", 500, `Error parsing 'connect' value: strconv.ParseBool: parsing "x": invalid syntax`},
		{"no way to change", "POST", "/v1/query/" + id, "", 405, "method POST not allowed"},
		{"no way to execute", "PUT", "/v1/query/" + id + "/execute", "", 405, "method PUT not allowed"},
		{"too long", "POST", "/v1/query", strings.Repeat(" ", prepared.MaxBytes+1), 413, "Request body(16385 bytes) too large, max size: 16384 bytes"},
	})
}

// TestG12_QueriesAndRights: definitions are keys of their namespace, executions show what
// the caller may see, or what whoever gave the query a token may.
func TestG12_QueriesAndRights(t *testing.T) {
	tokens, lines := map[string]string{}, ""
	for _, name := range []string{"maker", "reader"} {
		token := auth.NewToken()
		line, err := auth.CredentialLine(name, auth.Agent, token)
		if err != nil {
			t.Fatal(err)
		}
		tokens[name], lines = token, lines+line+"\n"
	}
	creds, err := auth.ParseCredentials(strings.NewReader(lines))
	if err != nil {
		t.Fatal(err)
	}
	guard := auth.NewAuthenticator(true, creds)
	m := startMember(t, func(c *Config) { c.Guard = guard })
	m.registered("a", "10.0.0.1", "web")
	if r := m.group.Do(&policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: "maker", For: []string{"agent:maker"}, Rules: []auth.Rule{
		{State: auth.Keys, Namespace: prepared.Namespace("default"), Prefix: "m-*", Verbs: auth.AllVerbs},
		{State: auth.Services, Namespace: "default", Prefix: "*", Verbs: auth.AllVerbs},
		{State: auth.Nodes, Namespace: "default", Prefix: "*", Verbs: auth.AllVerbs},
	}}}); r.Err != nil {
		t.Fatal(r.Err)
	}
	as := func(who string) []string { return []string{"X-Consul-Token", tokens[who]} }
	id := m.created(`{"Name":"m-plain","Service":{"Service":"web"}}`, as("maker")...)
	tokened := m.created(`{"Name":"m-token","Token":"`+tokens["maker"]+`","Service":{"Service":"web"}}`, as("maker")...)
	for who, want := range map[string]string{"maker m-plain": "a", "maker m-token": "a", "reader m-plain": "", "reader m-token": "a"} {
		name, query, _ := strings.Cut(who, " ")
		if got := m.executed(query+"/execute", as(name)...); got != want {
			t.Errorf("%s finds %q, want %q", who, got, want)
		}
	}
	for _, c := range []struct {
		who, method, path, body string
		status                  int
		says                    string
	}{
		{"maker", "GET", "/v1/query", "", 200, `"Token":"\u003chidden\u003e"`},
		{"reader", "GET", "/v1/query", "", 200, "[]"},
		{"maker", "GET", "/v1/query/" + id, "", 200, "m-plain"},
		{"reader", "GET", "/v1/query/" + id, "", 403, "Permission denied"},
		{"reader", "GET", "/v1/query/m-plain/explain", "", 403, "Permission denied"},
		{"maker", "GET", "/v1/query/" + id + "/execute", "", 200, `"Service":"web"`},
		{"reader", "GET", "/v1/query/" + id + "/execute", "", 200, `"Service":""`},
		{"reader", "POST", "/v1/query", `{"Name":"m-mine","Service":{"Service":"web"}}`, 403, "Permission denied"},
		{"maker", "POST", "/v1/query", `{"Name":"x-mine","Service":{"Service":"web"}}`, 403, "Permission denied"},
		{"maker", "PUT", "/v1/query/" + id, `{"Name":"x-mine","Service":{"Service":"web"}}`, 403, "Permission denied"},
		{"reader", "DELETE", "/v1/query/" + id, "", 403, "Permission denied"},
		{"maker", "POST", "/v1/query", `{"Name":"m-x","Token":"nobody's","Service":{"Service":"web"}}`, 403, "ACL not found"},
		{"maker", "DELETE", "/v1/query/" + id, "", 200, ""},
		// To write a query is not to have the rights of whose token it was given.
		{"maker", "PUT", "/v1/query/" + tokened, `{"Name":"m-token","Token":"<hidden>","Service":{"Service":"other"}}`, 500, "looks like a query definition with a redacted token"},
		{"maker", "POST", "/v1/query", `{"Name":"m-x","Token":"<hidden>","Service":{"Service":"web"}}`, 500, "looks like a query definition with a redacted token"},
	} {
		a := m.do(c.method, c.path, c.body, as(c.who)...)
		if a.StatusCode != c.status || !strings.Contains(a.body, c.says) || strings.Contains(a.body, tokens["maker"]) {
			t.Errorf("%s: %s %s %s: %d %s", c.who, c.method, c.path, c.body, a.StatusCode, a.body)
		}
	}
	if got := m.executed("m-token/execute", as("reader")...); got != "a" {
		t.Errorf("the query finds %q before the token is taken back", got)
	}
	_, readers, _ := strings.Cut(lines, "\n")
	if creds, err = auth.ParseCredentials(strings.NewReader(readers)); err != nil {
		t.Fatal(err)
	}
	guard.SetCredentials(creds)
	if a := m.do("GET", "/v1/query/m-token/execute", "", as("reader")...); a.StatusCode != http.StatusForbidden {
		t.Errorf("with a token that was taken back: %d %s", a.StatusCode, a.body)
	}
}
