package consul

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/lease"
)

// does makes a request, and fails unless it is answered so: "STATUS BODY".
func (m *member) does(method, path, body, want string) {
	m.tb.Helper()
	if a := m.do(method, path, body); fmt.Sprint(a.StatusCode, " ", a.body) != want {
		m.tb.Errorf("%s %s %s: %d %s, want %s", method, path, body, a.StatusCode, a.body, want)
	}
}

func TestServicesOfTheAgent(t *testing.T) {
	m := startMember(t, nil)
	m.does("GET", "/v1/agent/services", "", `200 {}`)
	m.send("/v1/agent/service/register", `{"ID":"redis1","Name":"redis","Tags":["primary"],"Address":"127.0.0.1","Port":8000,"Meta":{"v":"4"},"enable_tag_override":true,
		"TaggedAddresses":{"wan":{"Address":"198.18.0.1","Port":80}},"Check":{"deregister_critical_service_after":"90m","TTL":"30s"},"Weights":{"Passing":10,"Warning":1}}`)
	m.send("/v1/agent/service/register", `{"name":"plain"}`)
	m.send("/v1/agent/service/register", `{"name":"many","checks":[{"ttl":"20s","status":"passing","notes":"n"},{"name":"tcp","tcp":"127.0.0.1:1","interval":"10s","timeout":2000000000},
		{"checkid":"h","http":"http://127.0.0.1:1/","interval":"1h","header":{"X":["a"]}}]}`)
	const redis = `{"ID":"redis1","Service":"redis","Tags":["primary"],"Meta":{"v":"4"},"Port":8000,"Address":"127.0.0.1","TaggedAddresses":{"lan_ipv4":{"Address":"127.0.0.1","Port":8000},"wan":{"Address":"198.18.0.1","Port":80},"wan_ipv4":{"Address":"127.0.0.1","Port":8000}},"Weights":{"Passing":10,"Warning":1},"EnableTagOverride":true`
	m.does("GET", "/v1/agent/services?filter=Service==redis", "", `200 {"redis1":`+redis+`,"Datacenter":"dc1"}}`)
	m.does("GET", "/v1/agent/service/none", "", `404 unknown service ID: none`)
	m.does("GET", "/v1/agent/checks?filter=ServiceID==redis1", "", `200 {"service:redis1":{"Node":"agent","CheckID":"service:redis1","Name":"Service 'redis' check","Status":"critical","Notes":"","Output":"","ServiceID":"redis1","ServiceName":"redis","ServiceTags":["primary"],"Type":"ttl","Interval":"","Timeout":"","ExposedPort":0,"Definition":{},"CreateIndex":0,"ModifyIndex":0}}`)
	var checks map[string]checkJSON
	if err := json.Unmarshal([]byte(m.get("/v1/agent/checks?filter=ServiceID==many").body), &checks); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]string{"service:many:1": "ttl  ", "service:many:2": "tcp 10s 2s", "h": "http 1h0m0s "} {
		if c := checks[id]; c.Type+" "+c.Interval+" "+c.Timeout != want || len(checks) != 3 {
			t.Errorf("%s: %+v, want %s", id, c, want)
		}
	}
	// What is run is run by the member that was asked, as it was said.
	c := catalog.Of(m.group.View()).Check("default", "agent", "h")
	if c.Runner != m.group.Node().Status().Member || string(c.Definition) != `{"Interval":"1h0m0s","HTTP":"http://127.0.0.1:1/","Header":{"X":["a"]}}` {
		t.Errorf("check: runner %d, definition %s", c.Runner, c.Definition)
	}
	if c := catalog.Of(m.group.View()).Check("default", "agent", "service:redis1"); c.TTL.String() != "30s" || c.DeregisterAfter.String() != "1h30m0s" {
		t.Errorf("check: %+v", c)
	}
	// It is in the catalog, too, on the one node of the cluster.
	if a := m.get("/v1/health/service/redis"); !strings.Contains(a.body, `"Node":"agent"`) || !strings.Contains(a.body, `"CheckID":"serfHealth"`) {
		t.Errorf("%s", a.body)
	}
	m.send("/v1/agent/service/register?replace-existing-checks", `{"name":"many","check":{"ttl":"20s"}}`)
	if body := m.get("/v1/health/checks/many").body; strings.Count(body, "CheckID") != 1 || !strings.Contains(body, `"service:many"`) {
		t.Errorf("checks that were to be replaced: %s", body)
	}
	m.does("PUT", "/v1/agent/service/deregister/many", "", "200 ")
	m.does("PUT", "/v1/agent/service/deregister/many", "", `404 Unknown service ID "many". Ensure that the service ID is passed, not the service name.`)
	m.does("GET", "/v1/health/checks/many", "", "200 []")
}

