package consul

import (
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/catalog"
)

// A check is not refused for what it says: what is too long is cut off between two characters,
// and what is no text becomes some.
func TestOutputsOfChecksAreCut(t *testing.T) {
	m := startMember(t, nil)
	long := strings.Repeat("x", catalog.MaxOutputBytes-len(outputMark)-1) + strings.Repeat("é", 100)
	if got := cutOutput(long); !utf8.ValidString(got) || len(got) > catalog.MaxOutputBytes || !strings.HasSuffix(got, outputMark) {
		t.Errorf("%d bytes: %q", len(got), got[len(got)-60:])
	}
	for _, r := range [][3]string{
		{"PUT", "/v1/agent/check/register", `{"Name":"c","TTL":"10s"}`},
		{"PUT", "/v1/agent/check/pass/c?note=caf%E9", ""},
		{"PUT", "/v1/agent/check/update/c", `{"Status":"passing","Output":"` + long + `"}`},
		{"PUT", "/v1/catalog/register", `{"Node":"n","Address":"10.0.0.1","Check":{"Name":"http","Status":"passing","Output":"` + long + `"}}`},
	} {
		if a := m.do(r[0], r[1], r[2]); a.StatusCode != http.StatusOK {
			t.Errorf("%s: %s %q", r[1], a.Status, a.body)
		}
	}
}

// Who registers a node under the id of another takes that one out with all that it has, and
// has to be let write it.
func TestG12_ARenameIsAWriteOfBothNodes(t *testing.T) {
	m := startMember(t, func(c *Config) {
		c.Guard, c.Anonymous = auth.NewAuthenticator(false, nil), auth.Principal{Kind: auth.Agent, Name: "a"}
	})
	let := func(nodes ...string) {
		var rules []auth.Rule
		for _, n := range nodes {
			rules = append(rules, auth.Rule{State: auth.Nodes, Namespace: "default", Prefix: n, Verbs: auth.AllVerbs})
		}
		p := allowing("nothing")
		p.Policy.Rules = append(p.Policy.Rules, rules...)
		if r := m.group.Do(p); r.Err != nil {
			t.Fatal(r.Err)
		}
		m.door.Recheck()
	}
	const id = "11111111-2222-3333-4444-555555555555"
	register := func(node string) int {
		return m.do("PUT", "/v1/catalog/register", `{"Node":"`+node+`","ID":"`+id+`","Address":"10.0.0.1"}`).StatusCode
	}
	let("victim")
	if got := register("victim"); got != http.StatusOK {
		t.Fatal(got)
	}
	let("other")
	if got := register("other"); got != http.StatusForbidden {
		t.Errorf("another node with its id: %d", got)
	}
	let("other", "victim")
	if got := register("other"); got != http.StatusOK {
		t.Errorf("with the right to both: %d", got)
	}
}
