package park

import (
	"bytes"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// still is a source of ticks that never ticks: the test moves the clock.
func still() <-chan time.Time { return make(chan time.Time) }

// tick moves the set's clock on and waits until the workers have looked.
func tick(t *testing.T, s *Set, n int) {
	t.Helper()
	for range n {
		s.tick()
		barrierOf(t, s)
	}
}

func (e *echoer) mustBeOpen(t *testing.T, when string) {
	t.Helper()
	select {
	case got := <-e.ended:
		t.Fatalf("%s: ended for %v (%v), want open", when, got.reason, got.err)
	default:
	}
}

func (e *echoer) mustEnd(t *testing.T, want Reason, kind incumbent.Kind) {
	t.Helper()
	got := receive(t, "end", e.ended)
	if got.reason != want || incumbent.KindOf(got.err) != kind {
		t.Fatalf("ended for %v (%v), want %v with kind %v", got.reason, got.err, want, kind)
	}
	var e2 *incumbent.Error
	if errors.As(got.err, &e2) && e2.Hint == "" && want != Shutdown {
		t.Errorf("%v does not say what helps", got.err)
	}
}

// begin dials and has one exchange, so that the connection is known.
func begin(t *testing.T, r *rig, e *echoer) (net.Conn, *Conn) {
	t.Helper()
	conn := r.dial()
	exchange(t, conn, []byte("hello"))
	return conn, receive(t, "beginning", e.began)
}

func TestG18_SlowReaderIsCutOffAndCostsReferences(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e, other := newEchoer(), newEchoer()
		next := make(chan Handler, 2)
		next <- e
		next <- other
		const limit = 8 << 20
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{MaxQueuedBytes: limit}}, func() Handler { return <-next })
		slow, c := begin(t, r, e)
		quick, _ := begin(t, r, other)
		shared := pattern(100 << 10)
		var err error
		for sent := 0; err == nil; sent++ {
			if q := c.Queued(); q > limit {
				t.Fatalf("%d bytes queued, limit is %d", q, limit)
			}
			if st := r.set.Stats(); st.HeldBytes > 256<<10 {
				t.Fatalf("%d bytes held for shared buffers", st.HeldBytes)
			}
			err = c.Send(shared[:4], shared)
			if sent > 1000 {
				t.Fatal("a reader that never reads was not cut off")
			}
		}
		if incumbent.KindOf(err) != incumbent.TooLarge {
			t.Errorf("send: %v, want too_large", err)
		}
		e.mustEnd(t, SlowReader, incumbent.TooLarge)
		exchange(t, quick, pattern(1000))
		other.mustBeOpen(t, "beside a slow reader")
		wantEOF(t, slow)
		if n := r.set.Stats().Ended[SlowReader]; n != 1 {
			t.Errorf("%d slow readers counted, want 1", n)
		}
	})
}

func TestG47_ReaderThatNeverReadsTimesOut(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{WriteTimeout: time.Second, MaxQueuedBytes: 64 << 20}}, func() Handler { return e })
		_, c := begin(t, r, e)
		shared := pattern(1 << 20)
		for c.Queued() < 4<<20 { // more than sockets hold
			if err := c.Send(shared); err != nil {
				t.Fatal(err)
			}
		}
		tick(t, r.set, 4)
		e.mustBeOpen(t, "before the write timeout")
		tick(t, r.set, 2)
		e.mustEnd(t, WriteTimedOut, incumbent.DeadlineExceeded)
	})
}

func TestG47_SilentConnectionIsCutOff(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		r := newRig(t, v, Config{Ticks: still(), IdleTimeout: time.Second}, func() Handler { return e })
		conn, c := begin(t, r, e)
		for range 3 {
			tick(t, r.set, 4)
			e.mustBeOpen(t, "before the idle timeout")
			exchange(t, conn, []byte("still here"))
		}
		c.SetIdleTimeout(0)
		tick(t, r.set, 20)
		e.mustBeOpen(t, "without an idle timeout")
		exchange(t, conn, []byte("back"))
		c.SetIdleTimeout(500 * time.Millisecond)
		tick(t, r.set, 6)
		e.mustEnd(t, Idle, incumbent.DeadlineExceeded)
		wantEOF(t, conn)
	})
}

