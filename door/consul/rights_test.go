package consul

import (
	"encoding/json"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/policy"
)

// agentsNamed has a member know agents by tokens, and returns the headers that each brings;
// loopback: whoever brings none is an operator.
func agentsNamed(tb testing.TB, loopback bool, names ...string) (guard *auth.Authenticator, headers map[string][]string) {
	tb.Helper()
	headers, lines := map[string][]string{}, ""
	for _, name := range names {
		token := auth.NewToken()
		line, err := auth.CredentialLine(name, auth.Agent, token)
		if err != nil {
			tb.Fatal(err)
		}
		headers[name], lines = []string{"X-Consul-Token", token}, lines+line+"\n"
	}
	creds, err := auth.ParseCredentials(strings.NewReader(lines))
	if err != nil {
		tb.Fatal(err)
	}
	return auth.NewAuthenticator(loopback, creds), headers
}

// Of a service that all ask for alike, each is shown what that one may see: instances on
// nodes that may be seen, of services that may be.
func TestG12_ListsShowWhatTheirCallerMaySee(t *testing.T) {
	guard, as := agentsNamed(t, true, "all", "nodes", "services", "one")
	m := startMember(t, func(c *Config) { c.Guard = guard })
	m.registered("a", "10.0.0.1", "web")
	m.registered("b", "10.0.0.2", "web")
	see := func(name, nodes, services string) *policy.Command {
		p := auth.Policy{Name: name, For: []string{"agent:" + name}}
		for kind, prefix := range map[auth.State]string{auth.Nodes: nodes, auth.Services: services} {
			if prefix != "" {
				p.Rules = append(p.Rules, auth.Rule{State: kind, Namespace: "default", Prefix: prefix, Verbs: auth.AllVerbs})
			}
		}
		return &policy.Command{Verb: policy.Set, Policy: p}
	}
	for _, c := range []*policy.Command{see("all", "*", "*"), see("nodes", "*", "other"), see("services", "other", "*"), see("one", "a", "web")} {
		if r := m.group.Do(c); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for _, path := range []string{"/v1/health/service/web", "/v1/catalog/service/web"} {
		for _, tt := range []struct{ who, sees string }{{"all", "ab"}, {"nodes", ""}, {"services", ""}, {"one", "a"}, {"all", "ab"}} {
			a := m.do("GET", path, "", as[tt.who]...)
			got := ""
			for _, node := range []string{"a", "b"} {
				if strings.Contains(a.body, `"Node":"`+node+`"`) {
					got += node
				}
			}
			filtered := a.Header.Get("X-Consul-Results-Filtered-By-Acls") == "true"
			if a.StatusCode != http.StatusOK || got != tt.sees || filtered != (tt.sees != "ab") {
				t.Errorf("%s: %s is shown %q, filtered: %v: %d %s", path, tt.who, got, filtered, a.StatusCode, a.body)
			}
		}
	}
}

// Of what the agent has, too, each is shown what that one may see, and told that there is more.
func TestG12_AnAgentsListsSayThatTheyAreNotWhole(t *testing.T) {
	guard, as := agentsNamed(t, true, "all", "one", "node")
	m := startMember(t, func(c *Config) { c.Guard = guard })
	m.send("/v1/agent/service/register", `{"Name":"web","Check":{"TTL":"1h"}}`)
	m.send("/v1/agent/service/register", `{"Name":"db","Check":{"TTL":"1h"}}`)
	for name, services := range map[string]string{"all": "*", "one": "web", "node": "none"} {
		p := auth.Policy{Name: name, For: []string{"agent:" + name}, Rules: []auth.Rule{
			{State: auth.Nodes, Namespace: "*", Prefix: "*", Verbs: auth.AllVerbs}, {State: auth.Services, Namespace: "*", Prefix: services, Verbs: auth.AllVerbs},
		}}
		if r := m.group.Do(&policy.Command{Verb: policy.Set, Policy: p}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for _, tt := range []struct {
		who, path, shows string
		filtered         bool
	}{
		{"all", "services", "db web", false},
		{"all", "services?filter=Service==other", "", false},
		{"one", "services", "web", true},
		{"one", "services?filter=Service==other", "", true},
		{"node", "services", "", true},
		{"all", "checks", "service:db service:web", false},
		{"one", "checks", "service:web", true},
		{"one", "checks?filter=ServiceName==other", "", true},
		{"node", "checks", "", true},
	} {
		path, want := "/v1/agent/"+tt.path, tt.shows
		a := m.do("GET", path, "", as[tt.who]...)
		var shown map[string]any
		if err := json.Unmarshal([]byte(a.body), &shown); err != nil {
			t.Fatalf("%s: %s %q", path, a.Status, a.body)
		}
		got := strings.Join(slices.Sorted(maps.Keys(shown)), " ")
		if filtered := a.Header.Get("X-Consul-Results-Filtered-By-Acls") == "true"; got != want || filtered != tt.filtered {
			t.Errorf("%s: %s is shown %q, filtered: %v", path, tt.who, got, filtered)
		}
	}
}

// An id becomes another service's by another registration: who waits for it is not shown one
// that it may not see.
func TestG12_AServiceThatIsWaitedForBecomesAnother(t *testing.T) {
	guard, as := agentsNamed(t, true, "one")
	m := startMember(t, func(c *Config) { c.Guard = guard })
	m.send("/v1/agent/service/register", `{"ID":"x","Name":"web"}`)
	p := auth.Policy{Name: "one", For: []string{"agent:one"}, Rules: []auth.Rule{{State: auth.Services, Namespace: "*", Prefix: "web", Verbs: auth.AllVerbs}}}
	if r := m.group.Do(&policy.Command{Verb: policy.Set, Policy: p}); r.Err != nil {
		t.Fatal(r.Err)
	}
	was := m.do("GET", "/v1/agent/service/x", "", as["one"]...)
	if was.StatusCode != http.StatusOK {
		t.Fatalf("%s %s", was.Status, was.body)
	}
	c := m.dial()
	c.get("/v1/agent/service/x?hash="+was.Header.Get("X-Consul-Contenthash"), as["one"]...)
	m.blocked(1)
	m.send("/v1/agent/service/register", `{"ID":"x","Name":"db","Meta":{"secret":"of db"}}`)
	if a := c.read("GET"); a.StatusCode != http.StatusNotFound || a.body != "unknown service ID: x" {
		t.Errorf("once it is another's: %d %s", a.StatusCode, a.body)
	}
	if a := m.do("GET", "/v1/agent/service/x", "", as["one"]...); a.StatusCode != http.StatusForbidden {
		t.Errorf("asked anew: %d %s", a.StatusCode, a.body)
	}
}

// Who may write a service may have instances of it on any node, but neither says anything
// new of the node nor touches what else is there. Consul's rule.
func TestG12_AnInstanceOnAnothersNode(t *testing.T) {
	guard, as := agentsNamed(t, true, "some")
	m := startMember(t, func(c *Config) { c.Guard = guard })
	m.registered("a", "10.0.0.1", "web")
	p := auth.Policy{Name: "some", For: []string{"agent:some"}, Rules: []auth.Rule{{State: auth.Services, Namespace: "*", Prefix: "mine", Verbs: auth.AllVerbs}}}
	if r := m.group.Do(&policy.Command{Verb: policy.Set, Policy: p}); r.Err != nil {
		t.Fatal(r.Err)
	}
	for _, tt := range []struct {
		registration string
		status       int
	}{
		{`{"Node":"a","Address":"10.0.0.2","Service":{"Service":"mine"}}`, http.StatusForbidden},
		{`{"Node":"a","Address":"10.0.0.1","NodeMeta":{"k":"v"},"Service":{"Service":"mine"}}`, http.StatusForbidden},
		{`{"Node":"b","Address":"10.0.0.1","Service":{"Service":"mine"}}`, http.StatusForbidden},
		{`{"Node":"a","Address":"10.0.0.1"}`, http.StatusForbidden},
		{`{"Node":"a","Address":"10.0.0.1","Service":{"Service":"mine"}}`, http.StatusOK},
		{`{"Node":"A","Address":"10.0.0.1","Check":{"Name":"c","ServiceID":"mine"}}`, http.StatusOK},
		{`{"Node":"a","Address":"10.0.0.1","Check":{"Name":"d"}}`, http.StatusForbidden},
		{`{"Node":"a","SkipNodeUpdate":true,"Service":{"ID":"web","Service":"mine"}}`, http.StatusForbidden},
		{`{"Node":"a","SkipNodeUpdate":true,"Service":{"Service":"mine"},"Check":{"Name":"c"}}`, http.StatusForbidden},
		{`{"Node":"a","SkipNodeUpdate":true,"Service":{"Service":"mine"},"Check":{"Name":"c","ServiceID":"web"}}`, http.StatusForbidden},
		{`{"Node":"a","SkipNodeUpdate":true,"Service":{"Service":"mine"},"Check":{"Name":"c","ServiceID":"mine"}}`, http.StatusOK},
		{`{"Node":"a","SkipNodeUpdate":true}`, http.StatusOK},
		{`{"Node":"c","SkipNodeUpdate":true}`, http.StatusForbidden},
		{`{"Node":"c","SkipNodeUpdate":true,"Service":{"Service":"mine"}}`, http.StatusForbidden},
	} {
		if a := m.do("PUT", "/v1/catalog/register", tt.registration, as["some"]...); a.StatusCode != tt.status {
			t.Errorf("%s: %d %s, want %d", tt.registration, a.StatusCode, a.body, tt.status)
		}
	}
}

// A session changes the checks of its name for those alone who may write the node.
func TestG12_AChecksSessionIsOfWhoMayWriteItsNode(t *testing.T) {
	guard, as := agentsNamed(t, true, "node", "other")
	m := startMember(t, func(c *Config) { c.Guard = guard })
	m.send("/v1/catalog/register", `{"Node":"n","Address":"a","Check":{"Name":"alive","Status":"warning","Type":"session","Definition":{"SessionName":"esm"}}}`)
	for name, p := range map[string]auth.Policy{
		"node": {For: []string{"agent:node"}, Rules: []auth.Rule{{State: auth.Nodes, Namespace: "*", Prefix: "n", Verbs: auth.AllVerbs}}},
		"all":  {For: []string{"agent:*"}, Rules: []auth.Rule{{State: auth.Sessions, Prefix: "*", Verbs: auth.AllVerbs}}},
	} {
		p.Name = name
		if r := m.group.Do(&policy.Command{Verb: policy.Set, Policy: p}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	for _, tt := range []struct{ who, status string }{{"other", "warning"}, {"node", "passing"}} {
		if a := m.do("PUT", "/v1/session/create", `{"Node":"n","Name":"esm","NodeChecks":["alive"]}`, as[tt.who]...); a.StatusCode != http.StatusOK {
			t.Fatalf("%s: %d %s", tt.who, a.StatusCode, a.body)
		}
		if body := m.get("/v1/health/node/n").body; !strings.Contains(body, `"Status":"`+tt.status+`"`) {
			t.Errorf("%s has opened one: %s", tt.who, body)
		}
	}
}

// That something is left out of a list of keys is told as soon as it is so, and no longer,
// though what is shown stays the same.
func TestG12_AListOfKeysSaysWhetherItIsWhole(t *testing.T) {
	guard, as := agentsNamed(t, true, "some", "all")
	m := startMember(t, func(c *Config) { c.Guard = guard })
	for name, prefix := range map[string]string{"some": "a/1", "all": "*"} {
		p := auth.Policy{Name: name, For: []string{"agent:" + name}, Rules: []auth.Rule{{State: auth.Keys, Namespace: "default", Prefix: prefix, Verbs: auth.AllVerbs}}}
		if r := m.group.Do(&policy.Command{Verb: policy.Set, Policy: p}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	if a := m.do("PUT", "/v1/kv/a/1", "v", as["all"]...); a.StatusCode != http.StatusOK {
		t.Fatal(a.body)
	}
	for _, path := range []string{"/v1/kv/a/?keys", "/v1/kv/a/?recurse"} {
		was := m.do("GET", path, "", as["some"]...)
		for _, step := range []struct{ method, filtered string }{{"PUT", "true"}, {"DELETE", ""}} {
			c := m.dial()
			c.get(path+"&index="+was.index(), as["some"]...)
			m.blocked(1)
			if a := m.do(step.method, "/v1/kv/a/2", "", as["all"]...); a.StatusCode != http.StatusOK {
				t.Fatal(a.body)
			}
			a := c.read("GET")
			if a.Header.Get("X-Consul-Results-Filtered-By-Acls") != step.filtered || a.body != was.body {
				t.Errorf("%s after %s: %v %s", path, step.method, a.Header, a.body)
			}
			was = a
		}
	}
}

// A key that is not there has an index, by which to wait until it is.
func TestG14_AKeyThatIsNotThereHasAnIndex(t *testing.T) {
	m := startMember(t, nil)
	never := m.do("GET", "/v1/kv/k", "")
	if never.StatusCode != http.StatusNotFound || never.index() != "1" {
		t.Errorf("never there: %d, index %q", never.StatusCode, never.index())
	}
	c := m.dial()
	c.get("/v1/kv/k?index=" + never.index())
	m.blocked(1)
	m.ok("PUT /v1/kv/k x")
	came := c.read("GET")
	if came.StatusCode != http.StatusOK || came.index() != formatIndex(m.group.View().Index()) {
		t.Errorf("once it is there: %d, index %s", came.StatusCode, came.index())
	}
	c.get("/v1/kv/k?index=" + came.index())
	m.blocked(1)
	m.ok("DELETE /v1/kv/k")
	if gone := c.read("GET"); gone.StatusCode != http.StatusNotFound || gone.index() != formatIndex(m.group.View().Index()) {
		t.Errorf("once it is gone: %d, index %s", gone.StatusCode, gone.index())
	}
}
