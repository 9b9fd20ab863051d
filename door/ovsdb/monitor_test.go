package ovsdb

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

const testSchema = `{"name":"T","version":"1.0.0","tables":{
"P":{"columns":{"name":{"type":"string"},"chassis":{"type":{"key":"string","min":0,"max":1}},"tags":{"type":{"key":"string","min":0,"max":"unlimited"}}},"isRoot":true,"indexes":[["name"]]},
"Q":{"columns":{"n":{"type":"integer"}},"isRoot":true}}}`

var ids = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)

func startWithSchema(tb testing.TB) *member {
	tb.Helper()
	m := startMember(tb, func(c *Config) { c.Schemas = [][]byte{[]byte(testSchema)} })
	// The first who is let in finds the database.
	if got := m.dial().call("list_dbs", `[]`); got != `["T","_Server"]` {
		tb.Fatalf("the databases at first: %s", got)
	}
	return m
}

func wantIDs(tb testing.TB, what, got, text string) {
	tb.Helper()
	want(tb, what, ids.ReplaceAllString(got, "ID"), text)
}

const insertA = `["T",{"op":"insert","table":"P","row":{"name":"a","chassis":"c1","tags":["set",["x","y"]]}}]`

// A client is told what its own transaction has changed before the transaction is
// answered, in the form of the method by which it monitors.
func TestMonitors(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	want(t, "the first version", c.call("monitor", `["T","m1",{"P":{"columns":["name","tags"]}}]`), `{}`)
	want(t, "the second", c.call("monitor_cond", `["T","m2",{"P":{"columns":["name","tags"]}}]`), `{}`)
	c.write(`{"method":"transact","params":` + insertA + `,"id":7}`)
	got := map[string]bool{}
	for range 2 {
		got[ids.ReplaceAllString(c.read(), "ID")] = true
	}
	for _, w := range []string{
		`{"id":null,"method":"update","params":["m1",{"P":{"ID":{"new":{"name":"a","tags":["set",["x","y"]]}}}}]}`,
		`{"id":null,"method":"update2","params":["m2",{"P":{"ID":{"insert":{"name":"a","tags":["set",["x","y"]]}}}}]}`,
	} {
		if !got[w] {
			t.Errorf("not told %s, but %v", w, got)
		}
	}
	wantIDs(t, "the answer", c.answer(), `[{"uuid":["uuid","ID"]}]`)
	want(t, "cancel", c.call("monitor_cancel", `["m1"]`), `{}`)
	want(t, "once more", c.call("monitor_cancel", `["m1"]`), `error "unknown monitor"`)

	c.write(`{"method":"transact","params":["T",{"op":"mutate","table":"P","where":[],"mutations":[["tags","delete","x"]]}],"id":7}`)
	wantIDs(t, "a difference", c.read(), `{"id":null,"method":"update2","params":["m2",{"P":{"ID":{"modify":{"tags":"x"}}}}]}`)
	want(t, "its answer", c.answer(), `[{"count":1}]`)
	c.write(`{"method":"transact","params":["T",{"op":"delete","table":"P","where":[]}],"id":7}`)
	wantIDs(t, "an end", c.read(), `{"id":null,"method":"update2","params":["m2",{"P":{"ID":{"delete":null}}}]}`)
	want(t, "its answer", c.answer(), `[{"count":1}]`)
}

// Rows come and go with the conditions of who monitors, and nobody else is told.
func TestConditions(t *testing.T) {
	m := startWithSchema(t)
	c, writer := m.dial(), m.dial()
	want(t, "a condition", c.call("monitor_cond", `["T","m",{"P":{"columns":["name"],"where":[["chassis","==","c2"]]}}]`), `{}`)
	writer.call("transact", insertA)
	writer.call("transact", `["T",{"op":"update","table":"P","where":[["name","==","a"]],"row":{"chassis":"c2"}}]`)
	wantIDs(t, "it begins to match", c.read(), `{"id":null,"method":"update2","params":["m",{"P":{"ID":{"insert":{"name":"a"}}}}]}`)
	writer.call("transact", `["T",{"op":"update","table":"P","where":[["name","==","a"]],"row":{"chassis":["set",[]]}}]`)
	wantIDs(t, "it ceases to", c.read(), `{"id":null,"method":"update2","params":["m",{"P":{"ID":{"delete":null}}}]}`)

	c.write(`{"method":"monitor_cond_change","params":["m","n",{"P":[{"where":[["name","==","a"]]}]}],"id":7}`)
	wantIDs(t, "the difference of conditions", c.read(), `{"id":null,"method":"update2","params":["n",{"P":{"ID":{"insert":{"name":"a"}}}}]}`)
	want(t, "the change", c.answer(), `{}`)
	writer.call("transact", `["T",{"op":"insert","table":"P","row":{"name":"b"}},{"op":"insert","table":"Q","row":{"n":1}}]`)
	want(t, "nothing is told of another", c.call("echo", `[]`), `[]`)
}

