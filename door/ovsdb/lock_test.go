package ovsdb

import (
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"testing"
)

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

// Who steals has the lock, however many steal it and give it up at the same time.
func TestWhoStealsHasTheLock(t *testing.T) {
	m := startWithSchema(t)
	var all sync.WaitGroup
	for i := range 4 {
		c := m.dial()
		all.Go(func() {
			ask := func(method string) string {
				if _, err := fmt.Fprintf(c.conn, `{"method":%q,"params":["l"],"id":7}`, method); err != nil {
					return err.Error()
				}
				for {
					var v struct {
						Method        string
						Result, Error json.RawMessage
					}
					if err := c.in.Decode(&v); err != nil {
						return err.Error()
					}
					if v.Method == "" {
						return string(v.Result) + string(v.Error)
					}
				}
			}
			for n := range 150 {
				method, want := "steal", `{"locked":true}null`
				if (i+n)%3 == 0 {
					method, want = "lock", "" // it has it, or waits
				}
				if got := ask(method); got != want && want != "" {
					t.Errorf("%s %d of client %d: %s", method, n, i, got)
				}
				if got := ask("unlock"); got != `{}null` {
					t.Errorf("unlock %d of client %d: %s", n, i, got)
				}
			}
		})
	}
	all.Wait()
}

// Of a lock that is given up while there is no session yet nothing stays.
func TestLocksGivenUpBeforeTheirSession(t *testing.T) {
	m := startMember(t, nil)
	c := m.dial()
	want(t, "an echo", c.call("echo", `[]`), `[]`)
	m.group.Hold()
	release := sync.OnceFunc(m.group.Release)
	defer release()
	const pairs = 10_000
	go func() {
		for range pairs {
			_, _ = io.WriteString(c.conn, `{"method":"lock","params":["l"],"id":7}{"method":"unlock","params":["l"],"id":7}`)
		}
	}()
	for range pairs {
		want(t, "lock", c.answer(), `{"locked":false}`)
		want(t, "unlock", c.answer(), `{}`)
	}
	if n := m.waitingLocks(); n != 0 {
		t.Errorf("%d locks wait for the session that were given up", n)
	}
	release()
	want(t, "the lock", c.call("lock", `["l"]`), `{"locked":true}`)
}

// waitingLocks is how many locks of the only connection wait for its session.
func (m *member) waitingLocks() int {
	c, n := m.door.conns.All()[0], make(chan int)
	c.do(func() { n <- len(c.session.locks.waiting) })
	return <-n
}
