package table

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
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

// as executes operations for a client with a role, as [world.run] does.
func (w *world) as(role, client, ops string) string {
	c := w.parse(ops)
	c.Role, c.Client = role, client
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
		{"key of a map", "r", "host", []string{"ids:system-id"}, false, n, update, ""},
		{"another key of a map", "r", "host", []string{"ids:system"}, false, n, update, denied("host", "r", "modification of", "Thing")},
		{"no key of a map", "r", "host", []string{"ids:"}, false, n, update, denied("host", "r", "modification of", "Thing")},
		{"a set is nobody's name", "r", "tag", []string{"tags"}, false, n, update, denied("tag", "r", "modification of", "Thing")},
		{"no such column", "r", "a", []string{"nix", "owner"}, false, n, update, ""},
		{"insert", "r", "a", nil, true, nil, insert, ""},
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

// A database without roles restricts nobody, one without permissions allows nothing.
func TestG12_DatabasesWithoutRoles(t *testing.T) {
	const insert = `{"op":"insert","table":"Closed","row":{}}`
	for schema, may := range map[string]bool{
		`{"name":"None","version":"1.0.0","tables":{"Closed":{"columns":{"n":{"type":"integer"}}}}}`: true,
		`{"name":"Half","version":"1.0.0","tables":{"Closed":{"columns":{"n":{"type":"integer"}}},"RBAC_Role":{"isRoot":true,"columns":{"name":{"type":"string"},
"permissions":{"type":{"key":"string","value":"uuid","min":0,"max":"unlimited"}}}}}}`: false,
	} {
		w := newWorld(t, schema)
		if !may {
			w.run(`{"op":"insert","table":"RBAC_Role","row":{"name":"r","permissions":["map",[["Closed",["uuid","` + fixedID + `"]]]]}}`)
		}
		for _, op := range []string{insert, `{"op":"update","table":"Closed","where":[],"row":{"n":1}}`, `{"op":"delete","table":"Closed","where":[]}`} {
			if got := w.as("r", "a", op); strings.Contains(got, "permission error") == may {
				t.Errorf("%s in %s: %s", op, w.db, got)
			}
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

		mine := true // all rows that the operation matches
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
			op, may = `{"op":"insert","table":"Thing","row":{}}`, insertDelete
		case "update":
			op, may = `{"op":"update","table":"Thing","where":[["owner","==","`+of+`"]],"row":{`+strings.Join(row, ",")+`}}`, within && mine
		case "mutate":
			within = !slices.ContainsFunc(changed, func(c string) bool { return c != "owner" && !slices.Contains(update, c) })
			op, may = `{"op":"mutate","table":"Thing","where":[["owner","==","`+of+`"]],"mutations":[`+strings.Join(mutations, ",")+`]}`, within && mine
		case "delete":
			op, may = `{"op":"delete","table":"Thing","where":[["owner","==","`+of+`"]]}`, insertDelete && mine
		}
		may = role == "" || role == "r" && may
		if got := w.as(role, client, op); strings.Contains(got, "permission error") == may || strings.Contains(got, "error") == may {
			t.Fatalf("%s answers %s; allowed: %v", op, got, may)
		}
	})
}
