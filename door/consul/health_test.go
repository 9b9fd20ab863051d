package consul

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// put makes a request that succeeds.
func (m *member) send(path, body string) answer {
	m.tb.Helper()
	a := m.do("PUT", path, body)
	if a.StatusCode != http.StatusOK {
		m.tb.Fatalf("PUT %s: %d %s", path, a.StatusCode, a.body)
	}
	return a
}

// get makes a request that succeeds.
func (m *member) get(path string) answer {
	m.tb.Helper()
	a := m.do("GET", path, "")
	if a.StatusCode != http.StatusOK {
		m.tb.Fatalf("GET %s: %d %s", path, a.StatusCode, a.body)
	}
	return a
}

// index is that by which an answer is blocked.
func (a answer) index() string { return a.Header.Get("X-Consul-Index") }

// instance registers an instance of a service on a node of its own, with one check.
func (m *member) instance(node, service, status string, more ...string) {
	m.tb.Helper()
	tags := "[]"
	if len(more) > 0 {
		tags = more[0]
	}
	m.send("/v1/catalog/register", fmt.Sprintf(
		`{"Node":%q,"Address":"10.0.0.1","Service":{"Service":%q,"Port":80,"Tags":%s},"Check":{"CheckID":"c-%s","Name":"c","Status":%q,"ServiceID":%q}}`,
		node, service, tags, service, status, service))
}

// unindexed takes what is each run's own out of JSON.
func unindexed(tb testing.TB, text string) string {
	tb.Helper()
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	var clear func(any)
	clear = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			delete(v, "CreateIndex")
			delete(v, "ModifyIndex")
			for _, e := range v {
				clear(e)
			}
		case []any:
			for _, e := range v {
				clear(e)
			}
		}
	}
	clear(v)
	b, err := json.Marshal(v)
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// What is answered is what Consul's clients know, field by field.
func TestAnswersOfTheCatalog(t *testing.T) {
	m := startMember(t, nil)
	m.send("/v1/catalog/register", `{"Node":"ext","Address":"1.2.3.4","Service":{"Service":"web","Port":80},"Check":{"CheckID":"service:web","Name":"x","Status":"passing","ServiceID":"web"}}`)
	const (
		node    = `{"ID":"","Node":"ext","Address":"1.2.3.4","Datacenter":"dc1","TaggedAddresses":null,"Meta":null,"CreateIndex":1,"ModifyIndex":1}`
		service = `{"ID":"web","Service":"web","Tags":[],"Address":"","Meta":null,"Port":80,"Weights":{"Passing":1,"Warning":1},"EnableTagOverride":false,"Proxy":{"Mode":"","MeshGateway":{},"Expose":{}},"Connect":{},"PeerName":"","CreateIndex":1,"ModifyIndex":1}`
		check   = `{"Node":"ext","CheckID":"service:web","Name":"x","Status":"passing","Notes":"","Output":"","ServiceID":"web","ServiceName":"web","ServiceTags":[],"Type":"","Interval":"","Timeout":"","ExposedPort":0,"Definition":{},"CreateIndex":1,"ModifyIndex":1}`
	)
	for path, want := range map[string]string{
		"/v1/catalog/datacenters":          `["dc1"]`,
		"/v1/catalog/nodes":                `[` + node + `]`,
		"/v1/catalog/services":             `{"web":[]}`,
		"/v1/catalog/service/web":          `[{"ID":"","Node":"ext","Address":"1.2.3.4","Datacenter":"dc1","TaggedAddresses":null,"NodeMeta":null,"ServiceKind":"","ServiceID":"web","ServiceName":"web","ServiceTags":[],"ServiceAddress":"","ServiceWeights":{"Passing":1,"Warning":1},"ServiceMeta":{},"ServicePort":80,"ServicePorts":null,"ServiceSocketPath":"","ServiceEnableTagOverride":false,"ServiceProxy":{"Mode":"","MeshGateway":{},"Expose":{}},"ServiceConnect":{},"ServiceLocality":null,"CreateIndex":1,"ModifyIndex":1}]`,
		"/v1/catalog/node/ext":             `{"Node":` + node + `,"Services":{"web":` + service + `}}`,
		"/v1/catalog/node/none":            `null`,
		"/v1/catalog/node-services/ext":    `{"Node":` + node + `,"Services":[` + service + `]}`,
		"/v1/catalog/node-services/none":   `{"Node":null,"Services":null}`,
		"/v1/catalog/connect/web":          `[]`,
		"/v1/health/node/ext":              `[` + check + `]`,
		"/v1/health/node/none":             `[]`,
		"/v1/health/checks/web":            `[` + check + `]`,
		"/v1/health/checks/none":           `[]`,
		"/v1/health/service/web":           `[{"Node":` + node + `,"Service":` + service + `,"Checks":[` + check + `]}]`,
		"/v1/health/service/none":          `[]`,
		"/v1/health/connect/web":           `[]`,
		"/v1/health/state/any":             `[` + check + `]`,
		"/v1/health/state/passing":         `[` + check + `]`,
		"/v1/health/state/critical":        `[]`,
		"/v1/health/state/unheard-of":      `[]`,
		"/v1/health/state/any?node-meta=a": `[]`,
	} {
		a := m.get(path)
		if got := unindexed(t, a.body); got != unindexed(t, want) {
			t.Errorf("%s:\n%s, want\n%s", path, a.body, want)
		}
		if ordered := strings.NewReplacer(`"CreateIndex":1`, "", `"ModifyIndex":1`, ""); !strings.HasPrefix(ordered.Replace(want), ordered.Replace(a.body)[:1]) {
			t.Errorf("%s: %s", path, a.body)
		}
		if path != "/v1/catalog/datacenters" && a.index() == "" {
			t.Errorf("%s: without an index", path)
		}
	}
	// The order of the fields is Consul's, too.
	if got := m.get("/v1/health/service/web").body; keysOf(got) != keysOf(`[{"Node":`+node+`,"Service":`+service+`,"Checks":[`+check+`]}]`) {
		t.Errorf("order of fields: %s", got)
	}
	pretty := m.get("/v1/health/service/web?pretty").body
	var plain bytes.Buffer
	if err := json.Indent(&plain, []byte(m.get("/v1/health/service/web").body), "", "    "); err != nil || plain.String()+"\n" != pretty {
		t.Errorf("pretty: %s", pretty)
	}
}

