package park

import (
	"bytes"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// gatherer holds until it is told, and then takes everything.
type gatherer struct {
	echoer
	goOn atomic.Bool

	mu   sync.Mutex // guards the rest
	got  []byte
	want int
	all  chan struct{} // closed when so much was got
}

func newGatherer(want int) *gatherer {
	return &gatherer{echoer: *newEchoer(), want: want, all: make(chan struct{})}
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
	before := len(g.got)
	g.got = append(g.got, data...)
	if before < g.want && len(g.got) >= g.want {
		close(g.all)
	}
	return len(data), nil
}

// forPolled is forAll with those that a poller tells the ends of.
func forPolled(t *testing.T, f func(t *testing.T, v variant)) {
	forAll(t, func(t *testing.T, v variant) {
		if haveEpoll && !v.portable {
			f(t, v)
		}
	})
}

// flooded is a connection that is held while its peer sends, and is left unread. What is sent
// must be more than is kept for it. sent is told once all has been sent.
func flooded(t *testing.T, r *rig, g *gatherer, all []byte) (conn net.Conn, c *Conn, sent chan error) {
	t.Helper()
	conn, sent = r.dial(), make(chan error, 1)
	go func() {
		_, err := conn.Write(all)
		sent <- err
	}()
	c = receive(t, "beginning", g.began)
	for end := time.Now().Add(patience); r.set.Stats().Unread == 0; barrierOf(t, r.set) {
		g.mustBeOpen(t, "held")
		if time.Now().After(end) {
			t.Fatal("it is still read")
		}
	}
	return conn, c, sent
}

func TestWhoIsHeldIsNotCutOffForWhatItSends(t *testing.T) {
	const limit = 200 << 10
	all := pattern(16 << 20)
	forPolled(t, func(t *testing.T, v variant) {
		g := newGatherer(len(all))
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
		receive(t, "all of it", g.all)
		g.mu.Lock()
		if !bytes.Equal(g.got, all) {
			t.Error("it is not what was sent")
		}
		g.mu.Unlock()
		if n := r.set.Stats().Unread; n != 0 {
			t.Errorf("%d are left unread, want none", n)
		}
		g.mustBeOpen(t, "woken")
		tick(t, r.set, 6)
		g.mustEnd(t, Idle, incumbent.DeadlineExceeded)
	})
}

// Without a poller nobody would tell the end of a connection that is not read.
func TestWhoIsHeldIsReadWhereNobodyTellsItsEnd(t *testing.T) {
	const limit = 200 << 10
	forAll(t, func(t *testing.T, v variant) {
		if haveEpoll && !v.portable {
			return
		}
		g := newGatherer(1)
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{MaxPartial: limit}}, func() Handler { return g })
		conn := r.dial()
		go func() { _, _ = conn.Write(pattern(16 << 20)) }() // it is cut off
		g.mustEnd(t, PartialTooLong, incumbent.TooLarge)
	})
}

func TestTheEndOfWhoIsHeldIsNoticed(t *testing.T) {
	const kept, tooMuch = 4 << 10, 40 << 10 // which the socket has room for
	forPolled(t, func(t *testing.T, v variant) {
		for name, end := range map[string]func(net.Conn) error{
			"close": net.Conn.Close,
			"half":  func(c net.Conn) error { return c.(interface{ CloseWrite() error }).CloseWrite() },
		} {
			if v.tls && name == "half" {
				continue // that is a record of TLS, behind what is not read
			}
			t.Run(name, func(t *testing.T) {
				g := newGatherer(1)
				r := newRig(t, v, Config{Ticks: still(), readBytes: kept}, func() Handler { return g })
				conn, _, sent := flooded(t, r, g, pattern(tooMuch))
				if err := receive(t, "the end of sending", sent); err != nil {
					t.Fatal(err)
				}
				if err := end(conn); err != nil {
					t.Fatal(err)
				}
				if got := receive(t, "end", g.ended); got.reason != PeerClosed {
					t.Errorf("ended for %v (%v)", got.reason, got.err)
				}
			})
		}
	})
}

// Who is sent away while it is held gets what was sent to it, and the end behind that.
func TestWhoIsHeldIsSentAway(t *testing.T) {
	forPolled(t, func(t *testing.T, v variant) {
		g := newGatherer(1)
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
		if got := receive(t, "end", g.ended); got.reason != LocalClosed {
			t.Errorf("ended for %v (%v)", got.reason, got.err)
		}
	})
}
