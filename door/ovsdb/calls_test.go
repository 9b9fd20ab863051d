package ovsdb

import (
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
)

// right is a verb on a kind of state.
type right struct {
	state auth.State
	verb  auth.Verbs
}

// rightOf is that of an action.
func rightOf(a auth.Action) right {
	state, verb := a.Needs()
	return right{state, verb}
}

// rule gives verbs on what tests use, or on what they do not.
func rule(s auth.State, v auth.Verbs, elsewhere bool) auth.Rule {
	r := auth.Rule{State: s, Verbs: v}
	switch s {
	case auth.Cluster, auth.Sessions:
		return r
	case auth.Leases:
		if r.Model = lockModel; elsewhere {
			r.Model = "default"
		}
	case auth.Tables:
		if r.Prefix = "T"; elsewhere {
			r.Prefix = "U"
		}
	}
	r.Namespace = "default"
	return r
}

var states = []auth.State{auth.Leases, auth.Sessions, auth.Keys, auth.Cluster, auth.Nodes, auth.Services, auth.Tables}

// only are rules that give these rights and nothing else.
func only(rights []right) (rules []auth.Rule) {
	for _, x := range rights {
		rules = append(rules, rule(x.state, x.verb, false))
	}
	return append(rules, rule(auth.Cluster, auth.See, false)) // a policy has a rule
}

// allBut are rules that give everything but one right, which they give elsewhere.
func allBut(x right) (rules []auth.Rule) {
	for _, s := range states {
		v := auth.AllVerbs
		if s == x.state {
			v &^= x.verb
			rules = append(rules, rule(s, x.verb, true))
		}
		rules = append(rules, rule(s, v, false))
	}
	return rules
}

// play is one call as an agent makes it.
type play struct {
	before [2]string // a call and its parameters, made first; "": none
	params string
	needs  []right // of a call that is judged by steps; else as its row says
	hides  string  // what it does not show without a right, for that is no refusal; "": it is refused
}

// plays are the calls of the door. A method may be made in several ways.
func plays() map[string][]play {
	look, change := []right{{auth.Tables, auth.See}}, []right{{auth.Tables, auth.Write}}
	both := []right{{auth.Tables, auth.See}, {auth.Tables, auth.Write}}
	none := play{params: `[]`}
	return map[string][]play{
		"echo": {none}, "get_server_id": {none}, "set_db_change_aware": {{params: `[true]`}}, "cancel": {{params: `[1]`}}, "monitor_cancel": {{params: `["m"]`}},
		"unlock":     {{params: `["l"]`}},
		"list_dbs":   {{params: `[]`, hides: `"T"`}},
		"get_schema": {{params: `["T"]`}},
		"transact": {
			{params: `["T",{"op":"select","table":"P","where":[]}]`, needs: look},
			{params: `["T",{"op":"wait","table":"P","timeout":0,"where":[],"columns":["name"],"until":"==","rows":[]}]`, needs: look},
			{params: `["T",{"op":"insert","table":"Q","row":{"n":1}}]`, needs: change},
			{params: `["T",{"op":"delete","table":"Q","where":[]}]`, needs: both},
			{params: `["T",{"op":"update","table":"Q","where":[],"row":{"n":2}}]`, needs: both},
			{params: `["T",{"op":"mutate","table":"Q","where":[],"mutations":[["n","+=",1]]}]`, needs: both},
			{params: `["T",{"op":"select","table":"P","where":[]},{"op":"delete","table":"Q","where":[]}]`, needs: both},
			{params: `["T",{"op":"insert","table":"Q","row":{"n":1}},{"op":"select","table":"P","where":[]}]`, needs: both},
		},
		"monitor":             {{params: `["T","m",{"P":{}}]`}},
		"monitor_cond":        {{params: `["T","m",{"P":{}}]`}},
		"monitor_cond_since":  {{params: `["T","m",{"P":{}},"00000000-0000-0000-0000-000000000000"]`}},
		"monitor_cond_change": {{before: [2]string{"monitor_cond", `["T","m",{"P":{}}]`}, params: `["m","n",{}]`, hides: `{}`}},
		"lock":                {{params: `["l"]`}},
		"steal":               {{params: `["l"]`, needs: []right{rightOf(calls.OvsdbSteal.Action()), rightOf(calls.OvsdbLock.Action())}}},
		"convert":             {{params: `["T",` + testSchema + `]`}},
	}
}

// Every row of the door is played by an agent with the right that it takes and nothing
// else, and with everything but that right.
func TestG12_EveryRowIsPlayedWithAndWithoutItsRight(t *testing.T) {
	g := startGuarded(t)
	all := plays()
	try := func(method string, p *play, rules []auth.Rule) string {
		t.Helper()
		g.let(rules...)
		c := g.as(agentOf("a"))
		defer c.conn.Close()
		if p.before[0] != "" {
			c.call(p.before[0], p.before[1])
		}
		return c.call(method, p.params)
	}
	for name, m := range methods {
		if len(all[name]) == 0 {
			t.Errorf("%s is not played", name)
		}
		for _, p := range all[name] {
			row, needs := m.call.Row(), p.needs
			if needs == nil && row.Judged == calls.Named {
				needs = []right{rightOf(row.Action)}
			}
			got := try(name, &p, only(needs))
			if strings.Contains(got, permission) || !strings.Contains(got, p.hides) {
				t.Errorf("%s %s with its right: %s", name, p.params, got)
			}
			if len(needs) == 0 && row.Judged != calls.Everyone && row.Judged != calls.Own {
				t.Errorf("%s %s takes no right", name, p.params)
			}
			for _, x := range needs {
				got := try(name, &p, allBut(x))
				if p.hides == "" {
					refused(t, name+" "+p.params+" without "+x.verb.String(), got)
				} else if strings.Contains(got, p.hides) {
					t.Errorf("%s %s without %v: %s", name, p.params, x.verb, got)
				}
			}
		}
	}
}