// A condition on one of several values finds each of them, on both sides of a change.
func TestConditionsOnSets(t *testing.T) {
	m := startWithSchema(t)
	c, writer := m.dial(), m.dial()
	want(t, "conditions", c.call("monitor_cond", `["T","m",{"P":{"columns":["name"],"where":[["tags","includes","y"],["tags","includes","z"]]}}]`), `{}`)
	writer.call("transact", insertA)
	wantIDs(t, "the last of two", c.read(), `{"id":null,"method":"update2","params":["m",{"P":{"ID":{"insert":{"name":"a"}}}}]}`)
	writer.call("transact", `["T",{"op":"update","table":"P","where":[],"row":{"tags":["set",["x","z"]]}}]`)
	writer.call("transact", `["T",{"op":"update","table":"P","where":[],"row":{"tags":["set",["x"]]}}]`)
	wantIDs(t, "none of them", c.read(), `{"id":null,"method":"update2","params":["m",{"P":{"ID":{"delete":null}}}]}`)
}

// Who comes back with the id of the last transaction that it saw is told what it missed.
func TestResuming(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	c.call("transact", insertA)
	first := c.call("monitor_cond_since", `["T","m",{"P":{"columns":["name","chassis"]}},"00000000-0000-0000-0000-000000000000"]`)
	wantIDs(t, "everything", first, `[false,"ID",{"P":{"ID":{"initial":{"chassis":"c1","name":"a"}}}}]`)
	last := ids.FindString(first)
	w := m.dial()
	w.call("transact", `["T",{"op":"update","table":"P","where":[],"row":{"chassis":"c3"}},{"op":"insert","table":"P","row":{"name":"b"}}]`)
	if got := c.read(); !regexp.MustCompile(`^{"id":null,"method":"update3","params":\["m","[^"]*",{"P":{`).MatchString(got) {
		t.Errorf("the update: %s", got)
	}
	again := m.dial()
	got := ids.ReplaceAllString(again.call("monitor_cond_since", `["T","m",{"P":{"columns":["name","chassis"]}},"`+last+`"]`), "ID")
	if one, other := `[true,"ID",{"P":{"ID":{"insert":{"name":"b"}},"ID":{"modify":{"chassis":"c3"}}}}]`, `[true,"ID",{"P":{"ID":{"modify":{"chassis":"c3"}},"ID":{"insert":{"name":"b"}}}}]`; got != one && got != other {
		t.Errorf("what was missed: %s", got)
	}
	wantIDs(t, "an id that nobody knows", m.dial().call("monitor_cond_since", `["T","m",{"Q":{}},"12345678-0000-0000-0000-000000000000"]`), `[false,"ID",{}]`)
}

// A wait with time left goes on when its table changes; assert asks for a lock.
func TestWaitAndAssert(t *testing.T) {
	m := startWithSchema(t)
	c, w := m.dial(), m.dial()
	c.write(`{"method":"transact","params":["T",{"op":"wait","table":"Q","timeout":60000,"where":[],"columns":["n"],"until":"==","rows":[{"n":5}]},{"op":"comment","comment":"x"}],"id":7}`)
	w.call("transact", `["T",{"op":"insert","table":"Q","row":{"n":5}}]`)
	want(t, "the wait", c.answer(), `[{},{}]`)
	want(t, "a wait of no time", c.call("transact", `["T",{"op":"wait","table":"Q","timeout":0,"where":[],"columns":["n"],"until":"==","rows":[]}]`),
		`[{"details":"\"where\" clause test failed","error":"timed out"}]`)
	want(t, "a lock that is not held", c.call("transact", `["T",{"op":"assert","lock":"l"}]`), `[{"details":"Asserted lock l not held.","error":"not owner"}]`)
	c.call("lock", `["l"]`)
	wantIDs(t, "a lock that is", c.call("transact", `["T",{"op":"assert","lock":"l"},{"op":"insert","table":"Q","row":{"n":6}},{"op":"abort"}]`), `[{},{"uuid":["uuid","ID"]},{"details":"aborted by request","error":"aborted"}]`)
}

