package ovsdb

import (
	"fmt"
	"testing"
)

// The methods that begin a monitor.
const (
	monitorPlain = "monitor"
	monitorCond  = "monitor_cond"
	monitorSince = "monitor_cond_since"
)

// watched has both peers do what a test of monitors does again and again.
type watched struct {
	*pair
	db   string
	last [2]string // transactions that monitors have seen
}

func (w *watched) transact(ops ...any) { w.both("transact", append([]any{w.db}, ops...)...) }

// monitor begins a monitor by a method.
func (w *watched) monitor(method string, id any, requests object) {
	params := []any{w.db, id, requests}
	if method == monitorSince {
		params = append(params, uuid(0))
	}
	w.both(method, params...)
}

// since begins monitor_cond_since where both know of their own last transaction.
func (w *watched) since(id any, requests object, last [2]string) {
	var params [2][]any
	for i := range params {
		params[i] = []any{w.db, id, requests, last[i]}
	}
	w.each(monitorSince, params[:]...)
	for i := range w.last {
		if list, ok := w.said[i].Result.([]any); ok && len(list) == 3 {
			w.last[i] = fmt.Sprint(list[1])
		}
	}
}

func insertRoot(id int, name string, more object) object {
	row := object{"name": name, "i": id}
	for k, v := range more {
		row[k] = v
	}
	return object{"op": "insert", "table": "Root", "uuid": uuid(id), "row": row}
}

func where(column, function string, arg any) []any { return []any{[]any{column, function, arg}} }

func update(table string, where []any, row object) object {
	return object{"op": "update", "table": table, "where": where, "row": row}
}

func remove(table string, where []any) object {
	return object{"op": "delete", "table": table, "where": where}
}

func set(elements ...any) []any {
	return []any{"set", append([]any{}, elements...)}
}

func pairs(list ...any) []any {
	of := []any{}
	for i := 0; i < len(list); i += 2 {
		of = append(of, []any{list[i], list[i+1]})
	}
	return []any{"map", of}
}

// changesOfRoots are transactions whose updates differ in kind: rows that come, go and
// move into conditions, and columns of each type that differ.
func changesOfRoots() [][]any {
	named := func(name string) []any { return where("name", "==", name) }
	return [][]any{
		{insertRoot(60, "a", object{"ints": set(1, 2, 3), "strs": set("x"), "map": pairs("k", "v", "l", "w"), "opt": 1})},
		{insertRoot(61, "b", nil), insertRoot(62, "c", object{"b": true})},
		{update("Root", named("a"), object{"i": 600, "r": 2.5})},
		{update("Root", named("a"), object{"i": 600})},
		{update("Root", named("a"), object{"ints": set(2, 3, 4)})},
		{update("Root", named("a"), object{"ints": set()})},
		{update("Root", named("a"), object{"ints": set(9)})},
		{update("Root", named("a"), object{"map": pairs("k", "other", "m", "x")})},
		{update("Root", named("a"), object{"map": pairs()})},
		{update("Root", named("a"), object{"opt": set()}), update("Root", named("b"), object{"opt": 3, "b": true})},
		{update("Root", named("a"), object{"strs": set("x", "y")}), update("Root", named("a"), object{"strs": set("y", "z")})},
		{update("Root", named("b"), object{"b": false}), update("Root", named("b"), object{"b": true})},
		{update("Root", named("c"), object{"b": false}), update("Root", named("a"), object{"b": true})},
		{object{"op": "insert", "table": "Child", "uuid": uuid(70), "row": object{"name": "c"}}, update("Root", named("a"), object{"children": []any{"uuid", uuid(70)}})},
		{update("Child", named("c"), object{"name": "d"})},
		{update("Root", named("c"), object{"weak": set([]any{"uuid", uuid(60)}, []any{"uuid", uuid(61)})})},
		{remove("Root", named("a"))},
		{update("Root", named("c"), object{"gone": 4})},
		{insertRoot(63, "d", nil), remove("Root", named("d"))},
		{insertRoot(64, "e", nil), update("Root", named("e"), object{"b": true, "s": "late"})},
		{update("Root", named("e"), object{"name": "e2", "b": false}), remove("Root", named("b"))},
		{insertRoot(65, "b", nil), update("Root", named("c"), object{"name": "c2", "weak": set()})},
		{remove("Root", []any{})},
	}
}

