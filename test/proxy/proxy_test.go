package proxy

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// short is how long a test waits for what must not come.
const short = 50 * time.Millisecond

// target is a server whose connections the test holds.
func target(t *testing.T) (addr string, accepted <-chan net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	conns := make(chan net.Conn, 8)
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			conns <- conn
		}
	}()
	return ln.Addr().String(), conns
}

func open(t *testing.T, cfg Config) *Proxy {
	t.Helper()
	p, err := Open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func dial(t *testing.T, p *Proxy) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func put(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := conn.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

func want(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	buf := make([]byte, len(text))
	conn.SetReadDeadline(time.Now().Add(time.Minute))
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != text {
		t.Fatalf("read %q, %v; want %q", buf, err, text)
	}
}

func wantNothing(t *testing.T, conn net.Conn) {
	t.Helper()
	conn.SetReadDeadline(time.Now().Add(short))
	var buf [1]byte
	if n, err := conn.Read(buf[:]); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatalf("read %d bytes, %v; want none", n, err)
	}
}

func TestForwardsBothWaysAndHalfCloses(t *testing.T) {
	addr, accepted := target(t)
	p := open(t, Config{Target: addr})
	near := dial(t, p)
	put(t, near, "hello")
	far := <-accepted
	want(t, far, "hello")
	near.(*net.TCPConn).CloseWrite()
	if _, err := far.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the dialler's input arrived as %v", err)
	}
	put(t, far, "bye")
	want(t, near, "bye")
	far.Close()
	if _, err := near.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the end of the target's input arrived as %v", err)
	}
}

func TestHoldsOneWay(t *testing.T) {
	addr, accepted := target(t)
	p := open(t, Config{Target: addr})
	near := dial(t, p)
	put(t, near, "1")
	far := <-accepted
	want(t, far, "1")

	p.Set(Rule{HoldIn: true})
	put(t, near, "2")
	want(t, far, "2") // out goes on
	put(t, far, "a")
	put(t, far, "b")
	wantNothing(t, near)
	second := dial(t, p)
	put(t, second, "x")
	select {
	case <-accepted:
		t.Error("a new connection came through although no handshake could")
	case <-time.After(short):
	}

	p.Set(Rule{})
	want(t, near, "ab") // late, whole and in order
	want(t, <-accepted, "x")

	p.Set(Rule{HoldOut: true})
	put(t, far, "c")
	want(t, near, "c")
	put(t, near, "3")
	wantNothing(t, far)
	p.Set(Rule{})
	want(t, far, "3")
}

func TestRulesOfOneDialler(t *testing.T) {
	addr, accepted := target(t)
	names := make(chan string, 2)
	p := open(t, Config{Target: addr, Name: func(net.Addr) string { return <-names }})
	names <- "a"
	a := dial(t, p)
	farA := <-accepted
	names <- "b"
	b := dial(t, p)
	farB := <-accepted
	p.SetFor("a", Rule{HoldOut: true})
	put(t, a, "1")
	put(t, b, "1")
	want(t, farB, "1")
	wantNothing(t, farA)
	p.Set(Rule{}) // for all again
	want(t, farA, "1")
}

func TestDelays(t *testing.T) {
	addr, accepted := target(t)
	p := open(t, Config{Target: addr})
	near := dial(t, p)
	far := <-accepted
	p.Set(Rule{Delay: short})
	began := time.Now()
	put(t, near, "1")
	want(t, far, "1")
	if took := time.Since(began); took < short {
		t.Errorf("arrived after %v, want %v at least", took, short)
	}
	began = time.Now()
	put(t, far, "2")
	want(t, near, "2")
	if took := time.Since(began); took < short {
		t.Errorf("the answer arrived after %v, want %v at least", took, short)
	}
}

func TestResetsAndRefuses(t *testing.T) {
	addr, accepted := target(t)
	p := open(t, Config{Target: addr})
	near := dial(t, p)
	far := <-accepted
	if p.Links() != 1 {
		t.Errorf("%d connections, want 1", p.Links())
	}
	p.Reset()
	for _, end := range []net.Conn{near, far} {
		if _, err := end.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("an end saw %v, want a reset", err)
		}
	}
	p.Set(Rule{Refuse: true})
	refused := dial(t, p)
	if n, err := refused.Read(make([]byte, 1)); err == nil {
		t.Errorf("a refused connection gave %d bytes", n)
	}
}

func TestCloseEndsWhatIsHeld(t *testing.T) {
	addr, accepted := target(t)
	p := open(t, Config{Target: addr})
	near := dial(t, p)
	<-accepted
	p.Set(Rule{HoldOut: true, HoldIn: true})
	put(t, near, "1")
	dial(t, p) // waits to be let through
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if p.Links() != 0 {
		t.Errorf("%d connections are left", p.Links())
	}
	if _, err := Open(Config{}); err == nil {
		t.Error("opened without a target")
	}
}