func TestWaitingBytesAreHeardBeforeTheDeadlineIsJudged(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		r := newRig(t, v, Config{Ticks: still(), IdleTimeout: time.Second}, func() Handler { return e })
		conn, _ := begin(t, r, e)
		tick(t, r.set, 4)
		if _, err := conn.Write(frame([]byte("in time"))); err != nil {
			t.Fatal(err)
		}
		mustArrive(t, conn)
		// The process stood still here. The poller may or may not have seen
		// the bytes; the tick must.
		r.set.tick()
		if _, err := readFrame(conn); err != nil {
			t.Fatal(err)
		}
		tick(t, r.set, 3)
		e.mustBeOpen(t, "heard in time")
	})
}

func TestG47_DribbledFrameIsCutOff(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{PartialTimeout: time.Second}}, func() Handler { return e })
		conn, _ := begin(t, r, e)
		msg := frame(pattern(100))
		for i := range 5 {
			if _, err := conn.Write(msg[i : i+1]); err != nil {
				t.Fatal(err)
			}
			mustArrive(t, conn)
			barrierOf(t, r.set)
			e.mustBeOpen(t, "within the partial timeout")
			tick(t, r.set, 1)
		}
		tick(t, r.set, 3)
		e.mustEnd(t, PartialTimeout, incumbent.DeadlineExceeded)
	})
}

func TestG39_IncompleteFrameIsBounded(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		const limit = 200 << 10
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{MaxPartial: limit}}, func() Handler { return e })
		conn, _ := begin(t, r, e)
		exchange(t, conn, pattern(limit-1000)) // just below
		go conn.Write(frame(pattern(2 * limit)))
		e.mustEnd(t, PartialTooLong, incumbent.TooLarge)
		if held := r.set.Stats().HeldBytes; held != 0 {
			t.Errorf("%d bytes still held", held)
		}
	})
}

func TestG39_MemoryOfAllConnectionsIsBounded(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		const limit = 256 << 10
		made := make(chan *echoer, 64)
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{MaxHeldBytes: limit}}, func() Handler {
			e := newEchoer()
			made <- e
			return e
		})
		cut := make(chan Reason, 64)
		for i := range 16 {
			conn := r.dial()
			e := receive(t, "handler", made)
			go func() { cut <- (<-e.ended).reason }()
			if _, err := conn.Write(frame(pattern(1 << 20))[:40<<10]); err != nil {
				t.Logf("connection %d: %v", i, err)
			}
			barrierOf(t, r.set)
			if held := r.set.Stats().HeldBytes; held > limit {
				t.Fatalf("after %d connections %d bytes are held, limit is %d", i+1, held, limit)
			}
		}
		if got := receive(t, "end", cut); got != MemoryFull {
			t.Errorf("ended for %v, want %v", got, MemoryFull)
		}
	})
}

// hoard has a connection leave nothing of MaxHeldBytes, with half a frame.
func hoard(t *testing.T, r *rig, e *echoer) {
	t.Helper()
	conn, _ := begin(t, r, e)
	if _, err := conn.Write(frame(pattern(1 << 20))[:900<<10]); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(patience); r.set.Stats().HeldBytes < 900<<10; barrierOf(t, r.set) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are held", r.set.Stats().HeldBytes)
		}
	}
	r.set.SetLimits(Limits{MaxHeldBytes: r.set.Stats().HeldBytes, MaxQueuedBytes: 64 << 20})
}

