package ovsdb

import (
	"context"
	"encoding/json"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/engine/enginetest"
	"github.com/incumbent-dev/incumbent/park"
)

const patience = 10 * time.Second

// member is a door on a real engine.
type member struct {
	tb    testing.TB
	group *enginetest.Group
	park  *park.Set
	door  *Door
	addr  string
	path  string // of a socket
	ticks chan time.Time
	cut   atomic.Bool            // it is in touch with no leader
	next  atomic.Pointer[func()] // done once behind the next batch that is applied, where that was
}

// startMember returns a door that trusts whoever connects; change may change how it is
// made.
func startMember(tb testing.TB, change func(*Config)) *member {
	tb.Helper()
	m := &member{tb: tb, ticks: make(chan time.Time)}
	m.group = enginetest.Start(tb, engine.Config{Applied: func(*engine.Applied) {
		if next := m.next.Swap(nil); next != nil {
			(*next)()
		}
	}})
	var err error
	if m.park, err = park.New(park.Config{Workers: 2}); err != nil {
		tb.Fatal(err)
	}
	cfg := Config{
		Engine: m.group.Engine, Park: m.park, Guard: auth.NewAuthenticator(true, nil), Ticks: m.ticks,
		Standing: func() Standing {
			return Standing{Cluster: [16]byte{1}, Member: [16]byte{2}, Connected: !m.cut.Load()}
		},
	}
	if change != nil {
		change(&cfg)
	}
	if m.door, err = New(cfg); err != nil {
		tb.Fatal(err)
	}
	tcp, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	m.addr, m.path = tcp.Addr().String(), filepath.Join(tb.TempDir(), "s")
	unix, err := net.Listen("unix", m.path)
	if err != nil {
		tb.Fatal(err)
	}
	served := make(chan error, 2)
	go func() { served <- m.door.Serve(tcp, &Remote{Secure: true}) }()
	go func() { served <- m.door.Serve(unix, &Remote{}) }()
	tb.Cleanup(func() {
		m.door.Drain()
		tcp.Close()
		unix.Close()
		ctx, done := context.WithTimeout(context.Background(), patience)
		defer done()
		for range cap(served) {
			if err := <-served; err != nil {
				tb.Error(err)
			}
		}
		m.park.Close(ctx)
		if err := m.door.Close(ctx); err != nil {
			tb.Error(err)
		}
	})
	return m
}

// tick moves the door's clock on.
func (m *member) tick(n int) {
	for range n {
		m.ticks <- time.Time{}
	}
}

// client is a connection on which a test speaks the protocol itself.
type client struct {
	tb   testing.TB
	conn net.Conn
	in   *json.Decoder
}

func (m *member) dial() *client { return m.dialAt("tcp", m.addr) }

func (m *member) dialAt(network, address string) *client {
	m.tb.Helper()
	c, err := net.Dial(network, address)
	if err != nil {
		m.tb.Fatal(err)
	}
	m.tb.Cleanup(func() { c.Close() })
	return &client{m.tb, c, json.NewDecoder(c)}
}

// wait bounds what comes next: a whole test may take longer on a machine that is busy.
func (c *client) wait() { _ = c.conn.SetDeadline(time.Now().Add(patience)) }

// write sends what it is given.
func (c *client) write(text string) {
	c.tb.Helper()
	c.wait()
	if _, err := c.conn.Write([]byte(text)); err != nil {
		c.tb.Fatal(err)
	}
}

// read reads the next message, as compact JSON with its members sorted.
func (c *client) read() string {
	c.tb.Helper()
	var v any
	c.wait()
	if err := c.in.Decode(&v); err != nil {
		c.tb.Fatal(err)
	}
	b, err := json.Marshal(v)
	if err != nil {
		c.tb.Fatal(err)
	}
	return string(b)
}

// call makes a request and returns its result, or its error.
func (c *client) call(method, params string) string {
	c.tb.Helper()
	c.write(`{"method":"` + method + `","params":` + params + `,"id":7}`)
	return c.answer()
}

// answer reads an answer to a request of call.
func (c *client) answer() string {
	c.tb.Helper()
	var m struct {
		ID            int
		Result, Error json.RawMessage
		Method        string
	}
	text := c.read()
	if err := json.Unmarshal([]byte(text), &m); err != nil || m.ID != 7 || m.Method != "" {
		c.tb.Fatalf("not an answer: %s", text)
	}
	if string(m.Error) != "null" {
		return "error " + string(m.Error)
	}
	return string(m.Result)
}

// want fails unless a text is what it should be.
func want(tb testing.TB, what, got, want string) {
	tb.Helper()
	if got != want {
		tb.Errorf("%s: got\n%s\nwant\n%s", what, got, want)
	}
}

// ended fails unless the other side has closed.
func (c *client) ended() {
	c.tb.Helper()
	var v json.RawMessage
	c.wait()
	if err := c.in.Decode(&v); err == nil || strings.Contains(err.Error(), "timeout") {
		c.tb.Fatalf("not ended: %s, %v", v, err)
	}
}

// until makes calls until something is so that nobody tells of.
func (c *client) until(what string, ok func() bool) {
	c.tb.Helper()
	await(c.tb, what, func() bool { return ok() || c.call("echo", `[]`) == "" })
}

// await looks until something is so that nobody tells of.
func await(tb testing.TB, what string, ok func() bool) {
	tb.Helper()
	for end := time.Now().Add(patience); !ok(); {
		if time.Now().After(end) {
			tb.Fatalf("still not: %s", what)
		}
		time.Sleep(time.Millisecond)
	}
}