// Several ports, and a socket, are shown wherever a service is. The default one is the port.
func TestServicesWithPortsAndSockets(t *testing.T) {
	m := startMember(t, nil)
	const ports = `[{"Name":"http","Port":8080,"Default":true},{"Name":"metrics","Port":9090,"Default":false}]`
	const more = `"Ports":[{"Name":"http","Port":8080,"Default":true},{"name":"metrics","port":9090}],"SocketPath":"/run/s"`
	m.send("/v1/agent/service/register", `{"Name":"web",`+more+`}`)
	m.send("/v1/catalog/register", `{"Node":"n","Address":"a","Service":{"Service":"web",`+more+`}}`)
	m.send("/v1/txn", `[{"Service":{"Verb":"set","Node":"n","Service":{"ID":"w","Service":"web","Port":8080,`+more+`}}}]`) // as it was shown
	for path, times := range map[string]int{
		"/v1/agent/services": 1, "/v1/agent/service/web": 1, "/v1/agent/health/service/id/web": 1,
		"/v1/health/service/web": 3, "/v1/catalog/service/web": 3, "/v1/catalog/node/n": 2, "/v1/catalog/node-services/n": 2,
	} {
		body, of := m.get(path).body, ""
		if strings.HasPrefix(path, "/v1/catalog/service") {
			of = "Service"
		}
		for _, want := range []string{`"` + of + `Port":8080,"` + of + `Ports":` + ports, `"` + of + `SocketPath":"/run/s"`} {
			if strings.Count(body, want) != times {
				t.Errorf("%s: %s, want %d times %s", path, body, times, want)
			}
		}
	}
	m.send("/v1/agent/service/register", `{"Name":"one","Port":80,"Ports":[]}`)
	if body := m.get("/v1/catalog/service/one").body; !strings.Contains(body, `"ServicePort":80,"ServicePorts":null,"ServiceSocketPath":""`) {
		t.Errorf("one port: %s", body)
	}
	if body := m.get("/v1/health/service/one").body; strings.Contains(body, `"Ports"`) || strings.Contains(body, "SocketPath") {
		t.Errorf("one port: %s", body)
	}
	for body, want := range map[string]string{
		`"Port":80,"Ports":` + ports:                                                          "Cannot set both Port and Ports",
		`"Ports":[{"Name":" ","Port":1,"Default":true}]`:                                      "Ports.Name cannot be empty",
		`"Ports":[{"Name":"a","Default":true}]`:                                               "Ports.Port must be greater than zero",
		`"Ports":[{"Name":"a","Port":70000,"Default":true}]`:                                  "Invalid port 70000",
		`"Ports":[{"Name":"a","Port":1,"Default":true},{"Name":"a","Port":2}]`:                `Ports.Name "a" has to be unique`,
		`"Ports":[{"Name":"a","Port":1,"Default":true},{"Name":"b","Port":2,"Default":true}]`: "Only one port can be marked as default",
		`"Ports":[{"Name":"a","Port":1}]`:                                                     "One of the Ports must be marked as Default",
	} {
		text := "1 error occurred:\n\t* " + want + "\n\n"
		m.does("PUT", "/v1/agent/service/register", `{"Name":"a",`+body+`}`, "400 Validation failed: "+text)
		m.does("PUT", "/v1/catalog/register", `{"Node":"n","Address":"a","Service":{"Service":"a",`+body+`}}`, "500 "+text)
	}
	m.does("PUT", "/v1/agent/service/register", `{"Name":"a","Port":1,"Ports":[{"Name":"a","Port":2}]}`,
		"400 Validation failed: 2 errors occurred:\n\t* Cannot set both Port and Ports\n\t* One of the Ports must be marked as Default\n\n")
}

