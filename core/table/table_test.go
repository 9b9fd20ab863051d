package table

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"runtime"
	"strings"
	"testing"
	pointer "weak"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// fatal is what testing and rapid have in common.
type fatal interface{ Fatalf(string, ...any) }

// testSchema has a root with a unique index and both kinds of references, leaves that
// only live while they are referred to, and a table of at most three rows.
const testSchema = `{"name":"Test","version":"1.0.0","tables":{
"Root":{"isRoot":true,"indexes":[["name"]],"columns":{
 "name":{"type":"string"},
 "number":{"type":"integer"},
 "fixed":{"type":"string","mutable":false},
 "leaves":{"type":{"key":{"type":"uuid","refTable":"Leaf"},"min":0,"max":"unlimited"}},
 "peers":{"type":{"key":{"type":"uuid","refTable":"Root","refType":"weak"},"min":0,"max":"unlimited"}},
 "must":{"type":{"key":{"type":"uuid","refTable":"Few","refType":"weak"},"min":0,"max":1}},
 "ids":{"type":{"key":"string","value":"string","min":0,"max":"unlimited"}}}},
"Needs":{"isRoot":true,"columns":{"few":{"type":{"key":{"type":"uuid","refTable":"Few","refType":"weak"},"min":1,"max":2}}}},
"Leaf":{"columns":{"value":{"type":"integer"},
 "next":{"type":{"key":{"type":"uuid","refTable":"Leaf"},"min":0,"max":1}}}},
"Few":{"isRoot":true,"maxRows":3,"columns":{"value":{"type":"integer"}}}}}`

// world is a state with the database of a schema.
type world struct {
	t  fatal
	s  *core.State
	db string
	n  uint64 // uuids that were chosen
}

func newWorld(t fatal, schema string) *world {
	w := &world{t: t, s: core.New(leases.Family{}, Family{})}
	w.must(&Define{Namespace: "default", Schema: []byte(schema)})
	w.view().All(func(d *Database) bool {
		w.db = d.Name
		return false
	})
	return w
}

func (w *world) view() *View         { return Of(w.s.View()) }
func (w *world) database() *Database { return w.view().Database("default", w.db) }

func (w *world) apply(c core.Command) (core.Result, []core.Change) {
	results := make([]core.Result, 1)
	changes := w.s.Apply([][]byte{c.Encode(core.Meta{})}, results)
	return results[0], changes
}

func (w *world) must(c core.Command) core.Result {
	r, _ := w.apply(c)
	if r.Err != nil {
		w.t.Fatalf("a command of type %T is refused: %v", c, r.Err)
	}
	return r
}

func (w *world) uuid() (u ovs.UUID) {
	w.n++
	binary.BigEndian.PutUint64(u[8:], scatter(w.n))
	u[0] = 1
	return u
}

// parse returns a transaction of operations as JSON.
func (w *world) parse(ops string) *Transact {
	d := w.database()
	v, err := ovs.ParseJSON("[" + ops + "]")
	if err != nil {
		w.t.Fatalf("%s is no JSON: %v", ops, err)
	}
	list, failed := ovs.ParseTransaction(d.Schema, v.Elements(), w.uuid)
	if failed != nil {
		w.t.Fatalf("%s is no transaction: %v", ops, failed)
	}
	return &Transact{Namespace: "default", Database: w.db, Schema: d.SchemaIndex, Operations: list}
}

// run executes operations as a door does: on the view if they change nothing there,
// else on the state. It returns the results as JSON.
func (w *world) run(ops string) string {
	c := w.parse(ops)
	v := w.s.View()
	r, idle := Of(v).Idling(v, c)
	if !idle {
		r = w.must(c)
	}
	if err := w.check(); err != nil {
		w.t.Fatalf("after %s: %v", ops, err)
	}
	o, ok := r.Record.(*Outcome)
	if !ok {
		w.t.Fatalf("%s answers %+v", ops, r)
	}
	return string(o.AppendJSON(nil, w.database().Schema))
}

