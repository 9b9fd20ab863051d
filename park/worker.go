package park

import (
	"errors"
	"io"
	"sync"
	"sync/atomic"
)

// worker serves the connections that are its own. Its goroutine owns
// everything but the inbox and the counters; under Config.Portable there is no
// such goroutine, and whoever holds exec is the worker.
type worker struct {
	set *Set
	id  int

	buf       []byte
	slots     []slot
	free      []int32
	again     []*Conn // have more than their turn allowed
	spare     []*Conn // the last such list, to be used again
	stopped   stopMode
	woken     bool   // the inbox was written to since it was last emptied
	now       uint32 // the turn's tick
	rawBytes  int    // read from sockets, ever
	fence     int    // sockets look empty when rawBytes has come here; see serve
	answers   []byte // what crypto/tls answers within one read
	delivered int    // calls of Readable and Closed since the last end of batch
	cursor    int    // next slot to look at for deadlines; -1 when no scan is under way
	rescan    bool   // a tick came while one was: another follows
	poller    poller

	inbox inbox

	// Portable only.
	exec    sync.Mutex // makes its holder the worker, for one turn
	ports   sync.Map   // of *portable
	running sync.WaitGroup

	live   atomic.Int64
	unread atomic.Int64 // of those, for whose handlers enough is kept
	reads  atomic.Uint64
	writes atomic.Uint64 // from any goroutine
	ended  [NumReasons]atomic.Uint64
}

// slot is a place for a connection. due is the tick at which its deadlines
// must be looked at, 0 for never: looking at 4 bytes of each connection four
// times a second is what all deadlines together cost.
type slot struct {
	conn *Conn
	due  uint32
}

// inbox is what other goroutines want of a worker.
type inbox struct {
	mu       sync.Mutex
	conns    []*Conn
	barriers []*barrier
	tick     bool
	stop     stopMode
	gone     bool // the worker has ended: nothing is taken any more
}

type stopMode uint8

const (
	running stopMode = iota
	stopFlush
	stopNow
)

// add gives a new connection a slot.
func (w *worker) add(c *Conn) {
	if n := len(w.free); n > 0 {
		c.slot, w.free = w.free[n-1], w.free[:n-1]
		w.slots[c.slot].conn = c
	} else {
		c.slot = int32(len(w.slots))
		w.slots = append(w.slots, slot{conn: c})
	}
	c.heard = w.now
	c.partialSince = w.now
	w.live.Add(1)
}

// attend does whatever a connection was posted for. It is idempotent.
func (w *worker) attend(c *Conn) {
	c.posted.Store(false) // before looking, so that what comes later posts again
	if c.slot < 0 {
		w.begin(c)
	}
	if c.woken.Swap(false) {
		c.held = false
		c.partialSince = w.now
		w.deliver(c, c.partial)
	}
	if c.port == nil && c.backlog.Load() {
		w.flush(c)
	}
	if c.state.Load() == finishing {
		w.shutHalf(c)
	}
	if w.set.stopping.Load() {
		w.stopConn(c)
	}
	if c.state.Load() >= closing {
		w.end(c)
		return
	}
	if c.unread && !w.keepsEnough(c) {
		w.leaveUnread(c, false)
		c.heard = w.now // for nobody listened
		w.goOn(c)       // what was announced is not announced again
	}
	w.look(c)
}

// keepsEnough reports whether nothing is read from the socket: the handler
// holds, and what is kept for it fills a buffer. Without the poller everything
// is read: nobody else would tell the end of who is not.
func (w *worker) keepsEnough(c *Conn) bool {
	return c.held && c.port == nil && len(c.partial) >= len(w.buf)
}

// leaveUnread notes whether there may be something that is not to be read yet.
func (w *worker) leaveUnread(c *Conn, is bool) {
	switch {
	case is && !c.unread:
		w.unread.Add(1)
	case !is && c.unread:
		w.unread.Add(-1)
	}
	c.unread = is
}

