package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent/park"
)

// How a connection is opened, as Juju's client does.
const (
	jujuDialTimeout = 45 * time.Second // TCP, TLS, upgrade and login
	jujuRedial      = 2 * time.Second  // after a refusal that is not the login's
	jujuDialers     = 64               // connections being opened at once, by one process
)

// jujuTLS is what Juju's client offers: no key share of the newest kind, nothing
// of HTTP/2, and any certificate.
func jujuTLS() *tls.Config {
	return &tls.Config{
		InsecureSkipVerify: true, //nolint:gosec // the certificate is the server's own, and the run's password guards nothing
		MinVersion:         tls.VersionTLS12, CurvePreferences: []tls.CurveID{tls.X25519, tls.CurveP256, tls.CurveP384, tls.CurveP521},
		DynamicRecordSizingDisabled: true,
	}
}

var errGoodBye = errors.New("the server says good-bye")

// loginError is a login that was answered with an error.
type loginError struct{ message, code string }

func (e *loginError) Error() string { return "login: " + e.message }

// dialTLS opens a connection up to the end of its TLS handshake.
func dialTLS(ctx context.Context, cfg *tls.Config, source net.Addr, address string) (*tls.Conn, error) {
	d := net.Dialer{LocalAddr: source, Timeout: jujuDialTimeout, KeepAlive: 2 * time.Minute}
	tcp, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { tcp.Close() })
	defer stop()
	secure := tls.Client(park.NewSocket(tcp), cfg)
	if err = secure.SetDeadline(time.Now().Add(jujuDialTimeout)); err == nil {
		err = secure.Handshake()
	}
	if err != nil {
		tcp.Close()
		return nil, err
	}
	return secure, nil
}

// dial opens a unit's connection and logs it in.
func (f *jujuFleet) dial(u *unit, address string) (*tls.Conn, error) {
	began := f.now()
	conn, err := dialTLS(f.ctx, f.tls, f.source(u.id), address)
	if err != nil {
		f.opHandshake.failed(f.now(), 1)
		return nil, err
	}
	now := f.now()
	f.opHandshake.done(now, now-began, 1)
	stop := context.AfterFunc(f.ctx, func() { conn.NetConn().Close() })
	answer, err := f.login.enter(conn, u, address)
	if err == nil {
		err = f.welcomed(answer)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if !stop() {
		err = f.ctx.Err() // the fleet has ended, and so has the connection
	}
	if err != nil {
		conn.NetConn().Close()
		return nil, err
	}
	return conn, nil
}

// enter upgrades the connection and asks for the unit to be logged in; it returns
// the answer.
func (l jujuLogin) enter(conn net.Conn, u *unit, address string) ([]byte, error) {
	upgrade := ws.Dialer{ReadBufferSize: 512, WriteBufferSize: 512}
	early, _, err := upgrade.Upgrade(conn, &url.URL{Scheme: "wss", Host: address, Path: "/model/" + l.Model + "/api"})
	if err != nil {
		return nil, err
	}
	if early != nil {
		return nil, fmt.Errorf("%w: the server speaks before it is asked", errWire)
	}
	hello := jujuFrame(l.appendLogin(make([]byte, jujuFrameHeader, 512), u), ws.OpText)
	if _, err := conn.Write(hello); err != nil {
		return nil, err
	}
	h, err := ws.ReadHeader(conn)
	switch {
	case err != nil:
		return nil, err
	case h.OpCode != ws.OpText || !h.Fin || h.Length > maxJujuMessage:
		return nil, fmt.Errorf("%w: the login was answered with a frame of kind %d and %d bytes", errWire, h.OpCode, h.Length)
	}
	payload := make([]byte, h.Length)
	if _, err := io.ReadFull(conn, payload); err != nil {
		return nil, err
	}
	return payload, nil
}

// welcomed judges the answer to a login, unless it is, byte for byte, the last one
// that was good: to most units a server says the same.
func (f *jujuFleet) welcomed(answer []byte) error {
	if good := f.welcome.Load(); good != nil && bytes.Equal(*good, answer) {
		return nil
	}
	err := f.login.judge(answer)
	if err == nil {
		f.welcome.Store(&answer)
	}
	return err
}

// judge reads the answer to a login as Juju's client does: it must name the same
// model, a controller and a version.
func (l jujuLogin) judge(payload []byte) error {
	r, err := readReply(payload)
	if err != nil {
		return err
	}
	if r.Error != "" {
		return &loginError{r.Error, r.Code}
	}
	var welcome struct {
		Model      string `json:"model-tag"`
		Controller string `json:"controller-tag"`
		Version    string `json:"server-version"`
	}
	err = json.Unmarshal(r.Response, &welcome)
	if err != nil || r.ID != jujuLoginID || welcome.Model != "model-"+l.Model || welcome.Controller == "" || welcome.Version == "" {
		return fmt.Errorf("%w: the login was answered with %.200q", errWire, payload)
	}
	return nil
}

// transientDial reports whether a client comes back by itself: nobody answered, or
// the server had no room.
func transientDial(err error) bool {
	var refused *loginError
	var status ws.StatusError
	switch {
	case errors.As(err, &refused):
		return false
	case errors.As(err, &status):
		return int(status) == http.StatusServiceUnavailable
	}
	return !errors.Is(err, errWire)
}

// jujuConn is a unit's connection: no goroutine, no buffer.
type jujuConn struct {
	f      *jujuFleet
	u      *unit
	parked *park.Conn // set under f.mu before anything is sent
}

var _ park.Handler = (*jujuConn)(nil)

// Readable implements park.Handler.
func (c *jujuConn) Readable(p *park.Conn, data []byte) (int, error) {
	n := 0
	for n < len(data) {
		in, err := nextFrame(data[n:])
		if err != nil || in.size == 0 {
			return n, err
		}
		n += in.size
		switch in.op {
		case ws.OpText:
			reply, err := readReply(in.payload)
			if err != nil {
				return n, err
			}
			c.f.take(c, &reply)
		case ws.OpPing:
			pong := append(make([]byte, jujuFrameHeader, jujuFrameHeader+len(in.payload)), in.payload...)
			_ = p.Send(jujuFrame(pong, ws.OpPong)) // if it has ended, Closed follows
		case ws.OpClose:
			return n, errGoodBye
		}
	}
	return n, nil
}

// Closed implements park.Handler.
func (c *jujuConn) Closed(_ *park.Conn, _ park.Reason, err error) { c.f.closed(c, err) }
