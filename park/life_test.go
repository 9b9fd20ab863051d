package park

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

func readFull(r io.Reader, p []byte) (int, error) { return io.ReadFull(r, p) }

func TestCloseTellsTheHandlerOnce(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		r := newRig(t, v, Config{}, func() Handler { return e })
		conn, c := begin(t, r, e)
		if c.RemoteAddr().String() != conn.LocalAddr().String() && !v.unix {
			t.Errorf("remote address is %v, want %v", c.RemoteAddr(), conn.LocalAddr())
		}
		if c.LocalAddr().String() != conn.RemoteAddr().String() {
			t.Errorf("local address is %v, want %v", c.LocalAddr(), conn.RemoteAddr())
		}
		bye := errors.New("bye")
		c.Close(bye)
		c.Close(nil)
		c.Finish(nil)
		if got := receive(t, "end", e.ended); got.reason != LocalClosed || got.err != bye {
			t.Errorf("ended for %v (%v), want %v (%v)", got.reason, got.err, LocalClosed, bye)
		}
		if err := c.Send([]byte("late")); err != bye {
			t.Errorf("send after close: %v, want %v", err, bye)
		}
		wantEOF(t, conn)
		c.Wake()
		c.SetIdleTimeout(time.Second)
		barrierOf(t, r.set)
		e.mustBeOpen(t, "a second end")
	})
}

func TestFinishSendsWhatIsQueued(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{MaxQueuedBytes: 64 << 20}}, func() Handler { return e })
		conn, c := begin(t, r, e)
		const parts, size = 20, 1 << 20
		shared := pattern(size)
		for range parts {
			if err := c.Send(shared); err != nil {
				t.Fatal(err)
			}
		}
		c.Finish(nil)
		if err := c.Send(shared); incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("send after finish: %v, want unavailable", err)
		}
		got, err := io.ReadAll(conn)
		if err != nil || len(got) != parts*size {
			t.Fatalf("%d bytes came, %v; want %d", len(got), err, parts*size)
		}
		e.mustBeOpen(t, "before the peer has closed")
		conn.Close()
		if got := receive(t, "end", e.ended); got.reason != LocalClosed {
			t.Errorf("ended for %v (%v), want %v", got.reason, got.err, LocalClosed)
		}
	})
}

func TestG47_PeerThatNeverClosesAfterFinish(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{WriteTimeout: time.Second}}, func() Handler { return e })
		conn, c := begin(t, r, e)
		c.Finish(nil)
		if _, err := io.ReadAll(conn); err != nil {
			t.Fatal(err)
		}
		mustBeWritten(t, c)
		tick(t, r.set, 4)
		e.mustBeOpen(t, "within the write timeout")
		tick(t, r.set, 5)
		if got := receive(t, "end", e.ended); got.reason != LocalClosed {
			t.Errorf("ended for %v, want %v", got.reason, LocalClosed)
		}
	})
}

// mustBeWritten waits until the connection knows that everything has left: the
// peer may have read it before.
func mustBeWritten(t *testing.T, c *Conn) {
	t.Helper()
	for end := time.Now().Add(patience); time.Now().Before(end); runtime.Gosched() {
		c.mu.Lock()
		written := c.out == nil
		c.mu.Unlock()
		if written {
			return
		}
	}
	t.Fatal("what was sent does not leave")
}

// holder holds every frame until it is told.
type holder struct {
	echoer
	busy atomic.Bool
}

func (h *holder) Readable(c *Conn, data []byte) (int, error) {
	if h.busy.Load() {
		return 0, Hold
	}
	_, n := firstFrame(data)
	if n == 0 {
		return 0, nil
	}
	_, _ = c.Write(data[:n])
	h.busy.Store(true)
	if !h.seen {
		h.seen = true
		h.began <- c
	}
	return n, Hold
}

func TestHoldAndWake(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		h := &holder{echoer: *newEchoer()}
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{PartialTimeout: time.Second}}, func() Handler { return h })
		conn := r.dial()
		for i := range 3 {
			if _, err := conn.Write(frame(pattern(i + 1))); err != nil {
				t.Fatal(err)
			}
		}
		var c *Conn
		for i := range 3 {
			got, err := readFrame(conn)
			if err != nil || len(got) != i+1 {
				t.Fatalf("frame %d: %d bytes, %v", i, len(got), err)
			}
			if i == 0 {
				c = receive(t, "beginning", h.began)
			}
			tick(t, r.set, 10) // no deadline for what is held
			h.mustBeOpen(t, "held")
			h.busy.Store(false)
			c.Wake()
		}
		h.busy.Store(true)
		conn.Close() // noticed although held
		if got := receive(t, "end", h.ended); got.reason != PeerClosed {
			t.Errorf("ended for %v (%v), want %v", got.reason, got.err, PeerClosed)
		}
	})
}

type failing struct{ echoer }

func (*failing) Readable(*Conn, []byte) (int, error) {
	return 0, incumbent.Errorf(incumbent.Invalid, "not our protocol")
}

func TestHandlerErrorEndsTheConnection(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		f := &failing{echoer: *newEchoer()}
		r := newRig(t, v, Config{}, func() Handler { return f })
		conn := r.dial()
		conn.Write([]byte("x"))
		got := receive(t, "end", f.ended)
		if got.reason != HandlerFailed || incumbent.KindOf(got.err) != incumbent.Invalid {
			t.Errorf("ended for %v (%v)", got.reason, got.err)
		}
		wantEOF(t, conn)
	})
}