// begin takes a connection over: what was read before it was parked is handed
// on, and one read is made, for crypto/tls may hold data of which the kernel
// will never say a word.
func (w *worker) begin(c *Conn) {
	w.add(c)
	if err := w.watch(c); err != nil {
		c.fail(ReadFailed, err)
		return
	}
	if len(c.partial) > 0 {
		w.deliver(c, c.partial)
	}
	if c.port == nil {
		w.turn(c)
	}
}

// turn reads what is there, up to the fair share.
func (w *worker) turn(c *Conn) {
	if w.serve(c, w.set.cfg.turnBytes, turnReads) {
		w.goOn(c)
	}
}

// goOn gives a connection another turn.
func (w *worker) goOn(c *Conn) {
	if !c.again {
		c.again = true
		w.again = append(w.again, c)
	}
}

// serve reads and hands over what is there, until about so many bytes came out
// of the socket, or so many reads were made, and reports whether the socket may
// have more. What is handed over does not bound the work: with each byte of it
// crypto/tls may have taken in sixteen key updates, or thousands of pieces of a
// message. So the socket looks empty in the middle of a read, too.
func (w *worker) serve(c *Conn, bytes, reads int) (more bool) {
	w.fence = w.rawBytes + bytes
	for range reads {
		if c.state.Load() >= closing {
			return false
		}
		if w.keepsEnough(c) {
			if c.hungUp {
				c.fail(PeerClosed, nil)
			}
			w.leaveUnread(c, true)
			return false
		}
		buf, kept := w.room(c)
		n, err := c.read(buf[kept:])
		if n > 0 {
			c.heard = w.now
			w.deliver(c, buf[:kept+n])
		}
		switch {
		case err == nil:
		case isTemporary(err):
			return !c.drained
		default:
			w.failRead(c, err)
			return false
		}
	}
	return true
}

func isTemporary(err error) bool {
	if errors.Is(err, errWouldBlock) {
		return true
	}
	var wb wouldBlock
	return errors.As(err, &wb)
}

func (w *worker) failRead(c *Conn, err error) {
	if errors.Is(err, io.EOF) {
		c.fail(PeerClosed, nil)
		return
	}
	c.fail(ReadFailed, err)
}

// room returns a buffer to read into, behind the bytes that were kept. Long
// incomplete frames grow in place, short ones are moved in front.
func (w *worker) room(c *Conn) (buf []byte, kept int) {
	kept = len(c.partial)
	if kept <= len(w.buf)/2 {
		copy(w.buf, c.partial)
		return w.buf, kept
	}
	if cap(c.partial)-kept < len(w.buf)/4 {
		w.regrow(c, c.partial, min(2*kept, max(w.set.limits.Load().MaxPartial, kept)+len(w.buf)))
	}
	return c.partial[:cap(c.partial)], kept
}

// deliver hands data to the handler and keeps what it leaves. data may be
// the worker's buffer or the connection's own.
func (w *worker) deliver(c *Conn, data []byte) {
	switch {
	case c.state.Load() != open:
		w.keep(c, nil)
		return
	case c.held || len(data) == 0:
		w.keep(c, data)
		return
	}
	n, err := c.Handler.Readable(c, data)
	w.delivered++
	if n < 0 || n > len(data) {
		panic("park: Readable consumed more than there was")
	}
	if n > 0 {
		c.partialSince = w.now
	}
	switch {
	case errors.Is(err, Hold):
		c.held = true
	case err != nil:
		c.fail(HandlerFailed, err)
		n = len(data)
	}
	w.keep(c, data[n:])
}

