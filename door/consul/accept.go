package consul

import (
	"container/list"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/park"
)

// Serve accepts connections of a listener until it is closed or the door drains; then
// the error is nil. The listener is the caller's to close.
func (d *Door) Serve(ln net.Listener) error {
	for {
		c, err := ln.Accept()
		switch {
		case err == nil:
		case d.entry.isClosed() || errors.Is(err, net.ErrClosed):
			return nil
		default:
			return err
		}
		if d.counts.connections.Add(1) > int64(d.limits.Load().MaxConnections) || !d.entry.hold(c) {
			d.counts.connections.Add(-1)
			d.counts.refused.Add(1)
			c.Close()
			continue
		}
		if d.cfg.TLS == nil {
			d.greet(c) // nothing is waited for
		} else {
			go d.greet(c)
		}
	}
}

// greet leads a connection from accept to being parked.
func (d *Door) greet(c net.Conn) {
	defer d.entry.leave(c)
	peer := peerOf(c)
	park.KeepAlive(c, 0)
	var ready net.Conn = park.NewSocket(c)
	if d.cfg.TLS != nil {
		_ = c.SetDeadline(d.now().Add(handshakeTimeout)) // if it fails so does the handshake
		secure := tls.Server(ready, d.cfg.TLS())
		if err := secure.Handshake(); err != nil {
			d.counts.noTLS.Add(1)
			d.counts.connections.Add(-1)
			c.Close()
			return
		}
		_ = c.SetDeadline(time.Time{})
		peer.TLS = stateOf(secure)
		ready = secure
	}
	d.park(ready, c, peer)
}

// plainState is that of all connections whose clients showed no certificate.
var plainState = &tls.ConnectionState{}

func stateOf(c *tls.Conn) *tls.ConnectionState {
	st := c.ConnectionState()
	if len(st.PeerCertificates) == 0 {
		return plainState
	}
	return &tls.ConnectionState{PeerCertificates: st.PeerCertificates, VerifiedChains: st.VerifiedChains}
}

// peerOf is what a connection brings, before any request.
func peerOf(c net.Conn) auth.Peer {
	peer := auth.Peer{Unix: c.LocalAddr().Network() == "unix", Forwarded: gate.Proxied(gate.NewContext(context.Background(), c))}
	peer.Remote, _ = netip.ParseAddrPort(c.RemoteAddr().String())
	peer.Local, _ = netip.ParseAddrPort(c.LocalAddr().String())
	return peer
}

// park hands the connection over to those who keep it while it is idle.
func (d *Door) park(ready, accepted net.Conn, peer auth.Peer) {
	c := &conn{door: d, peer: peer}
	d.conns.Add(c)
	d.strangers.add(c, d.limits.Load().MaxStrangers)
	parked, err := d.cfg.Park.Park(ready, nil, c)
	if err != nil { // the connection has been closed
		d.strangers.remove(c)
		d.conns.Remove(c)
		d.counts.connections.Add(-1)
		return
	}
	gate.Leave(accepted)
	c.parked.CompareAndSwap(nil, parked)
	parked.SetIdleTimeout(d.limits.Load().Silence)
	if d.entry.isClosed() {
		c.goAway() // Drain may have missed it
	}
}

// entry knows those who are between accept and being parked, to send them away.
type entry struct {
	greeters sync.WaitGroup

	mu     sync.Mutex // guards the rest; held to change it
	conns  map[net.Conn]struct{}
	closed bool
}

func (e *entry) init() { e.conns = map[net.Conn]struct{}{} }

// hold remembers who has entered; false once the entry is closed.
func (e *entry) hold(c net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return false
	}
	e.conns[c] = struct{}{}
	e.greeters.Add(1)
	return true
}

func (e *entry) leave(c net.Conn) {
	e.mu.Lock()
	delete(e.conns, c)
	e.mu.Unlock()
	e.greeters.Done()
}

func (e *entry) isClosed() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.closed
}

// close sends away who is not parked yet, and everybody who comes.
func (e *entry) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	for c := range e.conns {
		_ = c.SetDeadline(time.Unix(1, 0)) // its goroutine closes it
	}
}

// wait waits for those who were let in.
func (e *entry) wait(ctx context.Context) error {
	gone := make(chan struct{})
	go func() { e.greeters.Wait(); close(gone) }()
	select {
	case <-gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// strangers are the parked connections from which nothing came that says who they are:
// there are only so many, and the oldest makes room.
type strangers struct {
	mu   sync.Mutex // guards the list, and each conn's place in it; held to change it
	list list.List  // of *conn, oldest first
}

func (s *strangers) add(c *conn, most int) {
	s.mu.Lock()
	c.stranger = s.list.PushBack(c)
	var oldest *conn
	if s.list.Len() > most {
		oldest = s.list.Front().Value.(*conn) //nolint:forcetypeassert // nothing else is put in
		s.drop(oldest)
	}
	s.mu.Unlock()
	if oldest == nil {
		return
	}
	if p := oldest.parked.Load(); p != nil {
		p.Close(nil)
	}
}

// remove forgets one who has shown who he is, or is gone.
func (s *strangers) remove(c *conn) {
	if c.known.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.drop(c)
}

func (s *strangers) drop(c *conn) {
	if c.stranger != nil {
		s.list.Remove(c.stranger)
		c.stranger = nil
	}
}
