package juju

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/engine"
)

func (m *member) change(c policy.Command) {
	m.tb.Helper()
	got := make(chan core.Result, 1)
	m.group.Execute(engine.Call{}, c, func(r core.Result) { got <- r })
	if r := <-got; r.Err != nil {
		m.tb.Fatal(r.Err)
	}
}

// What the door allows its agents stands whatever policies there are, until one has
// the door's name: then that decides, beside the door's own conditions, also for
// connections that are open.
func TestG12_APolicyStandsInThePlaceOfTheDoor(t *testing.T) {
	m := newMember(t, nil)
	zero, load, controller := m.login("unit-app-0"), m.login("unit-load-0"), m.login("machine-0")
	set := func(name, who string, rules ...auth.Rule) {
		t.Helper()
		m.change(policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: name, For: []string{who}, Rules: rules}})
	}
	id := 2
	check := func(what string, unit, any, singular, follow bool) {
		t.Helper()
		for name, tt := range map[string]struct {
			c    *client
			text func(int) string
			want bool
		}{
			"a unit":       {zero, func(id int) string { return claimText(id, "app", "app-0", "60") }, unit},
			"claim-any":    {load, func(id int) string { return claimText(id, "other", "other-0", "60") }, any},
			"a controller": {controller, func(id int) string { return singularText(id, "model-"+testModel, "machine-0") }, singular},
			"a wait":       {zero, func(id int) string { return blockText(id, "app") }, follow},
		} {
			if name == "a wait" {
				m.group.Do(core.RevokeCommand{Name: nameOf(testModel, "app")})
			}
			id++
			if got := tt.c.ask(tt.text(id)); strings.Contains(got, "permission denied") == tt.want {
				t.Errorf("%s: %s: %s", what, name, got)
			}
		}
	}
	check("no policy", true, true, true, true)
	set("other", "agent:nobody")
	check("a policy of another name", true, true, true, true)
	set(auth.DoorPolicy, "agent:nobody")
	check("one that allows nothing", false, false, false, false)
	lead := func(v auth.Verbs) auth.Rule {
		return auth.Rule{State: auth.Leases, Namespace: leadershipNamespace, Prefix: "app", Verbs: v}
	}
	set(auth.DoorPolicy, "agent:*", lead(auth.Write))
	check("one that lets claim app", true, false, false, false)
	set(auth.DoorPolicy, "agent:*", lead(auth.Write|auth.Follow), auth.Rule{State: auth.Leases, Namespace: singularNamespace, Verbs: auth.Write})
	check("one that lets wait, too", true, false, true, true)
	m.change(policy.Command{Verb: policy.Remove, Policy: auth.Policy{Name: auth.DoorPolicy}})
	check("none any more", true, true, true, true)
}

func singularText(id int, entity, claimant string) string {
	return fmt.Sprintf(`{"request-id":%d,"type":"Singular","version":2,"request":"Claim","params":{"claims":[{"entity-tag":%q,"claimant-tag":%q,"duration":%d}]}}`,
		id, entity, claimant, 30*time.Second)
}

// A claim that is under way, or tried again for as long as there is no leader, is
// judged anew when a policy changes.
func TestG12_AClaimUnderWayIsBoundByANewPolicy(t *testing.T) {
	for name, hold := range map[string]func(*member) (end func()){
		"in the log":     func(m *member) func() { m.group.Hold(); return m.group.Release },
		"without leader": func(m *member) func() { m.group.Refuse(true); return func() { m.group.Refuse(false) } },
	} {
		t.Run(name, func(t *testing.T) {
			m := newMember(t, nil)
			c := m.login("unit-app-0")
			before := m.group.Proposed()
			end := hold(m)
			c.send(claimText(2, "app", "app-0", "60"))
			for m.group.Proposed() == before {
				runtime.Gosched()
			}
			m.group.Do(policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: auth.DoorPolicy, For: []string{"agent:nobody"}}})
			end()
			if got := c.read(); !strings.Contains(got, "permission denied") {
				t.Errorf("it is answered %s", got)
			}
			if l := m.group.View().Lease(nameOf(testModel, "app")); !l.Free() {
				t.Errorf("%s leads", l.Holder)
			}
		})
	}
}
