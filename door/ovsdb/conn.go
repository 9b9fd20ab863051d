package ovsdb

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/park"
)

// conn is a parked connection. While it is idle this struct, what it monitors and the
// parked connection are all there is.
type conn struct {
	door   *Door
	parked atomic.Pointer[park.Conn]
	who    *caller
	shares admit.Who     // as whom it takes of what all connections may have under way
	heard  atomic.Uint64 // tick of the door's clock in which something came, or went that had waited
	owed   atomic.Int32  // monitors that are not answered
	kept   atomic.Int64  // bytes that the conditions of its monitors cost, of maxConditionBytes
	probed atomic.Bool   // an echo was asked for since
	denied atomic.Bool   // a small message found no room, which others may have given back since
	rests  atomic.Int32  // timers until the end of which nothing is read: it has not kept to its pace, or is to be cut off
	leaves atomic.Bool   // it is to be cut off: see cutLater

	park.Link[*conn] // in door.conns

	// Of the worker alone.
	scan    scanner
	partial []byte      // of a message that has not come whole
	slow    *time.Timer // ends the wait for that; nil: nothing is waited for

	mu      sync.Mutex // guards what follows; held to change it
	tasks   taskList
	closed  bool  // nothing is run any more but what was put in until then
	held    bool  // the worker waits to be woken for what it has
	queued  int   // messages that are there whole and not looked at
	busy    int32 // requests that are not answered
	weight  int   // bytes that they count as
	coming  int   // bytes that what has come of the next one counts as
	bytes   int   // that have come of it
	counted int   // of both, those that are taken of MaxPartialBytes
	ended   bool  // none are any more
	pace    admit.Pace

	out     outbox
	session session // of the tasks
}

var _ park.Handler = (*conn)(nil)

func newConn(d *Door, who *caller) *conn {
	c := &conn{door: d, who: who, shares: admit.Who{Client: admit.ClientOf(who.principal.Name, who.address)}}
	c.heard.Store(d.ticks.Load())
	return c
}

// do has a function run soon, on a goroutine that may take a while, behind all that was
// handed in before: what belongs to the session is touched by those alone. It reports
// whether it will be: not once the connection has ended.
func (c *conn) do(task func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.put(task)
	}
	return !c.closed
}

// gone reports whether the connection is closed.
func (c *conn) gone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// put is do for whoever has mu.
func (c *conn) put(task func()) {
	if c.tasks.add(task) {
		c.door.work.Put(c.run)
	}
}

func (c *conn) run() {
	if c.tasks.run(&c.mu) {
		c.door.work.Put(c.run)
	}
}

// Readable takes whatever has come.
func (c *conn) Readable(p *park.Conn, data []byte) (int, error) {
	c.parked.CompareAndSwap(nil, p)
	c.heard.Store(c.door.ticks.Load())
	for at := 0; at < len(data); {
		if !c.scan.begun() && c.full() {
			return at, park.Hold
		}
		before := c.scan
		n, whole, err := c.scan.next(data[at:])
		if err == nil {
			err = c.take(data[at:at+n], whole)
		}
		switch {
		case errors.Is(err, park.Hold):
			c.scan = before // the part comes again
			return at, err
		case err != nil:
			c.door.counts.malformed.Add(1)
			return len(data), err
		}
		at += n
	}
	return len(data), nil
}

// full reports whether so many requests are under way, or so much of their answers has
// not been read, that the next ones wait.
func (c *conn) full() bool {
	l := c.door.limitsNow()
	c.mu.Lock()
	defer c.mu.Unlock()
	most := maxQueued
	if c.door.lanes.Behind(&c.pace) {
		most = 1 // else they would all be served before the connection rests again
	}
	c.held = c.rests.Load() > 0 || c.queued >= most || int(c.busy) >= l.MaxUnderWay || c.weight >= l.weight || c.out.unread.Load() > int64(l.MaxBacklogBytes)
	return c.held
}

// heldUp reports whether nothing is read until some of what was asked for is answered, and not
// for answers that its client does not read.
func (c *conn) heldUp() bool {
	most := int64(c.door.limitsNow().MaxBacklogBytes)
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held && c.busy > 0 && c.out.unread.Load() <= most/2
}

// comes takes the room that further bytes of the next message need; one that is not small counts as
// its values, if that is more, before anything is made of them. Each connection has a little of
// its own: what it has beyond, of messages that have not come whole and of those that are not
// answered, which may wait for a place, it shares with all others. Who has much of that leaves
// some for who has little. Where there is none who sends a large message is cut off, and a small
// one waits until others of its connection are answered, or a tick finds room.
func (c *conn) comes(bytes int) error {
	most := c.door.limitsNow().MaxPartialBytes
	c.mu.Lock()
	defer c.mu.Unlock()
	coming := c.bytes + bytes
	if coming > smallMessage {
		coming = max(coming, int(c.scan.values)*valueBytes)
	}
	switch {
	case c.takeRoom(coming, most):
		c.bytes += bytes
		c.coming = coming
		return nil
	case coming <= smallMessage: // so there are others
		c.held = true
		c.denied.Store(true)
		return park.Hold
	}
	return incumbent.Errorf(incumbent.Overloaded, "messages that have not come whole, and those that are not answered, have more than %d bytes, %d for each of their values at least, or more of them than its share are of who sends this one", most, valueBytes)
}

// takeRoom takes what the next message needs that counts as so many bytes, where most is there for
// all. With mu held.
func (c *conn) takeRoom(coming int, most int64) bool {
	n := max(0, c.weight+coming-smallMessage)
	if more := int64(n - c.counted); more > 0 && !c.door.underWay.Take(c.shares, more, most) {
		return false
	}
	c.counted = n
	return true
}