func (w *world) check() error {
	return (&tables{databases: w.view().databases, loads: w.view().loads}).Check(nil, w.s.View().Index())
}

// reload returns the state as a snapshot of it gives it, which must be the same.
func (w *world) reload() {
	var b bytes.Buffer
	if err := w.s.View().WriteSnapshot(&b); err != nil {
		w.t.Fatalf("writing a snapshot: %v", err)
	}
	n, err := core.Restore(&b, leases.Family{}, Family{})
	if err != nil {
		w.t.Fatalf("restoring a snapshot: %v", err)
	}
	if n.View().Hash() != w.s.View().Hash() {
		w.t.Fatalf("the restored state has another hash")
	}
	was, is := w.database(), Of(n.View()).Database("default", w.db)
	if was != nil && (was.LastTxn() != is.LastTxn() || was.bytes != is.bytes || was.history.bytes != is.history.bytes) {
		w.t.Fatalf("restored: last %v, %d bytes and %d of history; it was %v, %d and %d", is.LastTxn(), is.bytes, is.history.bytes, was.LastTxn(), was.bytes, was.history.bytes)
	}
	w.s = n
}

// Each commit check, and the order in which they come.
func TestCommit(t *testing.T) {
	const named = `{"op":"insert","table":"Root","uuid-name":"r","row":{"name":"a","leaves":["named-uuid","l"]}},{"op":"insert","table":"Leaf","uuid-name":"l","row":{"value":1}}`
	for _, c := range []struct {
		name, before, ops string
		want              []string // in the results, in this order
		rows              string   // afterwards, in Root, Leaf, Few and Needs
	}{
		{"a row and its leaf", "", named, []string{`"uuid"`, `"uuid"`}, "1 1 0 0"},
		{"a leaf nothing refers to goes", "", `{"op":"insert","table":"Leaf","row":{"value":1}}`, []string{`"uuid"`}, "0 0 0 0"},
		{"a leaf goes with what refers to it", named, `{"op":"delete","table":"Root","where":[]}`, []string{`"count":1`}, "0 0 0 0"},
		{
			"and what only that refers to", `{"op":"insert","table":"Root","row":{"name":"a","leaves":["named-uuid","l"]}},{"op":"insert","table":"Leaf","uuid-name":"l","row":{"next":["named-uuid","m"]}},{"op":"insert","table":"Leaf","uuid-name":"m","row":{}}`,
			`{"op":"update","table":"Root","where":[["name","==","a"]],"row":{"leaves":["set",[]]}}`,
			[]string{`"count":1`},
			"1 0 0 0",
		},
		{"a leaf that is referred to stays", named, `{"op":"delete","table":"Leaf","where":[]}`, []string{`"count":1`, `referential integrity violation`}, "1 1 0 0"},
		{"a reference to nothing", "", `{"op":"insert","table":"Root","row":{"name":"a","leaves":["uuid","00000000-0000-0000-0000-000000000001"]}}`, []string{`"uuid"`, `referential integrity violation`}, "0 0 0 0"},
		{"no more rows than there may be", "", strings.Repeat(`{"op":"insert","table":"Few","row":{}},`, 3) + `{"op":"insert","table":"Few","row":{}}`, []string{`constraint violation`}, "0 0 0 0"},
		{"as many as there may be", "", strings.Repeat(`{"op":"insert","table":"Few","row":{}},`, 2) + `{"op":"insert","table":"Few","row":{}}`, []string{`"uuid"`}, "0 0 3 0"},
		{"references come before the number of rows", "", strings.Repeat(`{"op":"insert","table":"Few","row":{}},`, 4) + `{"op":"insert","table":"Root","row":{"leaves":["uuid","00000000-0000-0000-0000-000000000001"]}}`, []string{`referential integrity violation`}, "0 0 0 0"},
		{"a weak reference goes", `{"op":"insert","table":"Few","uuid-name":"f","row":{}},{"op":"insert","table":"Root","row":{"name":"a","must":["named-uuid","f"]}}`, `{"op":"delete","table":"Few","where":[]}`, []string{`"count":1`}, "1 0 0 0"},
		{"a uuid is taken until the transaction is over", `{"op":"insert","table":"Few","uuid":"00000000-0000-0000-0000-00000000000a","row":{}}`, `{"op":"delete","table":"Few","where":[]},{"op":"insert","table":"Few","uuid":"00000000-0000-0000-0000-00000000000a","row":{}}`, []string{`"count":1`, `duplicate uuid`}, "0 0 1 0"},
		{"unless too few are left", `{"op":"insert","table":"Few","uuid-name":"f","row":{}},{"op":"insert","table":"Needs","row":{"few":["named-uuid","f"]}}`, `{"op":"delete","table":"Few","where":[]}`, []string{`"count":1`, `constraint violation`}, "0 0 1 1"},
		{"names are unique", `{"op":"insert","table":"Root","row":{"name":"a"}}`, `{"op":"insert","table":"Root","row":{"name":"a"}}`, []string{`"uuid"`, `constraint violation`}, "1 0 0 0"},
		{"names may be exchanged", `{"op":"insert","table":"Root","row":{"name":"a","number":1}},{"op":"insert","table":"Root","row":{"name":"b","number":2}}`, `{"op":"update","table":"Root","where":[["number","==",1]],"row":{"name":"b"}},{"op":"update","table":"Root","where":[["number","==",2]],"row":{"name":"a"}}`, []string{`"count":1`, `"count":1`}, "2 0 0 0"},
		{"the first failure ends it", "", `{"op":"insert","table":"Root","row":{"name":"a"}},{"op":"abort"},{"op":"comment","comment":"x"}`, []string{`"uuid"`, `aborted`, `null`}, "0 0 0 0"},
		{"a wait for what is not", `{"op":"insert","table":"Root","row":{"name":"a"}}`, `{"op":"wait","timeout":0,"table":"Root","where":[],"columns":["name"],"until":"==","rows":[{"name":"b"}]},{"op":"delete","table":"Root","where":[]}`, []string{`timed out`, `null`}, "1 0 0 0"},
		{"a wait for what is", `{"op":"insert","table":"Root","row":{"name":"a"}}`, `{"op":"wait","timeout":0,"table":"Root","where":[],"columns":["name"],"until":"==","rows":[{"name":"a"}]},{"op":"delete","table":"Root","where":[]}`, []string{`{}`, `"count":1`}, "0 0 0 0"},
		{"a lock that is not held", "", `{"op":"assert","lock":"l"},{"op":"insert","table":"Root","row":{}}`, []string{`not owner`, `null`}, "0 0 0 0"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t, testSchema)
			if c.before != "" {
				w.run(c.before)
			}
			got, at := w.run(c.ops), 0
			for _, want := range c.want {
				i := strings.Index(got[at:], want)
				if i < 0 {
					t.Fatalf("%s is not in %s behind %d", want, got, at)
				}
				at += i + len(want)
			}
			if fails := strings.Contains(got, "error"); fails != strings.Contains(strings.Join(c.want, ""), " ") && !strings.Contains(got, "aborted") {
				t.Errorf("answered %s", got)
			}
			if rows := w.counts(); rows != c.rows {
				t.Errorf("there are %s rows, want %s", rows, c.rows)
			}
			w.reload()
		})
	}
}

