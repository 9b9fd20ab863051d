package peers

import "encoding/binary"

// cursor reads a payload. After its first failure everything it returns is zero;
// the caller looks at err once, at the end.
type cursor struct {
	b   []byte
	err error
}

func (c *cursor) fail(format string, args ...any) {
	if c.err == nil {
		c.err = errProtocol(format, args...)
	}
	c.b = nil
}

// take returns the next n bytes. They alias the payload and cannot grow into it.
func (c *cursor) take(n uint64) []byte {
	if n > uint64(len(c.b)) {
		c.fail("payload ends early: %d bytes wanted, %d left", n, len(c.b))
		return nil
	}
	b := c.b[:n:n]
	c.b = c.b[n:]
	return b
}

func (c *cursor) u8() uint8 {
	if b := c.take(1); b != nil {
		return b[0]
	}
	return 0
}

func (c *cursor) u16() uint16 {
	if b := c.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

func (c *cursor) u32() uint32 {
	if b := c.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

func (c *cursor) u64() uint64 {
	if b := c.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

func (c *cursor) uvarint() uint64 {
	v, n := binary.Uvarint(c.b)
	if n <= 0 {
		c.fail("payload has a bad number")
		return 0
	}
	c.b = c.b[n:]
	return v
}

// bytes reads a length and so many bytes; never nil unless it fails.
func (c *cursor) bytes() []byte { return c.take(c.uvarint()) }

// text reads a short string of at most limit bytes.
func (c *cursor) text(limit int) string {
	n := c.uvarint()
	if n > uint64(limit) {
		c.fail("text of %d bytes, limit is %d", n, limit)
		return ""
	}
	return string(c.take(n))
}

// end returns the first failure, one of them that bytes are left over.
func (c *cursor) end() error {
	if c.err == nil && len(c.b) != 0 {
		c.fail("payload has %d bytes behind its end", len(c.b))
	}
	return c.err
}

func appendBytes(b, v []byte) []byte {
	return append(binary.AppendUvarint(b, uint64(len(v))), v...)
}

func appendText(b []byte, s string, limit int) []byte {
	s = s[:min(len(s), limit)]
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}
