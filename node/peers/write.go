package peers

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent/rawio"
)

// Two write to a connection, never at once: the outbox knows who does. A sender
// writes what it has put there on its own goroutine, but only what the kernel
// takes at once. So a frame costs no wake-up of another goroutine, and a slow
// member holds nobody up. All else is left to the writer, a goroutine that waits:
// what the kernel did not take, what is large, and everything under TLS, whose
// records cannot be written in part.

// flush writes what is queued, or sees to it that the writer does. It never
// blocks.
func (c *conn) flush() {
	if c.direct == nil {
		c.out.nudge()
		return
	}
	var few [4]*chunk
	chunks := c.out.takeSmall(few[:0])
	if len(chunks) == 0 {
		return
	}
	c.out.wrote(c.direct.write(chunks))
}

// write drains the outbox until it is closed and empty, or a write fails.
func (c *conn) write() {
	w := io.Writer(c.net)
	if c.net == net.Conn(c.socket) {
		w = c.socket.Conn // which may know how to write several buffers at once
	}
	var chunks []*chunk
	for {
		var closed bool
		chunks, closed = c.out.take(chunks[:0])
		if len(chunks) == 0 {
			if closed {
				c.endWrite()
				return
			}
			<-c.out.wake
			continue
		}
		if err := c.writeChunks(w, chunks); err != nil {
			c.writeFailed(err)
			return
		}
		c.out.wrote(nil)
	}
}

func (c *conn) writeChunks(w io.Writer, chunks []*chunk) error {
	if err := c.net.SetWriteDeadline(time.Now().Add(c.set.cfg.waits.write)); err != nil {
		return err
	}
	bufs := make(net.Buffers, len(chunks))
	for i, k := range chunks {
		bufs[i] = k.unwritten()
	}
	_, err := bufs.WriteTo(w)
	for _, k := range chunks {
		k.release()
	}
	if err == nil && c.direct != nil {
		err = c.net.SetWriteDeadline(time.Time{}) // senders do not wait, and so set none
	}
	return err
}

// endWrite tells the other side that nothing follows. It still reads.
func (c *conn) endWrite() {
	_ = c.net.SetWriteDeadline(time.Now().Add(c.set.cfg.waits.retire)) // fails when closed: then there is nobody to tell
	if cw, ok := c.net.(*tls.Conn); ok {
		_ = cw.CloseWrite()
	}
	_ = rawio.CloseWrite(c.socket.Conn)
}

// writeFailed leaves the end to the reader if the other side is gone, so that
// what it had sent before is still heard.
func (c *conn) writeFailed(err error) {
	if errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe) {
		c.reset.Store(true)
		_ = c.net.SetReadDeadline(time.Now().Add(drainAfterReset)) // fails when closed, which ends it as well
		return
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errStuck
	}
	c.close(err)
}
