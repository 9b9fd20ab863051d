package gate

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"testing"
	"time"
)

// listen returns a gate before a real listener, and how to dial it from an address
// of loopback.
func listen(t *testing.T, cfg Config) (*Gate, func(from string) net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := New(ln, cfg)
	t.Cleanup(func() { g.Close() })
	return g, func(from string) net.Conn {
		t.Helper()
		d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(from), 0))}
		c, err := d.DialContext(context.Background(), "tcp", g.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
}

// until waits for what other goroutines are about to do.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal("waited in vain for " + what)
		}
	}
}

// On real sockets: silent connections cost no goroutine, who speaks is served, and
// all bytes are there.
func TestG47_SilentSocketsCostNoGoroutine(t *testing.T) {
	const silentOnes = 501 // a multiple of three
	g, dial := listen(t, Config{FirstByte: time.Hour})
	in := make(chan net.Conn, silentOnes)
	go func() {
		for {
			c, err := g.Accept()
			if err != nil {
				close(in)
				return
			}
			in <- c
		}
	}()
	dial("127.0.0.1")
	until(t, "the first", func() bool { return g.Stats().Silent == 1 })
	before := runtime.NumGoroutine()
	conns := []net.Conn{}
	for range silentOnes {
		conns = append(conns, dial("127.0.0.1"))
	}
	until(t, "all of them", func() bool { return g.Stats().Silent == silentOnes+1 })
	if now := runtime.NumGoroutine(); now > before+10 {
		t.Errorf("%d goroutines, were %d", now, before)
	}
	for i, c := range conns {
		switch i % 3 {
		case 0:
			c.Close()
			continue
		case 1:
			continue
		}
		if _, err := io.WriteString(c, "hello"); err != nil {
			t.Fatal(err)
		}
		served := <-in
		got := make([]byte, 5)
		if _, err := io.ReadFull(served, got); err != nil || string(got) != "hello" {
			t.Fatalf("%q, %v", got, err)
		}
		served.Close()
	}
	until(t, "the end of who went", func() bool { return g.Stats().Silent == 1+silentOnes/3 })
}

// TLS behind a proxy's header, which comes a byte at a time.
func TestAProxysHeaderInFrontOfTLS(t *testing.T) {
	g, dial := listen(t, Config{Proxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.2/32")}})
	c := dial("127.0.0.2")
	for _, b := range []byte("PROXY TCP6 2001:db8::7 2001:db8::8 4711 443\r\n") {
		if _, err := c.Write([]byte{b}); err != nil {
			t.Fatal(err)
		}
	}
	go func() { _ = tls.Client(c, &tls.Config{InsecureSkipVerify: true}).Handshake() }()
	served, err := g.Accept()
	if err != nil {
		t.Fatal(err)
	}
	first := make([]byte, 1)
	if _, err := io.ReadFull(served, first); err != nil || first[0] != 0x16 {
		t.Errorf("begins with %x, %v, not with a handshake", first, err)
	}
	if got := served.RemoteAddr().String(); got != "[2001:db8::7]:4711" {
		t.Errorf("from %s", got)
	}
}

// Without descriptors the gate rests and goes on accepting, as it does where one connection
// could not be taken: that refuses nobody.
func TestRestsWithoutDescriptors(t *testing.T) {
	ln := &failing{errs: slices.Concat(outOf, ofOne)}
	rests := 0
	g := New(ln, Config{rest: func(time.Duration) { rests++ }})
	if _, err := g.Accept(); err == nil {
		t.Error("accepted")
	}
	if rests != len(outOf)+len(ofOne) || g.Refused() != uint64(len(outOf)) {
		t.Errorf("%d rests, %d refused, want %d and %d", rests, g.Refused(), len(outOf)+len(ofOne), len(outOf))
	}
}

// Who has begun a handshake and gone is not let in: there would be work for nobody. Without
// TLS a client may end its side behind its request and wait for the answer.
func TestG47_WhoHasGoneIsNotGreeted(t *testing.T) {
	g, dial := listen(t, Config{Unproven: 16})
	in := make(chan net.Conn, 16)
	next := make(chan struct{})
	go func() {
		for range next {
			c, err := g.Accept()
			if err != nil {
				return
			}
			in <- c
		}
	}()
	next <- struct{}{}
	first := dial("127.0.0.1")
	if _, err := first.Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	<-in // accepting has begun
	for i, says := range []string{"\x16 goes", "\x16 goes as well", "ends its side", "\x16 stays"} {
		c := dial("127.0.0.1")
		if _, err := io.WriteString(c, says); err != nil {
			t.Fatal(err)
		}
		if says != "\x16 stays" {
			if err := c.(*net.TCPConn).CloseWrite(); err != nil {
				t.Fatal(err)
			}
		}
		until(t, "it has spoken", func() bool { return g.Stats().Waiting == i+1 }) // in this order
	}
	for _, want := range []string{"ends its side", "\x16 stays"} {
		next <- struct{}{}
		c := <-in
		got := make([]byte, len(want))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
			t.Errorf("%q, %v was let in; %q was to be", got, err, want)
		}
		c.Close()
	}
	close(next)
}
