package client

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/gobwas/ws"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Limits of a stream.
const (
	maxServerMessage   = 16 << 20         // bytes of one message from the server
	streamWriteTimeout = 10 * time.Second // one message to the kernel
	streamReadBuffer   = 512              // small: a fleet has many streams
	dialTimeout        = 5 * time.Second  // connect, TLS and upgrade, unless the options say
	maxRefusal         = 64 << 10         // bytes of an answer that opens no stream
)

// Stream is one WebSocket to a member: frames of the native API both ways. It
// is the plain transport: it matches no answers to requests and repeats
// nothing. [Client.Open] builds sessions on it; the load tool uses it as it is.
type Stream struct {
	conn   net.Conn
	member string

	// mu serialises writes and guards buf; held for one write to the kernel,
	// bounded by streamWriteTimeout and by the end of the stream.
	mu   sync.Mutex
	buf  []byte
	mask [4]byte
}

// StreamOptions say how to dial. The zero value is fine.
type StreamOptions struct {
	// Member picks one of the client's servers. nil: the one preferred now.
	Member *url.URL
	// Local is the source address, for a load from several addresses. nil: the client's.
	Local net.Addr
	// Timeout bounds connecting, TLS and the upgrade; 0 means five seconds.
	Timeout time.Duration
	// ReadBuffer is the size of the read buffer; 0 means 512 bytes.
	ReadBuffer int
}

// DialStream opens a stream. The caller must run [Stream.Serve].
func (c *Client) DialStream(ctx context.Context, opts StreamOptions) (*Stream, *bufio.Reader, error) {
	member := opts.Member
	if member == nil {
		_, member = c.members.current()
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(opts.Timeout, dialTimeout))
	defer cancel()
	dialer := ws.Dialer{
		NetDial:        c.dialer(opts),
		TLSClient:      func(conn net.Conn, host string) net.Conn { return tls.Client(conn, c.streamTLS(host)) },
		ReadBufferSize: max(opts.ReadBuffer, streamReadBuffer), WriteBufferSize: 512,
	}
	header := http.Header{}
	if c.cfg.Credential != "" {
		header.Set("Authorization", "Bearer "+c.cfg.Credential)
	}
	dialer.Header = ws.HandshakeHeaderHTTP(header)
	var refusal error
	dialer.OnStatusError = func(_ int, _ []byte, resp io.Reader) { refusal = readRefusal(resp) }
	u := *member
	u.Scheme = map[string]string{"http": "ws", "https": "wss"}[member.Scheme]
	u.Path += "/v1/stream"
	conn, early, _, err := dialer.Dial(ctx, u.String())
	if refusal != nil {
		return nil, nil, refusal
	}
	if err != nil {
		return nil, nil, streamError(member, err)
	}
	s := &Stream{conn: conn, member: member.Host}
	rand.Read(s.mask[:])
	if early == nil {
		early = bufio.NewReaderSize(conn, max(opts.ReadBuffer, streamReadBuffer))
	}
	return s, early, nil
}

// DialHTTP opens a connection to a member over which the caller speaks HTTP/1.1
// itself, as the load tool does. Of the options, the read buffer is not used.
func (c *Client) DialHTTP(ctx context.Context, opts StreamOptions) (net.Conn, error) {
	member := opts.Member
	if member == nil {
		_, member = c.members.current()
	}
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := c.dialer(opts)(ctx, "tcp", address(member))
	if err != nil {
		return nil, streamError(member, err)
	}
	if member.Scheme != "https" {
		return conn, nil
	}
	secure := tls.Client(conn, c.streamTLS(member.Hostname()))
	if err := secure.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, streamError(member, err)
	}
	return secure, nil
}

// address is a member's host and port.
func address(member *url.URL) string {
	port := member.Port()
	if port == "" {
		port = member.Scheme // its name stands for its port
	}
	return net.JoinHostPort(member.Hostname(), port)
}

