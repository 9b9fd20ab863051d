package ovsdb

import (
	"strconv"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/table"
)

// The database has a role "r", within which a client changes the n of its own rows.
const roledSchema = `{"name":"T","version":"1.0.0","tables":{
"RBAC_Role":{"isRoot":true,"columns":{"name":{"type":"string"},
 "permissions":{"type":{"key":"string","value":{"type":"uuid","refTable":"RBAC_Permission","refType":"weak"},"min":0,"max":"unlimited"}}}},
"RBAC_Permission":{"isRoot":true,"columns":{"table":{"type":"string"},
 "authorization":{"type":{"key":"string","min":0,"max":"unlimited"}},"insert_delete":{"type":"boolean"},
 "update":{"type":{"key":"string","min":0,"max":"unlimited"}}}},
"P":{"isRoot":true,"columns":{"name":{"type":"string"},"n":{"type":"integer"},"other":{"type":"integer"}}},
"Q":{"isRoot":true,"columns":{"n":{"type":"integer"}}}}}`

const roledRows = `["T",{"op":"insert","table":"RBAC_Permission","uuid-name":"p","row":{"table":"P","authorization":"name","update":"n"}},
{"op":"insert","table":"RBAC_Role","row":{"name":"r","permissions":["map",[["P",["named-uuid","p"]]]]}},
{"op":"insert","table":"P","row":{"name":"a"}},{"op":"insert","table":"P","row":{"name":"b"}}]`

func startRoled(t *testing.T) *guarded {
	t.Helper()
	g := &guarded{guests: &guests{who: operatorO()}, records: &records{}}
	g.member = startMember(t, func(c *Config) {
		c.Schemas, c.Guard, c.Audit = [][]byte{[]byte(roledSchema)}, g.guests, g.records.note
	})
	if got := g.as(operatorO()).call("transact", roledRows); strings.Contains(got, "error") {
		t.Fatal(got)
	}
	return g
}

// certified is a connection of somebody whose certificate was made out for their name.
func (g *guarded) certified(p auth.Principal) *client {
	g.tb.Helper()
	c := g.as(p)
	g.tasks(p.Name, func(x *conn) { x.who.name = p.Name })
	return c
}

// tasks has something done on the connections of somebody.
func (g *guarded) tasks(name string, f func(*conn)) {
	for _, x := range g.door.conns.All() {
		if x.who.principal.Name == name {
			done := make(chan struct{})
			if x.do(func() { f(x); close(done) }) {
				<-done
			}
		}
	}
}

// inRole is a rule that lets rows be changed within a role.
func inRole(role string, v auth.Verbs) auth.Rule {
	r := tableRule(v | auth.WriteInRole)
	r.Role = role
	return r
}

func setN(name string, n int) string {
	return `["T",{"op":"update","table":"P","where":[["name","==","` + name + `"]],"row":{"n":` + strconv.Itoa(n) + `}}]`
}

// refusedByRole fails unless an answer is that a role does not allow something.
func refusedByRole(tb testing.TB, what, role, got string) {
	tb.Helper()
	if !strings.Contains(got, permission) || !strings.Contains(got, `role \"`+role+`\"`) {
		tb.Errorf("%s: %s", what, got)
	}
}

const one = `[{"count":1}]`

// Roles of policies are those of principals, at one listener: each keeps within its own,
// as soon as the policies say so, on connections that are open, too.
func TestG12_RolesOfPoliciesBindPrincipals(t *testing.T) {
	g := startRoled(t)
	north := auth.Rule{State: auth.Tables, Namespace: "default", Prefix: "T", Verbs: auth.See | auth.Write}
	g.let(inRole("r", auth.See))
	a, b, o := g.certified(agentOf("a")), g.certified(agentOf("b")), g.as(operatorO())
	plain := g.as(agentOf("c")) // shows no certificate
	want(t, "its own row", a.call("transact", setN("a", 1)), one)
	want(t, "its own row", b.call("transact", setN("b", 1)), one)
	refusedByRole(t, "another's row", "r", a.call("transact", setN("b", 2)))
	refusedByRole(t, "who has no certificate", "r", plain.call("transact", setN("c", 2)))
	refusedByRole(t, "another column", "r", a.call("transact", `["T",{"op":"update","table":"P","where":[["name","==","a"]],"row":{"other":1}}]`))
	refusedByRole(t, "a new row", "r", a.call("transact", `["T",{"op":"insert","table":"Q","row":{}}]`))
	refused(t, "another schema", a.call("convert", `["T",`+roledSchema+`]`))
	want(t, "an operator", o.call("transact", setN("b", 3)), one)

	g.let(north)
	want(t, "who may write all", a.call("transact", setN("b", 4)), one)
	g.let(inRole("none", auth.See))
	refusedByRole(t, "a role that is not there", "none", a.call("transact", setN("a", 5)))
	g.let(inRole("none", auth.See), inRole("r", 0))
	want(t, "one of two roles", a.call("transact", setN("a", 6)), one)
	g.let(inRole("r", auth.See), north)
	want(t, "a role, and all", a.call("transact", setN("b", 7)), one)
	g.let(tableRule(auth.See))
	refused(t, "who may only look", a.call("transact", setN("a", 8)))
	want(t, "what is denied by a policy is recorded, what by a role is not", strings.Join(g.records.denied(), ", "), "table_define default:T, table_write default:T")
}

