package table

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

const roleSchema = `{"name":"Roles","version":"1.0.0","tables":{
"RBAC_Role":{"isRoot":true,"columns":{"name":{"type":"string"},
 "permissions":{"type":{"key":"string","value":{"type":"uuid","refTable":"RBAC_Permission","refType":"weak"},"min":0,"max":"unlimited"}}}},
"RBAC_Permission":{"isRoot":true,"columns":{"table":{"type":"string"},
 "authorization":{"type":{"key":"string","min":0,"max":"unlimited"}},
 "insert_delete":{"type":"boolean"},
 "update":{"type":{"key":"string","min":0,"max":"unlimited"}}}},
"Thing":{"isRoot":true,"columns":{"owner":{"type":"string"},"n":{"type":"integer"},"other":{"type":"integer"},
 "tags":{"type":{"key":"string","min":0,"max":"unlimited"}},
 "ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}},
"Closed":{"isRoot":true,"columns":{"n":{"type":"integer"}}}}}`

// as executes operations for a client with a role, and with such as policies give it, as
// [world.run] does.
func (w *world) as(role, client, ops string, roles ...string) string {
	c := w.parse(ops)
	c.Role, c.Client, c.Roles = role, client, roles
	v := w.s.View()
	r, idle := Of(v).Idling(v, c)
	if !idle {
		r = w.must(c)
	}
	o, ok := r.Record.(*Outcome)
	if !ok {
		w.t.Fatalf("%s answers %+v", ops, r)
	}
	return string(o.AppendJSON(nil, w.database().Schema))
}

// grant gives role "r" a permission for table Thing.
func (w *world) grant(authorization []string, insertDelete bool, update []string) {
	w.run(fmt.Sprintf(`{"op":"delete","table":"RBAC_Role","where":[]},{"op":"delete","table":"RBAC_Permission","where":[]},
{"op":"insert","table":"RBAC_Permission","uuid-name":"p","row":{"table":"Thing","authorization":%s,"insert_delete":%v,"update":%s}},
{"op":"insert","table":"RBAC_Role","row":{"name":"r","permissions":["map",[["Thing",["named-uuid","p"]]]]}}`, setOf(authorization), insertDelete, setOf(update)))
}

func setOf(list []string) string {
	if len(list) == 0 {
		return `["set",[]]`
	}
	return `["set",["` + strings.Join(list, `","`) + `"]]`
}

