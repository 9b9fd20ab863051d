package park

import (
	"errors"
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/incumbent-dev/incumbent/rawio"
)

const haveEpoll = true

// wakeSlot marks the event of the poller's own eventfd.
const wakeSlot = -1

// interest is registered once and never changed. Edge triggered, it costs
// nothing while a connection is idle: TCP announces room for writing only
// after a write that found none.
const interest = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET&0xffffffff

// poller is an epoll set that is itself watched by Go's poller, so that a
// worker with nothing to do waits as a goroutine and not as a thread.
type poller struct {
	epoll  *os.File
	raw    syscall.RawConn
	fd     int // of epoll
	event  int // eventfd: wakes the worker. Edge triggered, never read
	events []unix.EpollEvent
	ready  int
	block  bool
	err    error
	try    func(fd uintptr) bool // pollOnce, made once
	ended  chan struct{}
}

func (w *worker) open() error {
	if w.set.cfg.Portable {
		return nil
	}
	p := &w.poller
	fd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return os.NewSyscallError("epoll_create1", err)
	}
	if p.event, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		unix.Close(fd)
		return os.NewSyscallError("eventfd", err)
	}
	err = unix.EpollCtl(fd, unix.EPOLL_CTL_ADD, p.event, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET&0xffffffff, Fd: wakeSlot})
	if err == nil {
		err = unix.SetNonblock(fd, true) // makes os.NewFile register it with Go's poller
	}
	if err != nil {
		unix.Close(fd)
		unix.Close(p.event)
		return os.NewSyscallError("epoll_ctl", err)
	}
	p.fd = fd
	p.epoll = os.NewFile(uintptr(fd), "epoll")
	if p.raw, err = p.epoll.SyscallConn(); err != nil {
		p.close()
		return err
	}
	p.events = make([]unix.EpollEvent, w.set.cfg.Batch)
	p.try = p.pollOnce
	p.ended = make(chan struct{})
	return nil
}

func (p *poller) close() {
	if p.epoll != nil {
		p.epoll.Close()
		unix.Close(p.event)
	}
}

func (w *worker) start() {
	if !w.set.cfg.Portable {
		w.set.all.Go(w.run)
	}
}

// wait returns when the worker has no connection and takes no more.
func (w *worker) wait() {
	if w.set.cfg.Portable {
		w.running.Wait()
		return
	}
	<-w.poller.ended
}

// wake makes a waiting poller return. The inbox is locked, so that the
// descriptor is not closed (and its number given to another file) meanwhile.
func (p *poller) wake() {
	one := [8]byte{1}
	for {
		_, err := rawio.Write(p.event, one[:])
		if !errors.Is(err, unix.EINTR) {
			return // EAGAIN means 2⁶⁴ wake-ups are pending
		}
	}
}

// poll returns how many events are ready, waiting for one if block is set.
func (p *poller) poll(block bool) int {
	p.ready, p.block = 0, block
	if !p.pollOnce(0) {
		if err := p.raw.Read(p.try); err != nil {
			panic("park: poller failed: " + err.Error())
		}
	}
	if p.err != nil {
		panic("park: epoll_wait failed: " + p.err.Error())
	}
	return p.ready
}

func (p *poller) pollOnce(uintptr) bool {
	for {
		n, err := rawio.Ready(p.fd, p.events)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		p.ready, p.err = max(n, 0), err
		return n != 0 || !p.block
	}
}

// run is the worker's goroutine: each turn serves a batch of ready
// connections, then those that had more than their share, then what others
// asked for, then a slice of the deadlines.
func (w *worker) run() {
	defer close(w.poller.ended)
	defer w.poller.close()
	var m mail
	for {
		n := w.poller.poll(len(w.again) == 0 && w.cursor < 0 && !w.woken)
		w.now = w.set.now.Load()
		w.serveEvents(n, false)
		w.serveAgain(false)
		w.woken = false
		w.take(&m)
		w.readMail(&m)
		w.endBatch()
		if m.stop != running && w.leave() {
			return
		}
	}
}

func (w *worker) readMail(m *mail) {
	for _, c := range m.conns {
		w.attend(c)
	}
	if m.tick {
		w.beginScan()
	}
	if w.cursor >= 0 {
		w.scan()
	}
	if m.stop != running && w.stopped != m.stop {
		w.stopped = m.stop
		w.stopAll()
	}
	if len(m.barriers) == 0 {
		return
	}
	w.drainAll()
	w.endBatch()
	for _, b := range m.barriers {
		b.arrive()
	}
}

// drainAll hands over everything that is readable now. The kernel keeps ready
// connections in a queue, so after as many events as there are connections
// whatever was in it at the beginning has come out.
func (w *worker) drainAll() {
	w.serveAgain(true)
	for seen, bound := 0, len(w.slots)+1; seen <= bound; {
		n := w.poller.poll(false)
		w.serveEvents(n, true)
		seen += n
		if n < len(w.poller.events) {
			return
		}
	}
}

func (w *worker) serveEvents(n int, whole bool) {
	for i := range w.poller.events[:n] {
		ev := &w.poller.events[i]
		if ev.Fd == wakeSlot {
			w.woken = true
			continue
		}
		if c := w.slots[ev.Fd].conn; c != nil {
			w.serveEvent(c, ev.Events, whole)
		}
	}
}

func (w *worker) serveEvent(c *Conn, events uint32, whole bool) {
	const ends = unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	if events&(unix.EPOLLIN|ends) != 0 {
		c.drained = false
		c.hungUp = c.hungUp || events&ends != 0
		w.turnOrWhole(c, whole)
	}
	if events&unix.EPOLLOUT != 0 && c.backlog.Load() {
		w.flush(c)
	}
}

func (w *worker) turnOrWhole(c *Conn, whole bool) {
	if whole {
		w.serveWhole(c)
		return
	}
	w.turn(c)
}

// serveAgain gives another turn to those who had more.
func (w *worker) serveAgain(whole bool) {
	if len(w.again) == 0 {
		return
	}
	list := w.again
	w.again = w.spare[:0]
	for _, c := range list {
		c.again = false
		w.turnOrWhole(c, whole)
	}
	clear(list)
	w.spare = list[:0]
}

// serveWhole hands over at least what is in the socket now, however much, and
// what crypto/tls has read before: behind that much the socket looks empty, so
// that crypto/tls gives out all it has.
func (w *worker) serveWhole(c *Conn) {
	owed, err := unix.IoctlGetInt(int(c.fd), unix.TIOCINQ)
	if err != nil {
		owed = 0 // the first read tells
	}
	if w.serve(c, owed, math.MaxInt) {
		w.goOn(c)
	}
}

// watch registers a new connection with the poller.
func (w *worker) watch(c *Conn) error {
	if c.port != nil {
		return nil
	}
	err := unix.EpollCtl(w.poller.fd, unix.EPOLL_CTL_ADD, int(c.fd), &unix.EpollEvent{Events: interest, Fd: c.slot})
	return os.NewSyscallError("epoll_ctl", err)
}