// keysOf are the keys of JSON in their order.
func keysOf(text string) string {
	var keys []string
	dec := json.NewDecoder(strings.NewReader(text))
	for {
		token, err := dec.Token()
		if err == io.EOF {
			return strings.Join(keys, " ")
		}
		if key, ok := token.(string); ok {
			keys = append(keys, key)
		}
	}
}

func TestSelections(t *testing.T) {
	m := startMember(t, nil)
	m.send("/v1/catalog/register", `{"Node":"n1","Address":"1.1.1.1","NodeMeta":{"rack":"a","row":"1"},"Service":{"ID":"w1","Service":"web","Tags":["v1","Blue"]},"Check":{"CheckID":"c","Status":"passing","ServiceID":"w1"}}`)
	m.send("/v1/catalog/register", `{"Node":"n2","Address":"1.1.1.2","NodeMeta":{"rack":"b"},"Service":{"ID":"w2","Service":"web","Tags":["v2","blue"],"Port":81},"Check":{"CheckID":"c","Status":"warning","ServiceID":"w2"}}`)
	m.send("/v1/catalog/register", `{"Node":"n3","Address":"1.1.1.3","Service":{"ID":"w3","Service":"web"},"Check":{"CheckID":"own","Status":"critical"}}`)
	for path, want := range map[string]string{
		"/v1/health/service/web":                                  "n1 n2 n3",
		"/v1/health/service/web?near=_agent":                      "n1 n2 n3",
		"/v1/health/service/web?passing":                          "n1",
		"/v1/health/service/web?passing=false":                    "n1 n2 n3",
		"/v1/health/service/web?tag=blue":                         "n1 n2",
		"/v1/health/service/web?tag=BLUE&tag=v2":                  "n2",
		"/v1/health/service/web?tag=":                             "",
		"/v1/health/service/web?node-meta=rack:a":                 "n1",
		"/v1/health/service/web?node-meta=rack:a&node-meta=row:2": "",
		"/v1/health/service/web?filter=Service.Port==81":          "n2",
		"/v1/health/service/web?filter=Checks.Status!=passing":    "n2 n3",
		"/v1/health/service/web?filter=Node.Node!=n1&tag=blue":    "n2",
		"/v1/catalog/service/web?filter=ServicePort==81":          "n2",
		"/v1/catalog/service/web?tag=v1":                          "n1",
		"/v1/catalog/nodes?node-meta=rack:b":                      "n2",
		"/v1/catalog/nodes?filter=Address==%221.1.1.3%22":         "n3",
		"/v1/health/state/any?filter=Status==warning":             "n2",
		"/v1/health/state/any?node-meta=rack:a":                   "n1",
		"/v1/health/checks/web?node-meta=rack:b":                  "n2",
		"/v1/health/checks/web?filter=Node==n1":                   "n1",
		"/v1/health/node/n3?filter=CheckID==own":                  "n3",
		"/v1/health/node/n3?filter=CheckID==other":                "",
	} {
		var got []struct {
			Node json.RawMessage
		}
		a := m.get(path)
		if err := json.Unmarshal([]byte(a.body), &got); err != nil {
			t.Errorf("%s: %s", path, a.body)
			continue
		}
		var names []string
		for _, e := range got {
			var of struct{ Node string }
			if json.Unmarshal(e.Node, &of.Node) != nil {
				_ = json.Unmarshal(e.Node, &of)
			}
			names = append(names, of.Node)
		}
		if strings.Join(names, " ") != want {
			t.Errorf("%s: %v, want %s", path, names, want)
		}
	}
	for path, want := range map[string]string{
		"/v1/catalog/services?node-meta=rack:a":          `{"web":["Blue","v1"]}`,
		"/v1/catalog/services?filter=ServiceName==other": `{}`,
		"/v1/catalog/node/n1?filter=Port==1":             `{"Node":{"ID":"","Node":"n1","Address":"1.1.1.1","Datacenter":"dc1","TaggedAddresses":null,"Meta":{"rack":"a","row":"1"}},"Services":{}}`,
	} {
		if got := unindexed(t, m.get(path).body); got != unindexed(t, want) {
			t.Errorf("%s: %s", path, got)
		}
	}
}

