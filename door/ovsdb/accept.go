package ovsdb

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/overload"
)

// Serve accepts connections of a listener until it is closed or the door drains; then
// the error is nil. The listener is the caller's to close. Several may be served at
// once. Nobody is accepted before the databases of Config.Schemas are there.
func (d *Door) Serve(ln net.Listener, r *Remote) error {
	select {
	case <-d.made: // else the first clients are told that they ask for unknown databases
	case <-d.pending.Closed():
		return nil
	}
	secure := r.Secure && d.cfg.TLS != nil
	greet, let := func(c net.Conn) { d.greet(c, r, secure) }, d.pending.Greet // nothing is waited for
	if secure {
		let = d.pending.Go
	}
	return d.pending.Serve(ln, nil, func(c net.Conn) {
		if d.counts.connections.Add(1) > int64(d.limits.Load().MaxConnections) {
			d.refuse(c)
		} else if err := d.mayCome(); err != nil {
			d.refuseLater(c, err)
		} else if !let(c, greet) {
			d.refuse(c)
		}
	})
}

// refuse closes a connection that is not let in.
func (d *Door) refuse(c net.Conn) {
	d.counts.connections.Add(-1)
	d.counts.refused.Add(1)
	d.pending.TurnAway(c)
}

// refuseLater is refuse, after a while in which nothing is read: closing is all that the
// protocol has to refuse with, and who connects again at once would take the processors from
// those who were let in.
func (d *Door) refuseLater(c net.Conn, err error) {
	refusal, _ := errors.AsType[*incumbent.Error](err)
	pause, _ := admit.HoldBack(refusal, -1)
	if !d.held.Take(0) {
		d.refuse(c)
		return
	}
	gate.VisitOf(c).Excused()
	time.AfterFunc(pause, func() {
		d.held.Give(0)
		d.refuse(c)
	})
}

// greet leads a connection from accept to being parked.
func (d *Door) greet(c net.Conn, r *Remote, secure bool) {
	var config *tls.Config
	if secure {
		config = d.cfg.TLS()
	}
	ready, peer, err := d.pending.Prepare(c, config, d.now())
	if err != nil {
		d.counts.noTLS.Add(1)
		d.turnAway(c)
		return
	}
	refused := &d.counts.unknown
	who, err := d.identify(peer, r, config)
	if err == nil {
		refused = &d.counts.refused
		err = who.takePlace(c)
	}
	if err != nil {
		refused.Add(1)
		gate.VisitOf(c).Refused(err)
		d.turnAway(c)
		return
	}
	who.socket = c.LocalAddr().Network() == "unix"
	d.park(ready, c, who)
}

// takePlace finds a place for the caller's connection; the error is Overloaded or TooLarge.
// Who proves nothing is judged when it ends.
func (w *caller) takePlace(c net.Conn) (err error) {
	var placed bool
	if w.unproven || w.principal.Via == auth.Loopback {
		w.visit, placed = gate.Welcome(c)
	} else {
		placed = gate.Prove(c, w.principal.Kind == auth.Operator)
	}
	if !placed {
		return overload.Errorf("this member has no place for another connection")
	}
	if !w.unproven { // a whole fleet that brings no certificates goes by one name
		w.counted, err = w.door.cfg.Tally.Take(settings.OpenConnections, w.principal, doorName)
	}
	return err
}

// mayCome asks the lane of logins whether another connection is let in, before anything
// is spent on it. How long its handshake takes is the client's time as well, which the
// lane would take for a queue of ours: it is not told.
func (d *Door) mayCome() error { return d.lanes.Passes(admit.Who{}, admit.Logins) }

func (d *Door) turnAway(c net.Conn) {
	d.counts.connections.Add(-1)
	c.Close()
}

// identify finds out who has connected: the protocol has nothing of its own for that. config
// is what verified its certificate, nil without TLS; there may be another by now.
func (d *Door) identify(peer auth.Peer, r *Remote, config *tls.Config) (*caller, error) {
	who := &caller{door: d, remote: r, address: peer.Remote.String()}
	proven := peer.TLS != nil && len(peer.TLS.VerifiedChains) > 0
	if proven {
		who.name = peer.TLS.VerifiedChains[0][0].Subject.CommonName
	}
	var err error
	if proven && d.cfg.OwnCA {
		who.principal, err = d.agentOf(peer.TLS.VerifiedChains[0][0])
		who.ends = peer.TLS.VerifiedChains[0][0].NotAfter.UnixMilli()
		who.roots = config.ClientCAs
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
		who.unproven = true
	}
	if err != nil {
		d.note(who, audit.Record{Action: audit.Login, Outcome: audit.Denied, Reason: audit.Identity})
	}
	return who, err
}

var errNobody = incumbent.Errorf(incumbent.Denied, "the connection says nothing of who it is").
	WithHint("bring a client certificate; --ovsdb-anonymous says who comes without one")

// agentOf is whom a certificate of the door's own authority names: its common name is
// an agent, up to what ovs-pki has behind it to tell certificates of one name apart: " id:" and
// a uuid. Those are one principal then, with the rights, the quotas and the share of one; each
// is taken back by itself. Its proof says no authority: which ones there are the door itself
// knows, and the guard what was taken back.
func (d *Door) agentOf(c *x509.Certificate) (auth.Principal, error) {
	name, _, _ := strings.Cut(c.Subject.CommonName, " id:")
	if err := incumbent.ValidateHolder(name); err != nil {
		return auth.Principal{}, incumbent.Errorf(incumbent.Denied, "the common name of the client certificate names nobody: %w", err)
	}
	p := auth.Principal{Kind: auth.Agent, Name: name, Via: auth.Certificate}
	p.Proof = auth.Proof{ID: string(c.SerialNumber.Bytes()), Ends: c.NotAfter.UnixMilli()}
	if !d.cfg.Guard.Knows()(p) {
		return auth.Principal{}, incumbent.Errorf(incumbent.Denied, "the client certificate of %s, serial number %x, was revoked or has ended", p, p.Proof.ID)
	}
	return p, nil
}

// park hands the connection over to those who keep it while it is idle.
func (d *Door) park(ready, accepted net.Conn, who *caller) {
	c := newConn(d, who)
	d.conns.Add(c)
	who.remote.open.Add(1)
	parked, err := d.cfg.Park.Park(ready, nil, c)
	if err != nil { // the connection has been closed
		d.conns.Remove(c)
		who.counted.Give()
		who.remote.open.Add(-1)
		d.counts.connections.Add(-1)
		return
	}
	gate.HandOver(accepted)
	c.parked.CompareAndSwap(nil, parked)
	if d.pending.IsClosed() || who.remote.gone.Load() || !d.known(who, d.cfg.Guard.Knows()) {
		c.goAway() // who sent the others away may have missed it
	}
}
