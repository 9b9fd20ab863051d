package consul

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/engine/enginetest"
	"github.com/incumbent-dev/incumbent/park"
)

const patience = time.Minute

// member is a door on a real engine.
type member struct {
	tb    testing.TB
	group *enginetest.Group
	park  *park.Set
	door  *Door
	addr  string // of a listener that is served once somebody connects
	pipes *pipes // that listener, where it is of pipes; nil: it is of TCP
	lone  *loneCluster
	guard *auth.Authenticator

	listen func() // has the door serve, once

	mu      sync.Mutex // guards records
	records []audit.Record
}

// loneCluster is a cluster of the one member.
type loneCluster struct {
	mu      sync.Mutex // guards the rest
	age     time.Duration
	members []Member
}

func (c *loneCluster) Members() []Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.members
}

func (c *loneCluster) Age() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.age
}

// startMember returns a door that trusts whoever connects; change may change how it is
// made.
func startMember(tb testing.TB, change func(*Config)) *member { return startMemberOn(tb, nil, change) }

// startMemberOn is startMember on a group that may be made differently.
func startMemberOn(tb testing.TB, group func(*engine.Config), change func(*Config)) *member {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	return startMemberAt(tb, ln, park.Config{Workers: 2}, group, change)
}

// startPiped is startMember within a bubble of synctest, in which there are no sockets.
func startPiped(tb testing.TB, change func(*Config)) *member {
	tb.Helper()
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	m := startMemberAt(tb, p, park.Config{Workers: 2, Portable: true}, nil, change)
	m.pipes = p
	return m
}

// pipes is a listener of pipes, which end at this machine.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.closed); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8500} }

func (p *pipes) dial() net.Conn {
	near, far := net.Pipe()
	p.conns <- piped{far, p.Addr()}
	return near
}

type piped struct {
	net.Conn
	addr net.Addr
}

func (p piped) LocalAddr() net.Addr  { return p.addr }
func (p piped) RemoteAddr() net.Addr { return p.addr }

func startMemberAt(tb testing.TB, ln net.Listener, parked park.Config, group func(*engine.Config), change func(*Config)) *member {
	tb.Helper()
	m := &member{tb: tb, lone: &loneCluster{members: []Member{{ID: 7, Name: "n1", Address: "127.0.0.1:8300", Voter: true, Leader: true, Alive: true, Self: true}}}}
	m.guard = auth.NewAuthenticator(true, nil)
	var of engine.Config
	if group != nil {
		group(&of)
	}
	m.group = enginetest.Start(tb, of)
	m.group.Do(&kv.Command{Verb: kv.Put, Key: kv.Key{Namespace: "other", Name: "first"}}) // see confirmed
	var err error
	if m.park, err = park.New(parked); err != nil {
		tb.Fatal(err)
	}
	cfg := Config{Engine: m.group.Engine, Park: m.park, Guard: m.guard, Cluster: m.lone, Node: "agent", Audit: m.note}
	if change != nil {
		change(&cfg)
	}
	if m.door, err = New(cfg); err != nil {
		tb.Fatal(err)
	}
	m.addr = ln.Addr().String()
	served := make(chan error, 1)
	m.listen = sync.OnceFunc(func() { go func() { served <- m.door.Serve(ln) }() })
	tb.Cleanup(func() {
		m.listen()
		m.door.Drain()
		ln.Close()
		ctx, done := context.WithTimeout(context.Background(), patience)
		defer done()
		if err := <-served; err != nil {
			tb.Error(err)
		}
		m.park.Close(ctx)
		if err := m.door.Close(ctx); err != nil {
			tb.Error(err)
		}
	})
	return m
}

func (m *member) note(r audit.Record) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.records = append(m.records, r)
}

// client is a connection on which a test speaks HTTP itself.
type client struct {
	tb   testing.TB
	conn net.Conn
	in   *bufio.Reader
}

func (m *member) dial() *client {
	m.tb.Helper()
	if m.listen != nil {
		m.listen()
	}
	var c net.Conn
	if m.pipes != nil {
		c = m.pipes.dial()
	} else {
		var err error
		if c, err = net.Dial("tcp", m.addr); err != nil {
			m.tb.Fatal(err)
		}
	}
	m.tb.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(patience))
	return &client{m.tb, c, bufio.NewReader(c)}
}

// write sends what it is given.
func (c *client) write(text string) {
	c.tb.Helper()
	if _, err := io.WriteString(c.conn, text); err != nil {
		c.tb.Fatal(err)
	}
}

// answer is a response that was read whole.
type answer struct {
	*http.Response
	body string
}

// read reads the next answer, to a request of the method.
func (c *client) read(method string) answer {
	c.tb.Helper()
	r, err := http.ReadResponse(c.in, &http.Request{Method: method})
	if err != nil {
		c.tb.Fatal(err)
	}
	b, err := io.ReadAll(r.Body)
	if err != nil {
		c.tb.Fatal(err)
	}
	return answer{r, string(b)}
}

// ended fails unless the other side has closed, whether or not it had read all that was sent.
func (c *client) ended() {
	c.tb.Helper()
	if b, err := c.in.ReadByte(); err != io.EOF && !errors.Is(err, syscall.ECONNRESET) {
		c.tb.Fatalf("not ended: %q, %v", b, err)
	}
}

// do makes one request on a connection of its own.
func (m *member) do(method, path, body string, headers ...string) answer {
	m.tb.Helper()
	c := m.dial()
	var b strings.Builder
	b.WriteString(method + " " + path + " HTTP/1.1\r\nHost: " + m.addr + "\r\nConnection: close\r\n")
	for i := 0; i < len(headers); i += 2 {
		b.WriteString(headers[i] + ": " + headers[i+1] + "\r\n")
	}
	if body != "" {
		b.WriteString("Content-Length: " + formatIndex(indexOf(len(body))) + "\r\n")
	}
	c.write(b.String() + "\r\n" + body)
	return c.read(method)
}
