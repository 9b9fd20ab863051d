package sim

import (
	"testing"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/engine"
)

// Whatever quotas the administrator has set, none is for what goes on beside a flood: it
// would be refused for it after the flood, and not before (seed 790029: quota.keys).
func TestNoQuotaIsForWhatGoesOnBesideAFlood(t *testing.T) {
	s := engine.NewState()
	do := func(c settings.Command) {
		t.Helper()
		results := make([]core.Result, 1)
		if s.Apply([][]byte{c.Encode(core.Meta{})}, results); results[0].Err != nil {
			t.Fatalf("%s: %v", c.Name, results[0].Err)
		}
	}
	const set = 1 // no quota's default
	w := &world{cfg: Config{Flood: &Flood{}}}
	for _, c := range besideFloods() {
		do(c)
	}
	for _, name := range quotasSet {
		do(settings.Command{Name: name, Value: set})
	}
	terms := s.View().Terms()
	client, other := (&agent{w: w, id: 7, beside: true}).principal(), (&agent{w: w, id: 7}).principal()
	bound := 0
	for of := range core.NumCounted {
		if terms.Principals[of].Of(client) == set {
			t.Errorf("%s may have %d %v", client, set, of)
		}
		if terms.Namespaces[of].Of(floodOf) == set {
			t.Errorf("namespace %s may have %d %v", floodOf, set, of)
		}
		if terms.Principals[of].Of(other) == set {
			bound++
		}
	}
	if bound == 0 || terms.Namespaces[core.Leases].Of("default") != set {
		t.Errorf("nothing is bound for %s", other)
	}
}
