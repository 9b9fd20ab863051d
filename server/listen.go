package server

import (
	"errors"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/cluster"
)

// acceptPause is how long accepting rests when the process or the machine has
// no descriptor left: connections wait in the kernel's queue meanwhile.
const acceptPause = 50 * time.Millisecond

// gate is the listener's door-keeper: at most max connections at once. One too
// many is closed at once, before any TLS or HTTP work is spent on it.
type gate struct {
	net.Listener
	parked  func() int // connections that net/http has handed over
	max     atomic.Int64
	serving atomic.Int64 // connections that net/http has
	refused atomic.Uint64
	rest    func(time.Duration) // time.Sleep, or a test's
}

func newGate(ln net.Listener, most int, parked func() int) *gate {
	g := &gate{Listener: ln, parked: parked, rest: time.Sleep}
	g.max.Store(int64(most))
	return g
}

// Accept implements net.Listener.
func (g *gate) Accept() (net.Conn, error) {
	for {
		c, err := g.Listener.Accept()
		if err != nil {
			if !outOfDescriptors(err) {
				return nil, err
			}
			g.refused.Add(1)
			g.rest(acceptPause)
			continue
		}
		if int64(g.open()) < g.max.Load() {
			return c, nil
		}
		g.refused.Add(1)
		c.Close()
	}
}

// open counts all connections, whoever has them now.
func (g *gate) open() int { return int(g.serving.Load()) + g.parked() }

// connState keeps count of what net/http has; for http.Server.ConnState.
func (g *gate) connState(_ net.Conn, s http.ConnState) {
	switch s {
	case http.StateNew:
		g.serving.Add(1)
	case http.StateClosed, http.StateHijacked:
		g.serving.Add(-1)
	}
}

func outOfDescriptors(err error) bool {
	for _, e := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}

// wantsPeers reports whether this member is to listen for others.
func (c Config) wantsPeers(r *cluster.Record) bool {
	return c.PeerListen != "" || c.JoinToken != "" || c.JoinFile != "" || r != nil && r.Clustered
}

// listenForPeers opens the listener for other members, if there is to be one.
func (s *Server) listenForPeers() error {
	r, err := cluster.ReadRecord(s.cfg.DataDir)
	if err != nil || !s.cfg.wantsPeers(r) {
		return err
	}
	set(&s.cfg.PeerListen, DefaultPeerListen)
	if err := s.cfg.peerPolicy(s.cfg.expectsOwnTLS()); err != nil {
		return err
	}
	ln, err := net.Listen("tcp", s.cfg.PeerListen)
	if err != nil {
		return incumbent.Errorf(incumbent.Unavailable, "setting peer-listen: %w", err).
			WithHint("is another server running? choose another address with --peer-listen")
	}
	s.peerListener = ln
	if s.peerAddress, err = reachable("peer-listen", ln.Addr().String(), "peer-advertise", s.cfg.PeerAdvertise); err != nil {
		ln.Close()
		return err
	}
	if _, err := reachable("listen", s.gate.Addr().String(), "advertise", s.cfg.Advertise); err != nil {
		ln.Close()
		return err
	}
	return nil
}

// PeerAddr is where other members reach this one; "" if it listens for none.
func (s *Server) PeerAddr() string { return s.peerAddress }
