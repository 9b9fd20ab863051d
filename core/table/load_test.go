package table

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// filled is a world with rows of every kind of reference.
func filled(t fatal) *world {
	w := newWorld(t, testSchema)
	w.run(`{"op":"insert","table":"Leaf","uuid-name":"c","row":{"value":3}},
{"op":"insert","table":"Leaf","uuid-name":"b","row":{"value":2,"next":["named-uuid","c"]}},
{"op":"insert","table":"Leaf","uuid-name":"a","row":{"value":1}},
{"op":"insert","table":"Few","uuid-name":"f","row":{"value":1}},
{"op":"insert","table":"Root","uuid-name":"r","row":{"name":"r","leaves":["set",[["named-uuid","a"],["named-uuid","b"]]],"peers":["set",[["named-uuid","r"],["named-uuid","s"]]],"must":["named-uuid","f"],"ids":["map",[["k","v"]]]}},
{"op":"insert","table":"Root","uuid-name":"s","row":{"name":"s","leaves":["named-uuid","b"],"peers":["named-uuid","r"]}},
{"op":"insert","table":"Needs","row":{"few":["named-uuid","f"]}}`)
	return w
}

// placed is a row with the table that it is in.
type placed struct {
	Table int
	Row   *Row
}

func loaded(rows ...placed) (list [][]byte) {
	for _, r := range rows {
		list = append(list, LoadedRow(r.Table, r.Row))
	}
	return list
}

func rowsOf(d *Database) (list []placed) {
	for i := range d.Schema.Tables {
		d.Rows(i, func(r *Row) bool {
			list = append(list, placed{i, &Row{UUID: r.UUID, Columns: r.Columns}})
			return true
		})
	}
	return list
}

// begin begins a load of the world's schema.
func (w *world) begin() incumbent.Index {
	return w.must(&Begin{Namespace: "default", Schema: []byte(testSchema)}).Record.(*Database).SchemaIndex
}

// load loads rows one by one.
func (w *world) load(began incumbent.Index, rows []placed) {
	for _, r := range rows {
		w.must(&Load{Namespace: "default", Database: w.db, Began: began, Rows: loaded(r)})
		if err := w.check(); err != nil {
			w.t.Fatalf("after a row: %v", err)
		}
	}
}

// Rows may be loaded in any order; what is loaded is what was there, and is seen at once.
func TestLoadInAnyOrder(t *testing.T) {
	w := filled(t)
	rows := rowsOf(w.database())
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		rng.Shuffle(len(rows), func(i, j int) { rows[i], rows[j] = rows[j], rows[i] })
		n := newWorld(t, `{"name":"Other","tables":{}}`)
		n.db = w.db
		began := n.begin()
		n.load(began, rows[:3])
		n.reload()
		n.must(&Load{Namespace: "default", Database: n.db, Began: began, Rows: loaded(rows[2:5]...)}) // one of them again
		n.load(began, rows[5:])
		if n.database() != nil {
			t.Fatal("a load is seen before it is finished")
		}
		n.must(&Finish{Namespace: "default", Database: n.db, Began: began})
		if err := n.check(); err != nil {
			t.Fatal(err)
		}
		n.reload()
		if got := rowsOf(n.database()); !slices.EqualFunc(got, rowsOf(w.database()), func(a, b placed) bool {
			return a.Table == b.Table && a.Row.UUID == b.Row.UUID && equalRows(a.Row, b.Row)
		}) {
			t.Fatalf("seed %d: the rows are others", seed)
		}
		if v := n.view(); v.Loading("default", n.db) != nil {
			t.Fatal("what was finished is still being loaded")
		}
	}
}

// A load from which any row is missing that another needs is not shown, and the state
// is as it was.
func TestLoadsAreWhole(t *testing.T) {
	w := filled(t)
	all := rowsOf(w.database())
	name := func(r placed) string { return w.database().Schema.Tables[r.Table].Name }
	for i := range all {
		n := newWorld(t, `{"name":"Other","tables":{}}`)
		n.db = w.db
		began := n.begin()
		n.load(began, slices.Delete(slices.Clone(all), i, i+1))
		r, _ := n.apply(&Finish{Namespace: "default", Database: n.db, Began: began})
		if needed := name(all[i]) != "Needs"; (r.Err != nil) != needed {
			t.Errorf("without a row of %s: %v", name(all[i]), r.Err)
		}
	}
}

