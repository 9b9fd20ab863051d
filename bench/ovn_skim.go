package bench

import (
	"bytes"
	"net"

	"github.com/incumbent-dev/incumbent"
)

// ovnHead is how many bytes of an answer say what it is, and skimAbove from which size
// on answers are skimmed.
const (
	ovnHead   = 64
	skimAbove = 64 << 10
)

// everything is how the answer begins to who begins to monitor and is sent all there is,
// behind the members that come before it.
var everything = []byte(`"result":[false,`)

// skimmed waits for the answer to the request under way as answer does. One that tells
// of all rows is known to have so many bytes: it is counted, and thrown away behind its
// head but for the end. What a client on another machine does with it is not this one's
// work.
func (c *ovnConn) skimmed(size int64) ([]byte, error) {
	if size < skimAbove {
		return c.answer()
	}
	c.updates = 0
	for {
		if err := c.head(); err != nil {
			return nil, err
		}
		if bytes.Contains(c.buf[c.from:min(c.to, c.from+ovnHead)], everything) {
			return c.rest(size)
		}
		m, err := c.message()
		if err != nil {
			return nil, err
		}
		if mine, err := c.handle(m); err != nil || mine {
			return m, err
		}
	}
}

// head reads until there is enough of a message to see what it is, or all of it.
func (c *ovnConn) head() error {
	for {
		var ends jsonEnd
		if c.to-c.from >= ovnHead || ends.find(c.buf[c.from:c.to]) >= 0 {
			return nil
		}
		if c.from > 0 {
			c.to = copy(c.buf, c.buf[c.from:c.to])
			c.from = 0
		}
		if c.to == len(c.buf) {
			c.buf = append(c.buf, make([]byte, ovnHead)...)
		}
		n, err := c.conn.Read(c.buf[c.to:])
		if n == 0 && err != nil {
			return broken(err)
		}
		c.to += n
		c.heard += int64(n)
	}
}

// rest takes a message of a size, and returns its head.
func (c *ovnConn) rest(size int64) ([]byte, error) {
	head := bytes.Clone(c.buf[c.from:min(c.to, c.from+4*ovnHead)])
	left := size - int64(c.to-c.from)
	if left < 1 {
		return nil, incumbent.Errorf(incumbent.Corrupt, "an answer of %d bytes was expected, and %d came at once", size, c.to-c.from)
	}
	c.from, c.to = 0, 0
	if err := c.discard(left - 1); err != nil {
		return nil, broken(err)
	}
	n, err := c.conn.Read(c.buf[:1])
	if n == 0 {
		return nil, broken(err)
	}
	c.heard += left
	if c.buf[0] != '}' {
		return nil, incumbent.Errorf(incumbent.Corrupt, "an answer does not end behind %d bytes, as that of others did", size)
	}
	return head, nil
}

// discard throws away n bytes that come next.
func (c *ovnConn) discard(n int64) error {
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		raw, err := tcp.SyscallConn()
		if err != nil {
			return err
		}
		return discardRaw(raw, n)
	}
	for n > 0 {
		k, err := c.conn.Read(c.buf[:min(n, int64(len(c.buf)))])
		if n -= int64(k); k == 0 {
			return err
		}
	}
	return nil
}
