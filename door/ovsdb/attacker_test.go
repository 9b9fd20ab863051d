package ovsdb

import (
	"encoding/json"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// Somebody with few rights asks for everything, as random clients do: nothing that is
// not its own changes, nothing is shown that it may not see, and nobody else's lock or
// session ends.
func TestG12_AnAttackerChangesAndSeesNothing(t *testing.T) {
	const requests, secret = 300, "topsecret"
	seed := uint64(time.Now().UnixNano()) //nolint:gosec // any will do
	t.Logf("seed %d", seed)
	rows := `["T",{"op":"select","table":"P","where":[]},{"op":"select","table":"Q","where":[]}]`
	for name, tt := range map[string]struct {
		rule auth.Rule
		sees bool
	}{
		"nothing":        {auth.Rule{State: auth.Tables, Namespace: "default", Prefix: "U", Verbs: auth.AllVerbs}, false},
		"see and watch":  {tableRule(auth.See | auth.Follow), true},
		"write on locks": {lockRule(auth.Write), false},
		"write in roles": {inRole("r", auth.See), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := startGuarded(t)
			g.let(tt.rule)
			victim := g.as(operatorO())
			victim.call("transact", `["T",{"op":"insert","table":"P","row":{"name":"`+secret+`","chassis":"c1"}},{"op":"insert","table":"Q","row":{"n":1}}]`)
			var held []incumbent.Token
			for _, l := range []string{"l", "k"} {
				want(t, "the victim's lock", victim.call("lock", `["`+l+`"]`), `{"locked":true}`)
				held = append(held, leases.Of(g.group.View()).Lease(g.door.lockName(l)).Token)
			}
			before := victim.call("transact", rows)
			p := &player{client: g.as(agentOf("a")), r: rand.New(rand.NewPCG(seed, 1))} //nolint:gosec // reproducible
			for range requests {
				asked := p.ask(`7`)
				p.write(asked)
				for {
					var m map[string]json.RawMessage
					if err := p.in.Decode(&m); err != nil {
						t.Fatalf("%s: %v", asked, err)
					}
					for part, text := range m {
						if !tt.sees && (strings.Contains(string(text), secret) || strings.Contains(string(text), `"chassis"`) && part == "result") {
							t.Errorf("%s shows %s", asked, text)
						}
					}
					if string(m["id"]) == `7` {
						break
					}
				}
			}
			p.conn.Close()
			want(t, "the rows", victim.call("transact", rows), before)
			for i, l := range []string{"l", "k"} {
				if got := leases.Of(g.group.View()).Lease(g.door.lockName(l)); got.Token != held[i] || got.LastToken != held[i] {
					t.Errorf("lock %s is held under %v, last %v, before %v", l, got.Token, got.LastToken, held[i])
				}
			}
			victim.until("only the attacker's own sessions end", func() bool { return g.door.view().SessionCount() == 1 })
		})
	}
}
