package ovsdb

import (
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
)

const twoRows = `["T",{"op":"insert","table":"Q","row":{"n":1}},{"op":"insert","table":"Q","row":{"n":2}}]`

// wantFirstFails fails unless an answer says that the first of two operations has failed.
func wantFirstFails(tb testing.TB, what, got, name string) {
	tb.Helper()
	if !strings.HasPrefix(got, `[{"details":"`) || !strings.HasSuffix(got, `","error":"`+name+`"},null]`) {
		tb.Errorf("%s: %s", what, got)
	}
}

// What a policy denies, or there is no place for, is said of the first operation: clients know
// no other error of a transaction than of its syntax and its database.
func TestTransactionsAreRefusedAsAResult(t *testing.T) {
	g := startGuarded(t)
	g.let(tableRule(auth.See))
	wantFirstFails(t, "what is denied", g.as(agentOf("a")).call("transact", twoRows), "permission error")
	wantFirstFails(t, "of a database that it may not know of", g.as(agentOf("a")).call("transact", strings.Replace(twoRows, "T", "V", 1)), "permission error")

	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) {
		c.Schemas, c.Admission, c.Limits.Patience = [][]byte{[]byte(testSchema)}, lanes, time.Millisecond
	})
	c := m.dial()
	c.call("echo", "[]") // it was accepted while there was memory
	lanes.SetMemory(2, 1)
	wantFirstFails(t, "what there is no place for", c.call("transact", twoRows), "resources exhausted")
	wantFirstFails(t, "of the server's database", c.call("transact", `["_Server",{"op":"comment","comment":"x"},{"op":"comment","comment":"y"}]`), "resources exhausted")
	if got := c.call("transact", `[7]`); !strings.HasPrefix(got, `error {"`) {
		t.Errorf("syntax: %s", got)
	}
}

// Who finds no leader is not answered: clients try again what was under way when their
// connection ended, and nothing else.
func TestTransactionsWithoutALeaderEndTheirConnection(t *testing.T) {
	m := startMember(t, func(c *Config) { c.Schemas, c.Limits.Patience = [][]byte{[]byte(testSchema)}, time.Millisecond })
	writer, reader := m.dial(), m.dial()
	for _, c := range []*client{writer, reader} {
		c.call("list_dbs", `[]`)
	}
	m.group.Refuse(true)
	writer.write(ask("1", "transact", twoRows) + ask("2", "transact", twoRows))
	writer.ended()
	reader.write(ask("1", "transact", `["T",{"op":"select","table":"Q","where":[]}]`))
	reader.ended()
	m.group.Refuse(false)
	want(t, "nothing has come of it", m.dial().call("transact", `["T",{"op":"select","table":"Q","where":[]}]`), `[{"rows":[]}]`)
}
