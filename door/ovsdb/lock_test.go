package ovsdb

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/workqueue"
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

// Who gets a lock has been told before of what the one wrote that had it; who loses it is told
// at once.
func TestALockComesBehindWhatItsHolderWrote(t *testing.T) {
	const row = `["T",{"op":"insert","table":"Q","row":{"n":1}}]`
	m := startWithSchema(t)
	was, is, thief := m.dial(), m.dial(), m.dial()
	want(t, "the first", was.call("lock", `["l"]`), `{"locked":true}`)
	is.call("monitor_cond", `["T","m",{"Q":{"columns":["n"]}}]`)
	want(t, "the next", is.call("lock", `["l"]`), `{"locked":false}`)
	has := func(held bool) func() bool {
		return func() bool {
			for _, c := range m.door.conns.All() {
				n := make(chan bool)
				if !c.do(func() {
					l := c.session.locks.byName["l"]
					n <- len(c.session.monitors) > 0 && l != nil && (l.token != 0) == held
				}) {
					continue
				}
				if <-n {
					return true
				}
			}
			return false
		}
	}
	_, goOn := m.stall()
	was.call("transact", row)
	want(t, "the end of the first", was.call("unlock", `["l"]`), `{}`)
	await(t, "the next has it", has(true))
	goOn()
	wantIDs(t, "what was written", is.read(), `{"id":null,"method":"update2","params":["m",{"Q":{"ID":{"insert":{"n":1}}}}]}`)
	want(t, "the lock", is.read(), `{"id":null,"method":"locked","params":["l"]}`)

	_, goOn = m.stall()
	was.call("transact", row)
	want(t, "a thief", thief.call("steal", `["l"]`), `{"locked":true}`)
	await(t, "the next has lost it", has(false))
	want(t, "its end", is.read(), `{"id":null,"method":"stolen","params":["l"]}`)
	goOn()
	wantIDs(t, "what was written then", is.read(), `{"id":null,"method":"update2","params":["m",{"Q":{"ID":{"insert":{"n":1}}}}]}`)
}

// Who asked by `lock` and loses the lock waits for it again; who asked by `steal` does not.
func TestWhoLosesALockWaitsForIt(t *testing.T) {
	const locked, stolen = `{"id":null,"method":"locked","params":["l"]}`, `{"id":null,"method":"stolen","params":["l"]}`
	m := startMember(t, nil)
	a := m.dial()
	want(t, "the first", a.call("lock", `["l"]`), `{"locked":true}`)
	for end, let := range map[string]func(thief *client){
		"closed": func(thief *client) { thief.conn.Close() },
		"unlock": func(thief *client) { want(t, "its end", thief.call("unlock", `["l"]`), `{}`) },
		"revoked": func(thief *client) {
			m.group.Do(leases.RevokeCommand{Name: m.door.lockName("l")})
			want(t, "the thief", thief.read(), stolen)
			want(t, "the thief then", thief.call("echo", `[]`), `[]`)
		},
		"stolen again": func(thief *client) {
			next := m.dial()
			want(t, "the next thief", next.call("steal", `["l"]`), `{"locked":true}`)
			want(t, "the thief", thief.read(), stolen)
			next.conn.Close()
		},
	} {
		thief := m.dial()
		want(t, end+": a thief", thief.call("steal", `["l"]`), `{"locked":true}`)
		want(t, end+": the victim", a.read(), stolen)
		let(thief)
		want(t, end+": the victim then", a.read(), locked)
	}
	revoke := leases.RevokeCommand{Name: m.door.lockName("l")}
	m.group.Do(revoke)
	want(t, "who is alone", a.read(), stolen)
	want(t, "who is alone then", a.read(), locked)
	b := m.dial()
	want(t, "who waits", b.call("lock", `["l"]`), `{"locked":false}`)
	m.group.Do(revoke)
	want(t, "who is not alone", a.read(), stolen)
	want(t, "who has waited", b.read(), locked)
	want(t, "the end of it", b.call("unlock", `["l"]`), `{}`)
	want(t, "who was not alone", a.read(), locked)
}

