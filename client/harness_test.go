package client

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/server"
)

// testTimeout bounds every wait; a test that reaches it has failed.
const testTimeout = time.Minute

func testContext(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	t.Cleanup(cancel)
	return ctx
}

func serverConfig(t testing.TB) server.Config {
	return server.Config{
		DataDir: t.TempDir(), Name: "n1", Listen: "127.0.0.1:0",
		SegmentBytes: node.MinSegmentBytes, DiskReserve: 1 << 20, ReturnTime: time.Millisecond,
	}
}

func startServer(t testing.TB, cfg server.Config) *server.Server {
	t.Helper()
	s, err := server.Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopServer(t, s) })
	if err := s.WaitReady(testContext(t)); err != nil {
		t.Fatal(err)
	}
	return s
}

func stopServer(t testing.TB, s *server.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testTimeout)
	defer cancel()
	if err := s.Close(ctx); err != nil {
		t.Error(err)
	}
}

func newClient(t testing.TB, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func clientOf(t testing.TB, urls ...string) *Client {
	t.Helper()
	return newClient(t, Config{Servers: urls})
}

func openSession(t testing.TB, c *Client, cfg SessionConfig) *Session {
	t.Helper()
	s, err := c.Open(testContext(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		defer cancel()
		_ = s.Close(ctx) // the server may be gone already
	})
	return s
}

func named(lease string) incumbent.Name {
	return incumbent.Name{Namespace: incumbent.DefaultNamespace, Model: incumbent.DefaultModel, Lease: lease}
}

func mustClaim(t testing.TB, s *Session, name string) *Lease {
	t.Helper()
	l, err := s.Claim(testContext(t), named(name), ClaimOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func lookUp(t testing.TB, c *Client, name string) *apiv1.Lease {
	t.Helper()
	res, err := c.Leases().Get(testContext(t), connect.NewRequest(&apiv1.GetRequest{Name: apiName(named(name))}))
	if incumbent.KindOf(AsError(err)) == incumbent.NotFound {
		return &apiv1.Lease{} // never claimed
	}
	if err != nil {
		t.Fatal(err)
	}
	return res.Msg.Lease
}

// await blocks until a holding's or a session's context ends, and returns why.
func await(ctx context.Context, t testing.TB) error {
	t.Helper()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(testTimeout):
		t.Fatal("it did not end")
		return nil
	}
}

// follow calls check for the state of a lease now and after every change, until
// it returns true.
func follow(t testing.TB, c *Client, name string, check func(*apiv1.Lease) bool) {
	t.Helper()
	ctx := testContext(t)
	for _, err := range c.Watch(ctx, WatchOptions{Name: named(name)}) {
		if err != nil {
			t.Fatal(err)
		}
		if check(lookUp(t, c, name)) { // with its queue, which events leave out
			return
		}
	}
	t.Fatalf("%s never came to be as awaited", name)
}

func (s *Session) awaitQueued(t testing.TB, c *Client, name string, places int) {
	t.Helper()
	follow(t, c, name, func(l *apiv1.Lease) bool { return len(l.GetQueue()) == places })
}

// relay passes connections on to a server, until it is told to be silent.
type relay struct {
	t      testing.TB
	ln     net.Listener
	target string

	mu     sync.Mutex // guards the rest
	gate   chan struct{}
	conns  []net.Conn
	silent bool
}

// newRelay relays to a server's URL.
func newRelay(t testing.TB, url string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{t: t, ln: ln, target: url[len("http://"):], gate: make(chan struct{})}
	close(r.gate)
	go r.serve()
	t.Cleanup(func() { ln.Close(); r.resume(); r.cut() })
	return r
}

func (r *relay) url() string { return "http://" + r.ln.Addr().String() }

func (r *relay) serve() {
	for {
		in, err := r.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", r.target)
		if err != nil {
			in.Close()
			continue
		}
		r.mu.Lock()
		r.conns = append(r.conns, in, out)
		r.mu.Unlock()
		go r.pass(in, out)
		go r.pass(out, in)
	}
}

func (r *relay) pass(to, from net.Conn) {
	defer to.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		gate := r.gate
		r.mu.Unlock()
		<-gate
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// stall holds everything back, as a server does that stands still.
func (r *relay) stall() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.silent {
		r.silent, r.gate = true, make(chan struct{})
	}
}

func (r *relay) resume() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.silent {
		r.silent = false
		close(r.gate)
	}
}

// cut ends all connections.
func (r *relay) cut() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		c.Close()
	}
	r.conns = nil
}

// silentServer accepts and never answers.
func silentServer(t testing.TB) (url string) {
	t.Helper()
	url, _ = listenSilently(t)
	return url
}

// listenSilently is a silentServer that tells once that something was sent to it.
func listenSilently(t testing.TB) (url string, heard <-chan struct{}) {
	t.Helper()
	said := make(chan struct{})
	tell := sync.OnceFunc(func() { close(said) })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var conns []net.Conn
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			conns = append(conns, c)
			mu.Unlock()
			go func() {
				if n, _ := c.Read(make([]byte, 1)); n > 0 {
					tell()
				}
				_, _ = io.Copy(io.Discard, c)
			}()
		}
	}()
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		defer mu.Unlock()
		for _, c := range conns {
			c.Close()
		}
	})
	return "http://" + ln.Addr().String(), said
}

// dueOnce is a context whose deadline passes when a channel is closed, however
// long a loaded machine takes until then.
type dueOnce struct {
	context.Context
	due <-chan struct{}
}

func (d dueOnce) Done() <-chan struct{} { return d.due }

func (d dueOnce) Err() error {
	select {
	case <-d.due:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// deadServer is an address where nobody listens: a port that was free a moment ago
// may be another process's by now, this one is not given out.
const deadServer = "http://127.0.0.1:1"
