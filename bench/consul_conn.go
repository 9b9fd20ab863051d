package bench

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/client"
)

// Limits and times of a connection in Consul's protocol.
const (
	consulBuffer     = 4096 // bytes; the head of an answer must fit
	maxConsulAnswer  = 64 << 20
	maxChunkLine     = 64 // bytes
	consulDial       = 10 * time.Second
	consulPlainStart = "HTTP/1.1 "
)

// consulServer is where one member answers in Consul's protocol.
type consulServer struct {
	address string
	tls     *tls.Config // nil: plain
	token   string      // of every request; empty: none
}

// consulServers are those of the members.
func consulServers(urls []string, cfg client.Config) ([]consulServer, error) {
	var out []consulServer
	for _, s := range urls {
		u, err := url.Parse(s)
		if err != nil {
			return nil, incumbent.Errorf(incumbent.Invalid, "target: %w", err)
		}
		one := consulServer{address: u.Host, token: cfg.Credential}
		if u.Scheme == "https" {
			if one.tls, err = consulTLS(cfg); err != nil {
				return nil, err
			}
		}
		out = append(out, one)
	}
	return out, nil
}

func consulTLS(cfg client.Config) (*tls.Config, error) {
	out := &tls.Config{MinVersion: tls.VersionTLS13}
	if cfg.CAFile != "" {
		pem, err := os.ReadFile(cfg.CAFile)
		if err != nil {
			return nil, incumbent.Errorf(incumbent.Invalid, "authority: %w", err)
		}
		out.RootCAs = x509.NewCertPool()
		out.RootCAs.AppendCertsFromPEM(pem)
	}
	if cfg.CertFile != "" {
		pair, err := tls.LoadX509KeyPair(cfg.CertFile, cfg.KeyFile)
		if err != nil {
			return nil, incumbent.Errorf(incumbent.Invalid, "certificate: %w", err)
		}
		out.Certificates = []tls.Certificate{pair}
	}
	return out, nil
}

// consulConn carries one request after the other over HTTP/1.1, as Consul's clients
// do. It is written by hand since the load tool shares its cores with what it measures:
// what nobody wants to read of an answer is thrown away by the kernel.
//
// Concurrency: one goroutine at a time; close may be called from any.
type consulConn struct {
	conn net.Conn
	raw  syscall.RawConn // nil over TLS
	head []byte          // of every request, behind its first line
	out  []byte
	buf  []byte // what was read and not used yet is buf[from:to]
	from int
	to   int
}

// consulAnswer is the head of an answer.
type consulAnswer struct {
	status  int
	index   uint64 // 0: there is none
	length  int64  // -1: it comes in chunks
	gzipped bool
}

func (s consulServer) dial(ctx context.Context, local net.Addr, zipped bool) (*consulConn, error) {
	d := net.Dialer{Timeout: consulDial, LocalAddr: local}
	conn, err := d.DialContext(ctx, "tcp", s.address)
	if err != nil {
		return nil, broken(err)
	}
	c := &consulConn{conn: conn, buf: make([]byte, consulBuffer)}
	if s.tls != nil {
		cfg := s.tls.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(s.address)
		secure := tls.Client(conn, cfg)
		if err := secure.HandshakeContext(ctx); err != nil {
			conn.Close()
			return nil, broken(err)
		}
		c.conn = secure
	} else if tcp, ok := conn.(*net.TCPConn); ok {
		if c.raw, err = tcp.SyscallConn(); err != nil {
			conn.Close()
			return nil, broken(err)
		}
	}
	c.head = fmt.Appendf(nil, " HTTP/1.1\r\nHost: %s\r\n", s.address)
	if s.token != "" {
		c.head = fmt.Appendf(c.head, "X-Consul-Token: %s\r\n", s.token)
	}
	if zipped {
		c.head = append(c.head, "Accept-Encoding: gzip\r\n"...)
	}
	return c, nil
}

func (c *consulConn) close() { c.conn.Close() }

// send writes a request.
func (c *consulConn) send(method, path string, body []byte) error {
	c.out = append(append(append(c.out[:0], method...), ' '), path...)
	c.out = append(c.out, c.head...)
	if method != "GET" {
		c.out = strconv.AppendInt(append(c.out, "Content-Length: "...), int64(len(body)), 10)
		c.out = append(c.out, "\r\n"...)
	}
	c.out = append(append(c.out, "\r\n"...), body...)
	if _, err := c.conn.Write(c.out); err != nil {
		return broken(err)
	}
	return nil
}

// fill reads what there is, behind what is there already.
func (c *consulConn) fill() error {
	if c.from > 0 {
		c.to = copy(c.buf, c.buf[c.from:c.to])
		c.from = 0
	}
	if c.to == len(c.buf) {
		return incumbent.Errorf(incumbent.TooLarge, "the head of an answer has more than %d bytes", len(c.buf))
	}
	n, err := c.conn.Read(c.buf[c.to:])
	c.to += n
	if n > 0 {
		return nil
	}
	return broken(err)
}

// answer waits for the head of the next answer.
func (c *consulConn) answer() (consulAnswer, error) {
	for {
		if end := bytes.Index(c.buf[c.from:c.to], []byte("\r\n\r\n")); end >= 0 {
			a, err := parseConsulHead(c.buf[c.from : c.from+end])
			c.from += end + len("\r\n\r\n")
			return a, err
		}
		if err := c.fill(); err != nil {
			return consulAnswer{}, err
		}
	}
}