func TestServicesOfTheAgentThatAreRefused(t *testing.T) {
	m := startMember(t, nil)
	m.send("/v1/agent/check/register", `{"Name":"known","TTL":"1h"}`)
	for body, want := range map[string]string{
		``:                                     `400 Request decode failed: EOF`,
		`{`:                                    `400 Request decode failed: unexpected EOF`,
		`{}`:                                   `400 Missing service name`,
		`{"Name":"a"} {}`:                      `400 Request decode failed: there is more behind the first value`,
		`{"Name":"a","Foo":1}`:                 `400 Request decode failed: json: unknown field "Foo"`,
		`{"Name":"a","Checks":[{"Name":"c"}]}`: `400 Invalid check: TTL must be > 0 for TTL checks`,
		`{"Name":"a","Checks":[{"Interval":"1s"}]}`:                             `400 Invalid check: Interval is set, but nothing to run`,
		`{"Name":"a","Check":{"TTL":"x"}}`:                                      `400 Request decode failed: time: invalid duration "x"`,
		`{"Name":"a","Check":{"HTTP":"http://x"}}`:                              `400 Invalid check: Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks`,
		`{"Name":"a","Check":{"TTL":"1s","Interval":"1s","TCP":"x:1"}}`:         `400 Invalid check: Interval and TTL cannot both be specified`,
		`{"Name":"a","Check":{"Args":["x"],"Interval":"1s"}}`:                   `500 Scripts are disabled on this agent from remote calls; to enable, configure 'enable_script_checks' to true`,
		`{"Name":"a","Check":{"TTL":"1s","Status":"bad"}}`:                      `400 Status for checks must 'passing', 'warning', 'critical'`,
		`{"Name":"a","Check":{"TTL":"9999h"}}`:                                  `400 Invalid check: a duration is over 744h0m0s`,
		`{"Name":"a","Check":{"TCP":"x:1","Interval":"25h"}}`:                   `400 Invalid check: Interval or Timeout is over 24h0m0s`,
		`{"Name":"a","Check":{"TCP":"x:1","Interval":"1s","Timeout":"87600h"}}`: `400 Invalid check: Interval or Timeout is over 24h0m0s`,
		`{"Name":"a","Meta":{"a b":"c"}}`:                                       `400 Invalid Service Meta: Couldn't load metadata pair ('a b', 'c'): Key contains invalid characters`,
		`{"Name":"a","Weights":{"Passing":-1,"Warning":1}}`:                     `400 Invalid Weights: Passing must be greater than 0`,
		`{"Name":"a","Address":"0.0.0.0"}`:                                      `400 Invalid service address`,
		`{"Name":"a","Port":70000}`:                                             `400 Invalid port 70000`,
	} {
		m.does("PUT", "/v1/agent/service/register", body, want)
	}
	for body, want := range map[string]string{
		`{}`:                                   `400 Missing check name`,
		`{"Name":"c","TTL":"1h","Status":"x"}`: `400 Bad check status`,
		`{"Name":"c"}`:                         `400 Invalid check: TTL must be > 0 for TTL checks`,
		`{"Name":"c","TTL":"1h","ServiceID":"none"}`:                     `404 ServiceID "none" does not exist`,
		`{"Name":"c","OSService":"a"}`:                                   `400 Invalid check: only TTL, HTTP, TCP, UDP, gRPC, H2PING and alias checks are run here`,
		`{"Name":"c","HTTP":"http://x","Interval":"1s","Timeout":"25h"}`: `400 Invalid check: Interval or Timeout is over 24h0m0s`,
		`{"Name":"c","H2PING":"a:1"}`:                                    `400 Invalid check: Interval must be > 0 for Script, HTTP, H2PING, TCP, UDP or OSService checks`,
	} {
		m.does("PUT", "/v1/agent/check/register", body, want)
	}
	const unknown = `404 Unknown check ID "none". Ensure that the check ID is passed, not the check name.`
	for path, want := range map[string]string{
		"/v1/agent/check/pass/none":                       unknown,
		"/v1/agent/check/deregister/none":                 unknown,
		"/v1/agent/check/pass/serfHealth":                 `500 CheckID "serfHealth" does not have associated TTL`,
		"/v1/agent/service/maintenance/":                  `400 Missing service ID`,
		"/v1/agent/service/maintenance/none":              `400 Missing value for enable`,
		"/v1/agent/service/maintenance/none?enable=maybe": `400 Invalid value for enable: "maybe"`,
		"/v1/agent/service/maintenance/none?enable=true":  `404 Unknown service ID "none". Ensure that the service ID is passed, not the service name.`,
		"/v1/agent/maintenance":                           `400 Missing value for enable`,
	} {
		m.does("PUT", path, "", want)
	}
	m.does("PUT", "/v1/agent/check/update/known", `{"Status":"odd"}`, `400 Invalid check status: 'odd'`)
}

