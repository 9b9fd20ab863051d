package park

import (
	"net"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// meter counts the bytes of all its connections, per worker, and passes them
// on at the end of each batch, as a door does.
type meter struct {
	gathered []int64 // per worker; touched by that worker alone
	total    atomic.Int64
	ended    atomic.Int64
}

func newMeter(s *Set) *meter {
	m := &meter{gathered: make([]int64, s.Stats().Workers)}
	s.OnEndBatch(func(worker int) {
		m.total.Add(m.gathered[worker])
		m.gathered[worker] = 0
	})
	return m
}

func (m *meter) Readable(c *Conn, data []byte) (int, error) {
	m.gathered[c.Worker()] += int64(len(data))
	return len(data), nil
}

func (m *meter) Closed(*Conn, Reason, error) { m.ended.Add(1) }

// TestBarrier checks that after a barrier every byte written before it has
// been handed over and its batch has ended: on loopback a byte has reached
// the server's socket when the client's write returns, if it is far below
// the window. Most messages take several turns.
func TestBarrier(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		handlers := make(chan Handler, 50)
		r := newRig(t, v, Config{Batch: 8, readBytes: 256, turnBytes: 512}, func() Handler { return <-handlers })
		m := newMeter(r.set)
		for range cap(handlers) {
			handlers <- m
		}
		conns := make([]net.Conn, cap(handlers))
		for i := range conns {
			conns[i] = r.dial()
		}
		r.wantParked(len(conns))
		want := int64(0)
		for round := range 60 {
			for i, c := range conns {
				size := 1 + (round*31+i*17)%3000
				if _, err := c.Write(pattern(size)); err != nil {
					t.Fatal(err)
				}
				want += int64(size)
			}
			for _, c := range conns {
				mustArrive(t, c)
			}
			barrierOf(t, r.set)
			if got := m.total.Load(); got != want {
				t.Fatalf("round %d: %d bytes handed over, %d written", round, got, want)
			}
		}
	})
}

// TestBarrierBesideAFlood checks that a barrier ends although a connection
// never does, and that it holds for the others.
func TestBarrierBesideAFlood(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		handlers := make(chan Handler, 2)
		r := newRig(t, v, Config{Workers: 1}, func() Handler { return <-handlers })
		m := newMeter(r.set)
		handlers <- m
		flood := r.dial()
		r.wantParked(1)
		e := newEchoer()
		handlers <- e
		conn, _ := begin(t, r, e)
		var stop atomic.Bool
		var wg sync.WaitGroup
		wg.Go(func() {
			for p := pattern(256 << 10); !stop.Load(); {
				if _, err := flood.Write(p); err != nil {
					t.Errorf("flood: %v", err)
					return
				}
			}
		})
		for range 30 {
			exchange(t, conn, pattern(100))
			barrierOf(t, r.set)
		}
		stop.Store(true)
		wg.Wait()
	})
}

// wantParked waits until n connections are parked.
func (r *rig) wantParked(n int) {
	r.tb.Helper()
	for deadline := time.Now().Add(patience); time.Now().Before(deadline); runtime.Gosched() {
		barrierOf(r.tb, r.set)
		if r.set.Stats().Parked == int64(n) {
			return
		}
	}
	r.tb.Fatalf("%d connections parked, want %d", r.set.Stats().Parked, n)
}
