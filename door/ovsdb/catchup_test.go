package ovsdb

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/watch"
)

// forgetful has the history of watches keep the newest index and nothing else.
func (m *member) forgetful() { m.group.Hub().SetLimits(watch.Limits{HistoryBytes: 1}) }

// stall has the feed of the database do nothing until it is let go on.
func (m *member) stall() (f *feed, goOn func()) {
	f = m.door.feeds.of("T")
	await(m.tb, "the feed has nothing to do", func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		idle := !f.tasks.running
		f.tasks.running = true
		return idle
	})
	return f, func() { m.door.work.Put(f.run) }
}

// turn has a feed that is stalled do the first of what it has to do.
func (f *feed) turn() {
	f.mu.Lock()
	task := f.tasks.list[0]
	f.tasks.list = f.tasks.list[1:]
	f.mu.Unlock()
	task()
}

// gaps is how often the feed has lost changes.
func (m *member) gaps() int {
	n := make(chan int)
	f := m.door.feeds.of("T")
	f.do(func() { n <- f.gaps })
	return <-n
}

// Changes that are gone before they were handed on are told as one: what comes of them, once,
// and nothing else. The monitor goes on, and so does who resumes from in between.
func TestG20_MonitorsOutliveLostChanges(t *testing.T) {
	m := startWithSchema(t)
	w := m.dial()
	for _, row := range []string{`"changed","chassis":"c1"`, `"gone"`, `"comes","chassis":"c2"`, `"leaves","chassis":"c1"`, `"same","chassis":"c1"`} {
		w.call("transact", `["T",{"op":"insert","table":"P","row":{"name":`+row+`}}]`)
	}
	plain, all, some := m.dial(), m.dial(), m.dial()
	plain.call("monitor", `["T","p",{"P":{"columns":["name","chassis"]}}]`)
	all.call("monitor_cond_since", `["T","a",{"P":{"columns":["name","chassis"]}},"00000000-0000-0000-0000-000000000000"]`)
	some.call("monitor_cond", `["T","s",{"P":{"columns":["name"],"where":[["chassis","==","c1"]]}}]`)
	m.forgetful()
	_, goOn := m.stall()
	update := func(name, chassis string) {
		w.call("transact", `["T",{"op":"update","table":"P","where":[["name","==","`+name+`"]],"row":{"chassis":`+chassis+`}}]`)
	}
	update("changed", `"c2"`)
	between := m.last()
	update("changed", `"c3"`)
	update("comes", `"c1"`)
	update("leaves", `["set",[]]`)
	update("same", `"c2"`)
	update("same", `"c1"`)
	w.call("transact", `["T",{"op":"delete","table":"P","where":[["name","==","gone"]]},{"op":"insert","table":"P","row":{"name":"new"}}]`)
	w.call("transact", `["T",{"op":"insert","table":"P","row":{"name":"passing"}}]`)
	w.call("transact", `["T",{"op":"delete","table":"P","where":[["name","==","passing"]]}]`)
	newest := m.last()
	goOn()

	wantRows(t, "all rows", all.read(), "update3", newest, `{"insert":{"name":"new"}}`, `{"delete":null}`,
		`{"modify":{"chassis":"c3"}}`, `{"modify":{"chassis":"c1"}}`, `{"modify":{"chassis":["set",[]]}}`)
	wantRows(t, "the first version", plain.read(), "update", "", `{"new":{"chassis":["set",[]],"name":"new"}}`, `{"old":{"chassis":["set",[]],"name":"gone"}}`,
		`{"new":{"chassis":"c3","name":"changed"},"old":{"chassis":"c1"}}`, `{"new":{"chassis":"c1","name":"comes"},"old":{"chassis":"c2"}}`,
		`{"new":{"chassis":["set",[]],"name":"leaves"},"old":{"chassis":"c1"}}`)
	wantRows(t, "some rows", some.read(), "update2", "", `{"delete":null}`, `{"delete":null}`, `{"insert":{"name":"comes"}}`)
	if n := m.gaps(); n != 1 {
		t.Fatalf("changes were lost %d times, want once", n)
	}

	update("same", `"c4"`)
	wantRows(t, "what comes behind", all.read(), "update3", m.last(), `{"modify":{"chassis":"c4"}}`)
	want(t, "nothing else", all.call("echo", `[]`), `[]`)
	got := m.dial().call("monitor_cond_since", `["T","m",{"P":{"columns":["name","chassis"]}},"`+between+`"]`)
	if !strings.HasPrefix(got, `[true,"`+m.last()+`",`) || strings.Count(got, "modify") != 4 || strings.Count(got, "insert") != 1 || strings.Count(got, "delete") != 1 {
		t.Errorf("who resumes from in between: %s", got)
	}
}

// last is the id of the newest transaction, as clients know it.
func (m *member) last() string { return m.door.feeds.of("T").shared(m.lastTxn()).String() }

func (m *member) lastTxn() ovs.UUID {
	return table.Of(m.door.view()).Database(m.door.namespace, "T").LastTxn()
}

