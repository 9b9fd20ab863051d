package accept

import (
	"context"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener of what is put into it.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	c, ok := <-p
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (pipes) Close() error   { return nil }
func (pipes) Addr() net.Addr { return &net.TCPAddr{} }

// way is a served one; greet reads until that fails.
type way struct {
	*Pending
	in      pipes
	ended   chan error
	greeted atomic.Int32
}

func newWay(most func() int) *way {
	w := &way{Pending: New(), in: make(pipes), ended: make(chan error, 1)}
	go func() { w.ended <- w.Serve(w.in, most, w.take) }()
	return w
}

func (w *way) take(c net.Conn) {
	if !w.Go(c, w.greet) {
		w.TurnAway(c)
	}
}

func (w *way) greet(c net.Conn) {
	_, _ = c.Read(make([]byte, 1))
	c.Close()
	w.greeted.Add(1)
}

// come connects, and returns the other side.
func (w *way) come() net.Conn {
	c, peer := net.Pipe()
	w.in <- c
	synctest.Wait()
	return peer
}

// waits reports whether somebody is waited for.
func (w *way) waits() (ended <-chan struct{}, waits bool) {
	gone := make(chan struct{})
	go func() { _ = w.Wait(context.Background()); close(gone) }()
	synctest.Wait()
	select {
	case <-gone:
		return gone, false
	default:
		return gone, true
	}
}

// TestGreeterTakesWhoComesNext: one goroutine greets who comes within a second of the
// one before, is waited for as long, and ends when nobody comes.
func TestGreeterTakesWhoComesNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWay(nil)
		w.come().Close()
		for range 3 {
			time.Sleep(idle - time.Millisecond)
			w.come().Close()
		}
		synctest.Wait()
		if n := w.greeted.Load(); n != 4 {
			t.Errorf("%d were greeted", n)
		}
		ended, waits := w.waits()
		if !waits {
			t.Error("who is idle is not waited for")
		}
		began := time.Now()
		<-ended
		if stayed := time.Since(began); stayed != idle {
			t.Errorf("ended after %v: another goroutine greeted", stayed)
		}
		w.Close()
		close(w.in)
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
	})
}

// TestCloseEndsGreetings: who is idle ends at once, who greets when its connection is out
// of time, and who comes is closed.
func TestCloseEndsGreetings(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWay(nil)
		w.come().Close()
		defer w.come().Close()
		defer w.come().Close()
		if n := w.Len(); n != 2 {
			t.Errorf("%d are being greeted", n)
		}
		began := time.Now()
		w.Close()
		w.Close() // and again
		late := w.come()
		if err := <-w.ended; err != nil {
			t.Error(err)
		}
		if _, err := late.Read(make([]byte, 1)); err == nil {
			t.Error("the closed way lets somebody in")
		}
		if err := w.Wait(context.Background()); err != nil {
			t.Error(err)
		}
		if n := w.greeted.Load(); n != 3 || time.Since(began) != 0 {
			t.Errorf("%d were greeted, after %v", n, time.Since(began))
		}
		c, peer := net.Pipe()
		defer peer.Close()
		w.Bound(c, began.Add(time.Hour))
		if _, err := c.Read(make([]byte, 1)); err == nil || time.Since(began) != 0 {
			t.Errorf("a connection has time although the way is closed: %v", err)
		}
	})
}

// TestWaitsForWhoGreets: from when a connection is held on, who greets it is waited for,
// whether that goroutine has begun or not.
func TestWaitsForWhoGreets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &way{Pending: New()}
		c, peer := net.Pipe()
		defer peer.Close()
		if !w.hold(c) {
			t.Fatal("the way is closed")
		}
		w.Close()
		ended, waits := w.waits()
		if !waits {
			t.Error("who is about to greet is not waited for")
		}
		if w.hold(peer) {
			t.Error("the closed way holds a connection")
		}
		go w.greetAll(arrival{c, w.greet})
		<-ended
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		w.greeters.Add(1)
		if err := w.Wait(ctx); err == nil {
			t.Error("waits for longer than it may")
		}
		w.greeters.Done()
	})
}

// TestRoom: who finds no room waits in front, until somebody leaves or there may be more.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most atomic.Int32
		most.Store(1)
		w := newWay(func() int { return int(most.Load()) })
		first := w.come()
		c, second := net.Pipe()
		go func() { w.in <- c }()
		synctest.Wait()
		if n := w.Len(); n != 1 {
			t.Errorf("%d are being greeted", n)
		}
		first.Close()
		synctest.Wait()
		if n := w.Len(); n != 1 || w.greeted.Load() != 1 {
			t.Errorf("%d are being greeted: the next was not let in", n)
		}
		most.Store(2)
		w.Wake()
		defer w.come().Close()
		if n := w.Len(); n != 2 {
			t.Errorf("%d are being greeted: room that was made is not used", n)
		}
		second.Close()
		w.Close()
		close(w.in)
		<-w.ended
		_ = w.Wait(context.Background())
	})
}
