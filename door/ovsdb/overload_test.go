package ovsdb

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent/accept"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/workqueue"
)

// pipes is a listener of what is put into it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, open := <-p
	if !open {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// Who is not let in finds out after a while, so that one that connects again at once does so
// four times a second; more than are bounded find out at once.
func TestG41_ConnectionsAreRefusedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lanes, err := admit.New(admit.Limits{Retry: time.Second, MaxRetry: time.Second}, func() float64 { return 0.5 })
		if err != nil {
			t.Fatal(err)
		}
		lanes.SetMemory(85, 100) // nobody is let in
		began := time.Now()
		d := &Door{pending: accept.New(), made: make(chan struct{}), lanes: admit.Clocked{Controller: lanes, Now: func() int64 { return int64(time.Since(began)) }}}
		d.SetLimits(Limits{})
		close(d.made)
		arrivals, served := make(pipes), make(chan error)
		go func() { served <- d.Serve(arrivals, &Remote{}) }()
		connect := func() net.Conn {
			near, far := net.Pipe()
			arrivals <- far
			return near
		}
		ended := func(c net.Conn, after time.Duration) {
			t.Helper()
			began := time.Now()
			if _, err := c.Read(make([]byte, 1)); err != io.EOF || time.Since(began) != after {
				t.Errorf("%v after %v, want the end after %v", err, time.Since(began), after)
			}
		}
		for range 8 {
			ended(connect(), admit.HeldBackFor)
		}
		var held []net.Conn
		for range admit.MaxHeldBack {
			held = append(held, connect())
		}
		ended(connect(), 0)
		if got := d.held.Len(); got != admit.MaxHeldBack {
			t.Errorf("%d are held back", got)
		}
		ended(held[0], admit.HeldBackFor)
		for _, c := range held[1:] {
			ended(c, 0)
		}
		synctest.Wait()
		if n, refused := d.Connections(), d.counts.refused.Load(); n != 0 || d.held.Len() != 0 || refused != admit.MaxHeldBack+9 {
			t.Errorf("%d connections and %d that are held back are left of %d that were refused", n, d.held.Len(), refused)
		}
		close(arrivals)
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// While memory is short new connections are refused, monitors wait and are refused then,
// transactions and locks wait, probes are answered; what was refused comes through
// afterwards, and so does what still waits.
func TestG40_MonitorsAreRefusedBeforeTransactions(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission, c.Limits.Patience = lanes, time.Millisecond })
	c, watcher := m.dial(), m.dial()
	c.call("echo", "[]") // it was accepted while there was memory
	watcher.call("echo", "[]")
	const monitor = `["_Server","m",{"Database":{}}]`
	lanes.SetMemory(85, 100)
	watcher.write(ask("1", "monitor", monitor))
	watcher.ended()
	if a := c.call("transact", `["_Server"]`); a != "[]" {
		t.Errorf("a transaction: %s", a)
	}
	m.dial().ended()
	lanes.SetMemory(2, 1) // beyond all bounds
	if a := c.call("echo", `["x"]`); !strings.Contains(a, `["x"]`) {
		t.Errorf("a probe: %s", a)
	}
	c.write(ask("1", "lock", `["l"]`))
	c.until("the lock is put off", func() bool { return lanes.Stats()[laneOfLocks].Deferred > 0 })
	lanes.SetMemory(0, 1)
	want(t, "the lock afterwards", c.read(), `{"error":null,"id":1,"result":{"locked":true}}`)
	if a := c.call("monitor", monitor); !strings.Contains(a, `"name":"_Server"`) {
		t.Errorf("a monitor afterwards: %s", a)
	}
	m.dial().call("echo", "[]")
}

// A monitor for which there is no place begins when there is one.
func TestG40_MonitorsWaitForAPlace(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission, c.Limits.Patience = lanes, time.Hour })
	c := m.dial()
	c.call("echo", "[]") // it was accepted while there was memory
	lanes.SetMemory(85, 100)
	c.write(`{"id":1,"method":"monitor","params":["_Server","m",{"Database":{}}]}`)
	c.until("a refusal", func() bool { return lanes.Stats()[admit.Watches].Refused[admit.Memory] > 0 })
	lanes.SetMemory(0, 100)
	if a := c.read(); !strings.Contains(a, `"id":1`) || !strings.Contains(a, `"name":"_Server"`) {
		t.Errorf("a monitor that has waited: %s", a)
	}
}

// The conditions of a monitor that is there change while new ones wait for a place.
func TestG40_ConditionsChangeWithoutAPlace(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) {
		c.Schemas, c.Admission, c.Limits.Patience = [][]byte{[]byte(testSchema)}, lanes, time.Hour
	})
	c := m.dial()
	want(t, "a monitor", c.call("monitor_cond", `["T","m",{"P":{"columns":["name"]}}]`), `{}`)
	lanes.SetMemory(85, 100)
	want(t, "its change", c.call("monitor_cond_change", `["m","n",{"P":[{"where":[["name","==","a"]]}]}]`), `{}`)
}