// wantRows fails unless an update says these things of rows of P, in any order.
func wantRows(tb testing.TB, what, got, method, txn string, rows ...string) {
	tb.Helper()
	var v struct {
		Method string
		Params []json.RawMessage
	}
	var of struct{ P map[string]json.RawMessage }
	if err := json.Unmarshal([]byte(got), &v); err != nil || v.Method != method || json.Unmarshal(v.Params[len(v.Params)-1], &of) != nil {
		tb.Fatalf("%s: got %s, want %s", what, got, method)
	}
	if txn != "" && string(v.Params[1]) != `"`+txn+`"` {
		tb.Errorf("%s: of transaction %s, want %s", what, v.Params[1], txn)
	}
	left := map[string]int{}
	for _, r := range of.P {
		left[string(r)]++
	}
	for _, r := range rows {
		left[r]--
	}
	for r, n := range left {
		if n != 0 {
			tb.Errorf("%s: %+d times %s in %s", what, n, r, got)
		}
	}
}

// Between the states that views have shown, what was handed on is known by its changes.
func TestLostChangesBehindAStateThatNoViewHas(t *testing.T) {
	const more = pullEvents + 40
	m := startWithSchema(t)
	c, w := m.dial(), m.dial()
	c.call("monitor_cond", `["T","m",{"Q":{"columns":["n"]}}]`)
	f, goOn := m.stall()
	for i := range more {
		w.call("transact", fmt.Sprintf(`["T",{"op":"insert","table":"Q","row":{"n":%d}}]`, i+1))
	}
	f.turn()
	for i := range pullEvents {
		if got := c.read(); !strings.Contains(got, fmt.Sprintf(`{"insert":{"n":%d}}`, i+1)) {
			t.Fatalf("row %d: %s", i, got)
		}
	}
	m.forgetful()
	w.call("transact", `["T",{"op":"delete","table":"Q","where":[["n","==",1]]},{"op":"update","table":"Q","where":[["n","==",2]],"row":{"n":-1}}]`)
	w.call("transact", fmt.Sprintf(`["T",{"op":"delete","table":"Q","where":[["n","==",%d]]}]`, more))
	goOn()
	got := c.read()
	if ins, del, mod := strings.Count(got, "insert"), strings.Count(got, "delete"), strings.Count(got, `{"modify":{"n":-1}}`); ins != more-1-pullEvents || del != 1 || mod != 1 {
		t.Errorf("%d inserted, %d deleted, %d changed: %s", ins, del, mod, got)
	}
	want(t, "nothing else", c.call("echo", `[]`), `[]`)
}

// A monitor ends if changes were lost and the database has another schema by now.
func TestLostChangesOfAnotherSchemaEndMonitors(t *testing.T) {
	m := startWithSchema(t)
	c, w := m.dial(), m.dial()
	c.call("monitor_cond", `["T","m",{"Q":{"columns":["n"]}}]`)
	m.forgetful()
	_, goOn := m.stall()
	before := m.last()
	w.write(ask("7", "convert", `["T",`+strings.Replace(testSchema, `"1.0.0"`, `"1.0.1"`, 1)+`]`)) // the feed answers it
	await(t, "the database has another schema", func() bool { return m.last() != before })
	m.dial().call("transact", `["T",{"op":"insert","table":"Q","row":{"n":1}}]`)
	goOn()
	c.ended()
}

// Monitors go on when the member installs a snapshot, in which everything is a copy, and who
// begins behind it takes nothing away from them: whether or not it has something new.
func TestMonitorsOutliveASnapshot(t *testing.T) {
	const what = `["T","m",{"Q":{"columns":["n"],"where":[["n",">",1]]}}]`
	for _, more := range []bool{true, false} {
		m := startWithSchema(t)
		w, c := m.dial(), m.dial()
		insert := func(n int) { w.call("transact", fmt.Sprintf(`["T",{"op":"insert","table":"Q","row":{"n":%d}}]`, n)) }
		insert(1)
		insert(2)
		c.call("monitor_cond", what)
		goOn := func() {}
		if more {
			_, goOn = m.stall()
		}
		install := func() {
			if !more {
				await(t, "all is handed on", func() bool { return m.reached() == m.door.view().Index() })
			}
			var snapshot bytes.Buffer
			if err := m.door.view().WriteSnapshot(&snapshot); err != nil {
				t.Error(err)
			} else if err := m.group.Restore(&snapshot); err != nil {
				t.Error(err)
			}
		}
		m.next.Store(&install)
		insert(3)
		goOn()
		wantIDs(t, "what was lost", c.read(), `{"id":null,"method":"update2","params":["m",{"Q":{"ID":{"insert":{"n":3}}}}]}`)
		later := m.dial()
		if got := later.call("monitor_cond", what); strings.Count(got, "initial") != 2 {
			t.Fatalf("who begins behind it: %s", got)
		}
		w.call("transact", `["T",{"op":"update","table":"Q","where":[["n","==",3]],"row":{"n":4}},{"op":"delete","table":"Q","where":[["n","==",1]]}]`)
		for who, of := range map[string]*client{"who was there": c, "who came later": later} {
			wantIDs(t, who, of.read(), `{"id":null,"method":"update2","params":["m",{"Q":{"ID":{"modify":{"n":4}}}}]}`)
			want(t, who+", nothing else", of.call("echo", `[]`), `[]`)
		}
	}
}

// reached is the index up to which the feed has handed all on.
func (m *member) reached() incumbent.Index {
	n := make(chan incumbent.Index)
	f := m.door.feeds.of("T")
	f.do(func() { n <- f.reached })
	return <-n
}