func TestReadsOfTheCatalogThatAreRefused(t *testing.T) {
	m := startMember(t, nil)
	for path, want := range map[string]string{
		"/v1/health/service/":                  "400 Missing service name",
		"/v1/health/checks/":                   "400 Missing service name",
		"/v1/health/node/":                     "400 Missing node name",
		"/v1/health/state/":                    "400 Missing check state",
		"/v1/catalog/service/":                 "400 Missing service name",
		"/v1/catalog/node/":                    "400 Missing node name",
		"/v1/catalog/node-services/":           "400 Missing node name",
		"/v1/health/service/web?passing=maybe": "400 Invalid value for ?passing",
		"/v1/health/service/web?dc=dc2":        "500 No path to datacenter",
		"/v1/health/service/web?filter=a==b":   `500 Failed to create boolean expression evaluator: Selector "a" is not valid`,
		"/v1/catalog/services?filter=a==b":     `500 Failed to create boolean expression evaluator: Selector "a" is not valid`,
		"/v1/catalog/node/n?filter=a==b":       `500 Failed to create boolean expression evaluator: Selector "a" is not valid`,
	} {
		if a := m.do("GET", path, ""); fmt.Sprint(a.StatusCode, " ", a.body) != want {
			t.Errorf("%s: %d %s, want %s", path, a.StatusCode, a.body, want)
		}
	}
}

