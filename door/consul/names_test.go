package consul

import (
	"net/http"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/policy"
)

// Names that differ in case alone are one, wherever clients name something.
func TestNamesInAnotherCase(t *testing.T) {
	m := startMember(t, nil)
	m.instance("n1", "Web", "passing")
	m.instance("N2", "web", "warning")
	for path, want := range map[string][]string{
		"/v1/catalog/service/WEB":      {`"ServiceName":"Web"`, `"ServiceName":"web"`},
		"/v1/health/service/WEB":       {`"Service":"Web"`, `"Service":"web"`},
		"/v1/health/checks/wEB":        {`"CheckID":"c-Web"`, `"CheckID":"c-web"`},
		"/v1/health/node/n2":           {`"Node":"N2"`},
		"/v1/catalog/node/N1":          {`"Node":"n1"`, `"Service":"Web"`},
		"/v1/catalog/node-services/n2": {`"Node":"N2"`, `"Service":"web"`},
		"/v1/catalog/services":         {`"Web":[]`, `"web":[]`},
	} {
		body := m.get(path).body
		for _, text := range want {
			if strings.Count(body, text) == 0 {
				t.Errorf("%s lacks %s: %s", path, text, body)
			}
		}
	}
	// What is registered again takes the place of what was, written as it is now; the
	// node stays as it was first written.
	m.send("/v1/catalog/register", `{"Node":"N1","Address":"10.0.0.9","Service":{"ID":"WEB","Service":"WEB"}}`)
	var nodes []struct{ Node, Address string }
	m.decoded("/v1/catalog/nodes", &nodes)
	if len(nodes) != 2 || nodes[0].Node != "n1" || nodes[0].Address != "10.0.0.9" {
		t.Errorf("nodes: %+v", nodes)
	}
	var entries []struct {
		Service struct{ ID, Service string }
		Checks  []struct{ Node, CheckID, ServiceID, ServiceName string }
	}
	m.decoded("/v1/health/service/web", &entries)
	if len(entries) != 2 || entries[0].Service.ID != "WEB" || len(entries[0].Checks) != 1 || entries[0].Checks[0].ServiceID != "WEB" || entries[0].Checks[0].ServiceName != "WEB" {
		t.Errorf("instances: %+v", entries)
	}
	m.send("/v1/catalog/deregister", `{"Node":"N1","ServiceID":"web"}`)
	if body := m.get("/v1/catalog/node/n1").body; strings.Contains(body, "WEB") {
		t.Errorf("a service is not deregistered by its id in another case: %s", body)
	}
}

// Whoever waits for a name hears of it in any case.
func TestAWatchOfANameInAnotherCase(t *testing.T) {
	m := startMember(t, nil)
	c := m.dial()
	c.get("/v1/health/service/wEB?index=" + m.get("/v1/health/service/wEB").index())
	m.blocked(1)
	m.instance("n1", "WEB", "passing")
	if a := c.read("GET"); !strings.Contains(a.body, `"Service":"WEB"`) {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
}

// Who asks for a name in another case shares what is evaluated; a state has no case but
// the one that all are in.
func TestListsAreOneInAnyCase(t *testing.T) {
	m := startMember(t, nil)
	m.instance("n1", "web", "passing")
	for _, names := range [][2]string{
		{"/v1/health/service/web", "/v1/health/service/WEB"},
		{"/v1/catalog/service/web", "/v1/catalog/service/WEB"},
		{"/v1/health/checks/web", "/v1/health/checks/WEB"},
		{"/v1/health/node/n1", "/v1/health/node/N1"},
		{"/v1/catalog/node/n1", "/v1/catalog/node/N1"},
		{"/v1/session/node/n1", "/v1/session/node/N1"},
		{"/v1/health/state/passing", "/v1/health/state/PASSING"},
	} {
		one := m.get(names[0])
		before := m.door.Stats().Evaluations
		if other := m.get(names[1]); other.body != one.body {
			t.Errorf("%s: %s", names[1], other.body)
		}
		if n := m.door.Stats().Evaluations - before; n != 0 {
			t.Errorf("%s is evaluated %d times more", names[1], n)
		}
	}
	if a := m.get("/v1/health/state/ANY"); a.body != "[]" {
		t.Errorf("ANY: %s", a.body)
	}
}

// Who may not write a name may not write it in another case, and answer for it.
func TestG12_NoOtherCaseOfANameIsFree(t *testing.T) {
	guard, as := agentsNamed(t, true, "web", "other")
	m := startMember(t, func(c *Config) { c.Guard = guard })
	for name, prefix := range map[string]string{"web": "Web", "other": "w*"} {
		rules := []auth.Rule{{State: auth.Nodes, Namespace: "default", Verbs: auth.AllVerbs}, {State: auth.Services, Namespace: "default", Prefix: prefix, Verbs: auth.AllVerbs}}
		if name == "other" {
			rules[1].Verbs = auth.See
		}
		if r := m.group.Do(&policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: name, For: []string{"agent:" + name}, Rules: rules}}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	body := `{"Node":"n","Address":"10.0.0.1","Service":{"Service":"wEb"}}`
	if a := m.do("PUT", "/v1/catalog/register", body, as["other"]...); a.StatusCode != http.StatusForbidden {
		t.Errorf("another's: %d %s", a.StatusCode, a.body)
	}
	if a := m.do("PUT", "/v1/catalog/register", body, as["web"]...); a.StatusCode != http.StatusOK {
		t.Errorf("its own: %d %s", a.StatusCode, a.body)
	}
	if a := m.do("GET", "/v1/health/service/WEB", "", as["other"]...); !strings.Contains(a.body, "wEb") {
		t.Errorf("what may be seen: %d %s", a.StatusCode, a.body)
	}
}