// A pass that changes nothing costs no entry of the log.
func TestChecksOfTheAgent(t *testing.T) {
	m := startMember(t, nil)
	m.send("/v1/agent/service/register", `{"name":"web","check":{"ttl":"1h"}}`)
	for _, step := range []struct{ path, body, status, output string }{
		{"/v1/agent/check/pass/service:web?note=fine", "", "passing", "fine"},
		{"/v1/agent/check/warn/service:web", "", "warning", ""},
		{"/v1/agent/check/fail/service:web?note=down", "", "critical", "down"},
		{"/v1/agent/check/update/service:web", `{"Status":"passing","Output":"` + strings.Repeat("x", 5000) + `"}`, "passing", ""},
	} {
		m.does("PUT", step.path, step.body, "200 ")
		c := catalog.Of(m.group.View()).Check("default", "agent", "service:web")
		if c.Status.String() != step.status || step.output != "" && c.Output != step.output || len(c.Output) > catalog.MaxOutputBytes {
			t.Errorf("%s: %s %q", step.path, c.Status, c.Output)
		}
	}
	m.does("PUT", "/v1/agent/check/pass/service:web?note=again", "", "200 ")
	at := m.group.View().Index()
	for range 3 {
		m.does("PUT", "/v1/agent/check/pass/service:web?note=again", "", "200 ")
		m.send("/v1/agent/service/register", `{"name":"web","check":{"ttl":"1h"}}`) // the check keeps its status
	}
	if now := m.group.View().Index(); now != at {
		t.Errorf("index %d, want %d as before", now, at)
	}
	m.does("GET", "/v1/agent/health/service/id/web?format=text", "", "200 passing")
}

// Who passes a check with another note each time keeps it passing while growth is refused, and
// another status is written.
func TestG31_NotesWaitWithoutSpace(t *testing.T) {
	m := startMember(t, nil)
	m.send("/v1/agent/service/register", `{"name":"web","check":{"ttl":"1h"}}`)
	refuse := func() {
		m.group.Node().RefuseGrowth(func() error { return incumbent.Errorf(incumbent.Overloaded, "there is no space") })
	}
	for _, step := range []struct {
		before                          func()
		does, note, status, output, why string
	}{
		{func() {}, "pass", "1", "passing", "1", "the first"},
		{refuse, "pass", "2", "passing", "1", "an output alone"},
		{func() {}, "fail", "3", "critical", "3", "another status"},
		{func() {}, "pass", "4", "passing", "4", "another status"},
		{func() {}, "pass", "5", "passing", "4", "an output alone"},
		{func() { m.group.Node().RefuseGrowth(nil) }, "pass", "6", "passing", "6", "with space"},
	} {
		step.before()
		m.does("PUT", "/v1/agent/check/"+step.does+"/service:web?note="+step.note, "", "200 ")
		if c := catalog.Of(m.group.View()).Check("default", "agent", "service:web"); c.Status.String() != step.status || c.Output != step.output {
			t.Errorf("%s: %s with %q, want %s with %q", step.why, c.Status, c.Output, step.status, step.output)
		}
	}
}

