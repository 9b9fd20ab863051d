package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
)

// Limits and times of a connection over HTTP.
const (
	httpBuffer    = 4096 // bytes; the head of an answer must fit
	maxHTTPAnswer = 64 << 20
	httpDial      = 10 * time.Second
	httpStart     = "HTTP/1.1 "
	httpTryLater  = time.Second // after an answer that says that there is too much to do
)

// httpServer is where one member answers over HTTP: in Consul's protocol, or calls.
type httpServer struct {
	address string
	client  *client.Client // dials; nil: plain TCP does
	base    string         // of every path
	token   string         // of Consul's; empty: none
	headers string         // further ones of every request, with the end of their lines
}

// httpServers are those of the members in Consul's protocol.
func httpServers(urls []string, cfg client.Config) ([]httpServer, error) {
	var out []httpServer
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil {
			return nil, incumbent.Errorf(incumbent.Invalid, "target: %w", err)
		}
		one := httpServer{address: u.Host, token: cfg.Credential}
		if u.Scheme == "https" {
			of := cfg
			of.Servers = []string{s}
			if one.client, err = client.New(of); err != nil {
				return nil, err
			}
		}
		out = append(out, one)
	}
	return out, nil
}

// httpConn carries one request after the other over HTTP/1.1.
type httpConn struct {
	wireConn
	base string
	head string // of every request, behind its first line
}

// httpAnswer is the head of an answer.
type httpAnswer struct {
	status  int
	index   uint64 // Consul's; 0: there is none
	length  int64  // -1: it comes in chunks
	gzipped bool
}

func (s httpServer) dial(ctx context.Context, local net.Addr, zipped bool) (*httpConn, error) {
	var conn net.Conn
	var err error
	if s.client != nil {
		conn, err = s.client.DialHTTP(ctx, client.StreamOptions{Local: local})
	} else {
		d := net.Dialer{Timeout: httpDial, LocalAddr: local}
		conn, err = d.DialContext(ctx, "tcp", s.address)
	}
	if err != nil {
		return nil, broken(err)
	}
	c := &httpConn{wireConn: newWireConn(conn, httpBuffer), base: s.base, head: " HTTP/1.1\r\nHost: " + s.address + "\r\n" + s.headers}
	if s.token != "" {
		c.head += "X-Consul-Token: " + s.token + "\r\n"
	}
	if zipped {
		c.head += "Accept-Encoding: gzip\r\n"
	}
	return c, nil
}

// send writes a request.
func (c *httpConn) send(method, path string, body []byte) error {
	c.out = append(append(append(append(c.out[:0], method...), ' '), c.base...), path...)
	c.out = append(c.out, c.head...)
	if method != http.MethodGet {
		c.out = fmt.Appendf(c.out, "Content-Length: %d\r\n", len(body))
	}
	c.out = append(append(c.out, "\r\n"...), body...)
	return c.flush()
}

// line is the next line of an answer, valid until more is read.
func (c *httpConn) line() ([]byte, error) {
	line, err := c.in.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		return nil, incumbent.Errorf(incumbent.TooLarge, "a line of the head of an answer, or of a chunk, has more than %d bytes", httpBuffer)
	}
	if err != nil {
		return nil, broken(err)
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// answer waits for the head of the next answer.
func (c *httpConn) answer() (a httpAnswer, err error) {
	line, err := c.line()
	if err != nil {
		return a, err
	}
	word, ok := bytes.CutPrefix(line, []byte(httpStart))
	if a.status, err = strconv.Atoi(string(word[:min(3, len(word))])); !ok || err != nil {
		return httpAnswer{}, incumbent.Errorf(incumbent.Corrupt, "%.80q is not the start of an answer", line)
	}
	for size := len(line); ; size += len(line) {
		line, err = c.line()
		if err != nil || len(line) == 0 {
			return a, err
		}
		if size > httpBuffer {
			return a, incumbent.Errorf(incumbent.TooLarge, "the head of an answer has more than %d bytes", httpBuffer)
		}
		if err := a.header(line); err != nil {
			return a, incumbent.Errorf(incumbent.Corrupt, "an answer has the header %.80q", line)
		}
	}
}

// header takes one of the headers.
func (a *httpAnswer) header(line []byte) (err error) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimSpace(value)
	switch {
	case bytes.EqualFold(name, []byte("X-Consul-Index")):
		a.index, err = strconv.ParseUint(string(value), 10, 64)
	case bytes.EqualFold(name, []byte("Content-Length")):
		a.length, err = strconv.ParseInt(string(value), 10, 64)
		if a.length < 0 || a.length > maxHTTPAnswer {
			err = strconv.ErrRange
		}
	case bytes.EqualFold(name, []byte("Transfer-Encoding")):
		a.length = -1
	case bytes.EqualFold(name, []byte("Content-Encoding")):
		a.gzipped = bytes.EqualFold(value, []byte("gzip"))
	}
	return err
}

// body reads the body behind dst.
func (c *httpConn) body(a httpAnswer, dst []byte) ([]byte, error) {
	err := c.pieces(a, func(n int64) error {
		have := len(dst)
		dst = slices.Grow(dst, int(n))[:have+int(n)]
		if _, err := io.ReadFull(c.in, dst[have:]); err != nil {
			return broken(err)
		}
		return nil
	})
	return dst, err
}

// skip throws the body away and returns its length in bytes.
func (c *httpConn) skip(a httpAnswer) (length int64, err error) {
	err = c.pieces(a, func(n int64) error {
		length += n
		return c.discard(n)
	})
	return length, err
}

// pieces has take read each piece of a body: all of it, or its chunks (RFC 9112,
// section 7.1).
func (c *httpConn) pieces(a httpAnswer, take func(n int64) error) error {
	if a.length >= 0 {
		return take(a.length)
	}
	for {
		line, err := c.line()
		if err != nil {
			return err
		}
		size, _, _ := bytes.Cut(line, []byte(";"))
		n, err := strconv.ParseInt(string(bytes.TrimSpace(size)), 16, 64)
		if err != nil || n < 0 || n > maxHTTPAnswer {
			return incumbent.Errorf(incumbent.Corrupt, "%.80q is no chunk's size", line)
		}
		if n > 0 {
			err = take(n)
		}
		if err == nil {
			_, err = c.line() // behind a chunk, or the end: no trailers are announced
		}
		if err != nil || n == 0 {
			return err
		}
	}
}

// ask does one request whose answer is short, and returns its body.
func (c *httpConn) ask(method, path string, body []byte) (a httpAnswer, said []byte, err error) {
	if err = c.send(method, path, body); err == nil {
		a, err = c.answer()
	}
	if err == nil {
		said, err = c.body(a, nil)
	}
	if err == nil {
		err = a.refusal(path, said)
	}
	return a, said, err
}

// refusal is the error that a request was answered with, nil if it was not.
func (a httpAnswer) refusal(path string, said []byte) error {
	if a.status == http.StatusOK {
		return nil
	}
	e := incumbent.Errorf(incumbent.Unknown, "%s: status %d: %.200s", path, a.status, said)
	if a.status == http.StatusTooManyRequests || a.status == http.StatusServiceUnavailable && strings.Contains(string(said), "rate limit") {
		e.Kind, e.RetryAfter = incumbent.Overloaded, httpTryLater
	}
	return refusedCall{e}
}
