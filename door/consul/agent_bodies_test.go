package consul

import (
	"encoding/json"
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
