//go:build !linux

package park

import (
	"net"
)

const haveEpoll = false

// poller has no counterpart where every connection has its goroutine.
type poller struct{}

func (*poller) wake()  {}
func (*poller) close() {}

func (w *worker) open() error         { return nil }
func (w *worker) start()              {}
func (w *worker) wait()               { w.running.Wait() }
func (w *worker) watch(c *Conn) error { return nil }

func (c *Conn) adopt(inner net.Conn) error {
	c.port = newPortable(c, inner)
	return nil
}

func (c *Conn) launch()                             { c.port.launch() }
func (c *Conn) rawRead(p []byte) (int, error)       { return c.port.read(p) }
func (c *Conn) rawWrite(bufs [][]byte) (int, error) { return 0, nil } // the flusher writes
func (c *Conn) rawCloseWrite()                      { c.port.closeWrite() }
func (c *Conn) rawClose()                           { c.port.close() }
func (c *Conn) addr(s side) net.Addr                { return c.port.addr(s) }
