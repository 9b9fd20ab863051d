package accept

import (
	"crypto/tls"
	"net"
	"runtime"
	"sync/atomic"
	"syscall"

	"github.com/incumbent-dev/incumbent/rawio"
)

// turnsEach is how many handshakes are computed at once, for each processor.
const turnsEach = 4

// turns holds one for each handshake that is computed at this moment, at whichever door. Goroutines
// run in the order in which they can, so with hundreds of handshakes at once everything else that
// the process does, extensions too, would wait for as many times half a millisecond.
var turns = make(chan struct{}, turnsEach*runtime.GOMAXPROCS(0))

// Paced is a connection that has a turn while its handshake is computed, from [Turn] until more is
// read from the peer: waiting for that takes none. The goroutine that performs the handshake uses it.
type Paced struct {
	net.Conn
	has atomic.Bool
}

// Pace makes a connection that may take a turn.
func Pace(c net.Conn) *Paced { return &Paced{Conn: c} }

// PaceAll has all connections of a listener be [Paced].
func PaceAll(ln net.Listener) net.Listener { return pacedListener{ln} }

type pacedListener struct{ net.Listener }

// Accept implements net.Listener.
func (l pacedListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return Pace(c), nil
}

// Turn waits until the handshake of a client that has said hello has its turn, if its connection is
// [Paced]. It is for the GetConfigForClient of a configuration, called before anything is computed.
// The error is that the handshake has been given up.
func Turn(hello *tls.ClientHelloInfo) error {
	p := rawio.Below[*Paced](hello.Conn)
	if p == nil {
		return nil
	}
	select {
	case turns <- struct{}{}:
		p.has.Store(true)
		return nil
	case <-hello.Context().Done():
		return hello.Context().Err()
	}
}

// InTurns has the handshakes of a configuration wait for their [Turn].
func InTurns(config *tls.Config) *tls.Config {
	config.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) { return nil, Turn(hello) }
	return config
}

// Rest gives the turn back, if there is one.
func (p *Paced) Rest() {
	if p.has.Swap(false) {
		<-turns
	}
}

// Read waits for the peer without a turn.
func (p *Paced) Read(b []byte) (int, error) {
	p.Rest()
	return p.Conn.Read(b)
}

// Close implements net.Conn.
func (p *Paced) Close() error {
	p.Rest()
	return p.Conn.Close()
}

// NetConn is the connection below.
func (p *Paced) NetConn() net.Conn { return p.Conn }

// SyscallConn is the descriptor, for park.
func (p *Paced) SyscallConn() (syscall.RawConn, error) { return rawio.Raw(p.Conn) }

// CloseWrite ends the sending side, where the connection can.
func (p *Paced) CloseWrite() error { return rawio.CloseWrite(p.Conn) }