func TestRoles(t *testing.T) {
	const (
		insert  = `{"op":"insert","table":"Thing","row":{"owner":"nobody"}}`
		system  = `{"op":"insert","table":"Thing","row":{"ids":["map",[["system-id","host"]]]}}`
		update  = `{"op":"update","table":"Thing","where":[["owner","==","a"]],"row":{"n":5}}`
		both    = `{"op":"update","table":"Thing","where":[["owner","==","a"]],"row":{"n":5,"other":5}}`
		others  = `{"op":"update","table":"Thing","where":[["owner","==","b"]],"row":{"n":5}}`
		nothing = `{"op":"update","table":"Thing","where":[["owner","==","nobody"]],"row":{"n":5}}`
		mutate  = `{"op":"mutate","table":"Thing","where":[["owner","==","a"]],"mutations":[["n","+=",1]]}`
		remove  = `{"op":"delete","table":"Thing","where":[["owner","==","a"]]}`
		closed  = `{"op":"insert","table":"Closed","row":{}}`
		read    = `{"op":"select","table":"Closed","where":[],"columns":["n"]}`
	)
	denied := func(client, role, what, table string) string {
		return fmt.Sprintf(`[{"details":"RBAC rules for client \"%s\" role \"%s\" prohibit %s table \"%s\".","error":"permission error"}]`, client, role, what, table)
	}
	n := []string{"n"}
	for _, c := range []struct {
		name, role, client string
		authorization      []string
		insertDelete       bool
		update             []string
		ops, want          string // "": it is done
	}{
		{"root", "", "", nil, false, nil, update, ""},
		{"no certificate", "r", "", []string{""}, true, n, update, denied("(null)", "r", "modification of", "Thing")},
		{"no such role", "x", "a", []string{""}, true, n, update, denied("a", "x", "modification of", "Thing")},
		{"no permission for the table", "r", "a", []string{""}, true, n, closed, denied("a", "r", "row insertion into", "Closed")},
		{"reading", "r", "a", nil, false, nil, read, `[{"rows":[]}]`},
		{"own row", "r", "a", []string{"owner"}, false, n, update, ""},
		{"own row, mutated", "r", "a", []string{"owner"}, false, n, mutate, ""},
		{"a column too many", "r", "a", []string{"owner"}, false, n, both, denied("a", "r", "modification of", "Thing")},
		{"another's row", "r", "a", []string{"owner"}, false, n, others, denied("a", "r", "modification of", "Thing")},
		{"another's row, by all", "r", "a", []string{""}, false, n, others, ""},
		{"another's row, mutated", "r", "b", []string{"owner"}, false, n, mutate, denied("b", "r", "mutate operation on", "Thing")},
		{"no row", "r", "a", nil, false, n, nothing, `[{"count":0}]`},
		{"no row, a column too many", "r", "a", nil, false, nil, nothing, `[{"count":0}]`},
		{"no row, mutated, a column too many", "r", "a", nil, false, nil, `{"op":"mutate","table":"Thing","where":[["owner","==","nobody"]],"mutations":[["n","+=",1]]}`, `[{"count":0}]`},
		{"no row, in no role", "x", "a", nil, false, n, nothing, denied("a", "x", "modification of", "Thing")},
		{"key of a map", "r", "host", []string{"ids:system-id"}, false, n, update, ""},
		{"another key of a map", "r", "host", []string{"ids:system"}, false, n, update, denied("host", "r", "modification of", "Thing")},
		{"no key of a map", "r", "host", []string{"ids:"}, false, n, update, denied("host", "r", "modification of", "Thing")},
		{"a set is nobody's name", "r", "tag", []string{"tags"}, false, n, update, denied("tag", "r", "modification of", "Thing")},
		{"no such column", "r", "a", []string{"nix", "owner"}, false, n, update, ""},
		{"insert", "r", "nobody", []string{"owner"}, true, nil, insert, ""},
		{"insert for another", "r", "a", []string{"owner"}, true, nil, insert, denied("a", "r", "row insertion into", "Thing")},
		{"insert by all", "r", "a", []string{""}, true, nil, insert, ""},
		{"insert by nobody", "r", "nobody", nil, true, nil, insert, denied("nobody", "r", "row insertion into", "Thing")},
		{"insert by a key of a map", "r", "host", []string{"ids:system-id"}, true, nil, system, ""},
		{"insert by another key of a map", "r", "host", []string{"ids:system"}, true, nil, system, denied("host", "r", "row insertion into", "Thing")},
		{"no insert", "r", "a", []string{""}, false, n, insert, denied("a", "r", "row insertion into", "Thing")},
		{"delete", "r", "a", []string{"owner"}, true, nil, remove, ""},
		{"delete another's", "r", "b", []string{"owner"}, true, nil, remove, denied("b", "r", "row deletion from", "Thing")},
		{"no delete", "r", "a", []string{"owner"}, false, nil, remove, denied("a", "r", "row deletion from", "Thing")},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, roleSchema)
			w.run(`{"op":"insert","table":"Thing","row":{"owner":"a","tags":["set",["tag"]],"ids":["map",[["system-id","host"]]]}},
{"op":"insert","table":"Thing","row":{"owner":"b"}}`)
			w.grant(c.authorization, c.insertDelete, c.update)
			got := w.as(c.role, c.client, c.ops)
			if c.want == "" && strings.Contains(got, "error") || c.want != "" && got != c.want {
				t.Fatalf("it answers %s, want %s", got, c.want)
			}
		})
	}
}