// requestsOfRoots are what monitors ask for.
func requestsOfRoots(method string) []object {
	list := []object{
		{"Root": object{}},
		{"Root": object{"columns": []any{"name"}}},
		{"Root": object{"columns": []any{"name", "b", "i"}}, "Child": object{}},
		{"Root": object{"columns": []any{}}},
		{"Root": object{"columns": []any{"name", "ints", "map", "opt", "strs", "weak", "children"}}},
		{"Root": []any{object{"columns": []any{"name"}, "select": object{"initial": false}}, object{"columns": []any{"i", "gone"}, "select": object{"insert": false, "delete": false}}}},
		{"Root": object{"select": object{"modify": false}}},
		{"Root": object{"select": object{"initial": false, "insert": false, "delete": false}}},
		{"Root": object{"columns": []any{"_version", "_uuid"}}},
		{"Root": []any{}},
		{},
	}
	if method == monitorPlain {
		return list
	}
	// ovsdb-server does not outlive conditions of columns that a monitor does not have,
	// where another monitor has the same columns.
	columns := []any{"_uuid", "name", "i", "b", "ints", "opt", "strs", "weak"}
	for _, w := range []any{
		[]any{},
		[]any{false},
		[]any{true},
		[]any{false, false},
		where("b", "==", true), where("b", "==", false), where("i", "<", 100), where("name", "==", "a"),
		[]any{[]any{"name", "==", "a"}, []any{"b", "==", true}},
		where("ints", "includes", set(3)), where("opt", "==", set()), where("_uuid", "==", []any{"uuid", uuid(61)}),
		where("name", "!=", "a"), where("strs", "excludes", set("y")),
		[]any{[]any{"name", "==", "a"}, false},
		where("weak", "includes", []any{"uuid", uuid(61)}), where("nothing", "==", 1), where("name", "~", 1), where("name", "==", 1), true,
		[]any{1},
		where("name", "<", "x"),
	} {
		list = append(list, object{"Root": object{"columns": columns, "where": w}}, object{"Root": object{"columns": append(columns[:8:8], "s"), "where": w, "select": object{"initial": false}}})
	}
	return list
}

// refusedRequests are none that a monitor may have. After some of them ovsdb-server
// does not outlive the next transaction.
func refusedRequests() (list []object) {
	for _, r := range []any{
		object{"columns": []any{"name", "name"}},
		object{"columns": []any{"nothing"}},
		object{"columns": "name"},
		object{"columns": []any{1}},
		object{"other": 1},
		object{"select": object{"initial": 1}},
		object{"select": object{"other": true}},
		object{"select": 1},
		1,
		[]any{1},
		object{"where": where("nothing", "==", 1)},
		object{"where": where("name", "~", 1)},
		object{"where": where("name", "==", 1)},
		object{"where": true},
		object{"where": []any{1}},
		object{"where": where("name", "<", "x")},
	} {
		list = append(list, object{"Root": r})
	}
	return append(list, object{"Nowhere": object{}})
}

// Each kind of monitor is told what ovsdb-server tells it.
func TestMonitors(t *testing.T) {
	for _, method := range []string{monitorPlain, monitorCond, monitorSince} {
		t.Run(method, func(t *testing.T) {
			p := startPeers(t, clustered, corpusSchema)
			w := &watched{pair: p.connect(), db: "Corpus"}
			for i, r := range requestsOfRoots(method) {
				w.monitor(method, fmt.Sprint("m", i), r)
			}
			for i, ops := range changesOfRoots() {
				w.transact(ops...)
				if i == 12 { // some begin while there is something
					for i, r := range requestsOfRoots(method) {
						w.monitor(method, []any{"late", i}, r)
					}
				}
			}
			for i, r := range refusedRequests() {
				w.monitor(method, []any{"refused", i}, r)
			}
		})
	}
}