func TestHealthOfTheAgentsServices(t *testing.T) {
	m := startMember(t, nil)
	m.send("/v1/agent/service/register", `{"id":"w1","name":"web","check":{"ttl":"1h","status":"passing"}}`)
	m.send("/v1/agent/service/register", `{"id":"w2","name":"web","check":{"ttl":"1h","status":"warning"}}`)
	const (
		byID   = "/v1/agent/health/service/id/"
		byName = "/v1/agent/health/service/name/"
	)
	for path, want := range map[string]string{
		byID + "w1?format=text":     "200 passing",
		byID + "w2?format=text":     "429 warning",
		byName + "web?format=text":  "429 warning",
		byID + "none?format=text":   "404 ServiceId none not found",
		byID + "none":               `404 {"AggregatedStatus":"critical","Service":null,"Checks":null}`,
		byName + "none?format=text": "404 ServiceName none Not Found",
		byName + "none":             "404 []",
		byID:                        "500 Missing serviceID",
		byName:                      "500 Missing service Name",
	} {
		m.does("GET", path, "", want)
	}
	for accept, want := range map[string]bool{"text/plain": true, "text/plain;q=0.9, */*": true, "*/*, text/plain": false} { // it is what comes first
		if a := m.do("GET", byID+"w1?format=json", "", "Accept", accept); (a.body == "passing") != want {
			t.Errorf("%s: %s %q", accept, a.Status, a.body)
		}
	}
	m.does("PUT", "/v1/agent/check/fail/service:w2", "", "200 ")
	m.does("GET", byName+"web?format=text", "", "503 critical")
	m.does("PUT", "/v1/agent/service/maintenance/w1?enable=true&reason=why", "", "200 ")
	a := m.do("GET", byID+"w1", "")
	if a.StatusCode != http.StatusServiceUnavailable || a.Header.Get("X-Consul-Reason") != "maintenance" || !strings.Contains(a.body, `"Notes":"why"`) || strings.Contains(a.body, "serfHealth") {
		t.Errorf("%d %s", a.StatusCode, a.body)
	}
	m.does("PUT", "/v1/agent/service/maintenance/w1?enable=false", "", "200 ")
	m.does("PUT", "/v1/agent/maintenance?enable=true", "", "200 ")
	m.does("GET", byID+"w1?format=text", "", "503 maintenance")
	m.does("GET", "/v1/health/service/web?passing", "", "200 []")
	m.does("PUT", "/v1/agent/maintenance?enable=false", "", "200 ")
	m.does("GET", byID+"w1?format=text", "", "200 passing")
}