// The roles that policies give bind besides the one of where a client connects: an
// operation has to be within that one, and within one of them.
func TestG12_RolesOfPolicies(t *testing.T) {
	const (
		insert  = `{"op":"insert","table":"Thing","row":{"owner":"a"}}`
		unowned = `{"op":"insert","table":"Thing","row":{}}`
		update  = `{"op":"update","table":"Thing","where":[["owner","==","a"]],"row":{"n":5}}`
		other   = `{"op":"update","table":"Thing","where":[["owner","==","a"]],"row":{"other":5}}`
		two     = `{"op":"update","table":"Thing","where":[["owner","==","a"]],"row":{"n":5,"other":5}}`
		others  = `{"op":"update","table":"Thing","where":[["owner","==","b"]],"row":{"n":5}}`
		all     = `{"op":"delete","table":"Thing","where":[]}`
		closed  = `{"op":"insert","table":"Closed","row":{}}`
		read    = `{"op":"select","table":"Thing","where":[],"columns":["n"]}`
	)
	w := newWorld(t, roleSchema)
	w.run(`{"op":"insert","table":"Thing","row":{"owner":"a"}},{"op":"insert","table":"Thing","row":{"owner":"b"}},
{"op":"insert","table":"RBAC_Permission","uuid-name":"n","row":{"authorization":"owner","update":"n"}},
{"op":"insert","table":"RBAC_Permission","uuid-name":"o","row":{"authorization":"owner","update":"other","insert_delete":true}},
{"op":"insert","table":"RBAC_Role","row":{"name":"n","permissions":["map",[["Thing",["named-uuid","n"]]]]}},
{"op":"insert","table":"RBAC_Role","row":{"name":"o","permissions":["map",[["Thing",["named-uuid","o"]]]]}}`)
	for _, c := range []struct {
		name, role, client string
		roles              []string
		ops                string
		denies             string // the role; "": it is done
	}{
		{"none", "", "a", nil, all, ""},
		{"one", "", "a", []string{"n"}, update, ""},
		{"another column", "", "a", []string{"n"}, other, "n"},
		{"another's row", "", "a", []string{"n"}, others, "n"},
		{"no insert", "", "a", []string{"n"}, insert, "n"},
		{"an insert", "", "a", []string{"o"}, insert, ""},
		{"an insert of what is not its own", "", "a", []string{"o"}, unowned, "o"},
		{"rows of all", "", "a", []string{"n", "o"}, all, "n"},
		{"another table", "", "a", []string{"n", "o"}, closed, "n"},
		{"reading", "", "a", []string{"none"}, read, ""},
		{"no such role", "", "a", []string{"none"}, update, "none"},
		{"no certificate", "", "", []string{"n"}, update, "n"},
		{"either", "", "a", []string{"n", "o"}, other, ""},
		{"each by another", "", "a", []string{"n", "o"}, update + "," + other, ""},
		{"an operation by two", "", "a", []string{"n", "o"}, two, "n"},
		{"both", "n", "a", []string{"n"}, update, ""},
		{"not by the listener", "o", "a", []string{"n"}, update, "o"},
		{"not by the policies", "n", "a", []string{"o"}, update, "o"},
		{"the listener, and either", "o", "a", []string{"n", "o"}, other, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			again := restoredWorld(t, w.snapshot())
			again.db, again.n = w.db, w.n
			got := again.as(c.role, c.client, c.ops, c.roles...)
			if c.denies == "" && strings.Contains(got, "error") || c.denies != "" && (!strings.Contains(got, "permission error") || !strings.Contains(got, `role \"`+c.denies+`\"`)) {
				t.Fatalf("it answers %s", got)
			}
		})
	}
}

