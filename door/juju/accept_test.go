package juju

import (
	"crypto/tls"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// TestGreeterTakesWhoComesNext: one goroutine greets who comes within a second of the
// one before, and ends when nobody does, or the door drains.
func TestGreeterTakesWhoComesNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limits := Limits{}.withDefaults()
		d := &Door{now: time.Now, tls: func() *tls.Config { return &tls.Config{} }, arrivals: make(chan net.Conn), draining: make(chan struct{})}
		d.limits.Store(&limits)
		d.entry.init()
		gone := func() net.Conn {
			c, peer := net.Pipe()
			peer.Close()
			return c
		}
		ended := make(chan struct{})
		go func() { d.greetAll(gone()); ended <- struct{}{} }()
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
		go func() { d.greetAll(gone()); ended <- struct{}{} }()
		synctest.Wait()
		began = time.Now()
		close(d.draining)
		<-ended
		if time.Since(began) != 0 {
			t.Error("stayed while the door drains")
		}
	})
}
