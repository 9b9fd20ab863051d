package consul

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"
)

// What clients leave out of a check is as the original has it: a ping of HTTP/2 speaks TLS.
// Members of a body may be written with underscores.
func TestChecksAsTheyAreRegistered(t *testing.T) {
	for text, want := range map[string]definition{
		`{"H2PING":"a:1"}`:                         {H2PING: "a:1", H2PingUseTLS: true},
		`{"H2PING":"a:1","H2PingUseTLS":false}`:    {H2PING: "a:1"},
		`{"H2PING":"a:1","h2ping_use_tls":false}`:  {H2PING: "a:1"},
		`{"HTTP":"http://a","H2PingUseTLS":true}`:  {HTTP: "http://a", H2PingUseTLS: true},
		`{"HTTP":"http://a"}`:                      {HTTP: "http://a"},
		`{"HTTP":"a","disable_redirects":true}`:    {HTTP: "a", DisableRedirects: true},
		`{"GRPC":"a:1","grpc_use_tls":true}`:       {GRPC: "a:1", GRPCUseTLS: true},
		`{"alias_service":"web","alias_node":"n"}`: {AliasService: "web", AliasNode: "n"},
	} {
		var b agentCheckBody
		if err := json.Unmarshal([]byte(text), &b); err != nil {
			t.Fatal(err)
		}
		got := b.definition()
		if g, w := string(got.encode()), string(want.encode()); g != w {
			t.Errorf("%s: %s, want %s", text, g, w)
		}
	}
}

// A Check that says nothing is none: clients send one for what was left out. An element of
// Checks is one.
func TestAnEmptyCheckIsNone(t *testing.T) {
	m := startMember(t, nil)
	for body, want := range map[string]int{
		`{"Name":"a","Check":{}}`:                                                 200,
		`{"Name":"a","Check":null,"Checks":null}`:                                 200,
		`{"Name":"a","Check":{"ServiceID":"a","Status":"","ScriptArgs":[]}}`:      200,
		`{"Name":"a","Check":{"H2PingUseTLS":false,"TTL":0,"Header":null}}`:       200,
		`{"Name":"a","Check":{"H2PingUseTLS":true}}`:                              400,
		`{"Name":"a","Check":{"Name":"n"}}`:                                       400,
		`{"Name":"a","Check":{"Header":{}}}`:                                      400,
		`{"Name":"a","Check":{},"Checks":[{}]}`:                                   400,
		`{"Name":"b","Check":{},"Checks":[{"TTL":"10s"}]}`:                        200,
		`{"Name":"c","Check":{"TTL":"10s"},"Checks":[{"TTL":"10s","Notes":"n"}]}`: 200,
	} {
		if a := m.do("PUT", "/v1/agent/service/register", body); a.StatusCode != want {
			t.Errorf("%s: %d %s, want %d", body, a.StatusCode, a.body, want)
		}
	}
	var checks map[string]checkJSON
	m.decoded("/v1/agent/checks", &checks)
	if got := slices.Sorted(maps.Keys(checks)); !slices.Equal(got, []string{"service:b", "service:c:1", "service:c:2"}) {
		t.Errorf("checks %q", got)
	}
}