func TestLoadsAreRefused(t *testing.T) {
	w := filled(t)
	rows := rowsOf(w.database())
	began := w.begin()
	load := func(began incumbent.Index, rows ...placed) *incumbent.Error {
		r, _ := w.apply(&Load{Namespace: "default", Database: w.db, Began: began, Rows: loaded(rows...)})
		if err := w.check(); err != nil {
			t.Fatal(err)
		}
		return r.Err
	}
	root, column := w.database().Schema.Table("Root")
	i := slices.IndexFunc(rows, func(r placed) bool { return r.Table == column })
	other := &Row{UUID: rows[i].Row.UUID, Columns: slices.Clone(rows[i].Row.Columns)}
	other.Columns[root.Column("number").Index()] = ovs.Datum{Keys: []ovs.Atom{ovs.IntegerAtom(9)}}
	twin := &Row{UUID: w.uuid(), Columns: rows[i].Row.Columns}
	few, at := w.database().Schema.Table("Few")
	var many []placed
	for range 4 {
		many = append(many, placed{at, &Row{UUID: w.uuid(), Columns: []ovs.Datum{few.Columns[0].Default}}})
	}
	if err := load(began, rows[i]); err != nil {
		t.Fatal(err)
	}
	for what, got := range map[string]struct {
		err  *incumbent.Error
		kind incumbent.Kind
	}{
		"another row of the uuid":   {load(began, placed{column, other}), incumbent.Exists},
		"the same keys of an index": {load(began, placed{column, twin}), incumbent.Invalid},
		"too many rows":             {load(began, many...), incumbent.Invalid},
		"another load":              {load(began+1, rows[i]), incumbent.Conflict},
	} {
		if incumbent.KindOf(got.err) != got.kind {
			t.Errorf("%s: %v, want %v", what, got.err, got.kind)
		}
	}
	if n := w.view().Loading("default", w.db).Len(); n != 1 {
		t.Errorf("%d rows are there after refusals, want 1", n)
	}
	if r, _ := w.apply(&Finish{Namespace: "default", Database: w.db, Began: began}); r.Err == nil {
		t.Error("a load that is not whole is shown")
	}
	again := w.begin()
	if err := load(began, rows[i]); incumbent.KindOf(err) != incumbent.Conflict {
		t.Errorf("a row of a load whose place another has taken: %v", err)
	}
	w.load(again, rows)
	if r, _ := w.apply(&Finish{Namespace: "default", Database: w.db, Began: again}); incumbent.KindOf(r.Err) != incumbent.Exists {
		t.Errorf("a load in the place of a database: %v", r.Err)
	}
	before := w.database()
	r, changes := w.apply(&Finish{Namespace: "default", Database: w.db, Began: again, Replace: true})
	changes = slices.DeleteFunc(changes, func(x core.Change) bool { return !x.Family.Told() }) // the load's deadline is over
	if r.Err != nil || len(changes) != 1 || w.database() == before || w.database().SchemaIndex <= before.SchemaIndex {
		t.Errorf("a load that replaces: %v, %d changes", r.Err, len(changes))
	}
	w.begin()
	w.must(&Abandon{Namespace: "default", Database: w.db})
	if w.view().Loading("default", w.db) != nil {
		t.Error("what was abandoned is still there")
	}
}

// A load has a deadline, which begins anew with each of its commands: with the command
// that ends the last one nothing stays of it, and that of an earlier one is void.
func TestG08_AbandonedLoadsEnd(t *testing.T) {
	w := filled(t)
	rows := rowsOf(w.database())
	deadline := func() (d *core.Deadline) {
		w.s.View().Deadlines(func(is *core.Deadline) bool { d = is; return true })
		return d
	}
	if d := deadline(); d != nil {
		t.Fatalf("without a load there is a deadline: %+v", d)
	}
	r, changes := w.apply(&Begin{Namespace: "default", Schema: []byte(testSchema)})
	if r.Err != nil || len(changes) != 1 || changes[0].Family.Deadline == nil || *changes[0].Family.Deadline != *deadline() || deadline().After != LoadRest {
		t.Fatalf("a load begins: %v, %+v", r.Err, changes)
	}
	first := deadline()
	w.load(r.Record.(*Database).SchemaIndex, rows[:1])
	w.reload()
	if *deadline() == *first {
		t.Fatal("a load that goes on has the deadline that it had")
	}
	if r, _ := w.apply(w.s.View().EndDeadline(first)); incumbent.KindOf(errorOf(r.Err)) != incumbent.Conflict {
		t.Errorf("the end of a deadline that began anew: %v", r.Err)
	}
	last := deadline()
	if _, changes := w.apply(w.s.View().EndDeadline(last)); len(changes) != 1 || *changes[0].Family.Deadline != (core.Deadline{Family: Number, ID: last.ID}) {
		t.Errorf("the end of the load tells %+v", changes)
	}
	if w.view().Loading("default", w.db) != nil || deadline() != nil || w.check() != nil {
		t.Error("something stays of a load whose time was over")
	}
	if r, _ := w.apply(w.s.View().EndDeadline(last)); incumbent.KindOf(errorOf(r.Err)) != incumbent.NotFound {
		t.Errorf("the end of what is gone: %v", r.Err)
	}
	w.load(w.begin(), rows[:1])
	w.must(&Abandon{Namespace: "default", Database: w.db})
	if deadline() != nil {
		t.Error("what was abandoned has a deadline")
	}
}

// A failure of a transaction that is kept with a key is an error.
func TestKeptFailures(t *testing.T) {
	w := filled(t)
	for ops, want := range map[string]incumbent.Kind{
		`{"op":"insert","table":"Few","row":{}},{"op":"abort"}`:                                                                                incumbent.Invalid,
		`{"op":"insert","table":"Few","row":{}},{"op":"wait","table":"Few","where":[],"columns":["value"],"until":"==","rows":[]}`:             incumbent.Conflict,
		`{"op":"insert","table":"Few","row":{}},{"op":"wait","timeout":0,"table":"Few","where":[],"columns":["value"],"until":"==","rows":[]}`: incumbent.Invalid,
		`{"op":"insert","table":"Few","row":{}}`:                                                                                               incumbent.OK,
	} {
		c := w.parse(ops)
		c.Kept = true
		if r, _ := w.apply(c); incumbent.KindOf(errorOf(r.Err)) != want || r.Record == nil {
			t.Errorf("%s: %v, want %v", ops, r.Err, want)
		}
	}
}

func errorOf(e *incumbent.Error) error {
	if e == nil {
		return nil
	}
	return e
}
