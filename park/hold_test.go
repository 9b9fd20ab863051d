package park

import (
	"bytes"
	"io"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// gatherer holds until it is told, and then takes everything.
type gatherer struct {
	echoer
	goOn atomic.Bool
	mu   sync.Mutex // guards the rest
	got  []byte
}

func (g *gatherer) Readable(c *Conn, data []byte) (int, error) {
	if !g.seen {
		g.seen = true
		g.began <- c
	}
	if !g.goOn.Load() {
		return 0, Hold
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.got = append(g.got, data...)
	return len(data), nil
}

// flooded is a connection that is held while its peer sends more than is kept,
// and more than sockets hold. sent is closed once all has been sent.
func flooded(t *testing.T, r *rig, g *gatherer, all []byte) (conn net.Conn, c *Conn, sent chan error) {
	t.Helper()
	conn, sent = r.dial(), make(chan error, 1)
	go func() {
		_, err := conn.Write(all)
		sent <- err
	}()
	c = receive(t, "beginning", g.began)
	for end := time.Now().Add(patience); r.set.Stats().HeldBytes < int64(r.set.cfg.readBytes); barrierOf(t, r.set) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are held", r.set.Stats().HeldBytes)
		}
	}
	return conn, c, sent
}

func TestWhoIsHeldIsNotCutOffForWhatItSends(t *testing.T) {
	const limit = 200 << 10
	all := pattern(16 << 20)
	forAll(t, func(t *testing.T, v variant) {
		g := &gatherer{echoer: *newEchoer()}
		r := newRig(t, v, Config{Ticks: still(), IdleTimeout: time.Second, Limits: Limits{MaxPartial: limit}}, func() Handler { return g })
		_, c, sent := flooded(t, r, g, all)
		tick(t, r.set, 20) // nobody is silent who is not read
		g.mustBeOpen(t, "held")
		if held := r.set.Stats().HeldBytes; held > 3*readBytes {
			t.Errorf("%d bytes are held", held)
		}
		g.goOn.Store(true)
		c.Wake()
		if err := receive(t, "the end of sending", sent); err != nil {
			t.Fatal(err)
		}
		for end := time.Now().Add(patience); ; runtime.Gosched() {
			g.mu.Lock()
			n, same := len(g.got), bytes.Equal(g.got, all)
			g.mu.Unlock()
			if same {
				break
			}
			if n >= len(all) || time.Now().After(end) {
				t.Fatalf("%d bytes came of %d, or others", n, len(all))
			}
		}
		g.mustBeOpen(t, "woken")
		tick(t, r.set, 6)
		g.mustBeEnded(t, Idle)
	})
}

func (e *echoer) mustBeEnded(t *testing.T, want Reason) {
	t.Helper()
	if got := receive(t, "end", e.ended); got.reason != want {
		t.Errorf("ended for %v (%v), want %v", got.reason, got.err, want)
	}
}

func TestTheEndOfWhoIsHeldIsNoticed(t *testing.T) {
	const kept, tooMuch = 4 << 10, 40 << 10 // which the socket has room for
	forAll(t, func(t *testing.T, v variant) {
		g := &gatherer{echoer: *newEchoer()}
		r := newRig(t, v, Config{Ticks: still(), readBytes: kept}, func() Handler { return g })
		conn, c, sent := flooded(t, r, g, pattern(tooMuch))
		if err := receive(t, "the end of sending", sent); err != nil {
			t.Fatal(err)
		}
		conn.Close()
		if v.portable || !haveEpoll { // it stands behind what is not read
			g.goOn.Store(true)
			c.Wake()
		}
		g.mustBeEnded(t, PeerClosed)
	})
}

// Who is sent away while it is held gets what was sent to it, and the end behind that.
func TestWhoIsHeldIsSentAway(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		g := &gatherer{echoer: *newEchoer()}
		r := newRig(t, v, Config{Ticks: still()}, func() Handler { return g })
		conn, c, sent := flooded(t, r, g, pattern(16<<20))
		bye := pattern(1000)
		if err := c.Send(bye); err != nil {
			t.Fatal(err)
		}
		c.Finish(nil)
		if err := receive(t, "the end of sending", sent); err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(conn); err != nil || !bytes.Equal(got, bye) {
			t.Errorf("%d bytes came, %v; want %d", len(got), err, len(bye))
		}
		conn.Close()
		g.mustBeEnded(t, LocalClosed)
	})
}