// Who accepts a lock that is over before it is known here that it was accepted is told so.
func TestWhoAcceptsALockTooLateIsToldSo(t *testing.T) {
	m := startMember(t, nil)
	c := m.dial()
	want(t, "the lock", c.call("lock", `["l"]`), `{"locked":true}`)
	conn := m.door.conns.All()[0]
	conn.do(func() { // as if it had been offered, and accepted
		l := conn.session.locks.byName["l"]
		token := l.token
		l.wait.Cancel()
		l.wait, l.token = nil, 0
		m.group.Do(leases.RevokeCommand{Name: m.door.lockName("l")})
		l.accepted(token, incumbent.OK)
	})
	for _, what := range []string{"locked", "stolen", "locked"} {
		want(t, what, c.read(), `{"id":null,"method":"`+what+`","params":["l"]}`)
	}
}

// Who was told `stolen` and gives the lock up leaves the line.
func TestWhoGivesUpAStolenLockLeavesTheLine(t *testing.T) {
	m := startMember(t, nil)
	a, thief := m.dial(), m.dial()
	want(t, "the first", a.call("lock", `["l"]`), `{"locked":true}`)
	want(t, "a thief", thief.call("steal", `["l"]`), `{"locked":true}`)
	want(t, "the victim", a.read(), `{"id":null,"method":"stolen","params":["l"]}`)
	waiting := func(n int32) func() bool {
		return func() bool { return leases.Of(m.door.view()).Lease(m.door.lockName("l")).Waiting == n }
	}
	await(t, "the victim is in line", waiting(1))
	want(t, "its end", a.call("unlock", `["l"]`), `{}`)
	await(t, "nobody is", waiting(0))
	want(t, "the thief's end", thief.call("unlock", `["l"]`), `{}`)
	want(t, "nothing is told", a.call("echo", `[]`), `[]`)
	want(t, "another", m.dial().call("lock", `["l"]`), `{"locked":true}`)
}