// A monitor for which there is no place is refused after half as long as a transaction.
func TestG40_MonitorsWaitHalfAsLong(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	began, passed := time.Now(), atomic.Int64{}
	m := startMember(t, func(c *Config) {
		c.Admission, c.Limits.Patience = lanes, 2*time.Hour
		c.Now = func() time.Time { return began.Add(time.Duration(passed.Load())) }
	})
	c := m.dial()
	c.call("echo", "[]") // it was accepted while there was memory
	lanes.SetMemory(85, 100)
	c.write(`{"id":1,"method":"monitor","params":["_Server","m",{"Database":{}}]}`)
	watches := func() admit.LaneStats { return lanes.Stats()[admit.Watches] }
	c.until("a refusal", func() bool { return watches().Refused[admit.Memory] > 0 })
	passed.Store(int64(time.Hour - time.Second))
	before := watches().Deferred
	c.until("it asks again", func() bool { return watches().Deferred > before+1 })
	if n := watches().Refused[admit.Memory]; n != 1 {
		t.Errorf("one that waits counts as %d that were refused", n)
	}
	passed.Store(int64(time.Hour))
	c.ended() // an answer would have it try what costs more
}

// Locks for which there is no place wait for one however long that takes, each step of them,
// while transactions are served and locks are given up. Until then nothing of them is in the
// log.
func TestG40_LocksWaitForAPlace(t *testing.T) {
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	m := startMember(t, func(c *Config) { c.Admission, c.Limits.Patience = lanes, time.Millisecond })
	holds, c := m.dial(), m.dial()
	want(t, "who holds one", holds.call("lock", `["held"]`), `{"locked":true}`)
	c.call("echo", "[]") // it was accepted while there was memory
	claims := func() admit.LaneStats { return lanes.Stats()[admit.Claims] }
	wait := func(what string) {
		t.Helper()
		before := claims().Deferred
		c.until(what+" is put off again and again", func() bool { return claims().Deferred > before+2 })
	}

	lanes.SetMemory(85, 100) // claims are refused, and nothing that goes after them
	c.write(ask("1", "lock", `["l"]`) + ask("2", "lock", `["l"]`))
	if a := c.read(); !strings.Contains(a, `"id":2`) || !strings.Contains(a, "the lock is asked for already") {
		t.Errorf("once more: %s", a)
	}
	wait("a session")
	want(t, "a transaction meanwhile", c.call("transact", `["_Server"]`), `[]`)
	if n := m.door.view().SessionCount(); n != 1 {
		t.Errorf("%d sessions are open", n)
	}
	c.write(ask("3", "unlock", `["l"]`))
	want(t, "the lock that is given up", c.read(), `{"error":null,"id":1,"result":{"locked":false}}`)
	want(t, "the unlock", c.read(), `{"error":null,"id":3,"result":{}}`)
	lanes.SetMemory(0, 100)
	want(t, "a lock", c.call("lock", `["l"]`), `{"locked":true}`)

	lanes.SetMemory(85, 100)
	proposed := m.group.Proposed()
	c.write(ask("8", "lock", `["x"]`) + ask("9", "unlock", `["x"]`))
	want(t, "one that is given up before it was claimed", c.read(), `{"error":null,"id":8,"result":{"locked":false}}`)
	want(t, "its unlock", c.read(), `{"error":null,"id":9,"result":{}}`)
	if n := m.group.Proposed() - proposed; n != 0 {
		t.Errorf("%d commands give up what was never claimed", n)
	}
	c.write(ask("1", "steal", `["held"]`))
	wait("a claim")
	want(t, "what is given up", c.call("unlock", `["l"]`), `{}`)
	want(t, "for another", holds.call("unlock", `["held"]`), `{}`)
	lanes.SetMemory(0, 100)
	want(t, "the lock that is stolen", c.read(), `{"error":null,"id":1,"result":{"locked":true}}`)

	m.group.Hold()
	holds.write(ask("1", "steal", `["held"]`))
	await(t, "the claim has a place", func() bool { return claims().Inflight == 1 })
	lanes.SetMemory(85, 100)
	m.group.Release()
	wait("the hand-over")
	lanes.SetMemory(0, 100)
	want(t, "the lock that is stolen back", holds.read(), `{"error":null,"id":1,"result":{"locked":true}}`)
	want(t, "the victim", c.read(), `{"id":null,"method":"stolen","params":["held"]}`)
	await(t, "no place is held", func() bool { return claims().Inflight == 0 })
}

// What waits for a place asks again the sooner the fewer wait, however long it has waited.
func TestWhatWaitsAsksAgain(t *testing.T) {
	for waiting, want := range map[int]time.Duration{
		1: firstRetry, int(firstRetry / retryEach): firstRetry, int(2 * firstRetry / retryEach): 2 * firstRetry, int(2 * maxRetry / retryEach): maxRetry,
	} {
		synctest.Test(t, func(t *testing.T) {
			d := &Door{jitter: func() float64 { return 0.5 }, work: workqueue.New[func()]()}
			go workqueue.Run(d.work)
			defer d.work.Close()
			for range waiting - 1 {
				d.putOff(func() {})
			}
			for range 3 {
				began, asked := time.Now(), make(chan struct{})
				d.putOff(func() { close(asked) })
				if <-asked; time.Since(began) != want {
					t.Errorf("one of %d that wait asks again after %v, want %v", waiting, time.Since(began), want)
				}
				synctest.Wait()
				if n := int(d.putsOff.Load()); n != 0 {
					t.Fatalf("%d wait still", n)
				}
				for range waiting - 1 {
					d.putOff(func() {})
				}
			}
			time.Sleep(maxRetry)
			synctest.Wait()
		})
	}
}