func parseConsulHead(head []byte) (consulAnswer, error) {
	line, rest, _ := bytes.Cut(head, []byte("\r\n"))
	word, ok := bytes.CutPrefix(line, []byte(consulPlainStart))
	status, err := strconv.Atoi(string(word[:min(3, len(word))]))
	if !ok || err != nil {
		return consulAnswer{}, incumbent.Errorf(incumbent.Corrupt, "%.80q is not the start of an answer", line)
	}
	a := consulAnswer{status: status}
	for len(rest) > 0 {
		line, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimSpace(value)
		switch {
		case bytes.EqualFold(name, []byte("X-Consul-Index")):
			a.index, err = strconv.ParseUint(string(value), 10, 64)
		case bytes.EqualFold(name, []byte("Content-Length")):
			a.length, err = strconv.ParseInt(string(value), 10, 64)
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			a.length = -1
		case bytes.EqualFold(name, []byte("Content-Encoding")):
			a.gzipped = bytes.EqualFold(value, []byte("gzip"))
		}
		if err != nil || a.length < -1 || a.length > maxConsulAnswer {
			return a, incumbent.Errorf(incumbent.Corrupt, "an answer has the header %.80q", line)
		}
	}
	return a, nil
}

// body reads the body behind dst.
func (c *consulConn) body(a consulAnswer, dst []byte) ([]byte, error) {
	err := c.pieces(a, func(n int64) error {
		for n > 0 {
			if c.from == c.to {
				if err := c.fill(); err != nil {
					return err
				}
			}
			k := int(min(n, int64(c.to-c.from)))
			dst = append(dst, c.buf[c.from:c.from+k]...)
			c.from += k
			n -= int64(k)
		}
		return nil
	})
	return dst, err
}

// skip throws the body away and returns its length in bytes.
func (c *consulConn) skip(a consulAnswer) (length int64, err error) {
	err = c.pieces(a, func(n int64) error {
		length += n
		k := min(n, int64(c.to-c.from))
		c.from += int(k)
		return c.discard(n - k)
	})
	return length, err
}

// pieces has take read each piece of a body: all of it, or its chunks (RFC 9112,
// section 7.1).
func (c *consulConn) pieces(a consulAnswer, take func(n int64) error) error {
	if a.length >= 0 {
		return take(a.length)
	}
	for {
		n, err := c.chunkSize()
		if err != nil {
			return err
		}
		if n == 0 {
			_, err := c.line() // no trailers are announced
			return err
		}
		if err := take(n); err != nil {
			return err
		}
		if _, err := c.line(); err != nil {
			return err
		}
	}
}

func (c *consulConn) chunkSize() (int64, error) {
	line, err := c.line()
	if err != nil {
		return 0, err
	}
	size, _, _ := strings.Cut(line, ";")
	n, err := strconv.ParseInt(strings.TrimSpace(size), 16, 64)
	if err != nil || n < 0 || n > maxConsulAnswer {
		return 0, incumbent.Errorf(incumbent.Corrupt, "%.80q is no chunk's size", line)
	}
	return n, nil
}

func (c *consulConn) line() (string, error) {
	for {
		if end := bytes.Index(c.buf[c.from:c.to], []byte("\r\n")); end >= 0 {
			line := string(c.buf[c.from : c.from+end])
			c.from += end + len("\r\n")
			return line, nil
		}
		if c.to-c.from > maxChunkLine {
			return "", incumbent.Errorf(incumbent.Corrupt, "%.80q is no line of a chunk", c.buf[c.from:c.to])
		}
		if err := c.fill(); err != nil {
			return "", err
		}
	}
}

// discard throws away what comes next.
func (c *consulConn) discard(n int64) error {
	if n == 0 {
		return nil
	}
	if c.raw != nil {
		return discardRaw(c.raw, n)
	}
	for c.from, c.to = 0, 0; n > 0; {
		k, err := c.conn.Read(c.buf[:min(n, int64(len(c.buf)))])
		if n -= int64(k); k == 0 {
			return broken(err)
		}
	}
	return nil
}

// discardByReading throws away n bytes by system calls that each take some.
func discardByReading(raw syscall.RawConn, n int64, read func(fd uintptr, most int) (int, error)) error {
	var failed error
	err := raw.Read(func(fd uintptr) bool {
		for n > 0 {
			k, err := read(fd, int(min(n, maxDiscard)))
			switch {
			case errors.Is(err, syscall.EAGAIN):
				return false
			case errors.Is(err, syscall.EINTR):
			case err != nil:
				failed = err
				return true
			case k == 0:
				failed = io.ErrUnexpectedEOF
				return true
			default:
				n -= int64(k)
			}
		}
		return true
	})
	if err == nil {
		err = failed
	}
	if err != nil {
		return broken(err)
	}
	return nil
}

// maxDiscard is how many bytes one system call throws away.
const maxDiscard = 1 << 20

// ask does one request whose answer is short, and returns its body.
func (c *consulConn) ask(method, path string, body []byte) (consulAnswer, []byte, error) {
	if err := c.send(method, path, body); err != nil {
		return consulAnswer{}, nil, err
	}
	a, err := c.answer()
	if err != nil {
		return a, nil, err
	}
	said, err := c.body(a, nil)
	if err == nil && a.status != 200 {
		err = refusedCall{incumbent.Errorf(incumbent.Unknown, "%s %s: status %d: %.200s", method, path, a.status, said)}
	}
	return a, said, err
}
