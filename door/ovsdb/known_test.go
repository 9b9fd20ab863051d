package ovsdb

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/table"
)

// names are the databases that an answer about the server's own one names.
func names(answer string) (out []string) {
	for _, m := range regexp.MustCompile(`"name":"([^"]*)","schema"`).FindAllStringSubmatch(answer, -1) {
		out = append(out, m[1])
	}
	slices.Sort(out)
	return out
}

func wantNames(tb testing.TB, what, answer string, want ...string) {
	tb.Helper()
	if got := names(answer); !slices.Equal(got, want) {
		tb.Errorf("%s: %q, want %q, in %s", what, got, want, answer)
	}
}

const (
	serverColumns = `"columns":["name","schema"]`
	serverRows    = `["_Server",{"op":"select","table":"Database","where":[],` + serverColumns + `}]`
	serverMonitor = `["_Server","s",{"Database":{` + serverColumns + `}}]`
)

// define makes a database.
func (m *member) define(name string) {
	m.tb.Helper()
	s := strings.Replace(testSchema, `"name":"T"`, `"name":"`+name+`"`, 1)
	if r := m.group.Do(&table.Define{Namespace: "default", Schema: []byte(s)}); r.Err != nil {
		m.tb.Fatal(r.Err)
	}
}

// Who may do nothing to a database is not told that it is there: neither by what the
// server says of itself, nor by how a request is refused.
func TestG12_WhoMayDoNothingToADatabaseIsNotToldOfIt(t *testing.T) {
	g := startGuarded(t)
	for verb, known := range map[auth.Verbs]bool{auth.See: true, auth.Follow: true, auth.Write: true, auth.Administer: true, auth.ReleaseOthers: false} {
		g.let(tableRule(verb), auth.Rule{State: auth.Keys, Namespace: "default", Verbs: auth.AllVerbs})
		g.define("U")
		c, want := g.as(agentOf("a")), []string{"_Server"}
		if known {
			want = []string{"T", "_Server"}
		}
		wantNames(t, verb.String()+", a look", c.call("transact", serverRows), want...)
		for _, method := range []string{"monitor", "monitor_cond"} {
			wantNames(t, verb.String()+", "+method, c.call(method, strings.Replace(serverMonitor, `"s"`, `"`+method+`"`, 1)), want...)
		}
		by := strings.Replace(serverMonitor, serverColumns, serverColumns+`,"where":[["name","==","T"],["name","==","U"],["name","includes","T"]]`, 1)
		const forT = `["_Server",{"op":"wait","timeout":0,"table":"Database","where":[["name","==","T"]],"columns":["name"],"until":"!=","rows":[]}]`
		if holds := c.call("transact", forT) == `[{}]`; holds != known {
			t.Errorf("%v: a wait for T holds: %v", verb, holds)
		}
		wantNames(t, verb.String()+", by names", c.call("monitor_cond", by), want[:len(want)-1]...)
	}
	wantNames(t, "an operator", g.as(operatorO()).call("transact", serverRows), "T", "U", "_Server")

	g.let(tableRule(auth.ReleaseOthers))
	c := g.as(agentOf("nobody"))
	for _, x := range [][2]string{
		{"get_schema", `["NAME"]`},
		{"convert", `["NAME",` + testSchema + `]`},
		{"monitor", `["NAME","m",{"P":{}}]`},
		{"monitor_cond", `["NAME","m",{"R":{}}]`},
		{"monitor_cond_since", `["NAME","m",{"P":{}},"00000000-0000-0000-0000-000000000000"]`},
		{"transact", `["NAME"]`},
		{"transact", `["NAME",7]`},
		{"transact", `["NAME",{"op":"select","table":"P","where":[]}]`},
		{"transact", `["NAME",{"op":"select","table":"R","where":[]}]`},
		{"transact", `["NAME",{"op":"insert","table":"P","row":{"none":1}}]`},
		{"transact", `["NAME",{"op":"comment","comment":"x"}]`},
		{"transact", `["NAME",{"op":"assert","lock":"x"}]`},
		{"transact", `["NAME",{"op":"wait","table":"P","timeout":0,"where":[],"columns":["name"],"until":"==","rows":[]}]`},
	} {
		there := c.call(x[0], strings.ReplaceAll(x[1], "NAME", "T"))
		refused(t, x[0]+" "+x[1], there)
		not := c.call(x[0], strings.ReplaceAll(x[1], "NAME", "V"))
		if there = strings.ReplaceAll(there, ":T", ":V"); there != not {
			t.Errorf("%s %s: of what is there %s, of what is not %s", x[0], x[1], there, not)
		}
	}
}

// What is told of databases follows what is there, and the policies; who may know of
// others is told of others, though all ask for the same.
func TestG12_WhatTheServerTellsOfItselfFollowsThePolicies(t *testing.T) {
	g := startGuarded(t)
	g.let(tableRule(auth.See))
	var few []*client
	for _, method := range []string{"monitor", "monitor_cond", "monitor_cond_since"} {
		params := serverMonitor
		if method == "monitor_cond_since" {
			params = strings.TrimSuffix(params, "]") + `,"00000000-0000-0000-0000-000000000000"]`
		}
		c := g.as(agentOf("a"))
		wantNames(t, method, c.call(method, params), "T", "_Server")
		few = append(few, c)
	}
	all := g.as(operatorO())
	wantNames(t, "an operator", all.call("monitor_cond", serverMonitor), "T", "_Server")
	g.define("U")
	g.tick(1)
	wantNames(t, "an operator", all.read(), "U")
	for _, c := range few {
		want(t, "nothing of others", c.call("echo", `[]`), `[]`)
	}
	g.let(tableRule(auth.See), auth.Rule{State: auth.Tables, Namespace: "default", Prefix: "U", Verbs: auth.Write})
	for _, c := range few {
		wantNames(t, "what may be known from now on", c.read(), "U")
	}
	g.let(auth.Rule{State: auth.Tables, Namespace: "default", Prefix: "U", Verbs: auth.Write})
	for i, c := range few {
		got := c.read()
		if c := strings.Count(got, `"old"`) + strings.Count(got, `"delete"`); c != 1 || i == 0 && !strings.Contains(got, `"name":"T"`) {
			t.Errorf("what may not be known from now on: %s", got)
		}
	}
	want(t, "an operator", all.call("echo", `[]`), `[]`)
	all.until("each monitor is counted once", func() bool { return g.door.Stats().Monitors == 4 })
}

// A monitor whose conditions become what they were is still one.
func TestMonitorsAreCountedOnce(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	want(t, "the monitor", c.call("monitor_cond", monitorT), `{}`)
	want(t, "a change", c.call("monitor_cond_change", `["m","m",{"P":[{"where":[]}]}]`), `{}`)
	want(t, "another", c.call("monitor_cond_change", `["m","m",{"P":[{"where":[false]}]}]`), `{}`)
	if n := m.door.Stats().Monitors; n != 1 {
		t.Errorf("%d are counted", n)
	}
}
