// Package accept is the way of a connection from a listener to where it is parked, for
// every door: who is on it is known, counted and, when the door drains, sent away.
//
//	listener ─ room ─ Serve: let in, or turned away ─ greet: TLS, who it is ─ parked, or closed
//
// # Invariants
//
//   - Once the way is closed nobody is greeted any more, and who was about to be has a
//     deadline that is over: its greeting fails with the next read or write.
//   - From when a connection is let in on it is waited for, whether the goroutine that
//     greets it has begun or not.
//
// # Concurrency
//
// All methods may be called from any goroutine.
package accept

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent/gate"
)

// idle is how long a goroutine that has greeted waits for the next connection. A
// handshake needs a stack that takes several turns of growing, and in a storm each
// connection would pay for it.
const idle = time.Second

// Pending are the connections between accept and being parked.
type Pending struct {
	arrivals chan arrival  // to whoever has greeted the one before
	closed   chan struct{} // closed under mu

	// greeters are the goroutines that greet, or wait for somebody to greet. Once it is
	// closed nobody adds to them, and they may be waited for.
	greeters sync.WaitGroup

	mu    sync.Mutex // guards the rest; held to change it
	room  sync.Cond
	n     int // that have room
	conns map[net.Conn]struct{}
}

// arrival is a connection, and what to do with it.
type arrival struct {
	conn  net.Conn
	greet func(net.Conn)
}

// New returns a way that nobody is on.
func New() *Pending {
	p := &Pending{arrivals: make(chan arrival), closed: make(chan struct{}), conns: map[net.Conn]struct{}{}}
	p.room.L = &p.mu
	return p
}

// Serve hands the connections of a listener to take, one after the other, until the
// listener is closed or p is; then the error is nil. While there are as many as most says,
// where it is not nil, the next ones wait in the kernel. take has each let in by
// [Pending.Greet] or [Pending.Go], or calls [Pending.TurnAway], behind counting it.
func (p *Pending) Serve(ln net.Listener, most func() int, take func(net.Conn)) error {
	for p.enter(most) {
		c, err := ln.Accept()
		switch {
		case err == nil:
			take(c)
			continue
		case p.IsClosed() || errors.Is(err, net.ErrClosed):
			err = nil
		}
		p.leave(nil)
		return err
	}
	return nil
}

// TurnAway closes a connection that is not let in, for the member's own sake: the gate
// does not count it as one that proved nothing.
func (p *Pending) TurnAway(c net.Conn) {
	gate.VisitOf(c).Excused()
	c.Close()
	p.leave(nil)
}

// Greet lets a connection in and calls greet, which parks or closes it. False: p is
// closed, and the connection is to be turned away.
func (p *Pending) Greet(c net.Conn, greet func(net.Conn)) bool {
	if !p.hold(c) {
		return false
	}
	defer p.greeters.Done()
	p.greet(arrival{c, greet})
	return true
}

// Go is Greet where greet waits for the other side: it runs on another goroutine.
func (p *Pending) Go(c net.Conn, greet func(net.Conn)) bool {
	if !p.hold(c) {
		return false
	}
	select {
	case p.arrivals <- arrival{c, greet}:
		p.greeters.Done() // who takes it is counted
	default:
		go p.greetAll(arrival{c, greet})
	}
	return true
}

func (p *Pending) greet(a arrival) {
	defer p.leave(a.conn)
	a.greet(a.conn)
}

// greetAll greets a connection and, one after the other, those that come while its
// goroutine is there. It is counted since hold.
func (p *Pending) greetAll(a arrival) {
	defer p.greeters.Done()
	wait := time.NewTimer(idle)
	defer wait.Stop()
	for {
		p.greet(a)
		wait.Reset(idle)
		select {
		case a = <-p.arrivals:
		case <-wait.C:
			return
		case <-p.closed:
			return
		}
	}
}

// enter waits for room and takes it; false once p is closed.
func (p *Pending) enter(most func() int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for most != nil && p.n >= most() && !p.IsClosed() {
		p.room.Wait()
	}
	if p.IsClosed() {
		return false
	}
	p.n++
	return true
}

// hold remembers who has entered, and counts one who greets; false once p is closed.
func (p *Pending) hold(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.IsClosed() {
		return false
	}
	p.conns[c] = struct{}{}
	p.greeters.Add(1)
	return true
}

// leave gives the room back.
func (p *Pending) leave(c net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.n--
	delete(p.conns, c)
	p.room.Signal()
}

// Len is how many are being greeted.
func (p *Pending) Len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.conns)
}

// Wake says that there may be more than there were.
func (p *Pending) Wake() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.room.Broadcast()
}

// Closed is closed once Close was called.
func (p *Pending) Closed() <-chan struct{} { return p.closed }

// IsClosed reports whether Close was called.
func (p *Pending) IsClosed() bool {
	select {
	case <-p.closed:
		return true
	default:
		return false
	}
}

// Close sends away who is not parked yet, and everybody who comes. It does not wait.
func (p *Pending) Close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.IsClosed() {
		return
	}
	close(p.closed)
	for c := range p.conns {
		expire(c) // its goroutine closes it
	}
	p.room.Broadcast()
}

// Wait waits for those who were let in, or until ctx ends. It comes after Close.
func (p *Pending) Wait(ctx context.Context) error {
	gone := make(chan struct{})
	go func() { p.greeters.Wait(); close(gone) }()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Bound gives a connection that is being greeted until at: less once p is closed.
func (p *Pending) Bound(c net.Conn, at time.Time) {
	_ = c.SetDeadline(at) // if it fails so does the next read
	if p.IsClosed() {
		expire(c) // Close did it before, and it has been lifted
	}
}

func expire(c net.Conn) { _ = c.SetDeadline(time.Unix(1, 0)) }