// Who holds much has nobody cut off who holds little, and nobody gets more.
func TestG39_WhoHoldsLittleIsNotCutOffForOthers(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		handlers := make(chan Handler, 1)
		r := newRig(t, v, Config{Ticks: still()}, func() Handler { return <-handlers })
		next := func() *echoer {
			e := newEchoer()
			handlers <- e
			return e
		}
		hoarder := next()
		hoard(t, r, hoarder)

		small := next()
		conn, c := begin(t, r, small)
		msg := frame(pattern(4 << 10))
		for _, half := range [][]byte{msg[:3<<10], msg[3<<10:]} {
			if _, err := conn.Write(half); err != nil {
				t.Fatal(err)
			}
			mustArrive(t, conn)
			barrierOf(t, r.set)
		}
		if got, err := readFrame(conn); err != nil || len(got) != 4<<10 {
			t.Fatalf("a small message: %d bytes, %v", len(got), err)
		}
		for scratch := pattern(1 << 10); c.Queued() < 8<<10; { // the kernel takes no more
			if _, err := c.Write(scratch); err != nil {
				t.Fatalf("a small queue: %v", err)
			}
		}
		small.mustBeOpen(t, "with a small message and a small queue")

		large := next()
		conn, _ = begin(t, r, large)
		_, _ = conn.Write(frame(pattern(200 << 10))[:150<<10]) // it is cut off meanwhile
		large.mustEnd(t, MemoryFull, incumbent.Overloaded)
		var err error
		for err == nil && c.Queued() < 32<<20 {
			_, err = c.Write(pattern(16 << 10))
		}
		if incumbent.KindOf(err) != incumbent.Overloaded {
			t.Errorf("a large queue: %v, want overloaded", err)
		}
		small.mustEnd(t, MemoryFull, incumbent.Overloaded)
		hoarder.mustBeOpen(t, "without asking for more")
	})
}

// sink consumes all.
type sink struct{ echoer }

func (s *sink) Readable(c *Conn, data []byte) (int, error) {
	if !s.seen {
		s.seen = true
		s.began <- c
	}
	return len(data), nil
}

// Who has much unsent asks for nothing by being heard.
func TestWhoIsHeardIsNotCutOff(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		s := &sink{*newEchoer()}
		r := newRig(t, v, Config{Ticks: still()}, func() Handler { return s })
		conn := r.dial()
		if _, err := conn.Write([]byte("hello")); err != nil {
			t.Fatal(err)
		}
		c := receive(t, "beginning", s.began)
		for scratch := pattern(16 << 10); c.Queued() < 1<<20; {
			if _, err := c.Write(scratch); err != nil {
				t.Fatal(err)
			}
		}
		r.set.SetLimits(Limits{MaxHeldBytes: 1})
		if _, err := conn.Write([]byte("still here")); err != nil {
			t.Fatal(err)
		}
		mustArrive(t, conn)
		barrierOf(t, r.set)
		s.mustBeOpen(t, "after it was heard")
	})
}

// Whose incomplete frame has become shorter asks for nothing.
func TestWhoNeedsLessIsNotCutOff(t *testing.T) {
	set := newTestSet(t, Config{Limits: Limits{MaxHeldBytes: 1}})
	w := &worker{set: set}
	c := &Conn{worker: w, slot: -1, partial: make([]byte, 1<<20)}
	c.posted.Store(true) // there is no goroutine to tell
	set.held.Add(1 << 20)
	w.regrow(c, c.partial[:200<<10], 200<<10)
	if s := c.state.Load(); s != open || set.held.Load() != 200<<10 {
		t.Errorf("state %d, %d bytes held", s, set.held.Load())
	}
	w.regrow(c, c.partial, 300<<10)
	if s := c.state.Load(); s != closing {
		t.Errorf("state %d with more", s)
	}
}

func TestShares(t *testing.T) {
	set := &Set{workers: []*worker{{}, {}}}
	l := Limits{}.withDefaults()
	for parked, want := range map[int64]int64{0: 64 << 10, 1024: 64 << 10, 4096: 16 << 10, 16 << 10: 4 << 10} {
		set.workers[0].live.Store(parked / 4)
		set.workers[1].live.Store(parked - parked/4)
		if got := set.share(&l); got != want {
			t.Errorf("%d connections: %d bytes each, want %d", parked, got, want)
		}
	}
}