// begun says that the next message is there whole, and returns how many bytes it counts as; false:
// there is no room for its values.
func (c *conn) begun() (size int, fits bool) {
	most := c.door.limitsNow().MaxPartialBytes
	c.mu.Lock()
	defer c.mu.Unlock()
	size = max(c.coming, int(c.scan.values)*valueBytes)
	if fits = c.takeRoom(size, most); !fits {
		size = c.coming
	}
	c.queued++
	c.busy++
	c.weight += size
	c.coming, c.bytes = 0, 0
	return size, fits
}

// recount gives back the room that is not needed any more. With mu held.
func (c *conn) recount() {
	n := max(0, c.weight+c.coming-smallMessage)
	if c.ended {
		n = 0
	}
	if n != c.counted { // most connections never have so much
		c.door.underWay.Give(c.shares, int64(c.counted-n))
		c.counted = n
	}
}

// looked says that a message is being served.
func (c *conn) looked() {
	c.mu.Lock()
	c.queued--
	c.mu.Unlock()
	c.eased()
}

// finished says that what a message asked for is done; idle: it asked for nothing, or was refused
// for what it asked, so that the next ones may have to wait, see [admit.Pace].
func (c *conn) finished(bytes int, idle bool) {
	c.mu.Lock()
	c.busy--
	c.weight -= bytes
	c.recount()
	if idle && !c.closed {
		c.slowed(bytes)
	}
	c.mu.Unlock()
	c.eased()
}

// slowed has the connection rest, if it is to. With mu held.
func (c *conn) slowed(bytes int) {
	if rest := c.door.lanes.Slow(&c.pace, bytes+admit.MessageBytes); rest > 0 {
		c.rests.Add(1)
		time.AfterFunc(rest, c.rested)
	}
}

// rested says that the connection has rested.
func (c *conn) rested() {
	c.rests.Add(-1)
	c.eased()
}

// settle gives back the room of a connection that is gone: not all of its messages are
// answered.
func (c *conn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.recount()
}

// eased has the next requests read once there is room for some.
func (c *conn) eased() {
	l := c.door.limitsNow()
	c.mu.Lock()
	wake := c.held && c.rests.Load() == 0 && c.queued <= maxQueued/2 && int(c.busy) <= l.MaxUnderWay/2 && c.weight <= l.weight/2 && c.out.unread.Load() <= int64(l.MaxBacklogBytes/2)
	if wake {
		c.held = false
	}
	c.mu.Unlock()
	if wake {
		c.parked.Load().Wake()
	}
}

// tryAgain has a message read that waits for room, which finds some now or waits on: who gives
// room back need not be of this connection.
func (c *conn) tryAgain() {
	if !c.denied.Load() || c.rests.Load() > 0 {
		return
	}
	c.mu.Lock()
	wake := c.held
	c.held = false
	c.denied.Store(false)
	c.mu.Unlock()
	if wake {
		c.parked.Load().Wake()
	}
}

// take takes part of a message, perhaps its end. [park.Hold]: it comes again.
func (c *conn) take(part []byte, whole bool) error {
	limits := c.door.limitsNow()
	if len(c.partial)+len(part) > limits.MaxMessageBytes {
		return incumbent.Errorf(incumbent.TooLarge, "a message has more than %d bytes", limits.MaxMessageBytes)
	}
	if !whole && !c.scan.begun() {
		return nil // space between messages
	}
	if err := c.comes(len(part)); err != nil {
		c.stopWaiting() // the rest may be there, and is not read
		return err
	}
	message := append(c.partial, part...)
	if whole {
		size, fits := c.begun()
		c.arrived()
		c.do(func() { c.serve(message, size, fits) })
		return nil
	}
	c.partial = message
	if c.slow == nil {
		p := c.parked.Load()
		c.slow = time.AfterFunc(limits.MessageTimeout, func() { p.Close(errSlowMessage) })
	}
	return nil
}

var errSlowMessage = incumbent.Errorf(incumbent.DeadlineExceeded, "a message took too long").WithHint("send it faster")

// arrived forgets that the rest of a message was waited for.
func (c *conn) arrived() {
	c.partial = nil
	c.stopWaiting()
}

func (c *conn) stopWaiting() {
	if c.slow != nil {
		c.slow.Stop()
		c.slow = nil
	}
}

// goAway ends the connection from our side, with what it was told so far.
func (c *conn) goAway() {
	if p := c.parked.Load(); p != nil { // else accept will see
		p.Finish(nil)
	}
}

// cut ends the connection at once.
func (c *conn) cut(err error) {
	if p := c.parked.Load(); p != nil {
		p.Close(err)
	}
}

// cutLater is cut after a while in which nothing is read, as of [Door.refuseLater]: nobody tells
// the client to wait before it asks again. Why it ends is in the log.
func (c *conn) cutLater(err error) {
	if c.leaves.Swap(true) {
		return
	}
	d := c.door
	d.counts.refused.Add(1)
	d.noteFull(c.who, err)
	if !d.held.Take(0) {
		c.cut(err)
		return
	}
	c.rests.Add(1)
	time.AfterFunc(admit.HeldBackFor, func() {
		d.held.Give(0)
		c.cut(err)
	})
}

// Closed ends what the connection has.
func (c *conn) Closed(_ *park.Conn, _ park.Reason, err error) {
	if errors.Is(err, errSilent) {
		c.door.counts.silent.Add(1)
	}
	c.arrived()
	c.unsend()
	c.mu.Lock()
	c.put(c.end)
	c.closed = true
	c.mu.Unlock()
	c.who.visit.Ended()
	c.who.counted.Give()
	c.door.conns.Remove(c)
	c.who.remote.open.Add(-1)
	c.door.counts.connections.Add(-1)
}