// keep stores what was not consumed, in a buffer of about its size.
func (w *worker) keep(c *Conn, rest []byte) {
	had := len(c.partial)
	switch {
	case len(rest) == 0:
		if c.partial != nil {
			w.set.held.Add(-int64(cap(c.partial)))
			c.partial = nil
		}
		return
	case len(rest) > w.set.limits.Load().MaxPartial && (!c.held || c.port != nil):
		c.mu.Lock()
		_ = c.limitLocked(PartialTooLong)
		c.mu.Unlock()
		w.keep(c, nil)
		return
	case cap(c.partial) >= len(rest) && cap(c.partial) <= 4*len(rest)+chunkBytes:
		c.partial = c.partial[:len(rest)]
		copy(c.partial, rest)
	case cap(c.partial) < len(rest):
		w.regrow(c, rest, max(len(rest), min(2*had, len(rest)+len(w.buf))))
	default:
		w.regrow(c, rest, len(rest))
	}
	if had == 0 {
		c.partialSince = w.now
		w.look(c)
	}
}

// regrow replaces the connection's own buffer by one of the given size with
// the same or other contents.
func (w *worker) regrow(c *Conn, data []byte, size int) {
	size = (size + 63) &^ 63
	p := append(make([]byte, 0, size), data...)
	grown := int64(cap(p) - cap(c.partial))
	w.set.held.Add(grown)
	c.partial = p
	if grown > 0 && w.set.memoryFull(int64(cap(p))) {
		c.mu.Lock()
		_ = c.limitLocked(MemoryFull)
		c.mu.Unlock()
	}
}

// flush sends what is queued.
func (w *worker) flush(c *Conn) {
	c.mu.Lock()
	c.flush()
	c.mu.Unlock()
	w.flushed(c)
}

// flushed follows when a queue may have become empty.
func (w *worker) flushed(c *Conn) {
	if c.backlog.Load() {
		return
	}
	if c.state.Load() == finishing {
		w.shutHalf(c)
	}
	if w.set.stopping.Load() {
		w.stopConn(c)
	}
}

// shutHalf ends the sending side of a finishing connection whose queue is
// empty.
func (w *worker) shutHalf(c *Conn) {
	w.keep(c, nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.half || c.out != nil || c.state.Load() != finishing {
		return
	}
	if c.tls != nil && !c.alerted {
		c.alerted = true
		_ = c.tls.CloseWrite() // the peer may be gone; then the next read says so
		if c.out != nil {
			return // the alert waits; flushed comes here again
		}
	}
	c.half = true
	c.rawCloseWrite()
}

// end closes a connection for good.
func (w *worker) end(c *Conn) {
	c.mu.Lock()
	if c.state.Load() == closed {
		c.mu.Unlock()
		return
	}
	if c.tls != nil && c.out == nil && !c.alerted && c.reason != ReadFailed && c.reason != WriteFailed {
		_ = c.tls.Close() // tells the peer that nothing was cut short
	}
	c.state.Store(closed)
	c.dropQueue()
	reason, err := c.reason, c.err
	c.mu.Unlock()

	w.leaveUnread(c, false)
	w.keep(c, nil)
	c.Handler.Closed(c, reason, err)
	w.delivered++
	w.ended[reason].Add(1)
	w.slots[c.slot] = slot{}
	w.free = append(w.free, c.slot)

	c.mu.Lock()
	c.rawClose()
	c.tls, c.socket = nil, nil
	c.mu.Unlock()
	w.live.Add(-1)
}

// stopConn ends a connection of a closing set once its queue is empty.
func (w *worker) stopConn(c *Conn) {
	c.mu.Lock()
	if c.out == nil || w.set.stopNow.Load() {
		_ = c.limitLocked(Shutdown)
	}
	c.mu.Unlock()
}

// stopAll does so for all connections.
func (w *worker) stopAll() {
	for _, s := range w.slots {
		if s.conn != nil {
			w.stopConn(s.conn)
		}
	}
}

// endBatch tells the doors that the wake-up's work is done.
func (w *worker) endBatch() {
	if w.delivered == 0 {
		return
	}
	w.delivered = 0
	if hooks := w.set.hooks.Load(); hooks != nil {
		for _, h := range *hooks {
			h(w.id)
		}
	}
}