// A database without roles, or without permissions, restricts nobody for where it
// connects, and lets nothing be changed within a role of a policy.
func TestG12_DatabasesWithoutRoles(t *testing.T) {
	const insert = `{"op":"insert","table":"Closed","row":{}}`
	for schema, tt := range map[string]struct{ listener, policy bool }{
		`{"name":"None","version":"1.0.0","tables":{"Closed":{"columns":{"n":{"type":"integer"}}}}}`: {true, false},
		`{"name":"Half","version":"1.0.0","tables":{"Closed":{"columns":{"n":{"type":"integer"}}},"RBAC_Role":{"isRoot":true,"columns":{"name":{"type":"string"},
"permissions":{"type":{"key":"string","value":"uuid","min":0,"max":"unlimited"}}}}}}`: {false, false},
	} {
		w := newWorld(t, schema)
		if !tt.listener {
			w.run(`{"op":"insert","table":"RBAC_Role","row":{"name":"r","permissions":["map",[["Closed",["uuid","` + fixedID + `"]]]]}}`)
		}
		for _, op := range []string{insert, `{"op":"update","table":"Closed","where":[],"row":{"n":1}}`, `{"op":"delete","table":"Closed","where":[]}`} {
			if got := w.as("r", "a", op); strings.Contains(got, "permission error") == tt.listener {
				t.Errorf("%s of the listener's role in %s: %s", op, w.db, got)
			}
			if got := w.as("", "a", op, "r"); strings.Contains(got, "permission error") == tt.policy {
				t.Errorf("%s of a policy's role in %s: %s", op, w.db, got)
			}
		}
	}
}

// Who does not know of roles of policies refuses a transaction with them; one without is
// what it was.
func TestG49_TransactionsWithRolesNeedTheirSchema(t *testing.T) {
	w := newWorld(t, roleSchema)
	c := w.parse(`{"op":"insert","table":"Thing","row":{}}`)
	c.Client = "a"
	if got := core.RequiredSchema(c.Encode(core.Meta{})); got != schemaVersion {
		t.Errorf("without a role it needs schema %d", got)
	}
	for _, c.Roles = range [][]string{{"r"}, {"r", "s"}} {
		if got := core.RequiredSchema(c.Encode(core.Meta{})); got != core.RoleSchema {
			t.Errorf("with roles %q it needs schema %d", c.Roles, got)
		}
		var got command
		if b := (&command{verb: verbTransact, namespace: "n", name: "T", roles: c.Roles}).encodeBody(nil); got.read(b) != nil || !slices.Equal(got.roles, c.Roles) {
			t.Errorf("roles %q are read as %q", c.Roles, got.roles)
		}
	}
	for what, roles := range map[string][]string{
		"root": {"r", RootRole}, "a long name": {strings.Repeat("r", MaxNameBytes+1)}, "too many": slices.Repeat([]string{"r"}, MaxRoles+1),
	} {
		c.Roles = roles
		if r, _ := w.apply(c); r.Err == nil || r.Err.Kind != incumbent.Invalid {
			t.Errorf("%s: %+v", what, r)
		}
	}
}

// A row in another's name is inserted within a role for as long as a member would insert
// it: the log says what all of them do.
func TestG49_InsertsAreOnesOwnOnceAllMembersSayThat(t *testing.T) {
	w := newWorld(t, roleSchema)
	w.grant([]string{"owner"}, true, nil)
	const insert = `{"op":"insert","table":"Thing","row":{"owner":"b"}}`
	const nothing = `{"op":"update","table":"Thing","where":[["owner","==","nobody"]],"row":{"n":5}}`
	for _, schema := range []uint32{rowSchema - 1, rowSchema} {
		w.must(core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: schema}})
		if got := w.as("r", "a", insert); strings.Contains(got, "permission error") != (schema == rowSchema) {
			t.Errorf("with members of schema %d: %s", schema, got)
		}
		if got := w.as("r", "a", nothing); strings.Contains(got, "permission error") == (schema == rowSchema) {
			t.Errorf("no row, with members of schema %d: %s", schema, got)
		}
	}
}

// What is judged is the state that the log has by then, and what operations of the same
// transaction have made of it.
func TestRolesAreJudgedInOrder(t *testing.T) {
	w := newWorld(t, roleSchema)
	w.run(`{"op":"insert","table":"Thing","row":{"owner":"a"}}`)
	w.grant([]string{"owner"}, true, []string{"n", "owner"})
	c := w.parse(`{"op":"update","table":"Thing","where":[["owner","==","a"]],"row":{"n":1}}`)
	c.Role, c.Client = "r", "a"
	if _, idle := w.view().Idling(w.s.View(), c); idle {
		t.Fatal("a change that is allowed is answered without the log")
	}
	w.grant([]string{"owner"}, true, nil)
	r := w.must(c)
	if o, ok := r.Record.(*Outcome); !ok || !o.Failed || o.Results[0].Err == nil || o.Results[0].Err.Name != "permission error" {
		t.Fatalf("a change whose permission has ended answers %+v", r.Record)
	}
	w.grant([]string{"owner"}, true, []string{"n", "owner"})
	got := w.as("r", "a", `{"op":"update","table":"Thing","where":[["owner","==","a"]],"row":{"owner":"b"}},{"op":"delete","table":"Thing","where":[]}`)
	if !strings.Contains(got, `[{"count":1},{"details":"RBAC`) {
		t.Fatalf("deleting what was given away answers %s", got)
	}
	if !strings.Contains(w.run(`{"op":"select","table":"Thing","where":[],"columns":["owner"]}`), `"a"`) {
		t.Fatal("a transaction that is denied leaves something behind")
	}
}

