// Package echo answers each WebSocket message on parked connections with a
// short one. It is the yardstick of the load tool: what the machine can do
// over the same connections if nothing is done with what arrives.
package echo

import (
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/park"
)

const (
	// ReplyBytes is the length of every reply's payload: its first bytes are
	// those of the message, the rest is zero.
	ReplyBytes = 20
	// MaxMessage is the longest message, in bytes.
	MaxMessage = 64 << 10

	handshakeTimeout = 10 * time.Second
	maxHandshakes    = 64 // under way at the same time
)

// Serve accepts connections of ln, a listener made by [park.Listen] or a TLS
// listener over one, upgrades them to WebSockets and parks them in set, until
// ln is closed. It returns when the last handshake has ended.
func Serve(ln net.Listener, set *park.Set) error {
	h := newHandler(set.Stats().Workers)
	places := make(chan struct{}, maxHandshakes)
	var wg sync.WaitGroup
	defer wg.Wait()
	for {
		conn, err := ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		places <- struct{}{}
		wg.Go(func() {
			defer func() { <-places }()
			h.upgrade(conn, set)
		})
	}
}

// upgrade runs the handshakes. A client that fails them is only cut off.
func (h *handler) upgrade(conn net.Conn, set *park.Set) {
	_ = conn.SetDeadline(time.Now().Add(handshakeTimeout)) // else the handshake's read fails
	if t, ok := conn.(*tls.Conn); ok && t.Handshake() != nil {
		conn.Close()
		return
	}
	if _, err := ws.Upgrade(conn); err != nil {
		conn.Close()
		return
	}
	_, _ = set.Park(conn, nil, h) // on an error it has closed the connection
}

// handler is shared by all connections; what it needs for one call it has
// once for each worker.
type handler struct{ scratch []scratch }

type scratch struct {
	in  bytes.Reader
	out bytes.Buffer
	msg []byte
	_   [64]byte // keeps workers' scratches on cache lines of their own
}

func newHandler(workers int) *handler { return &handler{scratch: make([]scratch, workers)} }

// Readable answers all complete frames in data with one write.
func (h *handler) Readable(c *park.Conn, data []byte) (int, error) {
	s := &h.scratch[c.Worker()]
	s.out.Reset()
	used := 0
	for {
		n, err := s.frame(data[used:])
		if errors.Is(err, io.EOF) {
			c.Finish(nil)
			break
		}
		if err != nil {
			return used, err
		}
		if n == 0 {
			break
		}
		used += n
	}
	if s.out.Len() > 0 {
		// An error has closed the connection, and Closed follows.
		_, _ = c.Write(s.out.Bytes())
	}
	return used, nil
}

// frame answers the first frame of data and returns its length, or 0 if it is
// not complete. io.EOF is the peer's good-bye.
func (s *scratch) frame(data []byte) (int, error) {
	s.in.Reset(data)
	hd, err := ws.ReadHeader(&s.in)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return 0, nil // the header itself is not complete
	}
	if err != nil {
		return 0, incumbent.Errorf(incumbent.Invalid, "websocket: %w", err)
	}
	if hd.Length > MaxMessage || !hd.Masked || !hd.Fin {
		return 0, incumbent.Errorf(incumbent.Invalid, "frame is fragmented, not masked, or over %d bytes", MaxMessage)
	}
	if int64(s.in.Len()) < hd.Length {
		return 0, nil
	}
	start := len(data) - s.in.Len()
	end := start + int(hd.Length)
	if hd.OpCode == ws.OpClose {
		return 0, io.EOF
	}
	if hd.OpCode != ws.OpBinary && hd.OpCode != ws.OpText {
		return end, nil
	}
	s.msg = append(s.msg[:0], data[start:end]...)
	ws.Cipher(s.msg, hd.Mask, 0)
	return end, s.reply()
}

func (s *scratch) reply() error {
	if err := ws.WriteHeader(&s.out, ws.Header{Fin: true, OpCode: ws.OpBinary, Length: ReplyBytes}); err != nil {
		return err
	}
	var payload [ReplyBytes]byte
	copy(payload[:], s.msg)
	_, err := s.out.Write(payload[:])
	return err
}

// Closed has nothing to do.
func (h *handler) Closed(*park.Conn, park.Reason, error) {}