func (w *world) counts() string {
	var list []string
	for _, name := range []string{"Root", "Leaf", "Few", "Needs"} {
		_, i := w.database().Schema.Table(name)
		list = append(list, string(rune('0'+w.database().Count(i))))
	}
	return strings.Join(list, " ")
}

// What changes nothing moves no version, is told to nobody, and needs no entry.
func TestNothingChanges(t *testing.T) {
	w := newWorld(t, testSchema)
	w.run(`{"op":"insert","table":"Root","row":{"name":"a","number":1}}`)
	last := w.database().LastTxn()
	for ops, needs := range map[string]bool{
		`{"op":"update","table":"Root","where":[],"row":{"number":1}}`:                                                                 false,
		`{"op":"update","table":"Root","where":[],"row":{"number":2}},{"op":"update","table":"Root","where":[],"row":{"number":1}}`:    true,
		`{"op":"insert","table":"Root","uuid-name":"x","row":{"name":"b"}},{"op":"delete","table":"Root","where":[["name","==","b"]]}`: true,
		`{"op":"select","table":"Root","where":[]},{"op":"insert","table":"Root","row":{"name":"b"}},{"op":"abort"}`:                   true,
		`{"op":"select","table":"Root","where":[]},{"op":"abort"},{"op":"insert","table":"Root","row":{"name":"b"}}`:                   false,
		`{"op":"select","table":"Root","where":[]}`:                                                                                    false,
		`{"op":"delete","table":"Root","where":[["name","==","z"]]}`:                                                                   false,
	} {
		c, v := w.parse(ops), w.s.View()
		if _, idle := Of(v).Idling(v, c); idle == needs {
			t.Errorf("%s needs an entry: %v, want %v", ops, !idle, needs)
		}
		r, changes := w.apply(c)
		if r.Err != nil || len(changes) > 0 || w.database().LastTxn() != last {
			t.Errorf("%s changes %v (%v)", ops, changes, r.Err)
		}
	}
	c, v := w.parse(`{"op":"mutate","table":"Root","where":[],"mutations":[["number","+=",1]]}`), w.s.View()
	if _, idle := Of(v).Idling(v, c); idle {
		t.Error("a mutation is answered from a view")
	}
	_, changes := w.apply(c)
	if len(changes) != 1 {
		t.Fatalf("told of %d changes, want 1", len(changes))
	}
	told := changes[0].Family.After.(*Change)
	if n := len(told.Rows); n != 1 || told.Rows[0].Old.Version == told.Rows[0].New.Version {
		t.Errorf("told of %d rows, with versions %v", n, told.Rows)
	}
}