// TestRolesModel plays random grants and operations beside the rules as a list.
func TestRolesModel(t *testing.T) {
	names := rapid.SampledFrom([]string{"a", "b", "c"})
	columns := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"n", "other", "owner"}), rapid.ID[string])
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, roleSchema)
		var things []string // their owners
		for range rapid.IntRange(0, 4).Draw(t, "things") {
			things = append(things, names.Draw(t, "owner"))
			w.run(`{"op":"insert","table":"Thing","row":{"owner":"` + things[len(things)-1] + `"}}`)
		}
		authorization := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"", "owner", "n", "nix"}), rapid.ID[string]).Draw(t, "authorization")
		insertDelete, update := rapid.Bool().Draw(t, "insert_delete"), columns.Draw(t, "update")
		w.grant(authorization, insertDelete, update)
		role, client := rapid.SampledFrom([]string{"", "r", "r", "r", "x"}).Draw(t, "role"), names.Draw(t, "client")
		of := names.Draw(t, "of")
		changed := columns.Filter(func(l []string) bool { return len(l) > 0 }).Draw(t, "changed")

		none, mine := !slices.Contains(things, of), true // of the rows that the operation matches
		for _, owner := range things {
			all, own := slices.Contains(authorization, ""), slices.Contains(authorization, "owner") && owner == client
			mine = mine && (owner != of || all || own)
		}
		within := !slices.ContainsFunc(changed, func(c string) bool { return !slices.Contains(update, c) })
		values := map[string]string{"n": "7", "other": "8", "owner": `"z"`}
		var row, mutations []string
		for _, c := range changed {
			row = append(row, `"`+c+`":`+values[c])
			if c != "owner" {
				mutations = append(mutations, `["`+c+`","+=",1]`)
			}
		}
		op, may := "", false
		switch rapid.SampledFrom([]string{"insert", "update", "mutate", "delete"}).Draw(t, "op") {
		case "insert":
			all, own := slices.Contains(authorization, ""), slices.Contains(authorization, "owner") && of == client
			op, may = `{"op":"insert","table":"Thing","row":{"owner":"`+of+`"}}`, insertDelete && (all || own)
		case "update":
			op, may = `{"op":"update","table":"Thing","where":[["owner","==","`+of+`"]],"row":{`+strings.Join(row, ",")+`}}`, none || within && mine
		case "mutate":
			within = !slices.ContainsFunc(changed, func(c string) bool { return c != "owner" && !slices.Contains(update, c) })
			op, may = `{"op":"mutate","table":"Thing","where":[["owner","==","`+of+`"]],"mutations":[`+strings.Join(mutations, ",")+`]}`, none || within && mine
		case "delete":
			op, may = `{"op":"delete","table":"Thing","where":[["owner","==","`+of+`"]]}`, insertDelete && mine
		}
		roles := rapid.SliceOfDistinct(rapid.SampledFrom([]string{"r", "x", "y"}), rapid.ID[string]).Draw(t, "roles of policies")
		may = (role == "" || role == "r" && may) && (len(roles) == 0 || slices.Contains(roles, "r") && may)
		if got := w.as(role, client, op, roles...); strings.Contains(got, "permission error") == may || strings.Contains(got, "error") == may {
			t.Fatalf("%s of role %q and %q answers %s; allowed: %v", op, role, roles, got, may)
		}
	})
}
