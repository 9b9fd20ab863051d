package ovsdb

import (
	"sync"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
)

// outbox is what a connection is to be sent and its reader has not taken. Bytes that
// many are sent are kept by reference.
type outbox struct {
	mu      sync.Mutex // guards the rest; held across calls of the parked connection, which never wait
	queue   []piece
	backlog int          // bytes of updates in it
	unread  atomic.Int64 // bytes of answers in it; changed with mu held
	waiting bool         // the connection will say when it has sent what it has
	closed  bool
}

// piece is a part of what is to be sent.
type piece struct {
	bytes []byte
	asked bool // part of an answer, which its reader has asked for
}

func (o *outbox) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed, o.queue, o.backlog = true, nil, 0
}

// answer sends what the client has asked for, however much that is.
func (c *conn) answer(bufs ...[]byte) { c.send(true, bufs) }

// tell sends what the client has not asked for. If too much of that waits, it is cut
// off: it can resume.
func (c *conn) tell(bufs ...[]byte) { c.send(false, bufs) }

func (c *conn) send(asked bool, bufs [][]byte) {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	for _, b := range bufs {
		for len(b) > 0 {
			n := min(len(b), sendBytes)
			o.queue = append(o.queue, piece{b[:n:n], asked})
			b = b[n:]
			o.count(asked, n)
		}
	}
	if !o.waiting {
		c.pump(false)
	}
	if limit := c.door.limits.Load().MaxBacklogBytes; o.backlog > limit {
		c.door.counts.slow.Add(1)
		o.closed, o.queue, o.backlog = true, nil, 0
		c.cut(incumbent.Errorf(incumbent.TooLarge, "more than %d bytes of updates wait for a slow reader", limit).
			WithHint("read faster, or raise --ovsdb-max-backlog"))
	}
}

// drained goes on with what waits.
func (c *conn) drained() {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.out.waiting = false
	c.taken()
	c.pump(true)
}

// taken takes note that the reader took what had to wait for it: it is there. One that
// reads a large answer may say nothing until it has all of it.
func (c *conn) taken() { c.heard.Store(c.door.ticks.Load()) }

// pump hands pieces on while the kernel takes them. That it does says something of the
// reader only behind a time when the kernel took no more: waited. Called with out.mu held.
func (c *conn) pump(waited bool) {
	o, p := &c.out, c.parked.Load()
	for len(o.queue) > 0 {
		if p.WhenDrained(func() { c.door.work.Put(c.drained) }) {
			o.waiting = true
			return
		}
		if waited {
			c.taken() // a reader that keeps up may keep us here for long
		}
		var bufs [gathered][]byte
		n, size := 0, 0
		for n < len(o.queue) && n < gathered && (n == 0 || size+len(o.queue[n].bytes) <= sendBytes) {
			bufs[n] = o.queue[n].bytes
			size += len(bufs[n])
			o.count(o.queue[n].asked, -len(bufs[n]))
			o.queue[n] = piece{}
			n++
		}
		if o.queue = o.queue[n:]; len(o.queue) == 0 {
			o.queue = nil
		}
		if p.Send(bufs[:n]...) != nil {
			o.closed, o.queue, o.backlog = true, nil, 0
			return // Closed follows
		}
		c.eased()
	}
}

// count takes note of bytes that come into the queue, or leave it.
func (o *outbox) count(asked bool, n int) {
	if asked {
		o.unread.Add(int64(n))
	} else {
		o.backlog += n
	}
}

// gathered is how many pieces are handed on at once.
const gathered = 16