// pair returns both ends of a loopback connection.
func pair(t *testing.T) (server, client net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if client, err = net.Dial("tcp", ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if server, err = Listen(ln, 0).Accept(); err != nil {
		t.Fatal(err)
	}
	_ = client.SetDeadline(time.Now().Add(patience))
	t.Cleanup(func() { client.Close() })
	return server, client
}

func newTestSet(t *testing.T, cfg Config) *Set {
	t.Helper()
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close(context.Background()) })
	return s
}

func TestParkHandsOverWhatWasReadBefore(t *testing.T) {
	for _, portable := range []bool{false, true} {
		set := newTestSet(t, Config{Portable: portable})
		server, client := pair(t)
		e := newEchoer()
		early := frame([]byte("read by the HTTP server"))
		if _, err := set.Park(server, early[:10], e); err != nil {
			t.Fatal(err)
		}
		if _, err := client.Write(early[10:]); err != nil {
			t.Fatal(err)
		}
		if got, err := readFrame(client); err != nil || string(got) != string(early[4:]) {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

// TestParkForgetsDeadlines parks a connection whose deadlines, those of its
// handshake, have passed.
func TestParkForgetsDeadlines(t *testing.T) {
	for _, portable := range []bool{false, true} {
		set := newTestSet(t, Config{Portable: portable})
		server, client := pair(t)
		if err := server.SetDeadline(time.Now().Add(-time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := set.Park(server, nil, newEchoer()); err != nil {
			t.Fatal(err)
		}
		exchange(t, client, []byte("later"))
	}
}

// TestParkReadsWhatCryptoTLSHolds parks a connection whose next frames are
// inside crypto/tls: the kernel will never announce them again.
func TestParkReadsWhatCryptoTLSHolds(t *testing.T) {
	for _, portable := range []bool{false, true} {
		set := newTestSet(t, Config{Portable: portable})
		server, client := pair(t)
		secure := tls.Server(server, serverTLS(variant{}))
		peer := tls.Client(client, &tls.Config{InsecureSkipVerify: true})
		msg := frame([]byte("sent together with the upgrade"))
		var wg sync.WaitGroup
		wg.Go(func() { peer.Write(append([]byte("U"), msg...)) })
		var first [1]byte
		if _, err := io.ReadFull(secure, first[:]); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		if _, err := set.Park(secure, nil, newEchoer()); err != nil {
			t.Fatal(err)
		}
		if got, err := readFrame(peer); err != nil || string(got) != string(msg[4:]) {
			t.Fatalf("got %q, %v", got, err)
		}
	}
}

func TestParkRefuses(t *testing.T) {
	for _, portable := range []bool{false, true} {
		set := newTestSet(t, Config{Portable: portable, Limits: Limits{MaxPartial: 100}})
		refused := func(what string, conn net.Conn, early []byte, want incumbent.Kind) {
			t.Helper()
			if _, err := set.Park(conn, early, newEchoer()); incumbent.KindOf(err) != want {
				t.Errorf("%s: %v, want %v", what, err, want)
			}
		}
		a, b := net.Pipe()
		refused("a pipe", a, nil, incumbent.Invalid)
		if _, err := b.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("refused connection is not closed: %v", err)
		}
		server, client := pair(t)
		refused("too much read before", server, make([]byte, 101), incumbent.TooLarge)
		wantEOF(t, client)
		server, _ = pair(t)
		refused("TLS without handshake", tls.Server(server, serverTLS(variant{})), nil, incumbent.Invalid)
		server, _ = pair(t)
		if _, err := set.Park(server, nil, newEchoer()); err != nil {
			t.Fatal(err)
		}
		refused("parked already", server, nil, incumbent.Invalid)
		server, client = pair(t)
		set.Close(context.Background())
		refused("a closed set", server, nil, incumbent.Unavailable)
		wantEOF(t, client)
	}
}

func TestG48_ShutdownFlushesAndLeavesNothing(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		noLeak(t)
		e := newEchoer()
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{MaxQueuedBytes: 64 << 20}}, func() Handler { return e })
		conn, c := begin(t, r, e)
		const size = 20 << 20
		if err := c.Send(pattern(size)); err != nil {
			t.Fatal(err)
		}
		closed := make(chan error, 1)
		go func() { closed <- r.set.Close(context.Background()) }()
		n, _ := io.Copy(io.Discard, conn)
		if n != size {
			t.Errorf("%d bytes came before the end, want %d", n, size)
		}
		if err := receive(t, "close", closed); err != nil {
			t.Errorf("close: %v", err)
		}
		e.mustEnd(t, Shutdown, incumbent.Unavailable)
		barrierOf(t, r.set) // nothing is left to wait for
		if err := c.Send([]byte("x")); incumbent.KindOf(err) != incumbent.Unavailable {
			t.Errorf("send after shutdown: %v", err)
		}
	})
}

func TestG48_ShutdownDoesNotWaitForASlowReader(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		noLeak(t)
		e := newEchoer()
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{MaxQueuedBytes: 64 << 20}}, func() Handler { return e })
		_, c := begin(t, r, e)
		if err := c.Send(pattern(20 << 20)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := r.set.Close(ctx); err != context.Canceled {
			t.Errorf("close: %v, want %v", err, context.Canceled)
		}
		e.mustEnd(t, Shutdown, incumbent.Unavailable)
	})
}
