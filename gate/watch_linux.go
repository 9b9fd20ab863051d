package gate

import (
	"errors"
	"io"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/rawio"
)

// batch is how many connections are looked at in one turn, under Gate.mu.
const batch = 64

// epoll watches all silent connections of a gate with one epoll set, which is itself
// watched by Go's poller: who waits is a goroutine and not a thread.
type epoll struct {
	g      *Gate
	file   *os.File
	raw    syscall.RawConn
	fd     int
	events []unix.EpollEvent
	ready  int
	conns  map[int32]*Conn // by descriptor; under Gate.mu
	plain  each            // of those without one
}

func newWatcher(g *Gate) (watcher, error) {
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err == nil {
		if err = unix.SetNonblock(fd, true); err != nil { // makes os.NewFile register it with Go's poller
			unix.Close(fd)
		}
	}
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Unavailable, "open poller: %w", os.NewSyscallError("epoll_create1", err))
	}
	w := &epoll{
		g: g, fd: fd, file: os.NewFile(uintptr(fd), "epoll"), events: make([]unix.EpollEvent, batch),
		conns: make(map[int32]*Conn), plain: each{g},
	}
	if w.raw, err = w.file.SyscallConn(); err != nil {
		w.file.Close()
		return nil, err
	}
	go w.run()
	return w, nil
}

func (w *epoll) close() { w.file.Close() }

// run looks at those that have said something, until close.
func (w *epoll) run() {
	for w.raw.Read(w.wait) == nil {
		w.turn()
	}
}

func (w *epoll) wait(uintptr) bool {
	n, err := rawio.Ready(w.fd, w.events)
	w.ready = n
	return n > 0 || err != nil && !errors.Is(err, unix.EINTR)
}

func (w *epoll) turn() {
	w.g.mu.Lock()
	defer w.g.unlock()
	for i := range w.events[:w.ready] {
		// An event that was fetched before its connection left may find another of the same
		// descriptor: to look does no harm.
		if c := w.conns[w.events[i].Fd]; c != nil {
			w.look(c)
		}
	}
}

// watch looks first: of those that come in a storm most have said something by then.
func (w *epoll) watch(c *Conn) {
	raw, err := c.SyscallConn()
	if err != nil {
		w.plain.watch(c)
		return
	}
	c.raw = raw
	w.look(c)
	if c.stage != silent {
		return
	}
	err = c.control(func(fd int) error {
		c.fd = int32(fd)
		return unix.EpollCtl(w.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLRDHUP, Fd: c.fd})
	})
	if err != nil {
		w.g.leave(c)
		w.g.doomed = append(w.g.doomed, c)
		return
	}
	c.watched = true
	w.conns[c.fd] = c
}

func (w *epoll) forget(c *Conn) {
	if !c.watched {
		return
	}
	c.watched = false
	delete(w.conns, c.fd)
	// Whoever parks the connection duplicates its descriptor, so that closing it would
	// not end this.
	_ = c.control(func(fd int) error { return unix.EpollCtl(w.fd, unix.EPOLL_CTL_DEL, fd, nil) })
}

// look takes what has come.
func (w *epoll) look(c *Conn) {
	var heard []byte
	err := c.control(func(fd int) (err error) {
		heard, err = c.hear(func(p []byte) (int, error) { return receive(fd, p, !c.proxied || c.told) })
		return err
	})
	var bad badProxy
	switch {
	case errors.Is(err, unix.EAGAIN):
		w.g.named(c)
	case errors.As(err, &bad):
		w.g.drop(c, BadProxy)
	case err != nil:
		w.g.leave(c)
		w.g.doomed = append(w.g.doomed, c)
	case len(heard) > 0:
		w.g.named(c)
		c.begins(heard)
		w.g.spoke(c)
	}
}

// hasGone reports whether the other side has ended the connection, or its half of it.
func (c *Conn) hasGone() bool {
	if c.raw == nil {
		return false
	}
	gone := false
	err := c.control(func(fd int) error {
		ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, err := unix.Poll(ready, 0)
		gone = n > 0
		return err
	})
	return gone || err != nil && !errors.Is(err, unix.EINTR)
}

// receive takes bytes out of a socket, or, to peek, leaves them there. It does not
// wait: EAGAIN says that not all are there.
func receive(fd int, p []byte, peek bool) (int, error) {
	flags := unix.MSG_DONTWAIT
	if peek {
		flags |= unix.MSG_PEEK
	}
	n, _, err := unix.Recvfrom(fd, p, flags)
	switch {
	case err != nil:
		return 0, err
	case n == 0:
		return 0, io.EOF
	case n < len(p):
		return n, unix.EAGAIN
	}
	return n, nil
}

// control calls f with the descriptor.
func (c *Conn) control(f func(fd int) error) error {
	var err error
	if failed := c.raw.Control(func(fd uintptr) { err = f(int(fd)) }); failed != nil {
		return failed
	}
	return err
}