// A client resumes from any change that is kept, and from none other.
func TestSince(t *testing.T) {
	w := newWorld(t, testSchema)
	ids := []ovs.UUID{w.database().LastTxn()}
	for range 5 {
		w.run(`{"op":"insert","table":"Root","row":{"name":"` + w.uuid().String() + `"}}`)
		ids = append(ids, w.database().LastTxn())
	}
	for i, id := range ids {
		got, ok := w.database().Since(id)
		if !ok || len(got) != len(ids)-1-i {
			t.Errorf("since %d: %d changes, %v", i, len(got), ok)
		}
		if after, ok := w.database().ChangesAfter(IndexOf(id)); !ok || len(after) != len(got) {
			t.Errorf("after %d: %d changes, %v", i, len(after), ok)
		}
	}
	if _, ok := w.database().Since(w.uuid()); ok {
		t.Error("a client resumes from what never was")
	}
	h := w.database().history
	c := &Change{Index: 1000, TxnID: idOf(1000, 0), size: h.bytes}
	h = h.with(nil, c, h.bytes)
	if _, ok := h.since(ids[4]); ok {
		t.Error("a client resumes from what has been forgotten")
	}
	if _, ok := h.after(IndexOf(ids[5]) - 1); ok {
		t.Error("what has been forgotten is said to be all there")
	}
	if got, ok := h.since(ids[5]); !ok || len(got) != 1 {
		t.Errorf("since the newest that was forgotten: %d changes, %v", len(got), ok)
	}
}