// Requests that are not as they should be are refused alike.
func TestRequests(t *testing.T) {
	p := startPeers(t, standAlone, corpusSchema)
	c := p.connect()
	for _, r := range [][]any{
		{"nothing"},
		{"echo", 1, "a", object{"b": nil}},
		{"echo"},
		{"list_dbs"},
		{"list_dbs", 1},
		{"get_schema"},
		{"get_schema", 1},
		{"get_schema", "Nowhere"},
		{"get_schema", "Corpus"},
		{"transact"},
		{"transact", 1},
		{"transact", "Nowhere"},
		{"transact", "Corpus"},
		{"monitor", "Nowhere", 1, object{}},
		{"monitor", "Corpus", "m", 1},
		{"monitor", "Corpus", "m", object{}},
		{"monitor", "Corpus", "m", object{}},
		{"monitor_cond", "Corpus", "m", object{}},
		{"monitor_cancel", "m"},
		{"monitor_cancel", "m"},
		{"monitor_cancel"},
		{"monitor_cond_change", "x", "y", object{}},
		{"monitor_cond", "Corpus", nil, object{"Root": object{}}},
		{"monitor_cond", "Corpus", nil, object{"Root": object{}}},
		{"monitor_cond_change", nil, "n", object{"Root": object{"where": []any{false}}}},
		{"monitor_cond_change", nil, "n", object{"Root": []any{object{"where": []any{false}}}}},
		{"monitor_cond_change", "n", "n", object{"Nowhere": object{}}},
		{"monitor_cond_change", "n", "o", object{"Child": object{"where": []any{false}}}},
		{"monitor_cond_change", "n", "o", object{"Root": []any{}}},
		{"monitor_cancel", nil},
		{"monitor_cond_change", "n", "o", object{"Root": []any{object{"where": []any{true}}}}},
		{"monitor_cancel", "n"},
		{"monitor_cancel", "o"},
		{"monitor_cond_since", "Corpus", "s", object{}, "no uuid"},
		{"monitor_cond_since", "Corpus", "s", object{}},
		{"lock"},
		{"lock", 1},
		{"lock", "no id"},
		{"lock", "l"},
		{"lock", "l"},
		{"steal", "l"},
		{"unlock", "l"},
		{"unlock", "l"},
		{"unlock", "other"},
		{"steal", "l"},
		{"unlock", "l"},
		{"transact", "Corpus", object{"op": "assert", "lock": "l"}},
		{"lock", "l"},
		{"transact", "Corpus", object{"op": "assert", "lock": "l"}},
		{"set_db_change_aware"},
		{"set_db_change_aware", true},
		{"set_db_change_aware", false},
		{"get_server_id", 1},
		{"convert"},
		{"convert", "Corpus"},
		{"convert", "Nowhere", object{}},
		{"convert", "Corpus", object{"name": "Corpus"}},
		{"cancel", 1},
		{"monitor", "_Server", "x", object{"Nothing": object{}}},
		{"transact", "_Server", object{"op": "insert", "table": "Database", "row": object{"name": "x"}}},
		{"transact", "_Server", object{"op": "select", "table": "Database", "where": where("name", "==", "Corpus"), "columns": []any{"name", "connected", "leader"}}},
		{"transact", "_Server", object{"op": "delete", "table": "Database", "where": []any{}}},
	} {
		c.both(r[0].(string), r[1:]...)
	}
}

// Who loses a lock to a thief has it again after the thief's end, if it asked by `lock`.
func TestStolenLocks(t *testing.T) {
	p := startPeers(t, standAlone, corpusSchema)
	one, two, three := p.connect(), p.connect(), p.connect()
	told := func(c *pair) {
		t.Helper()
		var texts [2]string
		for i, s := range c.sides {
			m, err := s.read()
			if err != nil {
				t.Fatalf("%s tells nothing: %v", p.names[i], err)
			}
			texts[i] = c.plain(i, m)
		}
		if texts[0] != texts[1] {
			t.Errorf("%s tells %s, %s %s", p.names[0], texts[0], p.names[1], texts[1])
		}
	}
	one.both("lock", "l")
	two.both("steal", "l")
	told(one) // stolen
	three.both("steal", "l")
	told(two)
	three.both("unlock", "l")
	told(one) // locked
	two.both("unlock", "l")
	one.both("unlock", "l")
	three.both("lock", "l")
}