func TestWriteCopies(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{MaxQueuedBytes: 64 << 20}}, func() Handler { return e })
		conn, c := begin(t, r, e)
		const n = 3000
		scratch := make([]byte, 3000)
		for i := range n {
			for j := range scratch {
				scratch[j] = byte(i)
			}
			if _, err := c.Write(scratch); err != nil {
				t.Fatal(err)
			}
		}
		got := make([]byte, len(scratch))
		for i := range n {
			if _, err := readFull(conn, got); err != nil {
				t.Fatal(err)
			}
			if want := bytes.Repeat([]byte{byte(i)}, len(got)); !bytes.Equal(got, want) {
				t.Fatalf("write %d came out changed", i)
			}
		}
		barrierOf(t, r.set)
	})
}

func TestLimitsChangeWhileRunning(t *testing.T) {
	e := newEchoer()
	r := newRig(t, variant{}, Config{Ticks: still()}, func() Handler { return e })
	conn, _ := begin(t, r, e)
	r.set.SetLimits(Limits{MaxPartial: 1000})
	if _, err := conn.Write(frame(pattern(2000))[:1500]); err != nil {
		t.Fatal(err)
	}
	e.mustEnd(t, PartialTooLong, incumbent.TooLarge)
}

func TestReasonsHaveNames(t *testing.T) {
	l := Limits{}.withDefaults()
	seen := map[string]bool{}
	for r := range NumReasons {
		if name := r.String(); name == "" || seen[name] {
			t.Errorf("reason %d is named %q", r, name)
		}
		seen[r.String()] = true
		if r >= SlowReader && limitError(r, &l) == nil {
			t.Errorf("limit %v has no error", r)
		}
	}
	if got := NumReasons.String(); got != "reason_12" {
		t.Errorf("unknown reason is %q", got)
	}
}

func TestConfigValidate(t *testing.T) {
	for _, c := range []Config{{Workers: -1}, {Batch: -1}, {IdleTimeout: -1}, {Limits: Limits{MaxPartial: -1}}, {Limits: Limits{WriteTimeout: -1}}} {
		if s, err := New(c); incumbent.KindOf(err) != incumbent.Invalid {
			t.Errorf("%+v: %v, %v; want invalid", c, s, err)
		}
	}
}

func TestTicks(t *testing.T) {
	for d, want := range map[time.Duration]uint32{0: 0, -1: 0, 1: 2, TickInterval: 2, TickInterval + 1: 3, time.Second: 5} {
		if got := ticks(d); got != want {
			t.Errorf("ticks(%v) = %d, want %d", d, got, want)
		}
	}
}

func TestWhenDrained(t *testing.T) {
	forAll(t, func(t *testing.T, v variant) {
		e := newEchoer()
		r := newRig(t, v, Config{Ticks: still(), Limits: Limits{MaxQueuedBytes: 64 << 20}}, func() Handler { return e })
		conn, c := begin(t, r, e)
		shared, sent := pattern(1<<20), 0
		for c.Queued() < 4<<20 { // more than sockets hold
			if err := c.Send(shared); err != nil {
				t.Fatal(err)
			}
			sent += len(shared)
		}
		drained := make(chan struct{}, 2)
		for range 2 {
			if !c.WhenDrained(func() { drained <- struct{}{} }) {
				t.Fatal("nothing is queued")
			}
		}
		select {
		case <-drained:
			t.Fatal("told before anything was read")
		default:
		}
		if _, err := readFull(conn, make([]byte, sent)); err != nil {
			t.Fatal(err)
		}
		receive(t, "word that the queue is empty", drained)
		receive(t, "the other's", drained)
		if c.WhenDrained(func() { t.Error("called, though nothing is queued") }) {
			t.Errorf("%d bytes queued", c.Queued())
		}
	})
}