// Of two that make a row that is to be the only one, one does, and both are answered,
// whatever they monitor.
func TestBothAreAnswered(t *testing.T) {
	m := startWithSchema(t)
	a, b := m.dial(), m.dial()
	for _, c := range []*client{a, b} {
		c.call("monitor_cond_since", `["T","m",{"Q":{"columns":["n"]}}]`)
	}
	const make = `{"method":"transact","params":["T",{"op":"wait","table":"Q","timeout":0,"where":[],"columns":["n"],"until":"==","rows":[]},{"op":"insert","table":"Q","row":{"n":1}}],"id":7}`
	answer := func(c *client) string {
		for {
			if text := c.read(); !strings.Contains(text, `"id":null`) {
				return ids.ReplaceAllString(text, "ID")
			}
		}
	}
	for range 300 {
		a.write(make)
		b.write(make)
		one, other := answer(a), answer(b)
		if strings.Contains(one, "timed out") == strings.Contains(other, "timed out") {
			t.Fatalf("answers: %s and %s", one, other)
		}
		a.write(`{"method":"transact","params":["T",{"op":"delete","table":"Q","where":[]}],"id":7}`)
		answer(a)
	}
}

// Of several conditions of a table that a change says the last ones count; if it says none they
// stay what they were.
func TestAChangeOfConditionsSaysTheLast(t *testing.T) {
	const a, b = `{"where":[["n","==",1]]}`, `{"where":[["n","==",2]]}`
	m := startWithSchema(t)
	c := m.dial()
	c.call("transact", `["T",{"op":"insert","table":"Q","row":{"n":1}},{"op":"insert","table":"Q","row":{"n":2}}]`)
	for _, where := range []string{``, `,"where":[["n","==",1]]`} {
		c.call("monitor_cond", `["T","m",{"Q":{"columns":["n"]`+where+`}}]`)
		want(t, "none", c.call("monitor_cond_change", `["m","m",{"Q":[]}]`), `{}`)
		c.call("monitor_cancel", `["m"]`)
	}
	c.call("monitor_cond", `["T","m",{"Q":{"columns":["n"],"where":[["n","==",1]]}}]`)
	c.write(ask("7", "monitor_cond_change", `["m","m",{"Q":[{"where":[true]},`+a+`,`+b+`]}]`))
	if got := c.read(); !strings.Contains(got, `{"delete":null}`) || !strings.Contains(got, `{"insert":{"n":2}}`) {
		t.Errorf("the last: %s", got)
	}
	want(t, "the answer", c.answer(), `{}`)
	want(t, "the same", c.call("monitor_cond_change", `["m","m",{"Q":[`+a+`,{"where":[]},`+b+`]}]`), `{}`)
}

