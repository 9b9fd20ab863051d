package consul

import (
	"container/list"
	"crypto/tls"
	"net"
	"sync"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/gate"
)

// Serve accepts connections of a listener until it is closed or the door drains; then
// the error is nil. The listener is the caller's to close.
func (d *Door) Serve(ln net.Listener) error {
	let := d.pending.Greet // nothing is waited for
	if d.cfg.TLS != nil {
		let = d.pending.Go
	}
	return d.pending.Serve(ln, nil, func(c net.Conn) {
		if d.counts.connections.Add(1) > int64(d.limits.Load().MaxConnections) || !let(c, d.greet) {
			d.counts.connections.Add(-1)
			d.counts.refused.Add(1)
			d.pending.TurnAway(c)
		}
	})
}

// greet leads a connection from accept to being parked.
func (d *Door) greet(c net.Conn) {
	var config *tls.Config
	if d.cfg.TLS != nil {
		config = d.cfg.TLS()
	}
	ready, peer, err := d.pending.Prepare(c, config, d.now())
	if err != nil {
		d.counts.noTLS.Add(1)
		d.counts.connections.Add(-1)
		c.Close()
		return
	}
	d.park(ready, c, peer)
}

// park hands the connection over to those who keep it while it is idle.
func (d *Door) park(ready, accepted net.Conn, peer auth.Peer) {
	c := &conn{door: d, peer: peer}
	c.visit.Store(gate.HandOver(accepted)) // before it is parked, which closes this end of it
	d.conns.Add(c)
	d.strangers.add(c, d.limits.Load().MaxStrangers)
	parked, err := d.cfg.Park.Park(ready, nil, c)
	if err != nil { // the connection has been closed
		d.strangers.remove(c)
		d.conns.Remove(c)
		d.counts.connections.Add(-1)
		return
	}
	c.parked.CompareAndSwap(nil, parked)
	parked.SetIdleTimeout(d.limits.Load().Silence)
	if d.pending.IsClosed() {
		c.goAway() // Drain may have missed it
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
