package bench

import (
	"bufio"
	"errors"
	"io"
	"net"
	"syscall"

	"github.com/incumbent-dev/incumbent"
)

// wireConn is a connection whose protocol is spoken by hand, since the load tool shares
// its cores with what it measures: what nobody wants to read of an answer is thrown away
// by the kernel.
//
// Concurrency: one goroutine at a time; close may be called from any.
type wireConn struct {
	conn net.Conn
	in   *bufio.Reader
	raw  syscall.RawConn // nil over TLS
	out  []byte          // the request that is written
}

// newWireConn reads through a buffer of so many bytes.
func newWireConn(conn net.Conn, buffer int) wireConn {
	c := wireConn{conn: conn, in: bufio.NewReaderSize(conn, buffer)}
	if tcp, ok := conn.(*net.TCPConn); ok {
		c.raw, _ = tcp.SyscallConn() // of one that is closed there is none, and reading says so
	}
	return c
}

func (c *wireConn) close() { c.conn.Close() }

// closeAll closes the connections that there are, of any protocol.
func closeAll[C interface {
	comparable
	close()
}](conns []C) {
	var none C
	for _, c := range conns {
		if c != none {
			c.close()
		}
	}
}

// flush writes the request in out.
func (c *wireConn) flush() error {
	if _, err := c.conn.Write(c.out); err != nil {
		return broken(err)
	}
	return nil
}

func broken(err error) error {
	return incumbent.Errorf(incumbent.Unavailable, "a connection ended: %w", err)
}

// refusedCall is a request that a server has answered with an error: the connection goes on.
type refusedCall struct{ error }

func (c refusedCall) Unwrap() error { return c.error }

// isRefusal reports whether the connection goes on after an error.
func isRefusal(err error) bool {
	_, refused := errors.AsType[refusedCall](err)
	return refused
}

// discard throws away n bytes that come next.
func (c *wireConn) discard(n int64) error {
	k, err := c.in.Discard(int(min(n, int64(c.in.Buffered()))))
	switch n -= int64(k); {
	case err != nil || n == 0:
	case c.raw != nil:
		err = discardRaw(c.raw, n)
	default:
		_, err = io.CopyN(io.Discard, c.in, n)
	}
	if err != nil {
		return broken(err)
	}
	return nil
}

// maxDiscard is how many bytes one system call throws away.
const maxDiscard = 1 << 20

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
	return errors.Join(err, failed)
}
