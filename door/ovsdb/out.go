package ovsdb

import (
	"math"
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
	unread  atomic.Int64 // bytes of answers in it, and of what counts as one; changed with mu held
	waiting bool         // the connection will say when it has sent what it has
	closed  bool
}

// piece is a part of what is to be sent.
type piece struct {
	bytes   []byte
	asked   bool // part of an answer, which its reader has asked for, or of an update that counts as one: see tell
	counted bool // it is taken of MaxUnsentBytes
}

// unsend forgets what waits: nobody will take it.
func (c *conn) unsend() {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	c.forget()
}

// forget is unsend with out.mu held.
func (c *conn) forget() {
	o := &c.out
	for _, p := range o.queue {
		if p.counted {
			c.door.unsent.give(c.shares, p.bytes)
		}
	}
	o.closed, o.queue, o.backlog = true, nil, 0
}

// answer sends what the client has asked for, however much that is: see keep.
func (c *conn) answer(bufs ...[]byte) { c.send(true, false, bufs) }

// tell sends what the client has not asked for. If too much of that waits, it is cut
// off: it can resume. What is too much by itself goes as an answer does if nothing else
// waits: else who reads as fast as can be would be cut off, and ask for all there is.
func (c *conn) tell(bufs ...[]byte) { c.send(false, false, bufs) }

// tellAlone is tell of what was made for this client and nobody else: all of it counts.
func (c *conn) tellAlone(bufs ...[]byte) { c.send(false, true, bufs) }

func (c *conn) send(asked, alone bool, bufs [][]byte) {
	o := &c.out
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.closed {
		return
	}
	limits := c.door.limitsNow()
	if alone {
		limits.largest = math.MaxInt64
	}
	asked = asked || len(o.queue) == 0 && sizeOf(bufs) > limits.MaxBacklogBytes
	pieces := 0
	for _, b := range bufs {
		for len(b) > 0 {
			n := min(len(b), sendBytes)
			o.queue = append(o.queue, piece{bytes: b[:n:n], asked: asked})
			b = b[n:]
			o.count(asked, n)
			pieces++
		}
	}
	if !o.waiting {
		c.pump(false)
	}
	switch {
	case o.backlog > limits.MaxBacklogBytes:
		c.cutOff(incumbent.Errorf(incumbent.TooLarge, "more than %d bytes of updates wait for a slow reader", limits.MaxBacklogBytes).
			WithHint("read faster, or ask for less"))
	case !c.keep(pieces, limits.MaxUnsentBytes, limits.largest):
		c.cutOff(incumbent.Errorf(incumbent.Overloaded, "what waits for slow readers has more than %d bytes, or more of them than its share are of this one's client", limits.MaxUnsentBytes).
			WithHint("read faster, or ask for less at a time"))
	}
}

func sizeOf(bufs [][]byte) (n int) {
	for _, b := range bufs {
		n += len(b)
	}
	return n
}

// keep takes the room that the last pieces need, which are those just handed in, as far as
// they have to wait; false: there is none. Each connection has a little of its own, so that
// who has little to read is not cut off for what others do not read. Of what was handed in
// together the part counts that is sent last: a database may be larger than the room is, and
// who asks for all of it is to have it.
func (c *conn) keep(last int, most, largest int64) bool {
	o := &c.out
	if int64(o.backlog)+o.unread.Load() <= smallBacklog {
		return true
	}
	left := largest
	for i := len(o.queue) - 1; i >= max(0, len(o.queue)-last) && left > 0; i-- {
		p := &o.queue[i]
		if !c.door.unsent.take(c.shares, p.bytes, most) {
			return false
		}
		p.counted = true
		left -= int64(len(p.bytes))
	}
	return true
}

// cutOff ends the connection of a client that does not read. Called with out.mu held.
func (c *conn) cutOff(err error) {
	c.door.counts.slow.Add(1)
	c.forget()
	c.cut(err)
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
			next := &o.queue[n]
			bufs[n] = next.bytes
			size += len(bufs[n])
			o.count(next.asked, -len(bufs[n]))
			if next.counted {
				c.door.unsent.give(c.shares, next.bytes)
			}
			*next = piece{}
			n++
		}
		if o.queue = o.queue[n:]; len(o.queue) == 0 {
			o.queue = nil
		}
		if p.Send(bufs[:n]...) != nil {
			c.forget()
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
