package accept

import (
	"context"
	"crypto/tls"
	"net"
	"net/netip"
	"time"

	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/park"
)

// handshakeTimeout is how long TLS may take.
const handshakeTimeout = 10 * time.Second

// Prepare makes a connection that is being greeted ready to be parked, with a handshake of
// TLS where there is a configuration, and says what it brings before any request.
func (p *Pending) Prepare(c net.Conn, config *tls.Config, now time.Time) (net.Conn, auth.Peer, error) {
	peer := auth.Peer{Unix: c.LocalAddr().Network() == "unix", Forwarded: gate.Proxied(gate.NewContext(context.Background(), c))}
	peer.Remote, _ = netip.ParseAddrPort(c.RemoteAddr().String())
	peer.Local, _ = netip.ParseAddrPort(c.LocalAddr().String())
	park.KeepAlive(c, 0)
	if config == nil {
		return park.NewSocket(c), peer, nil
	}
	p.Bound(c, now.Add(handshakeTimeout))
	secure, err := Handshake(c, config)
	if err != nil {
		return nil, peer, err
	}
	_ = c.SetDeadline(time.Time{}) // parked connections have their own
	peer.TLS = stateOf(secure)
	return secure, peer, nil
}

// Handshake performs that of TLS, computed in its turn if the configuration has [Turn] waited for. It
// waits for the other side as long as the connection's deadline lets it. What it returns can be
// parked.
func Handshake(c net.Conn, config *tls.Config) (*tls.Conn, error) {
	pace := Pace(c)
	defer pace.Rest()
	secure := tls.Server(park.NewSocket(pace), config)
	return secure, secure.Handshake()
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