// What a change of conditions shows and hides comes before its answer, and is what
// ovsdb-server tells.
func TestConditionsChange(t *testing.T) {
	p := startPeers(t, clustered, corpusSchema)
	for _, method := range []string{monitorCond, monitorSince} {
		t.Run(method, func(t *testing.T) {
			w := &watched{pair: p.connect(), db: "Corpus"}
			w.t = t
			w.transact(insertRoot(60, "a", object{"ints": set(1, 2)}), insertRoot(61, "b", object{"b": true}), insertRoot(62, "c", object{"weak": []any{"uuid", uuid(61)}}))
			columns := []any{"_uuid", "name", "i", "b", "ints", "opt", "strs", "weak"}
			w.monitor(method, "m", object{"Root": object{"columns": columns, "where": []any{false}}, "Child": object{}})
			id := any("m")
			for i, cond := range []any{
				[]any{true},
				[]any{false},
				where("name", "==", "a"), where("name", "==", "b"), where("b", "==", false),
				[]any{[]any{"b", "==", false}, []any{"name", "==", "b"}},
				where("ints", "includes", set(1)), where("weak", "includes", []any{"uuid", uuid(61)}), where("i", "<", 62), where("i", ">", 60),
				[]any{},
				where("_uuid", "==", []any{"uuid", uuid(60)}), where("nothing", "==", 1), true,
			} {
				next := []any{"next", i}
				w.both("monitor_cond_change", id, next, object{"Root": []any{object{"where": cond}}})
				if w.said[0].Error == nil {
					id = next
				}
				w.transact(update("Root", where("name", "==", "a"), object{"i": 100 + i}), update("Root", where("name", "==", "b"), object{"r": i}))
			}
			w.both("monitor_cond_change", id, id, object{"Root": []any{}}) // they stay
			a, b := object{"where": where("name", "==", "a")}, object{"where": where("name", "==", "b")}
			w.both("monitor_cond_change", id, id, object{"Root": []any{object{"where": []any{true}}, a, b}}) // the last counts
			w.both("monitor_cond_change", id, id, object{"Root": []any{b, object{"where": []any{}}}})
			w.both("monitor_cond_change", id, id, object{"Root": []any{}, "Child": []any{}})
			w.both("monitor_cond_change", id, id, object{"Root": []any{object{"where": []any{false}}}, "Child": []any{object{"where": []any{false}}}})
			w.both("monitor_cancel", id)
			w.transact(remove("Root", []any{}))
		})
	}
}

// Who resumes is told what has changed meanwhile, as of ovsdb-server.
func TestResume(t *testing.T) {
	p := startPeers(t, clustered, corpusSchema)
	w := &watched{pair: p.connect(), db: "Corpus"}
	w.t = t
	columns := []any{"_uuid", "name", "i", "b", "ints", "opt", "strs", "weak"}
	requests := []object{
		{"Root": object{"columns": columns}},
		{"Root": object{"columns": columns, "where": where("b", "==", true)}},
		{"Root": object{}, "Child": object{}},
		{"Child": object{}},
		{"Root": object{"columns": columns, "where": []any{false}}},
	}
	// ovsdb-server's history has no more than its databases have.
	many := []any{}
	for i := range 2_000 {
		many = append(many, i)
	}
	w.transact(insertRoot(59, "first", object{"ints": set(many...)}))
	w.since("begin", requests[0], [2]string{uuid(0), uuid(0)})
	before := w.last
	for i, ops := range changesOfRoots() {
		w.transact(ops...)
		if i%4 != 1 {
			continue
		}
		again := &watched{pair: p.connect(), db: w.db}
		again.t, again.known = t, w.known
		for i, r := range requests {
			again.since([]any{"again", i}, r, before)
			again.since([]any{"none", i}, r, again.last)
		}
		if i%8 == 1 {
			before = again.last
		}
		for _, s := range again.sides {
			s.conn.Close()
		}
	}
}
