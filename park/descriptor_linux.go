package park

import (
	"errors"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/rawio"
)

// adopt takes the descriptor out of Go's hands: it is duplicated and the
// original closed at once, so that one remains. (TCPConn.File would leave
// two, and switch both to blocking.)
func (c *Conn) adopt(inner net.Conn) error {
	if c.worker.set.cfg.Portable {
		c.port = newPortable(c, inner)
		return nil
	}
	sc, ok := inner.(syscall.Conn)
	if !ok {
		return incumbent.Errorf(incumbent.Invalid, "%T has no descriptor", inner)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return err
	}
	fd, dupErr := -1, error(nil)
	err = raw.Control(func(old uintptr) {
		fd, dupErr = unix.FcntlInt(old, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err == nil {
		err = os.NewSyscallError("fcntl", dupErr)
	}
	if err != nil {
		return err
	}
	inner.Close()
	c.fd = int32(fd)
	return nil
}

// launch hands the connection to its worker.
func (c *Conn) launch() {
	if c.port != nil {
		c.port.launch()
		return
	}
	c.post()
}

// rawRead reads from the socket. Only the worker calls it.
func (c *Conn) rawRead(p []byte) (int, error) {
	if c.port != nil {
		return c.port.read(p)
	}
	w := c.worker
	if c.drained || w.rawBytes >= w.fence {
		return 0, errWouldBlock
	}
	for {
		n, err := rawio.Read(int(c.fd), p)
		w.reads.Add(1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			c.drained = true
			return 0, errWouldBlock
		case err != nil:
			return 0, os.NewSyscallError("read", err)
		case n == 0:
			return 0, io.EOF
		}
		w.rawBytes += n
		// A short read has emptied the socket, and what comes later is a new
		// event; unless an end was announced, which comes only once.
		c.drained = n < len(p) && !c.hungUp
		return n, nil
	}
}

// rawWrite hands bufs to the kernel and returns how many bytes it took. mu is
// held.
func (c *Conn) rawWrite(bufs [][]byte) (n int, err error) {
	if c.port != nil {
		return 0, nil // the flusher writes
	}
	if c.fd < 0 {
		return 0, net.ErrClosed
	}
	for {
		if len(bufs) == 1 {
			n, err = rawio.Write(int(c.fd), bufs[0])
		} else {
			n, err = unix.Writev(int(c.fd), bufs[:min(len(bufs), gatherBufs)])
		}
		c.worker.writes.Add(1)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
			return 0, nil
		case err == nil:
			return max(n, 0), nil
		}
		return 0, os.NewSyscallError("write", err)
	}
}

// rawCloseWrite ends the sending side. mu is held.
func (c *Conn) rawCloseWrite() {
	if c.port != nil {
		c.port.closeWrite()
		return
	}
	_ = unix.Shutdown(int(c.fd), unix.SHUT_WR) // fails if the peer has gone; a read says so
}

// rawClose closes the socket. mu is held.
func (c *Conn) rawClose() {
	if c.port != nil {
		c.port.close()
		return
	}
	if c.fd < 0 {
		return
	}
	unix.Close(int(c.fd)) // also takes it out of the epoll set
	c.fd = -1
}

// addr asks the kernel for an address.
func (c *Conn) addr(s side) net.Addr {
	if c.port != nil {
		return c.port.addr(s)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fd < 0 {
		return gone{}
	}
	ask := unix.Getsockname
	if s == remoteAddr {
		ask = unix.Getpeername
	}
	sa, err := ask(int(c.fd))
	if err != nil {
		return gone{}
	}
	switch sa := sa.(type) {
	case *unix.SockaddrInet4:
		return &net.TCPAddr{IP: sa.Addr[:], Port: sa.Port}
	case *unix.SockaddrInet6:
		return &net.TCPAddr{IP: sa.Addr[:], Port: sa.Port, Zone: zone(sa.ZoneId)}
	case *unix.SockaddrUnix:
		return &net.UnixAddr{Name: sa.Name, Net: "unix"}
	}
	return gone{}
}

func zone(id uint32) string {
	if id == 0 {
		return ""
	}
	if i, err := net.InterfaceByIndex(int(id)); err == nil {
		return i.Name
	}
	return ""
}