// dialer opens connections from the source address of the options, or the client's.
func (c *Client) dialer(opts StreamOptions) func(context.Context, string, string) (net.Conn, error) {
	return dialerFrom(cmp.Or(opts.Local, c.cfg.Local), net.Dialer{KeepAlive: 2 * time.Minute})
}

// dialerFrom opens connections from an address; nil: the system chooses.
func dialerFrom(local net.Addr, d net.Dialer) func(context.Context, string, string) (net.Conn, error) {
	if local != nil {
		d.LocalAddr, d.Control = local, bindLate
	}
	return d.DialContext
}

// streamTLS is the client's configuration for a WebSocket: HTTP/1.1 only.
func (c *Client) streamTLS(host string) *tls.Config {
	t := c.tls.Clone()
	t.NextProtos = []string{"http/1.1"}
	if t.ServerName == "" {
		t.ServerName = host
	}
	return t
}

// readRefusal reads why a member of ours opened no stream; nil if another
// answered.
func readRefusal(resp io.Reader) error {
	res, err := http.ReadResponse(bufio.NewReader(resp), nil)
	if err != nil {
		return nil
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, maxRefusal))
	if err != nil {
		return nil
	}
	var detail apiv1.Error
	if protojson.Unmarshal(body, &detail) != nil || detail.Kind == "" {
		return nil
	}
	return DetailError(&detail)
}

func streamError(member *url.URL, err error) error {
	kind := incumbent.Unavailable
	var status ws.StatusError
	if errors.As(err, &status) {
		switch int(status) {
		case http.StatusUnauthorized, http.StatusForbidden:
			kind = incumbent.Denied
		case http.StatusServiceUnavailable, http.StatusTooManyRequests:
			kind = incumbent.Overloaded
		case http.StatusNotFound, http.StatusUpgradeRequired:
			return incumbent.Errorf(incumbent.Invalid, "%s serves no stream: %w", member.Host, err).WithHint("is the URL that of an Incumbent server?")
		}
	}
	var untrusted *tls.CertificateVerificationError
	if errors.As(err, &untrusted) {
		return incumbent.Errorf(incumbent.Invalid, "stream to %s: %w", member.Host, err).WithHint("name the authority that signed the server's certificate")
	}
	return incumbent.Errorf(kind, "stream to %s: %w", member.Host, err)
}

// Member is the host and port of the member at the other end.
func (s *Stream) Member() string { return s.member }

// Close ends the stream; Serve returns.
func (s *Stream) Close() error { return s.conn.Close() }

// Send writes one message with the frames. With an error of kind Invalid nothing was written:
// they cannot be encoded. Another ends the stream: it is not known which of the frames arrived.
func (s *Stream) Send(frames ...*apiv1.ClientFrame) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	buf, err := encoded(s.room(), frames)
	if err != nil {
		return err
	}
	return s.write(buf, ws.OpBinary)
}

// encoded appends a message with the frames. The error is of kind Invalid: the protocol's texts
// are UTF-8.
func encoded(to []byte, frames []*apiv1.ClientFrame) ([]byte, error) {
	buf, err := proto.MarshalOptions{}.MarshalAppend(to, &apiv1.ClientMessage{Frames: frames})
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Invalid, "the request cannot be written: %w", err).WithHint(hintUTF8)
	}
	return buf, nil
}

// SendEncoded writes one message whose bytes are an encoded ClientMessage.
func (s *Stream) SendEncoded(message []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.write(append(s.room(), message...), ws.OpBinary)
}

// room returns the write buffer with space for a header at its start. Held: s.mu.
func (s *Stream) room() []byte {
	if cap(s.buf) < ws.MaxHeaderSize {
		s.buf = make([]byte, 0, 128)
	}
	return s.buf[:ws.MaxHeaderSize]
}