func TestConvert(t *testing.T) {
	w := newWorld(t, testSchema)
	w.run(`{"op":"insert","table":"Root","row":{"name":"a","number":7,"leaves":["named-uuid","l"]}},{"op":"insert","table":"Leaf","uuid-name":"l","row":{"value":1}}`)
	old := w.database()
	r := w.must(&Convert{"default", "Test", []byte(`{"name":"Test","version":"2.0.0","tables":{"Root":{"columns":{"name":{"type":"string"},"new":{"type":"boolean"}}}}}`)})
	if o := r.Record.(*Outcome); o.Failed || w.database().Schema.Version != "2.0.0" || w.database().Len() != 1 {
		t.Fatalf("converted: %+v, %d rows", r.Record, w.database().Len())
	}
	if _, ok := w.database().Since(old.LastTxn()); ok {
		t.Error("a client resumes over a conversion")
	}
	if _, ok := w.database().ChangesAfter(IndexOf(old.LastTxn())); ok {
		t.Error("changes go on over a conversion")
	}
	if err := w.check(); err != nil {
		t.Fatal(err)
	}
	w.reload()
	stale := &Transact{Namespace: "default", Database: "Test", Schema: old.SchemaIndex}
	if r, _ := w.apply(stale); incumbent.KindOf(r.Err) != incumbent.Conflict {
		t.Errorf("a transaction of the former schema answers %v", r.Err)
	}
	w.must(&Drop{"default", "Test"})
	if w.database() != nil {
		t.Error("the database is there after it was dropped")
	}
}

// Databases of other namespaces are no part of one.
func TestNamespace(t *testing.T) {
	w := newWorld(t, testSchema)
	w.must(&Define{Namespace: "other", Schema: []byte(testSchema)})
	w.run(`{"op":"insert","table":"Root","row":{"name":"a"}}`)
	part := w.view().Namespace("default", nil).(*View)
	if part.Database("default", "Test").Len() != 1 || part.Database("other", "Test") != nil {
		t.Errorf("the namespace has %d records", part.Records())
	}
}

// Whoever keeps what a transaction answered keeps no state of the database: not the one
// that it began from, nor one of a transaction that changed nothing.
func TestG39_AnOutcomeKeepsNoState(t *testing.T) {
	w := newWorld(t, testSchema)
	w.run(`{"op":"insert","table":"Root","row":{"name":"a"}}`)
	var outcomes []any
	var states []pointer.Pointer[Database]
	look := w.parse(`{"op":"select","table":"Root","where":[]}`)
	for i := range 3 {
		states = append(states, pointer.Make(w.database()))
		r, _ := Of(w.s.View()).Idling(w.s.View(), look)
		outcomes = append(outcomes, r.Record, w.must(w.parse(fmt.Sprintf(`{"op":"update","table":"Root","where":[],"row":{"number":%d}}`, i+1))).Record)
	}
	runtime.GC()
	for i, p := range states {
		if p.Value() != nil {
			t.Errorf("state %d of 3 is still there", i+1)
		}
	}
	runtime.KeepAlive(outcomes)
}

// A conversion that fails changes nothing of what there is: of a map some of whose keys
// cannot be converted, and would be in another order.
func TestAConversionThatFailsLeavesRowsAlone(t *testing.T) {
	schema := func(kind string) []byte {
		return []byte(`{"name":"D","tables":{"T":{"columns":{"by":{"type":{"key":"` + kind + `","value":"string","min":0,"max":"unlimited"}}}}}}`)
	}
	w := newWorld(t, string(schema("real")))
	w.run(`{"op":"insert","table":"T","row":{"by":["map",[[1.5,"a"],[2,"b"]]]}}`)
	row := func() string { return w.run(`{"op":"select","table":"T","where":[],"columns":["by"]}`) }
	before := row()
	if o := w.must(&Convert{"default", "D", schema("integer")}).Record.(*Outcome); !o.Failed {
		t.Error("1.5 became an integer")
	}
	if got := row(); got != before {
		t.Errorf("got  %s\nwas  %s", got, before)
	}
}

