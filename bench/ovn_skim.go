package bench

import (
	"bytes"

	"github.com/incumbent-dev/incumbent"
)

// ovnHead is how many bytes of an answer say what it is, and skimAbove from which size
// on answers are skimmed.
const (
	ovnHead   = 128
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
		head, err := c.head()
		if err != nil {
			return nil, err
		}
		if bytes.Contains(head, everything) {
			return c.rest(bytes.Clone(head), size)
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

// head waits until there is enough of a message to see what it is, or all of it.
func (c *ovnConn) head() ([]byte, error) {
	for n := 1; ; {
		b, err := c.there(n)
		if err != nil {
			return nil, err
		}
		var ends jsonEnd
		head := b[:min(len(b), ovnHead)]
		if end := ends.find(head); end >= 0 {
			return head[:end], nil
		}
		if n = len(b) + 1; n > ovnHead {
			return head, nil
		}
	}
}

// rest takes a message of a size, and returns its head.
func (c *ovnConn) rest(head []byte, size int64) ([]byte, error) {
	if err := c.discard(size - 1); err != nil {
		return nil, err
	}
	end, err := c.in.ReadByte()
	if err != nil {
		return nil, broken(err)
	}
	c.heard += size
	if end != '}' {
		return nil, incumbent.Errorf(incumbent.Corrupt, "an answer does not end behind %d bytes, as that of others did", size)
	}
	return head, nil
}