// Which kinds of changes a client selects holds for the rows of a table, also where it asks for
// none of its columns: of these it is told that they come and go. Of several requests each may
// select some; where there are none nothing is told.
func TestKindsAreSelectedOfTables(t *testing.T) {
	for _, tt := range []struct {
		requests                    string
		rows, insert, gone          string
		rowsOld, insertOld, goneOld string
	}{
		{`[]`, ``, ``, ``, ``, ``, ``},
		{`{"columns":[]}`, `"initial":{}`, `"insert":{}`, `"delete":null`, `"new":{}`, `"new":{}`, `"old":{}`},
		{`{"columns":[],"select":{"initial":false,"delete":false}}`, ``, `"insert":{}`, ``, ``, `"new":{}`, ``},
		{`{"columns":[],"select":{"insert":false}}`, `"initial":{}`, ``, `"delete":null`, `"new":{}`, ``, `"old":{}`},
		{`{"columns":["name"],"select":{"initial":false,"delete":false}}`, ``, `"insert":{"name":"a"}`, ``, ``, `"new":{"name":"a"}`, ``},
		{
			`[{"columns":[],"select":{"insert":false}},{"columns":["name"],"select":{"insert":false,"initial":false,"delete":false}}]`,
			`"initial":{}`, ``, `"delete":null`, `"new":{}`, ``, `"old":{}`,
		},
	} {
		m := startWithSchema(t)
		w := m.dial()
		rows := func(body string) string {
			if body == "" {
				return `{}`
			}
			return `{"P":{"ID":{` + body + `}}}`
		}
		type told struct{ method, update, rows, insert, gone string }
		for _, v := range []told{{"monitor", "update", tt.rowsOld, tt.insertOld, tt.goneOld}, {"monitor_cond", "update2", tt.rows, tt.insert, tt.gone}} {
			c := m.dial()
			change := func(what, ops, body string) {
				t.Helper()
				c.write(ask("7", "transact", `["T",`+ops+`]`))
				if body != "" {
					wantIDs(t, v.method+" of "+tt.requests+", "+what, c.read(), `{"id":null,"method":"`+v.update+`","params":["m",`+rows(body)+`]}`)
				}
				if got := c.answer(); !strings.HasPrefix(got, `[{`) {
					t.Errorf("%s: %s", ops, got)
				}
			}
			w.call("transact", insertA)
			wantIDs(t, v.method+" of "+tt.requests, c.call(v.method, `["T","m",{"P":`+tt.requests+`}]`), rows(v.rows))
			change("an end", `{"op":"delete","table":"P","where":[]}`, v.gone)
			change("a row", strings.TrimSuffix(strings.TrimPrefix(insertA, `["T",`), `]`), v.insert)
			w.call("transact", `["T",{"op":"delete","table":"P","where":[]}]`)
		}
	}
}

// A change that says something else than conditions is refused, and changes nothing: it does
// not ask for all rows.
func TestAChangeOfConditionsSaysNothingElse(t *testing.T) {
	m := startWithSchema(t)
	c := m.dial()
	c.call("transact", insertA)
	want(t, "the monitor", c.call("monitor_cond", `["T","m",{"P":{"columns":["name"],"where":[false]}}]`), `{}`)
	for _, one := range []string{`null`, `true`, `7`, `"where"`, `[]`, `{"wher":[false]}`, `{"where":[false],"select":{}}`, `{"where":[false],"columns":"name"}`, `{"where":null}`} {
		if got := c.call("monitor_cond_change", `["m","m",{"P":[`+one+`]}]`); !strings.Contains(got, `"error":"syntax error"`) {
			t.Errorf("%s: %s", one, got)
		}
	}
	want(t, "columns", c.call("monitor_cond_change", `["m","m",{"P":[{"where":[false],"columns":["name"]}]}]`), `{}`)
	c.write(ask("7", "monitor_cond_change", `["m","m",{"P":[{}]}]`))
	wantIDs(t, "all rows", c.read(), `{"id":null,"method":"update2","params":["m",{"P":{"ID":{"insert":{"name":"a"}}}}]}`)
	want(t, "the change", c.answer(), `{}`)
}

// Rows that have more bytes than are handed on at once come as one object.
func TestALargeTableIsToldWhole(t *testing.T) {
	const rows = 40
	m := startWithSchema(t)
	c := m.dial()
	for i := range rows {
		c.call("transact", fmt.Sprintf(`["T",{"op":"insert","table":"P","row":{"name":"%d","chassis":%q}}]`, i, strings.Repeat("x", sendBytes/10)))
	}
	for _, method := range []string{"monitor", "monitor_cond"} {
		var told map[string]map[string]any
		if err := json.Unmarshal([]byte(c.call(method, `["T","`+method+`",{"P":{"columns":["name","chassis"]},"Q":{}}]`)), &told); err != nil {
			t.Fatal(err)
		}
		if len(told["P"]) != rows || len(told["Q"]) != 0 {
			t.Errorf("%s: told of %d rows, want %d", method, len(told["P"]), rows)
		}
	}
}