// Who waits for another hash of a service is told when what it says changes, and not
// when its check does.
func TestAServiceIsWaitedForByItsHash(t *testing.T) {
	m := startMember(t, nil)
	m.send("/v1/agent/service/register", `{"name":"web","port":80,"check":{"ttl":"1h"}}`)
	first := m.get("/v1/agent/service/web")
	hash := first.Header.Get("X-Consul-Contenthash")
	if hash == "" || !strings.Contains(first.body, `"ContentHash":"`+hash+`"`) {
		t.Fatalf("hash %q of %s", hash, first.body)
	}
	c := m.begin("/v1/agent/service/web?wait=10m&hash=" + hash)
	m.blocked(1)
	m.does("PUT", "/v1/agent/check/pass/service:web", "", "200 ")
	m.does("GET", "/v1/agent/service/web?hash=other", "", "200 "+first.body)
	m.blocked(1)
	m.send("/v1/agent/service/register", `{"name":"web","port":81,"check":{"ttl":"1h"}}`)
	next := c.read("GET")
	if !strings.Contains(next.body, `"Port":81`) || next.Header.Get("X-Consul-Contenthash") == hash {
		t.Errorf("%s", next.body)
	}
	c = m.begin("/v1/agent/service/web?wait=10m&hash=" + next.Header.Get("X-Consul-Contenthash"))
	m.blocked(1)
	m.does("PUT", "/v1/agent/service/deregister/web", "", "200 ")
	gone, none := c.read("GET"), m.do("GET", "/v1/agent/service/web", "")
	for _, h := range []http.Header{gone.Header, none.Header} {
		h.Del("Date")
	}
	none.Header.Del("Connection")
	if gone.StatusCode != none.StatusCode || gone.body != none.body || !maps.EqualFunc(gone.Header, none.Header, slices.Equal) {
		t.Errorf("it goes while it is waited for: %d %s %v, want %d %s %v", gone.StatusCode, gone.body, gone.Header, none.StatusCode, none.body, none.Header)
	}
}

// Whoever registers a service or a check again has the ttl of its checks begin anew, as a
// report does, although nothing changes.
func TestG03_ARegistrationRestartsTTLs(t *testing.T) {
	for path, body := range map[string]string{
		"/v1/agent/service/register": `{"Name":"web","Check":{"CheckID":"c","TTL":"2m"}}`,
		"/v1/agent/check/register":   `{"Name":"c","TTL":"2m"}`,
	} {
		t.Run(path, func(t *testing.T) {
			clock := newHandClock()
			m := startMemberOn(t, withClock(clock), nil)
			is := func(id string) string {
				return catalog.Of(m.group.View()).Check("default", "agent", id).Status.String()
			}
			over := func(id string) { // an expiry is confirmed first, for which the clock has to go on
				t.Helper()
				eventually(t, func() bool { clock.advance(lease.Bucket / 4); return is(id) == "critical" })
			}
			m.send(path, body)
			m.send("/v1/agent/check/register", `{"Name":"other","TTL":"2m"}`)
			m.ok("PUT /v1/agent/check/pass/c", "PUT /v1/agent/check/pass/other")
			clock.advance(110 * time.Second)
			at := m.group.View().Index()
			m.send(path, body)
			if now := m.group.View().Index(); now != at {
				t.Errorf("index %d, want %d as before", now, at)
			}
			clock.advance(20 * time.Second)
			over("other")
			if got := is("c"); got != "passing" {
				t.Errorf("20 s after it was registered again it is %s", got)
			}
			clock.advance(110 * time.Second)
			over("c")
			m.send(path, body) // which leaves it as it is
			if got := is("c"); got != "critical" {
				t.Errorf("registered again once its ttl is over it is %s", got)
			}
		})
	}
}

// A check that is registered again, by way of another member, stays with the member that runs
// it: nothing has changed. It does not where it is another check, or that member is gone.
func TestAnotherMemberRegistersTheSameCheck(t *testing.T) {
	m := startMember(t, nil)
	self := m.group.Node().Status().Member
	other := self + 1
	service, check := `{"Name":"web","Check":{"CheckID":"c","HTTP":"http://127.0.0.1:1/","Interval":"%s"}}`, `{"Name":"alone","TCP":"127.0.0.1:1","Interval":"%s"}`
	register := func(interval string) {
		m.send("/v1/agent/service/register", fmt.Sprintf(service, interval))
		m.send("/v1/agent/check/register", fmt.Sprintf(check, interval))
	}
	run := func(by uint64, what string) {
		t.Helper()
		for _, id := range []string{"c", "alone"} {
			if c := catalog.Of(m.group.View()).Check("default", "agent", id); c.Runner != by {
				t.Errorf("%s: %s is run by %d, want %d", what, id, c.Runner, by)
			}
		}
	}
	m.done(core.PutMemberCommand{Member: core.Member{ID: other, Name: "other", Schema: core.SchemaVersion}})
	register("10s")
	run(self, "registered")
	elsewhere := func() { // as by the door of the other member
		for _, id := range []string{"c", "alone"} {
			c := *catalog.Of(m.group.View()).Check("default", "agent", id)
			c.Runner, c.Owner, c.Created, c.Modified, c.Since = other, "", 0, 0, 0
			m.done(catalog.Command{Verb: catalog.Register, Target: catalog.Target{Namespace: "default", Node: "agent"}, Checks: []*catalog.Check{&c}})
		}
	}
	elsewhere()
	run(other, "registered by way of the other")
	before := m.group.View().Index()
	register("10s")
	run(other, "registered again")
	if at := m.group.View().Index(); at != before {
		t.Errorf("which is a change: index %d after %d", at, before)
	}
	register("20s")
	run(self, "with another interval")
	elsewhere()
	m.done(core.RemoveMemberCommand{ID: other})
	register("20s")
	run(self, "once the other is gone")
}

