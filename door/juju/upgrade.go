package juju

import (
	"bufio"
	"crypto/sha1" //nolint:gosec // RFC 6455 wants it; nothing rests on it
	"crypto/tls"
	"encoding/base64"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/websocket"
)

// greeting is a connection between TLS and park. Nothing of what it needed stays.
type greeting struct {
	door  *Door
	conn  *tls.Conn
	until time.Time // the deadline of the login, as the connection has it
	in    inlet
	// model is the UUID that the path names; the controller's own where it names
	// none.
	model  string
	named  bool
	logins int
}

// run upgrades, lets the client log in, and parks the connection. parked says
// whose the connection is.
func (g *greeting) run() (outcome login, parked bool) {
	g.in.begin(g.conn)
	defer g.in.end()
	if outcome, ok := g.upgrade(); !ok {
		return outcome, false
	}
	who, outcome := g.login()
	if who == nil {
		return outcome, false
	}
	return g.park(who)
}

// upgrade answers the HTTP request: 101, or why not.
func (g *greeting) upgrade() (login, bool) {
	r, err := http.ReadRequest(g.in.r)
	if err != nil {
		return loginMalformed, false // nobody to answer, or nobody who speaks HTTP
	}
	g.in.unlimited()
	key := r.Header.Get("Sec-WebSocket-Key")
	var ok bool
	switch g.model, g.named, ok = modelOf(r.URL.Path); {
	case !ok:
		return loginMalformed, g.refuse(http.StatusNotFound, "there are /api and /model/UUID/api")
	case r.Method != http.MethodGet:
		return loginMalformed, g.refuse(http.StatusMethodNotAllowed, "a WebSocket begins with GET")
	case r.ProtoMajor != 1 || !strings.EqualFold(r.Header.Get("Upgrade"), "websocket") ||
		!holds(r.Header.Values("Connection"), "upgrade") || r.Header.Get("Sec-WebSocket-Version") != "13":
		return loginMalformed, g.refuse(http.StatusUpgradeRequired, "this is a WebSocket of version 13 over HTTP/1.1")
	case !isKey(key):
		return loginMalformed, g.refuse(http.StatusBadRequest, "Sec-WebSocket-Key is not 16 bytes in base64")
	}
	if !g.named {
		g.model = g.door.controller
	}
	if err := g.door.ready(); err != nil {
		gate.VisitOf(g.conn).Excused()
		return loginUnavailable, g.refuse(http.StatusServiceUnavailable, "this member cannot serve for now")
	}
	if g.door.passwords.Busy(g.from()) {
		gate.VisitOf(g.conn).Excused()
		return loginShed, g.refuse(http.StatusServiceUnavailable, "too many log in")
	}
	sum := sha1.Sum([]byte(key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11")) //nolint:gosec // as above
	_, err = io.WriteString(g.conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: "+
		base64.StdEncoding.EncodeToString(sum[:])+"\r\n\r\n")
	return loginGone, err == nil
}

// from is the address that the client comes from; of what has no port nobody's in particular.
func (g *greeting) from() netip.Addr {
	from, _ := netip.ParseAddrPort(addressOf(g.conn))
	return from.Addr()
}

// refuse answers the request with a status, and is always false.
func (g *greeting) refuse(status int, text string) bool {
	head := "HTTP/1.1 " + strconv.Itoa(status) + " " + http.StatusText(status) + "\r\nConnection: close\r\n"
	switch status {
	case http.StatusServiceUnavailable:
		head += "Retry-After: " + strconv.Itoa(1+int(3*g.door.jitter())) + "\r\n" // who is refused together comes back spread
	case http.StatusUpgradeRequired:
		head += "Upgrade: websocket\r\n"
	}
	head += "Content-Type: text/plain; charset=utf-8\r\nContent-Length: " + strconv.Itoa(len(text)+1) + "\r\n\r\n" + text + "\n"
	_, _ = io.WriteString(g.conn, head) // the client may be gone
	return false
}

// modelOf reads the path. named is false for the path without a model.
func modelOf(path string) (model string, named, ok bool) {
	if path == "/api" {
		return "", false, true
	}
	rest, ok := strings.CutPrefix(path, "/model/")
	if !ok {
		return "", false, false
	}
	model, ok = strings.CutSuffix(rest, "/api")
	return model, true, ok && isUUID(model)
}

// holds reports whether a list in headers holds a word.
func holds(values []string, word string) bool {
	for _, v := range values {
		for part := range strings.SplitSeq(v, ",") {
			if strings.EqualFold(strings.TrimSpace(part), word) {
				return true
			}
		}
	}
	return false
}

func isKey(key string) bool {
	raw, err := base64.StdEncoding.DecodeString(key)
	return err == nil && len(raw) == 16
}

// inlet reads the request, and messages until the connection is parked.
type inlet struct {
	limited io.LimitedReader
	r       *bufio.Reader
	buf     []byte
	start   int // of what has not been used
}

var readers = sync.Pool{New: func() any { return bufio.NewReaderSize(nil, 4096) }}

func (in *inlet) begin(from io.Reader) {
	in.limited = io.LimitedReader{R: from, N: maxHeaderBytes}
	in.r = readers.Get().(*bufio.Reader) //nolint:forcetypeassert // the pool holds nothing else
	in.r.Reset(&in.limited)
}

func (in *inlet) end() {
	in.r.Reset(nil)
	readers.Put(in.r)
	in.r = nil
}

// unlimited lifts the bound of the header; messages have their own.
func (in *inlet) unlimited() { in.limited.N = 1<<63 - 1 }

// next returns the next message, which is valid until the next call. The error is
// a *websocket.Error if the client broke the protocol.
func (in *inlet) next(read websocket.Reader) (websocket.Message, error) {
	for {
		m, bad := read.Next(in.buf[in.start:])
		if bad != nil {
			return m, bad
		}
		if m.Size > 0 {
			in.start += m.Size
			return m, nil
		}
		if len(in.buf)-in.start > 2*read.Limit { // fragments of next to nothing
			return m, &websocket.Error{Code: ws.StatusMessageTooBig, Reason: "message is over max_message_bytes"}
		}
		if _, err := in.r.Peek(1); err != nil {
			return m, err
		}
		there, err := in.r.Peek(in.r.Buffered())
		if err != nil {
			return m, err
		}
		in.buf = append(in.buf[:copy(in.buf, in.buf[in.start:])], there...)
		in.start = 0
		if _, err := in.r.Discard(len(there)); err != nil {
			return m, err
		}
	}
}

// rest is what was read and not used.
func (in *inlet) rest() []byte {
	there, err := in.r.Peek(in.r.Buffered())
	if err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "a reader lost what it has: %w", err))
	}
	return append(in.buf[in.start:len(in.buf):len(in.buf)], there...)
}

// isProtocol returns the broken rule of the protocol that an error is.
func isProtocol(err error) *websocket.Error {
	var bad *websocket.Error
	if errors.As(err, &bad) {
		return bad
	}
	return nil
}
