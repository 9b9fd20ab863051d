package ovsdb

import (
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
)

// Who is gone before the state of now is confirmed leaves no place taken that nobody gives
// back, nor one free for what is on its way through the log all the same.
func TestG40_WhoGoesLeavesNoPlace(t *testing.T) {
	const convert, remove = `["T",` + testSchema + `]`, `["T",{"op":"delete","table":"P","where":[]},{"op":"comment","comment":"c"}]`
	for _, c := range []struct {
		method, params string
		lane           admit.Lane
		cost           int64
		flies          bool
	}{
		{"list_dbs", `[]`, admit.Small, 1, false},
		{"get_schema", `["unknown"]`, admit.Small, 1, false},
		{"monitor_cond", `["T","m",{"P":{}}]`, admit.Watches, 1, false},
		{"transact", remove, admit.Transactions, 2, false},
		{"transact", insertK, admit.Transactions, 1, true},
		{"convert", convert, admit.Transactions, 1, true},
	} {
		m, lanes := crowdedWithSchema(t)
		under := func() int64 { return lanes.Stats()[c.lane].Inflight }
		m.group.Hold()
		before, others := m.group.Proposed(), m.door.Connections()
		client := m.dial()
		client.write(ask("1", c.method, c.params))
		await(t, c.method+" is under way", func() bool { return under() == c.cost && (!c.flies || m.group.Proposed() > before) })
		client.conn.Close()
		await(t, "the connection is gone", func() bool { return m.door.Connections() == others })
		if n := under(); c.flies && n != c.cost {
			t.Errorf("%s: while its outcome is not known, %d are under way, want %d", c.method, n, c.cost)
		}
		m.group.Release()
		await(t, c.method+" is under way no longer", func() bool { return under() == 0 })
	}
}

// What is canceled keeps its place for as long as the log has it.
func TestG40_WhatIsCanceledKeepsItsPlace(t *testing.T) {
	m, lanes := crowdedWithSchema(t)
	c := m.dial()
	c.call("echo", `[]`)
	m.group.Hold()
	before := m.group.Proposed()
	for range 3 {
		c.write(ask("1", "transact", insertK))
		before++
		await(t, "it is on its way", func() bool { return m.group.Proposed() == before })
		c.write(`{"id":null,"method":"cancel","params":[1]}`)
		want(t, "it is canceled", c.read(), `{"error":"canceled","id":1,"result":null}`)
	}
	if n := lanes.Stats()[admit.Transactions].Inflight; n != 3 {
		t.Errorf("%d are under way, want 3", n)
	}
	m.group.Release()
	await(t, "nothing is under way", func() bool { return lanes.Stats()[admit.Transactions].Inflight == 0 })
}

// What looks at the server itself may be canceled while it waits for a place, too.
func TestWhatWaitsForAPlaceIsCanceled(t *testing.T) {
	m, lanes := crowdedWithSchema(t)
	c := m.dial()
	c.call("echo", `[]`)
	lanes.SetMemory(2, 1)
	refused := func() uint64 { return lanes.Stats()[admit.Transactions].Refused[admit.Memory] }
	before := refused()
	c.write(ask("1", "transact", `["_Server",{"op":"comment","comment":"c"}]`))
	await(t, "it waits", func() bool { return refused() > before })
	c.write(`{"id":null,"method":"cancel","params":[1]}`)
	want(t, "it is canceled", c.read(), `{"error":"canceled","id":1,"result":null}`)
	lanes.SetMemory(0, 1)
	time.Sleep(2 * maxRetry)
	want(t, "afterwards", c.call("transact", `["_Server",{"op":"comment","comment":"c"}]`), `[{}]`)
}

// What looks at the server itself takes a place for each of its operations, none while it
// waits, and selects no more than fits: each row has a schema.
func TestG41_WhatLooksAtTheServerIsBounded(t *testing.T) {
	m, lanes := crowdedWithSchema(t)
	c := m.dial()
	c.call("echo", `[]`)
	admitted := func() uint64 { return lanes.Stats()[admit.Transactions].Admitted }
	const all = `,{"op":"select","table":"Database","where":[]}`
	before := admitted()
	answer := c.call("transact", `["_Server"`+strings.Repeat(all, 10_000)+`]`)
	if len(answer) > 2*maxServerAnswer || !strings.Contains(answer, `"resources exhausted"`) || !strings.HasSuffix(answer, ",null,null]") {
		t.Errorf("%d bytes: %.100s ... %s", len(answer), answer, answer[max(0, len(answer)-100):])
	}
	if admitted() == before {
		t.Error("it has no place")
	}
	c.write(ask("1", "transact", `["_Server",{"op":"wait","table":"Database","where":[],"columns":["name"],"until":"==","rows":[]}]`))
	await(t, "it waits", func() bool {
		waits := make(chan int, 1)
		m.door.feeds.of(serverName).do(func() { waits <- len(m.door.feeds.server.waits) })
		return <-waits == 1
	})
	if n := lanes.Stats()[admit.Transactions].Inflight; n != 0 {
		t.Errorf("while it waits %d are under way", n)
	}
}