// Integers become reals where the other schema has these, and back as far as reals are
// integers: once all members know how, which those of an earlier version do not.
func TestConvertNumbers(t *testing.T) {
	schema := func(kind string) []byte {
		return []byte(`{"name":"D","tables":{"T":{"columns":{"n":{"type":"` + kind + `"},"many":{"type":{"key":"` + kind +
			`","min":0,"max":"unlimited"}},"by":{"type":{"key":"string","value":"` + kind + `","min":0,"max":"unlimited"}}}}}}`)
	}
	w := newWorld(t, string(schema("integer")))
	to := func(kind string) *Outcome { return w.must(&Convert{"default", "D", schema(kind)}).Record.(*Outcome) }
	row := func() string {
		return w.run(`{"op":"select","table":"T","where":[],"columns":["n","many","by"]}`)
	}
	w.run(`{"op":"insert","table":"T","row":{"n":7,"many":["set",[-1,2]],"by":["map",[["a",3]]]}}`)
	before := row()

	old := core.Member{ID: 1, Name: "old", Schema: numberSchema - 1}
	w.must(core.PutMemberCommand{Member: old})
	if o := to("real"); !o.Failed {
		t.Error("converted, which a member refuses")
	}
	old.Schema = numberSchema
	w.must(core.PutMemberCommand{Member: old})
	if o := to("real"); o.Failed {
		t.Fatalf("to reals: %v", o.Results[0].Err)
	}
	if got := w.run(`{"op":"mutate","table":"T","where":[],"mutations":[["n","+=",0.5]]},{"op":"select","table":"T","where":[["n","==",7.5]],"columns":["many","by"]}`); got !=
		`[{"count":1},{"rows":[{"by":["map",[["a",3]]],"many":["set",[-1,2]]}]}]` {
		t.Errorf("as reals: %s", got)
	}
	w.reload()
	if o := to("integer"); !o.Failed {
		t.Error("7.5 has become an integer")
	}
	w.run(`{"op":"mutate","table":"T","where":[],"mutations":[["n","-=",0.5]]}`)
	if o := to("integer"); o.Failed || row() != before {
		t.Errorf("back to integers: %s, it was %s (%+v)", row(), before, o.Results)
	}
	w.run(`{"op":"update","table":"T","where":[],"row":{"many":["set",[9007199254740992,9007199254740993]]}}`)
	if o := to("real"); !o.Failed {
		t.Error("two integers have become one real")
	}
	w.reload()
}

// Indexed says for which conditions not all rows are looked at, and Find finds the same.
func TestIndexed(t *testing.T) {
	w := newWorld(t, testSchema)
	for i := range 20 {
		w.run(fmt.Sprintf(`{"op":"insert","table":"Root","row":{"name":"n%d","number":%d,"leaves":["named-uuid","l"]}},{"op":"insert","table":"Leaf","uuid-name":"l","row":{"value":1}}`, i, i))
	}
	d := w.database()
	root, at := d.Schema.Table("Root")
	var one *Row
	d.Rows(at, func(r *Row) bool { one = r; return false })
	for _, column := range []string{"_uuid", "_version", "name", "number", "leaves", "ids"} {
		for _, f := range []ovs.Function{ovs.Equal, ovs.Includes, ovs.NotEqual} {
			c := ovs.Condition{Column: root.Column(column).Index(), Function: f, Arg: one.Datum(root.Column(column).Index())}
			looked, found := 0, 0
			candidates(d.Schema, d.relations, at, []ovs.Condition{c}, func(*Row) bool { looked++; return true })
			d.Find(at, []ovs.Condition{c}, func(*Row) bool { found++; return true })
			if d.Indexed(at, &c) != (looked == 1) {
				t.Errorf("%s %v: indexed %v, of which %d rows are looked at", column, f, d.Indexed(at, &c), looked)
			}
			if f != ovs.NotEqual && found == 0 {
				t.Errorf("%s %v finds nothing", column, f)
			}
		}
	}
}