// A listener's role binds besides: both have to allow a change.
func TestG12_RolesOfListenersBindBesides(t *testing.T) {
	g := startRoled(t)
	g.let(inRole("r", auth.See))
	a := g.certified(agentOf("a"))
	listener := func(role string) {
		g.tasks("a", func(x *conn) { x.who.remote.Set(Options{Role: role}) })
	}
	for role, may := range map[string]bool{"": true, "r": true, "other": false} {
		listener(role)
		if got := a.call("transact", setN("a", 1)); (got == one) != may || !may && !strings.Contains(got, `role \"other\"`) {
			t.Errorf("role %q of the listener: %s", role, got)
		}
	}
	listener("r")
	g.let(inRole("other", auth.See))
	refusedByRole(t, "what the listener alone allows", "other", a.call("transact", setN("a", 2)))
	g.let(tableRule(auth.See | auth.Write))
	want(t, "what the listener allows who may write all", a.call("transact", setN("a", 3)), one)
	refusedByRole(t, "what it does not", "r", a.call("transact", setN("b", 3)))
}

// What a policy lets write in a role when it is asked for, and by another, or in no role,
// before it comes to its place in the log, is executed as the new one says.
func TestG12_RolesUnderWayFollowThePolicies(t *testing.T) {
	for name, tt := range map[string]struct {
		before, after auth.Rule
		may           bool
	}{
		"of all, then in a role":   {tableRule(auth.See | auth.Write), inRole("none", auth.See), false},
		"in a role, then another":  {inRole("r", auth.See), inRole("none", auth.See), false},
		"in another, then a role":  {inRole("none", auth.See), inRole("r", auth.See), true},
		"in a role, then of all":   {inRole("none", auth.See), tableRule(auth.See | auth.Write), true},
		"in a role, then the same": {inRole("r", auth.See), inRole("r", auth.See|auth.Follow), true},
	} {
		t.Run(name, func(t *testing.T) {
			g := startRoled(t)
			g.let(tt.before)
			a := g.certified(agentOf("a"))
			g.group.Hold()
			a.write(ask("7", "transact", setN("a", 1)) + ask("8", "echo", `[]`))
			want(t, "it is under way", a.read(), `{"error":null,"id":8,"result":[]}`)
			g.let(tt.after)
			g.group.Release()
			got := a.answer()
			if (got == one) != tt.may || !tt.may && !strings.Contains(got, permission) {
				t.Errorf("it is answered %s", got)
			}
		})
	}
}

// Every call with the right to write within a role in the place of that to write: changes
// of rows are what the role does not allow, all else is as it was.
func TestG12_EveryRowIsPlayedWithinARole(t *testing.T) {
	g := startGuarded(t)
	all := plays()
	for name := range methods {
		for _, p := range all[name] {
			needs, writes := p.needs, false
			if row := methods[name].call.Row(); needs == nil && row.Judged == calls.Named {
				needs = []right{rightOf(row.Action)}
			}
			rules := []auth.Rule{inRole("r", 0)}
			for _, x := range needs {
				if x == (right{auth.Tables, auth.Write}) {
					writes = true
				} else {
					rules = append(rules, rule(x.state, x.verb, false))
				}
			}
			g.let(rules...)
			c := g.certified(agentOf("a"))
			if p.before[0] != "" {
				c.call(p.before[0], p.before[1])
			}
			switch got := c.call(name, p.params); {
			case writes:
				refusedByRole(t, name+" "+p.params, "r", got)
			case strings.Contains(got, permission) || !strings.Contains(got, p.hides):
				t.Errorf("%s %s: %s", name, p.params, got)
			}
			c.conn.Close()
		}
	}
}

// Whoever may write within a role knows of the database.
func TestG12_WhoHasARoleKnowsOfTheDatabase(t *testing.T) {
	g := startRoled(t)
	g.let(inRole("r", 0))
	c := g.certified(agentOf("a"))
	wantNames(t, "by the server's database", c.call("transact", serverRows), "T", "_Server")
	refused(t, "but may not look", c.call("transact", `["T",{"op":"select","table":"P","where":[]}]`))
	refused(t, "nor be told by what it changes", c.call("transact", setN("a", 1)))
}

// The limits of policies are those of transactions.
func TestLimitsOfRolesAgree(t *testing.T) {
	if auth.MaxRoles != table.MaxRoles || auth.MaxRoleBytes != table.MaxNameBytes {
		t.Errorf("%d roles of %d bytes, a transaction takes %d of %d", auth.MaxRoles, auth.MaxRoleBytes, table.MaxRoles, table.MaxNameBytes)
	}
}
