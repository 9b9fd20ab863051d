package ovsdb

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/park"
)

// Serve accepts connections of a listener until it is closed or the door drains; then
// the error is nil. The listener is the caller's to close. Several may be served at
// once. Nobody is accepted before the databases of Config.Schemas are there.
func (d *Door) Serve(ln net.Listener, r *Remote) error {
	select {
	case <-d.made: // else the first clients are told that they ask for unknown databases
	case <-d.entry.closed:
		return nil
	}
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
		if !d.mayCome(c) {
			continue
		}
		if r.Secure && d.cfg.TLS != nil {
			go d.greet(c, r, true)
		} else {
			d.greet(c, r, false) // nothing is waited for
		}
	}
}

// greet leads a connection from accept to being parked.
func (d *Door) greet(c net.Conn, r *Remote, secure bool) {
	defer d.entry.leave(c)
	peer := peerOf(c)
	park.KeepAlive(c, 0)
	var ready net.Conn = park.NewSocket(c)
	if secure {
		_ = c.SetDeadline(d.now().Add(handshakeTimeout)) // if it fails so does the handshake
		over := tls.Server(ready, d.cfg.TLS())
		if err := over.Handshake(); err != nil {
			d.counts.noTLS.Add(1)
			d.turnAway(c)
			return
		}
		_ = c.SetDeadline(time.Time{})
		st := over.ConnectionState()
		peer.TLS = &tls.ConnectionState{PeerCertificates: st.PeerCertificates, VerifiedChains: st.VerifiedChains}
		ready = over
	}
	who, err := d.identify(peer, r)
	if err != nil || !gate.Prove(c, who.principal.Kind == auth.Operator) {
		d.counts.unknown.Add(1)
		d.turnAway(c)
		return
	}
	d.park(ready, c, who)
}

// mayCome asks the lane of logins whether another connection is let in, before anything
// is spent on it. How long its handshake takes is the client's time as well, which the
// lane would take for a queue of ours: it is not told.
func (d *Door) mayCome(c net.Conn) bool {
	p, err := d.enter(admit.Who{}, admit.Logins, 1)
	if err != nil {
		d.counts.refused.Add(1)
		d.entry.leave(c)
		d.turnAway(c)
		return false
	}
	p.leave()
	return true
}

func (d *Door) turnAway(c net.Conn) {
	d.counts.connections.Add(-1)
	c.Close()
}

// peerOf is what a connection brings.
func peerOf(c net.Conn) auth.Peer {
	peer := auth.Peer{Unix: c.LocalAddr().Network() == "unix", Forwarded: gate.Proxied(gate.NewContext(context.Background(), c))}
	peer.Remote, _ = netip.ParseAddrPort(c.RemoteAddr().String())
	peer.Local, _ = netip.ParseAddrPort(c.LocalAddr().String())
	return peer
}

// identify finds out who has connected: the protocol has nothing of its own for that.
func (d *Door) identify(peer auth.Peer, r *Remote) (*caller, error) {
	who := &caller{door: d, remote: r, address: peer.Remote.String()}
	proven := peer.TLS != nil && len(peer.TLS.VerifiedChains) > 0
	if proven {
		who.name = peer.TLS.VerifiedChains[0][0].Subject.CommonName
	}
	var err error
	if proven && d.cfg.OwnCA {
		who.principal, err = d.agentOf(peer.TLS.VerifiedChains[0][0])
		who.ends = peer.TLS.VerifiedChains[0][0].NotAfter.UnixMilli()
		who.roots = d.cfg.TLS().ClientCAs
	} else {
		who.principal, err = d.cfg.Guard.Identify(peer)
	}
	p := who.principal
	if peer.Unix {
		who.address = "unix"
	}
	if err == nil && p.Kind == auth.Anonymous {
		if who.principal = d.cfg.Anonymous; who.principal.Kind == auth.Anonymous {
			err = errNobody
		}
	}
	if err != nil {
		d.note(who, audit.Record{Action: audit.Login, Outcome: audit.Denied, Reason: audit.Identity})
	}
	return who, err
}

var errNobody = incumbent.Errorf(incumbent.Denied, "the connection says nothing of who it is").
	WithHint("bring a client certificate; --ovsdb-anonymous says who comes without one")

// agentOf is whom a certificate of the door's own authority names: its common name is
// an agent.
func (d *Door) agentOf(c *x509.Certificate) (auth.Principal, error) {
	if err := incumbent.ValidateHolder(c.Subject.CommonName); err != nil {
		return auth.Principal{}, incumbent.Errorf(incumbent.Denied, "the common name of the client certificate names nobody: %w", err)
	}
	return auth.Principal{Kind: auth.Agent, Name: c.Subject.CommonName, Via: auth.Certificate}, nil
}

// park hands the connection over to those who keep it while it is idle.
func (d *Door) park(ready, accepted net.Conn, who *caller) {
	c := newConn(d, who)
	d.conns.Add(c)
	who.remote.open.Add(1)
	parked, err := d.cfg.Park.Park(ready, nil, c)
	if err != nil { // the connection has been closed
		d.conns.Remove(c)
		who.remote.open.Add(-1)
		d.counts.connections.Add(-1)
		return
	}
	gate.Leave(accepted)
	c.parked.CompareAndSwap(nil, parked)
	if d.entry.isClosed() || who.remote.gone.Load() || !d.known(who, d.cfg.Guard.Knows()) {
		c.goAway() // who sent the others away may have missed it
	}
}

// entry knows those who are between accept and being parked, to send them away.
type entry struct {
	greeters sync.WaitGroup

	closed chan struct{} // closed under mu

	mu    sync.Mutex
	conns map[net.Conn]struct{}
}

func (e *entry) init() { e.conns, e.closed = map[net.Conn]struct{}{}, make(chan struct{}) }

// hold remembers who has entered; false once the entry is closed.
func (e *entry) hold(c net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.isClosed() {
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
	select {
	case <-e.closed:
		return true
	default:
		return false
	}
}

// close sends away who is not parked yet, and everybody who comes. It is called once.
func (e *entry) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	close(e.closed)
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
