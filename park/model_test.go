package park

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// TestModelOfChunks sends random frames cut into random pieces, over
// connections that are served at random, and checks that each comes back
// once, whole and in order.
func TestModelOfChunks(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := func() Handler { return newEchoer() }
		r := newRig(t, v, Config{readBytes: 4 << 10, turnBytes: 8 << 10}, e)
		sizes := rapid.OneOf(rapid.IntRange(0, 10), rapid.IntRange(0, 3000), rapid.IntRange(60_000, 140_000))
		rapid.Check(t, func(rt *rapid.T) {
			conn, err := r.connect()
			if err != nil {
				rt.Fatal(err)
			}
			defer conn.Close()
			var stream []byte
			frames := rapid.SliceOfN(sizes, 1, 6).Draw(rt, "frames")
			for i, n := range frames {
				msg := bytes.Repeat([]byte{byte(i + 1)}, n)
				stream = append(stream, frame(msg)...)
			}
			var wg sync.WaitGroup
			defer wg.Wait()
			cuts := rapid.SliceOfN(rapid.IntRange(1, 50_000), 0, 12).Draw(rt, "cuts")
			wg.Go(func() {
				for _, n := range append(cuts, len(stream)) {
					n = min(n, len(stream))
					if _, err := conn.Write(stream[:n]); err != nil {
						rt.Errorf("write: %v", err)
						return
					}
					stream = stream[n:]
				}
			})
			for i, n := range frames {
				got, err := readFrame(conn)
				if err != nil {
					rt.Fatalf("frame %d: %v", i, err)
				}
				if !bytes.Equal(got, bytes.Repeat([]byte{byte(i + 1)}, n)) {
					rt.Fatalf("frame %d of %d bytes came back as %d others", i, n, len(got))
				}
			}
		})
	})
}

// once counts how a connection ends.
type once struct {
	ended *atomic.Int64
	count atomic.Int32
	tb    testing.TB
	conns chan *Conn
	busy  atomic.Bool
}

func (o *once) Readable(c *Conn, data []byte) (int, error) {
	if o.busy.Swap(true) {
		o.tb.Error("two handlers of one connection at the same time")
	}
	defer o.busy.Store(false)
	if o.count.Load() > 0 {
		o.tb.Error("read after closed")
	}
	select {
	case o.conns <- c:
	default:
	}
	return len(data) / 2, nil
}

func (o *once) Closed(c *Conn, r Reason, err error) {
	if o.busy.Swap(true) {
		o.tb.Error("closed while read")
	}
	defer o.busy.Store(false)
	if o.count.Add(1) != 1 {
		o.tb.Error("closed twice")
	}
	o.ended.Add(1)
}

// TestRaces has everybody do everything to connections at the same time, and
// then checks that each ended once and that nothing is left.
func TestRaces(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		noLeak(t)
		var ended atomic.Int64
		began := make(chan *Conn, 1)
		limits := Limits{MaxPartial: 64 << 10, MaxQueuedBytes: 256 << 10}
		r := newRig(t, v, Config{Limits: limits}, func() Handler {
			return &once{ended: &ended, tb: t, conns: began}
		})
		const rounds = 40
		shared := pattern(20_000)
		for i := range rounds {
			conn, err := r.connect()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := conn.Write(pattern(10)); err != nil {
				t.Fatal(err)
			}
			c := receive(t, "connection", began)
			var wg sync.WaitGroup
			acts := []func(){
				func() { _ = c.Send(shared, shared[:10]) },
				func() { _, _ = c.Write(shared) },
				func() { c.Wake(); c.SetIdleTimeout(time.Hour) },
				func() { _, _ = c.RemoteAddr(), c.Queued() },
				func() { _, _ = conn.Write(shared[:100]) },
				func() { r.set.tick(); r.set.Barrier(func() {}) },
				func() {
					switch i % 4 {
					case 0:
						c.Close(errors.New("enough"))
					case 1:
						c.Finish(nil)
					case 2:
						conn.Close()
					}
				},
			}
			for _, act := range acts {
				wg.Go(func() {
					for range 5 {
						act()
					}
				})
			}
			wg.Wait()
			conn.Close()
			select { // a second report of the same connection
			case <-began:
			default:
			}
			for ended.Load() != int64(i+1) {
				barrierOf(t, r.set)
				select {
				case <-began:
				default:
				}
				runtime.Gosched()
			}
		}
		r.wantParked(0) // the last is counted once its handler has been told
		var sum uint64
		for _, n := range r.set.Stats().Ended {
			sum += n
		}
		if sum != rounds {
			t.Errorf("%d ends counted, want %d", sum, rounds)
		}
	})
}

// TestManyConnections has 2,000 connections (400 with TLS), of which a random few speak at a
// time.
func TestManyConnections(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		noLeak(t)
		n := 2000
		if v.tls {
			n = 400 // for handshakes take longer than all the rest
		}
		r := newRig(t, v, Config{}, func() Handler { return newEchoer() })
		conns := make([]net.Conn, n)
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := g; i < n; i += 8 {
					conn, err := r.connect()
					if err != nil {
						t.Error(err)
						return
					}
					conns[i] = conn
				}
			})
		}
		wg.Wait()
		if t.Failed() {
			t.FailNow()
		}
		r.wantParked(n)
		for g := range 8 {
			wg.Go(func() {
				for i := g; i < n; i += 8 { // the handshakes may have used up their time
					_ = conns[i].SetDeadline(time.Now().Add(patience))
				}
				for k := range 300 {
					i := rand.IntN(n/8)*8 + g
					msg := fmt.Appendf(nil, "%d to %d", k, i)
					if _, err := conns[i].Write(frame(msg)); err != nil {
						t.Error(err)
						return
					}
					if got, err := readFrame(conns[i]); err != nil || !bytes.Equal(got, msg) {
						t.Errorf("got %q, %v; want %q", got, err, msg)
						return
					}
				}
			})
		}
		wg.Wait()
		for _, c := range conns {
			c.Close()
		}
		r.wantParked(0)
		if got := r.set.Stats().Ended[PeerClosed]; got != uint64(n) {
			t.Errorf("%d ended as closed by the peer, want %d", got, n)
		}
	})
}
