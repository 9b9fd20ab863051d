package ovsdb

import "testing"

// A lock is one's until it is given up, stolen, or the connection ends; who waits for it
// is told.
func TestLocks(t *testing.T) {
	m := startMember(t, nil)
	a, b, c := m.dial(), m.dial(), m.dial()
	want(t, "the first", a.call("lock", `["ovn_northd"]`), `{"locked":true}`)
	want(t, "the second", b.call("lock", `["ovn_northd"]`), `{"locked":false}`)
	want(t, "the third", c.call("lock", `["ovn_northd"]`), `{"locked":false}`)
	want(t, "another one", b.call("lock", `["other"]`), `{"locked":true}`)
	want(t, "once more", a.call("lock", `["ovn_northd"]`), `error {"details":"the lock is asked for already: it must be unlocked before","error":"syntax error"}`)

	want(t, "unlock", a.call("unlock", `["ovn_northd"]`), `{}`)
	want(t, "the next", b.read(), `{"id":null,"method":"locked","params":["ovn_northd"]}`)
	want(t, "what is not locked", a.call("unlock", `["ovn_northd"]`), `error {"details":"the lock was not asked for","error":"syntax error"}`)

	want(t, "a thief", a.call("steal", `["ovn_northd"]`), `{"locked":true}`)
	want(t, "the victim", b.read(), `{"id":null,"method":"stolen","params":["ovn_northd"]}`)
	want(t, "the victim's unlock", b.call("unlock", `["ovn_northd"]`), `{}`)

	a.conn.Close()
	want(t, "who has waited", c.read(), `{"id":null,"method":"locked","params":["ovn_northd"]}`)
	want(t, "no name", c.call("lock", `["1x"]`), `error {"details":"the name of a lock is to be an \u003cid\u003e","error":"syntax error"}`)
}

// Whose connection ends leaves the queues, too, and no session stays behind.
func TestLocksEndWithTheirConnections(t *testing.T) {
	m := startMember(t, nil)
	a, b, c := m.dial(), m.dial(), m.dial()
	a.call("lock", `["l"]`)
	b.call("lock", `["l"]`)
	b.conn.Close()
	want(t, "the third", c.call("lock", `["l"]`), `{"locked":false}`)
	a.conn.Close()
	want(t, "the third's turn", c.read(), `{"id":null,"method":"locked","params":["l"]}`)
	c.until("one session is left", func() bool { return m.door.view().SessionCount() == 1 })
}
