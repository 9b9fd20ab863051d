package park

import (
	"cmp"
	"crypto/tls"
	"net"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/rawio"
)

// Listen wraps a listener so that its connections can be parked later; the
// TLS listener, if any, goes on top. keepAlive is how long a TCP connection
// may be silent before the kernel probes the peer; 0 means DefaultKeepAlive
// (Go's own default of 15 s wakes a fleet of idle machines for nothing).
func Listen(inner net.Listener, keepAlive time.Duration) net.Listener {
	return &listener{Listener: inner, keepAlive: cmp.Or(keepAlive, DefaultKeepAlive)}
}

type listener struct {
	net.Listener
	keepAlive time.Duration
}

// Accept returns the next connection as a *Socket.
func (l *listener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	KeepAlive(conn, l.keepAlive)
	return NewSocket(conn), nil
}

// KeepAlive does for a connection that did not come from [Listen] what that does
// for its own; 0 means DefaultKeepAlive. The connection may wrap that of TCP, if it
// has NetConn; of others nothing is kept alive.
func KeepAlive(conn net.Conn, d time.Duration) {
	tcp := rawio.Below[*net.TCPConn](conn)
	if tcp == nil {
		return
	}
	d = cmp.Or(d, DefaultKeepAlive)
	// An error here means that the peer has gone, which the first read tells.
	_ = rawio.SetUserTimeout(tcp, d+probes*probeEvery)
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: d, Interval: probeEvery, Count: probes})
}

// Socket is a connection that can be parked. Until then it is the net.Conn it
// wraps. Afterwards its methods serve crypto/tls, under Conn.mu, and nobody
// else but for Close and the addresses.
type Socket struct {
	inner  net.Conn
	parked *Conn // set once, by Park, before any other goroutine sees the Conn
}

// NewSocket wraps a TCP or Unix connection that did not come from [Listen].
func NewSocket(inner net.Conn) *Socket { return &Socket{inner: inner} }

// socketOf finds the socket below what http.Hijacker returned.
func socketOf(conn net.Conn) (*Socket, *tls.Conn, error) {
	secure, _ := conn.(*tls.Conn)
	if secure != nil {
		conn = secure.NetConn()
	}
	s, ok := conn.(*Socket)
	switch {
	case !ok:
		return nil, nil, incumbent.Errorf(incumbent.Invalid, "%T does not come from park.Listen", conn)
	case s.parked != nil:
		return nil, nil, incumbent.Errorf(incumbent.Invalid, "connection is parked already")
	case secure != nil && !secure.ConnectionState().HandshakeComplete:
		return nil, nil, incumbent.Errorf(incumbent.Invalid, "TLS handshake is not complete")
	}
	return s, secure, nil
}

// NetConn is the connection below, as long as it is not parked.
func (s *Socket) NetConn() net.Conn { return s.inner }

// Read reads; once parked it returns a temporary error when nothing is there.
func (s *Socket) Read(p []byte) (int, error) {
	if s.parked != nil {
		return s.parked.rawRead(p)
	}
	return s.inner.Read(p)
}

// Write writes; once parked it takes everything and queues what the kernel
// does not take, because crypto/tls never recovers from a failed write.
func (s *Socket) Write(p []byte) (int, error) {
	if s.parked != nil {
		return s.parked.writeCipher(p)
	}
	return s.inner.Write(p)
}

// Close closes; once parked it is Conn.Close.
func (s *Socket) Close() error {
	if s.parked != nil {
		s.parked.Close(nil)
		return nil
	}
	return s.inner.Close()
}

// CloseWrite ends the sending side, where the connection can.
func (s *Socket) CloseWrite() error { return rawio.CloseWrite(s.inner) }

// LocalAddr returns the local address.
func (s *Socket) LocalAddr() net.Addr {
	if s.parked != nil {
		return s.parked.addr(localAddr)
	}
	return s.inner.LocalAddr()
}

// RemoteAddr returns the peer's address; once parked the kernel is asked, so
// that no copy is kept.
func (s *Socket) RemoteAddr() net.Addr {
	if s.parked != nil {
		return s.parked.addr(remoteAddr)
	}
	return s.inner.RemoteAddr()
}

// SetDeadline sets both deadlines; a parked connection has its own.
func (s *Socket) SetDeadline(t time.Time) error {
	if s.parked != nil {
		return nil
	}
	return s.inner.SetDeadline(t)
}

// SetReadDeadline sets the deadline of Read; a parked connection has its own.
func (s *Socket) SetReadDeadline(t time.Time) error {
	if s.parked != nil {
		return nil
	}
	return s.inner.SetReadDeadline(t)
}

// SetWriteDeadline sets the deadline of Write; a parked connection has its own.
func (s *Socket) SetWriteDeadline(t time.Time) error {
	if s.parked != nil {
		return nil
	}
	return s.inner.SetWriteDeadline(t)
}
