package juju

import (
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// greetingDoor is no more of a door than who accepts and greets needs.
func greetingDoor() *Door {
	limits := Limits{}.withDefaults()
	d := &Door{
		now: time.Now, monotonic: func() int64 { return 0 }, tls: func() *tls.Config { return &tls.Config{} }, ready: func() error { return nil },
		arrivals: make(chan net.Conn), draining: make(chan struct{}), slots: make(chan struct{}, 1),
	}
	d.limits.Store(&limits)
	d.entry.init()
	return d
}

// TestGreeterTakesWhoComesNext: one goroutine greets who comes within a second of the
// one before, and ends when nobody does, or the door drains.
func TestGreeterTakesWhoComesNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := greetingDoor()
		gone := func() net.Conn {
			c, peer := net.Pipe()
			peer.Close()
			return c
		}
		ended := make(chan struct{})
		greet := func() {
			c := gone()
			if !d.entry.hold(c) {
				t.Error("the entry is closed")
			}
			go func() { d.greetAll(c); ended <- struct{}{} }()
		}
		greet()
		for range 3 {
			time.Sleep(greeterIdle - time.Millisecond)
			d.arrivals <- gone()
		}
		synctest.Wait()
		if n := d.counts.logins[loginNoTLS].Load(); n != 4 {
			t.Errorf("%d were greeted", n)
		}
		began := time.Now()
		<-ended
		if idle := time.Since(began); idle != greeterIdle {
			t.Errorf("ended after %v", idle)
		}
		greet()
		synctest.Wait()
		began = time.Now()
		close(d.draining)
		<-ended
		if time.Since(began) != 0 {
			t.Error("stayed while the door drains")
		}
	})
}

// TestCloseWaitsForWhoGreets: from when a connection is held on, who greets it is
// waited for, whether that goroutine has begun or not.
func TestCloseWaitsForWhoGreets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := greetingDoor()
		c, peer := net.Pipe()
		defer peer.Close()
		if !d.entry.hold(c) {
			t.Fatal("the entry is closed")
		}
		d.entry.close()
		close(d.draining)
		ended := make(chan struct{})
		go func() { d.entry.greeters.Wait(); close(ended) }()
		synctest.Wait()
		select {
		case <-ended:
			t.Error("who is about to greet is not waited for")
		default:
		}
		if d.entry.hold(peer) {
			t.Error("the closed entry holds a connection")
		}
		go d.greetAll(c)
		<-ended
	})
}

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

// TestGreetersAreCounted: as many are counted as greet, also where one greets several;
// once they have gone nobody is waited for.
func TestGreetersAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := greetingDoor()
		in, served := make(pipes), make(chan error, 1)
		go func() { served <- d.Serve(in) }()
		come := func() net.Conn {
			c, peer := net.Pipe()
			in <- c
			synctest.Wait()
			return peer
		}
		come().Close()
		synctest.Wait()      // who greeted it is idle, and takes the next
		defer come().Close() // for which it counts on
		defer come().Close() // another one greets this
		ended := make(chan struct{})
		go func() { d.entry.greeters.Wait(); close(ended) }()
		d.entry.close() // both handshakes end
		close(in)
		if err := <-served; err != nil {
			t.Error(err)
		}
		synctest.Wait()
		select {
		case <-ended:
			t.Error("who is idle is not waited for")
		default:
		}
		close(d.draining)
		<-ended
		if n := d.counts.logins[loginNoTLS].Load(); n != 3 {
			t.Errorf("%d were greeted", n)
		}
	})
}