// What is monitored is counted while it is: by who cancels, changes or leaves, and by whose
// database gets another schema; and how long transactions took that did not wait.
func TestMonitorsAndTransactionsAreCounted(t *testing.T) {
	m := startWithSchema(t)
	monitors := func(n int) {
		t.Helper()
		await(t, fmt.Sprint(n, " monitors"), func() bool { return m.door.Stats().Monitors == n })
	}
	took := func(n uint64) {
		t.Helper()
		await(t, fmt.Sprint(n, " transactions"), func() bool { return m.door.Stats().Took.Count == n })
	}
	c, other := m.dial(), m.dial()
	for _, id := range []string{"a", "b", "c"} {
		c.call("monitor_cond", `["T",`+strconv.Quote(id)+`,{"P":{"columns":["name"],"where":[["chassis","==","c2"]]}}]`)
	}
	other.call("monitor", `["T","a",{"P":{"columns":["name"]}}]`)
	other.call("monitor", `["T","b",{"none":{}}]`)
	monitors(4)
	c.call("monitor_cond_change", `["a","d",{"P":[{"where":[["name","==","z"]]}]}]`)
	monitors(4)
	c.call("monitor_cancel", `["d"]`)
	monitors(3)
	writer := m.dial()
	writer.call("transact", insertA)
	took(1)
	writer.call("transact", `["T",{"op":"select","table":"P","where":[]}]`)
	took(2)
	if got := writer.call("transact", `["T",{"op":"wait","timeout":1,"table":"P","where":[],"columns":["name"],"until":"==","rows":[]}]`); !strings.Contains(got, "timed out") {
		t.Errorf("a wait: %s", got)
	}
	writer.call("transact", `["T",{"op":"insert","table":"Q","row":{"n":1}}]`)
	took(3)
	other.conn.Close()
	monitors(2)
	writer.call("convert", `["T",`+strings.Replace(testSchema, `"1.0.0"`, `"1.0.1"`, 1)+`]`)
	monitors(0)
}

// Who resumes is told of what it has missed by every member of its cluster, and of all rows
// by another cluster, whose log has something else at the same index.
func TestG20_WhoResumesIsOfTheSameCluster(t *testing.T) {
	start := func(cluster byte, names ...string) *member {
		m := startMember(t, func(c *Config) {
			c.Schemas = [][]byte{[]byte(testSchema)}
			c.Standing = func() Standing { return Standing{Cluster: [16]byte{cluster}, Connected: true} }
		})
		w := m.dial()
		for _, name := range names {
			w.call("transact", `["T",{"op":"insert","table":"P","row":{"name":"`+name+`"}}]`)
		}
		return m
	}
	resume := func(m *member, last string) string {
		return m.dial().call("monitor_cond_since", `["T","m",{"P":{"columns":["name"]}},"`+last+`"]`)
	}
	a, same, other := start(1, "one", "two"), start(1, "one", "two"), start(2, "three", "four")
	if a.lastTxn() != same.lastTxn() || a.lastTxn() != other.lastTxn() {
		t.Fatalf("the logs end with %v, %v and %v", a.lastTxn(), same.lastTxn(), other.lastTxn())
	}
	begun := a.dial()
	got := begun.call("monitor_cond_since", `["T","m",{"P":{"columns":["name"]}},"`+(ovs.UUID{}).String()+`"]`)
	last := strings.Split(got, `"`)[1]
	if !strings.HasPrefix(got, `[false,"`) {
		t.Fatalf("who begins: %s", got)
	}
	want(t, "the member itself", resume(a, last), `[true,"`+last+`",{}]`)
	want(t, "another of the cluster", resume(same, last), `[true,"`+last+`",{}]`)
	if got := resume(other, last); !strings.HasPrefix(got, `[false,"`) || !strings.Contains(got, "three") || !strings.Contains(got, "four") || strings.Contains(got, last) {
		t.Errorf("another cluster: %s", got)
	}
	a.dial().call("transact", `["T",{"op":"insert","table":"P","row":{"name":"five"}}]`)
	same.dial().call("transact", `["T",{"op":"insert","table":"P","row":{"name":"five"}}]`)
	told := strings.Split(begun.read(), `"params":["m","`)[1][:len(last)]
	want(t, "by what an update says", resume(same, told), `[true,"`+told+`",{}]`)
	if got := resume(same, last); !strings.HasPrefix(got, `[true,"`+told+`",`) || strings.Count(got, "insert") != 1 {
		t.Errorf("what was missed: %s", got)
	}
	begun.write(ask("7", "monitor_cond_change", `["m","m",{"P":[{"where":[["name","==","one"]]}]}]`))
	if got := begun.read(); !strings.Contains(got, `"params":["m","`+told+`",`) {
		t.Errorf("the change of a condition: %s", got)
	}
}
