package juju

import (
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/tally"
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
				m.group.Do(leases.RevokeCommand{Name: nameOf(testModel, "app")})
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
			if l := leases.Of(m.group.View()).Lease(nameOf(testModel, "app")); !l.Free() {
				t.Errorf("%s leads", l.Holder)
			}
		})
	}
}

// letsClaimApp is a policy that lets all agents claim what begins with app, and no more.
var letsClaimApp = policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: auth.DoorPolicy, For: []string{"agent:*"}, Rules: []auth.Rule{
	{State: auth.Leases, Namespace: leadershipNamespace, Prefix: "app", Verbs: auth.Write},
}}}

const permissionResult = `{"error":{"message":"permission denied","code":"unauthorized access"}}`

// What a call asks only when its extensions have been answered is judged anew then, even
// if those were tried again after the policy had changed.
func TestG12_AClaimThatWasPutOffIsBoundByANewPolicy(t *testing.T) {
	m := newMember(t, nil)
	c := m.login("unit-load-0")
	if got := c.ask(claimsText(2, "app-0")); got != granted(2) {
		t.Fatal(got)
	}
	m.group.Refuse(true)
	c.send(claimsText(3, "app-0", "db-0"))
	eventually(t, "the extension is tried again", func() bool { return m.door.Stats().Retries > 0 })
	m.group.Do(letsClaimApp)
	m.group.Refuse(false)
	if got, want := c.read(), `{"request-id":3,"response":{"results":[{},`+permissionResult+`]}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if l := leases.Of(m.group.View()).Lease(nameOf(testModel, "db")); !l.Free() {
		t.Errorf("%s leads db", l.Holder)
	}
}

// What was granted and is asked for again, for it may be over, is judged anew, even if
// other params were since the policy had changed.
func TestG12_AClaimThatIsAskedAgainIsBoundByANewPolicy(t *testing.T) {
	var clock atomic.Int64
	var m *member
	some := &delayed{what: map[int]func(){2: func() { // the claim, after the extension
		clock.Add(int64(30*time.Second) + 1)
		m.group.Do(letsClaimApp)
	}}}
	m = newMember(t, nil, func(c *Config) { some.Leases, c.Leases, c.Monotonic = c.Leases, some, clock.Load })
	c := m.login("unit-load-0")
	if got := c.ask(claimsText(2, "db-0")); got != granted(2) {
		t.Fatal(got)
	}
	if got, want := c.ask(claimsText(3, "db-0", "app-0")), `{"request-id":3,"response":{"results":[`+permissionResult+`,{}]}}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	some.asked.are(t, 0, [][]string{
		{"db/0"},
		{"db/0"},  // extends
		{"app/0"}, // after the policy has changed
		{"app/0"}, // judged anew
		{"app/0"}, // again, without db
	})
}

// Who waits for what a policy lets it wait for no more is told so at once; the others
// wait on, and are answered by the end of the holding.
func TestG12_WaitsEndWithTheirPermission(t *testing.T) {
	m := newMember(t, nil)
	if got := m.login("unit-other-0").ask(claimText(2, "other", "other-0", "300")); got != granted(2) {
		t.Fatal(got)
	}
	if got := m.login("unit-app-0").ask(claimText(2, "app", "app-0", "300")); got != granted(2) {
		t.Fatal(got)
	}
	controller := m.login("machine-0")
	if got := controller.ask(singularText(2, "model-"+testModel, "machine-0")); got != granted(2) {
		t.Fatal(got)
	}
	app, other, singular := m.login("unit-app-1"), m.login("unit-other-0"), m.login("machine-1")
	app.send(blockText(2, "app"))
	other.send(blockText(2, "other"))
	singular.send(`{"request-id":2,"type":"Singular","version":2,"request":"Wait","params":{"entities":[{"tag":"model-` + testModel + `"}]}}`)
	eventually(t, "three calls wait", func() bool { return m.group.Hub().Stats().Waiters == 3 })
	m.change(policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: auth.DoorPolicy, For: []string{"agent:other/*"}, Rules: []auth.Rule{
		{State: auth.Leases, Namespace: leadershipNamespace, Verbs: auth.Follow},
	}}})
	m.door.Rejudge()
	for name, c := range map[string]*client{"a unit": app, "a controller": singular} {
		if got := c.read(); !strings.Contains(got, `"code":"unauthorized access"`) {
			t.Errorf("%s is answered %s", name, got)
		}
	}
	if st := m.door.Stats(); st.Blocked != 1 {
		t.Errorf("%d wait, one may", st.Blocked)
	}
	m.free(nameOf(testModel, "other"))
	if got := other.read(); got != empty(2) {
		t.Errorf("who may wait is answered %s", got)
	}
}

// A wait that is between two attempts, as without a leader, finds out with the next
// one; the agent is not told that the holding has ended.
func TestG12_AWaitThatIsTriedAgainIsJudgedAnew(t *testing.T) {
	m := newMember(t, nil)
	c := m.login("unit-app-1")
	m.group.Refuse(true)
	c.send(blockText(2, "app"))
	eventually(t, "it is tried again", func() bool { return m.door.Stats().Retries > 0 })
	m.group.Do(policy.Command{Verb: policy.Set, Policy: auth.Policy{Name: auth.DoorPolicy, For: []string{"agent:nobody"}}})
	m.door.Rejudge()
	m.group.Refuse(false)
	if got := c.read(); !strings.Contains(got, `"code":"unauthorized access"`) {
		t.Errorf("it is answered %s", got)
	}
}

// An agent has so many connections to a model, and an address so many of all agents;
// what is over is told to come back, and when a connection ends there is room.
func TestQuotasOfConnections(t *testing.T) {
	m := newMember(t, nil, func(c *Config) {
		group := c.Engine
		c.Tally = tally.New(func() *settings.Values { return settings.Of(group.View()).Values() })
	})
	set := func(name string, value int64) {
		t.Helper()
		if r := m.group.Do(settings.Command{Name: name, Value: value}); r.Err != nil {
			t.Fatal(r.Err)
		}
	}
	login := func(model, tag string) (*client, string) {
		t.Helper()
		c, err := m.connect("/model/" + model + "/api")
		if err != nil {
			t.Fatal(err)
		}
		return c, c.ask(fmt.Sprintf(`{"request-id":1,"type":"Admin","version":3,"request":"Login","params":{"auth-tag":%q,"credentials":%[1]q}}`, tag))
	}
	set("quota.juju-connections@agent:app/0", 1)
	first := m.login("unit-app-0")
	second, got := login(testModel, "unit-app-0")
	if !strings.Contains(got, `"error-code":"try again"`) || !strings.Contains(got, "quota.juju-connections") {
		t.Errorf("a second connection: %s", got)
	}
	if _, got = login(otherModel, "unit-app-0"); strings.Contains(got, "error") {
		t.Errorf("another model: %s", got)
	}
	m.login("unit-app-1")
	set("quota.source.juju-connections@127.0.0.1", 3)
	if _, got = login(testModel, "unit-app-1"); !strings.Contains(got, "quota.source.juju-connections") {
		t.Errorf("a fourth of the address: %s", got)
	}
	first.conn.Close()
	eventually(t, "an end makes room", func() bool {
		_, got := login(testModel, "unit-app-0")
		return !strings.Contains(got, "error")
	})
	second.conn.Close()
	eventually(t, "it is counted", func() bool { return m.door.counts.logins[loginQuota].Load() > 0 })
}