// done applies a command that succeeds.
func (m *member) done(c core.Command) {
	m.tb.Helper()
	if r := m.group.Do(c); r.Err != nil {
		m.tb.Fatal(r.Err)
	}
}

// A member's own service is the catalog's: where the agent's node is the member, the agent
// knows nothing of it.
func TestTheAgentKnowsNoMember(t *testing.T) {
	m := startMember(t, nil)
	m.send("/v1/agent/service/register", `{"Name":"web"}`)
	m.send("/v1/catalog/register", `{"Node":"agent","SkipNodeUpdate":true,"Service":{"Service":"consul","Meta":{"`+MemberMeta+`":"1"}}}`)
	if a := m.get("/v1/catalog/service/consul"); !strings.Contains(a.body, `"Node":"agent"`) {
		t.Fatal(a.body)
	}
	m.does("GET", "/v1/agent/service/consul", "", `404 unknown service ID: consul`)
	m.does("GET", "/v1/agent/health/service/id/consul", "", `404 {"AggregatedStatus":"critical","Service":null,"Checks":null}`)
	m.does("GET", "/v1/agent/health/service/name/consul", "", `404 []`)
	const unknown = `404 Unknown service ID "consul". Ensure that the service ID is passed, not the service name.`
	m.does("PUT", "/v1/agent/service/maintenance/consul?enable=true", "", unknown)
	m.does("PUT", "/v1/agent/service/deregister/consul", "", unknown)
	v := m.group.View()
	if res := m.door.agentServiceResult(v, nil, "consul", nil); res.status != http.StatusNotFound {
		t.Errorf("who waits for it is told %+v", res)
	}
	if res := m.door.agentServiceResult(v, nil, "web", nil); res.status != 0 {
		t.Errorf("who waits for another is told %+v", res)
	}
}

// SkipNodeUpdate leaves a node as it is that is there. One that is not there is registered
// together with what is on it, or not at all.
func TestARegistrationThatLeavesTheNode(t *testing.T) {
	m := startMember(t, nil)
	for name, more := range map[string]string{"alone": "", "service": `,"Service":{"Service":"web"}`, "check": `,"Check":{"Name":"up"}`} {
		register := func(address string) string {
			m.does("PUT", "/v1/catalog/register", fmt.Sprintf(`{"Node":%q,"Address":%q,"NodeMeta":{"k":"v"},"SkipNodeUpdate":true%s}`, name, address, more), `200 true`)
			return m.get("/v1/catalog/node/"+name).body + m.get("/v1/health/node/"+name).body
		}
		first := register("10.0.0.1")
		if !strings.Contains(first, `"Address":"10.0.0.1"`) || !strings.Contains(first, `"k":"v"`) ||
			(name == "service") != strings.Contains(first, `"web"`) || (name == "check") != strings.Contains(first, `"up"`) {
			t.Errorf("%s: %s", name, first)
		}
		if again := register("10.0.0.2"); again != first {
			t.Errorf("%s: registered again %s", name, again)
		}
	}
	m.does("PUT", "/v1/catalog/register", `{"Node":"x","Address":"10.0.0.1","SkipNodeUpdate":true,"Check":{"CheckID":"a","ServiceID":"none"}}`,
		`500 Unknown service ID 'none' for check ID 'a'`)
	m.does("GET", "/v1/catalog/node/x", "", `200 null`)
}