// write masks what is behind the space for the header and sends both as one
// system call. Held: s.mu.
func (s *Stream) write(buf []byte, op ws.OpCode) error {
	const room = ws.MaxHeaderSize
	s.buf = buf[:0]
	payload := buf[room:]
	// Masking protects proxies from chosen bytes; one key a stream would do
	// for that, a step for each message costs nothing.
	binary.LittleEndian.PutUint32(s.mask[:], binary.LittleEndian.Uint32(s.mask[:])*1664525+1013904223)
	ws.Cipher(payload, s.mask, 0)
	start := putHeader(buf[:room], op, len(payload), s.mask)
	if cap(s.buf) > 64<<10 {
		s.buf = nil
	}
	if err := s.conn.SetWriteDeadline(time.Now().Add(streamWriteTimeout)); err != nil {
		return err
	}
	_, err := s.conn.Write(buf[start:])
	return err
}

// putHeader writes a masked frame's header so that it ends where room ends, and
// returns where it starts.
func putHeader(room []byte, op ws.OpCode, length int, mask [4]byte) int {
	end := len(room) - 4
	copy(room[end:], mask[:])
	switch {
	case length < 126:
		room[end-1] = 0x80 | byte(length)
		end--
	case length < 1<<16:
		binary.BigEndian.PutUint16(room[end-2:], uint16(length))
		room[end-3] = 0x80 | 126
		end -= 3
	default:
		binary.BigEndian.PutUint64(room[end-8:], uint64(length))
		room[end-9] = 0x80 | 127
		end -= 9
	}
	room[end-1] = 0x80 | byte(op)
	return end - 1
}

// Serve reads until the stream ends and hands each frame on. It returns why it
// ended. The frame is the handler's to keep.
func (s *Stream) Serve(r *bufio.Reader, handle func(*apiv1.ServerFrame)) error {
	return s.ServeRaw(r, func(payload []byte) error {
		var m apiv1.ServerMessage
		if err := proto.Unmarshal(payload, &m); err != nil {
			return incumbent.Errorf(incumbent.Corrupt, "stream from %s: %w", s.member, err)
		}
		for _, f := range m.Frames {
			handle(f)
		}
		return nil
	})
}

// ServeRaw is Serve for encoded messages. The bytes are valid during the call.
func (s *Stream) ServeRaw(r *bufio.Reader, handle func(payload []byte) error) error {
	defer s.conn.Close()
	var buf []byte
	for {
		h, err := ws.ReadHeader(r)
		if err != nil {
			return s.ended(err)
		}
		if h.Masked || h.Length > maxServerMessage || !h.Fin && !h.OpCode.IsData() {
			return incumbent.Errorf(incumbent.Corrupt, "stream from %s: broken frame", s.member)
		}
		if !h.OpCode.IsControl() && h.OpCode == ws.OpContinuation {
			return incumbent.Errorf(incumbent.Corrupt, "stream from %s: fragmented message", s.member)
		}
		if int64(cap(buf)) < h.Length {
			buf = make([]byte, h.Length)
		}
		buf = buf[:h.Length]
		if _, err := io.ReadFull(r, buf); err != nil {
			return s.ended(err)
		}
		if err := s.take(h.OpCode, buf, handle); err != nil {
			return err
		}
		if cap(buf) > 64<<10 {
			buf = nil
		}
	}
}

func (s *Stream) take(op ws.OpCode, payload []byte, handle func([]byte) error) error {
	switch op {
	case ws.OpBinary:
		return handle(payload)
	case ws.OpPing:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.write(append(s.room(), payload...), ws.OpPong)
	case ws.OpClose:
		code, reason := ws.ParseCloseFrameData(payload)
		return incumbent.Errorf(incumbent.Unavailable, "%s closed the stream: %d %s", s.member, code, reason)
	}
	return nil
}

func (s *Stream) ended(err error) error {
	return incumbent.Errorf(incumbent.Unavailable, "stream to %s ended: %w", s.member, err)
}
