package juju

import (
	"crypto/tls"
	"net"
	"time"

	"github.com/incumbent-dev/incumbent/accept"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/park"
)

// Accepting is where a storm of connections is met. What a connection costs is
// its handshake, so:
//
//   - at most MaxPending connections are between accept and login; the others wait
//     in the kernel's queue, and beyond it their clients' kernels ask again. No more than
//     half of them wait for a password to be checked ([auth.DefaultMaxChecking]), and none
//     for longer than LoginTimeout: who brings one that is checked at once finds room;
//   - at most a few handshakes for each processor are computed at once. Waiting for
//     the peer's next flight is not computing, so that peers who are slow or silent
//     take no such place;
//   - while the member knows no leader, catches up or refuses logins for now,
//     accepting rests: that is soon over, and whoever waits in the kernel's queue loses
//     less by it than by coming back after 2 s. A member that was started again is met
//     by all its agents at once: their handshakes would keep it from catching up;
//   - who cannot be served at all (too many connections, logins are refused for long,
//     shutting down) is closed before TLS: its client comes back after 2 s.

// Serve accepts connections of a listener until it is closed or the door drains;
// then the error is nil. The listener is the caller's to close.
func (d *Door) Serve(ln net.Listener) error {
	var shut shutter
	return d.pending.Serve(ln, func() int { return d.limits.Load().MaxPending }, func(c net.Conn) {
		why, ok := d.admit(&shut)
		d.counts.connections.Add(1)
		if !ok || !d.pending.Go(c, d.greet) {
			d.counts.connections.Add(-1)
			d.counts.refused[why].Add(1)
			d.pending.TurnAway(c)
		}
	})
}

// admit decides, before any work, whether to serve a connection. It rests while
// the member cannot serve or logins are refused, until that has lasted for
// loginPatience.
func (d *Door) admit(shut *shutter) (refusal, bool) {
	if d.counts.connections.Load() >= int64(d.limits.Load().MaxConnections) {
		return refusedFull, false
	}
	for waits := false; !d.pending.IsClosed(); {
		now := d.monotonic()
		why, ok := refusedUnready, d.ready() == nil
		if ok {
			why, ok = refusedOverload, d.mayLogIn(waits)
		}
		if ok {
			shut.open()
			return refusedDraining, true
		}
		if shut.forLong(now) {
			return why, false
		}
		waits = why == refusedOverload
		d.rest(loginPause)
	}
	return refusedDraining, false
}

// mayLogIn asks the lane of logins, which says whether memory, or what is refused
// later, is short. How long a login takes it is not told: that is the client's time
// as well, which in a storm may have no processor, and the lane would take it for
// a queue of ours. MaxPending and the turns of handshakes set the pace.
// again: whoever asks was refused a moment ago, and is not counted once more.
func (d *Door) mayLogIn(again bool) bool {
	if !again {
		return d.lanes.Passes(admit.Who{}, calls.JujuLogin.Lane()) == nil
	}
	p, why := d.lanes.EnterNext(admit.Who{}, calls.JujuLogin.Lane(), 1)
	p.Drop()
	return why == admit.NumReasons
}

// shutter remembers since when logins are refused. It belongs to Serve.
type shutter struct {
	since, last int64 // monotonic nanoseconds: the first refusal, and the last
	shut        bool
}

// forLong is told of a refusal, and reports whether nobody was let in for
// loginPatience although somebody came.
func (s *shutter) forLong(now int64) bool {
	if !s.shut || now-s.last > int64(loginPatience) {
		s.since, s.shut = now, true
	}
	s.last = now
	return now-s.since >= int64(loginPatience)
}

func (s *shutter) open() { s.shut = false }

// rest waits, or until the door closes.
func (d *Door) rest(t time.Duration) {
	timer := time.NewTimer(t)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-d.closing:
	}
}

// greet leads a connection from accept to being parked.
func (d *Door) greet(c net.Conn) {
	until := d.now().Add(d.limits.Load().LoginTimeout) // for all that follows
	d.pending.Bound(c, until)
	secure, err := d.handshake(c)
	if err != nil {
		d.counts.logins[loginNoTLS].Add(1)
		d.counts.connections.Add(-1)
		c.Close()
		return
	}
	g := &greeting{door: d, conn: secure, until: until}
	outcome, parked := g.run()
	d.counts.logins[outcome].Add(1)
	if parked {
		gate.Leave(c)
		return
	}
	d.counts.connections.Add(-1)
	secure.Close()
}

// handshake performs TLS.
func (d *Door) handshake(c net.Conn) (*tls.Conn, error) {
	park.KeepAlive(c, 0)
	return accept.Handshake(c, d.tls())
}