// A node that somebody registers between the look at the state and the command stays theirs.
func TestARegistrationThatLeavesTheNodeMeetsAnother(t *testing.T) {
	m := startMember(t, nil)
	m.serveAt("/v1/late", func(d *Door, r *request) { // who has not seen the node
		var in registration
		if err := decodeJSON(r.body, &in); err != nil {
			t.Error(err)
		}
		whole, _ := in.command(d.namespace)
		rest := *whole
		rest.Node = nil
		r.registerWithNode(whole, &rest, func(incumbent.Index) { r.nothing() })
	})
	m.send("/v1/catalog/register", `{"Node":"n","Address":"10.0.0.1"}`)
	m.send("/v1/late", `{"Node":"n","Address":"10.0.0.2","SkipNodeUpdate":true,"Service":{"Service":"web"}}`)
	if a := m.get("/v1/catalog/service/web"); !strings.Contains(a.body, `"Address":"10.0.0.1"`) {
		t.Errorf("%s", a.body)
	}
	m.send("/v1/late", `{"Node":"n","Address":"10.0.0.3","SkipNodeUpdate":true}`)
	if a := m.get("/v1/catalog/node/n"); !strings.Contains(a.body, `"Address":"10.0.0.1"`) {
		t.Errorf("%s", a.body)
	}
}

func TestRegistrationsThatAreRefused(t *testing.T) {
	m := startMember(t, nil)
	for body, want := range map[string]string{
		`{"Node":"x"}`:    `500 Must provide address if SkipNodeUpdate is not set`,
		`{"Address":"x"}`: `500 Must provide node`,
		`{"Node":"x","Address":"1.1.1.1","Service":{"Port":1}}`:                         `500 service name (Service.Service) is required; both Service ID (Service.ID) and Service Name cannot be empty`,
		`{"Node":"x","Address":"1.1.1.1","Service":{"ID":"a"}}`:                         `500 Must provide service name (Service.Service) when service ID is provided`,
		`{"Node":"x","Address":"1.1.1.1","Check":{"CheckID":"a","ServiceID":"none"}}`:   `500 Unknown service ID 'none' for check ID 'a'`,
		`{"Node":"x","Address":"1.1.1.1","Datacenter":"dc9"}`:                           `500 No path to datacenter`,
		`{"Node":"x","Address":"1.1.1.1","ID":"bad"}`:                                   `500 Bad node ID: uuid string is wrong length`,
		`{"Node":"x","Address":"1.1.1.1","Service":{"Service":"w","Meta":{"a b":"c"}}}`: `500 failed inserting service: Invalid Service Meta for node x and serviceID w: Couldn't load metadata pair ('a b', 'c'): Key contains invalid characters`,
		`{"Node":5}`: `400 Request decode failed: json: cannot unmarshal number into Go struct field registration.Node of type string`,
	} {
		m.does("PUT", "/v1/catalog/register", body, want)
	}
	m.does("PUT", "/v1/catalog/deregister", `{}`, `500 Must provide node`)
	m.does("PUT", "/v1/catalog/deregister", `{"Node":"none"}`, `200 true`)
	m.does("PUT", "/v1/catalog/deregister", `{"Node":"none","ServiceID":"x"}`, `200 true`)
	m.instance("n1", "web", "passing")
	m.does("PUT", "/v1/catalog/deregister", `{"Node":"n1","CheckID":"c-web"}`, `200 true`)
	m.does("GET", "/v1/health/checks/web", "", `200 []`)
	m.does("PUT", "/v1/catalog/deregister", `{"Node":"n1"}`, `200 true`)
	m.does("GET", "/v1/health/service/web", "", `200 []`)
}