// begin sends a request on a connection of its own, whose answer is read later.
func (m *member) begin(path string) *client {
	m.tb.Helper()
	c := m.dial()
	c.write("GET " + path + " HTTP/1.1\r\nHost: " + m.addr + "\r\nAccept-Encoding: gzip\r\n\r\n")
	return c
}

// A change wakes those who wait for what it changes and nobody else.
func TestAFlapWakesTheWatchersOfItsServiceAlone(t *testing.T) {
	m := startMember(t, nil)
	m.instance("n1", "web", "passing", `["v1"]`)
	m.instance("n2", "web", "passing")
	m.instance("n3", "db", "passing")
	watched := map[string]*client{}
	for _, path := range []string{
		"/v1/health/service/db", "/v1/health/service/web?tag=v1", "/v1/catalog/service/web", "/v1/catalog/services", "/v1/catalog/nodes",
		"/v1/health/node/n1", "/v1/catalog/node/n3", "/v1/health/service/none", "/v1/health/checks/db", "/v1/health/state/warning",
	} {
		with := "?"
		if strings.Contains(path, "?") {
			with = "&"
		}
		watched[path] = m.begin(path + with + "wait=10m&index=" + m.get(path).index())
	}
	woken := m.begin("/v1/health/service/web?wait=10m&index=" + m.get("/v1/health/service/web").index())
	state := m.begin("/v1/health/state/critical?wait=10m&index=" + m.get("/v1/health/state/critical").index())
	m.instance("n2", "web", "critical")
	if body := string(gunzip(t, []byte(woken.read("GET").body))); strings.Count(body, `"critical"`) != 1 || strings.Count(body, `"Node":{`) != 2 {
		t.Errorf("woken with %s", body)
	}
	if a := state.read("GET"); !strings.Contains(a.body, "n2") {
		t.Errorf("woken with %s", a.body)
	}
	m.blocked(len(watched))
	// They do wait for what they asked for.
	m.instance("n3", "db", "warning")
	for _, path := range []string{"/v1/health/service/db", "/v1/health/checks/db", "/v1/health/state/warning"} {
		a := watched[path].read("GET")
		if body := a.body; a.Header.Get("Content-Encoding") == "" && !strings.Contains(body, "warning") {
			t.Errorf("%s: %s", path, body)
		}
	}
	m.blocked(len(watched) - 3)
}

// Checks are selected by the metadata of their nodes, which they do not show: who selects so
// is told when it changes, and nobody else.
func TestChecksFollowTheMetadataOfTheirNodes(t *testing.T) {
	m := startMember(t, nil)
	register := func(rack string) {
		m.send("/v1/catalog/register", fmt.Sprintf(
			`{"Node":"n1","Address":"10.0.0.1","NodeMeta":{"rack":%q},"Service":{"Service":"web"},"Check":{"CheckID":"c","Name":"c","Status":"passing","ServiceID":"web"}}`, rack))
	}
	paths := []string{"/v1/health/state/any", "/v1/health/checks/web"}
	register("a")
	var before, behind []*client
	for _, path := range paths {
		m.does("GET", path+"?node-meta=rack:b", "", `200 []`)
		m.begin(path + "?wait=10m&index=" + m.get(path).index())
		before = append(before, m.begin(path+"?node-meta=rack:a&wait=10m&index="+m.get(path+"?node-meta=rack:a").index()))
		behind = append(behind, m.begin(path+"?node-meta=rack:b&wait=10m&index="+m.get(path+"?node-meta=rack:b").index()))
	}
	m.blocked(3 * len(paths))
	register("b")
	for i, path := range paths {
		if a := before[i].read("GET"); a.body != `[]` {
			t.Errorf("%s: who selects by what the node was is told %s", path, a.body)
		}
		if a := behind[i].read("GET"); !strings.Contains(a.body, `"CheckID":"c"`) {
			t.Errorf("%s: who selects by what the node is is told %s", path, a.body)
		}
		if a := m.get(path + "?node-meta=rack:b"); !strings.Contains(a.body, `"CheckID":"c"`) {
			t.Errorf("%s: %s", path, a.body)
		}
	}
	m.blocked(len(paths))
}