// Who may change nothing at its listener has no locks there.
func TestLocksAtAListenerThatIsReadOnly(t *testing.T) {
	const refused = `error "lock and unlock methods not allowed, DB server is read only."`
	m := startMember(t, nil)
	c := m.dial()
	want(t, "a lock before", c.call("lock", `["mine"]`), `{"locked":true}`)
	remote := m.door.conns.All()[0].who.remote
	remote.Set(Options{ReadOnly: true})
	for _, method := range []string{"lock", "steal", "unlock"} {
		for _, name := range []string{"mine", "l"} {
			want(t, method+" of "+name, c.call(method, `["`+name+`"]`), refused)
		}
	}
	remote.Set(Options{})
	want(t, "its end", c.call("unlock", `["mine"]`), `{}`)
	want(t, "a lock then", c.call("lock", `["l"]`), `{"locked":true}`)
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

// leaving is how many locks of the only connection were given up and are under way, and
// the most steps that one of them has to take.
func (m *member) leaving() (locks, steps int) {
	c, done := m.door.conns.All()[0], make(chan struct{})
	c.do(func() {
		locks = len(c.session.locks.leaving)
		for l := range c.session.locks.leaving {
			steps = max(steps, l.steps)
		}
		close(done)
	})
	<-done
	return locks, steps
}

// A lock that was given up counts until its claim and its release are answered, so that who
// asks for ever more of them does not fill the log.
func TestLocksThatWereGivenUpCount(t *testing.T) {
	const most = 3
	m := startMember(t, func(c *Config) { c.MaxLocks = most })
	c := m.dial()
	nothingIsLeft := func() bool {
		n, _ := m.leaving()
		return n == 0
	}
	for range 2 {
		want(t, "a lock", c.call("lock", `["first"]`), `{"locked":true}`)
		want(t, "its end", c.call("unlock", `["first"]`), `{}`)
		await(t, "nothing is left of it", nothingIsLeft)
	}
	m.group.Hold()
	release := sync.OnceFunc(m.group.Release)
	defer release()
	before := m.group.Proposed()
	for i := range 10 {
		name := fmt.Sprintf(`["a%d"]`, i)
		c.write(ask("1", "lock", name) + ask("2", "unlock", name))
		if got, fits := c.read(), i < most; fits != strings.Contains(got, `"locked":false`) || !fits && !strings.Contains(got, "too many locks") {
			t.Errorf("lock %d: %s", i, got)
		}
		c.read()
	}
	if n := m.group.Proposed() - before; n > 3*most {
		t.Errorf("%d commands are on their way", n)
	}
	release()
	await(t, "all are over", nothingIsLeft)
	want(t, "a lock", c.call("lock", `["last"]`), `{"locked":true}`)
}

// A release that is refused is tried again once, however many of its operations were.
func TestRefusedReleasesDoNotMultiply(t *testing.T) {
	m := startMember(t, nil)
	c := m.dial()
	want(t, "the lock", c.call("lock", `["l"]`), `{"locked":true}`)
	m.group.Refuse(true)
	before := m.group.Proposed()
	want(t, "its end", c.call("unlock", `["l"]`), `{}`)
	await(t, "it is tried again and again", func() bool {
		if locks, steps := m.leaving(); locks != 1 || steps != 1 {
			t.Fatalf("%d locks are given up, with %d steps to be taken", locks, steps)
		}
		return m.group.Proposed() > before+10
	})
	m.group.Refuse(false)
	await(t, "it came through", func() bool {
		locks, _ := m.leaving()
		return locks == 0
	})
	want(t, "the lock of another", m.dial().call("lock", `["l"]`), `{"locked":true}`)
}

// A lock that is asked for again before its release has come through, and given up before
// that was claimed, is released all the same.
func TestALockThatIsWantedAgainIsReleased(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission = lanes })
	c := m.dial()
	want(t, "the lock", c.call("lock", `["l"]`), `{"locked":true}`)
	m.group.Refuse(true)
	want(t, "its end", c.call("unlock", `["l"]`), `{}`)
	lanes.SetMemory(85, 100) // claims are refused
	c.write(ask("1", "lock", `["l"]`))
	await(t, "the release is not tried again", func() bool {
		locks, _ := m.leaving()
		return locks == 0
	})
	c.write(ask("2", "unlock", `["l"]`))
	want(t, "the lock that is given up", c.read(), `{"error":null,"id":1,"result":{"locked":false}}`)
	want(t, "its end again", c.read(), `{"error":null,"id":2,"result":{}}`)
	m.group.Refuse(false)
	lanes.SetMemory(0, 100)
	await(t, "all that is to be done is done", func() bool {
		locks, _ := m.leaving()
		return locks == 0
	})
	want(t, "the lock of another", m.dial().call("lock", `["l"]`), `{"locked":true}`)
}

// It is tried again when the refusals say.
func TestRefusedReleasesComeBackWhenTheyAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Door{jitter: func() float64 { return 0.5 }, work: workqueue.New[func()]()}
		go workqueue.Run(d.work)
		defer d.work.Close()
		refused := func(after time.Duration) lease.Op {
			return lease.Op{Result: core.Result{Err: &incumbent.Error{Kind: incumbent.Overloaded, RetryAfter: after}}}
		}
		for want, ops := range map[time.Duration][]lease.Op{
			0:               {{}, {Result: core.Result{Err: &incumbent.Error{Kind: incumbent.NotHolder}}}},
			firstRetry:      {{}, refused(0)},
			2 * time.Second: {refused(2 * time.Second), refused(time.Second)},
			3 * time.Second: {refused(time.Second), refused(3 * time.Second)},
		} {
			c := &conn{door: d}
			c.session.over = true // so that it is not released
			l := &lock{conn: c}
			c.do(func() { l.released(ops) })
			steps := func() int {
				synctest.Wait()
				n := make(chan int)
				c.do(func() { n <- l.steps })
				return <-n
			}
			if want > 0 {
				time.Sleep(want - 1)
				if n := steps(); n != 1 {
					t.Errorf("%d steps are to be taken before %v", n, want)
				}
				time.Sleep(time.Nanosecond)
			}
			if n := steps(); n != 0 {
				t.Errorf("%d steps are to be taken after %v", n, want)
			}
		}
	})
}
