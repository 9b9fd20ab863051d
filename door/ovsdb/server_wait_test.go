package ovsdb

import (
	"strings"
	"testing"
)

// waitingForServer returns how many transactions wait for other rows of _Server.
func (m *member) waitingForServer() int {
	n := make(chan int)
	m.door.feeds.of(serverName).do(func() { n <- len(m.door.feeds.server.waits) })
	return <-n
}

// A wait on the database about the server is answered when the database that it asks for
// is there, as ovsdb-client's wait asks for it.
func TestWaitForADatabase(t *testing.T) {
	m := startMember(t, func(c *Config) { c.Probe = -1 }) // its clock is moved on for something else
	const forT = `["_Server",{"op":"wait","table":"Database","where":[["name","==","T"]],"columns":["connected"],"until":"==","rows":[{"connected":true}]}]`
	w, left, c := m.dial(), m.dial(), m.dial()
	w.write(ask("1", "transact", forT))
	w.write(ask("2", "transact", strings.Replace(forT, `"=="`, `"!="`, 1)))
	want(t, "who waits holds nobody up", w.read(), `{"error":null,"id":2,"result":[{}]}`)
	w.write(ask("3", "transact", forT) + `{"id":null,"method":"cancel","params":[3]}`)
	want(t, "canceled", w.read(), `{"error":"canceled","id":3,"result":null}`)
	left.write(ask("1", "transact", forT))
	c.until("both wait", func() bool { return m.waitingForServer() == 2 })
	left.conn.Close()
	c.until("who is gone waits no more", func() bool { m.tick(1); return m.waitingForServer() == 1 })
	schemas, err := readSchemas([][]byte{[]byte(testSchema)})
	if err != nil {
		t.Fatal(err)
	}
	m.door.define(schemas[0])
	c.until("the database is there", func() bool { return c.call("list_dbs", `[]`) == `["T","_Server"]` })
	m.tick(1) // which is when rows are made anew
	want(t, "the wait", w.read(), `{"error":null,"id":1,"result":[{}]}`)
	want(t, "one that holds", c.call("transact", forT), `[{}]`)
	want(t, "one that holds the other way round", c.call("transact", strings.Replace(forT, `"name","==","T"`, `"name","==","U"`, 1)[:len(forT)-2]+`,"timeout":0}]`),
		`[{"details":"\"where\" clause test failed","error":"timed out"}]`)
	got := c.call("transact", `["_Server",{"op":"wait","table":"Database","where":[],"columns":["name"],"until":"==","rows":[{"name":"T"}],"timeout":5},{"op":"comment","comment":"x"}]`)
	if !strings.HasPrefix(got, `[{"details":"\"wait\" timed out after `) || !strings.HasSuffix(got, `ms","error":"timed out"},null]`) {
		t.Errorf("a wait with time: %s", got)
	}
	want(t, "rows without what they have by default", c.call("transact", `["_Server",{"op":"wait","table":"Database","where":[],"columns":["name"],"until":"!=","rows":[{}]}]`), `[{}]`)
	want(t, "rows that are there twice", c.call("transact", `["_Server",{"op":"wait","table":"Database","where":[],"columns":["connected","leader"],"until":"==","rows":[{"connected":true,"leader":true}]}]`), `[{}]`)
	if n := m.waitingForServer(); n != 0 {
		t.Errorf("%d still wait", n)
	}
}
