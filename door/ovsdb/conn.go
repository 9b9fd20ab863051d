package ovsdb

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/park"
)

// conn is a parked connection. While it is idle this struct, what it monitors and the
// parked connection are all there is.
type conn struct {
	door   *Door
	parked atomic.Pointer[park.Conn]
	who    *caller
	heard  atomic.Uint64 // tick of the door's clock in which something came, or went that had waited
	owed   atomic.Int32  // monitors that are not answered
	probed atomic.Bool   // an echo was asked for since

	park.Link[*conn] // in door.conns

	// Of the worker alone.
	scan    scanner
	partial []byte      // of a message that has not come whole
	slow    *time.Timer // ends the wait for that; nil: nothing is waited for

	mu      sync.Mutex // guards what follows; held to change it
	tasks   []func()
	running bool  // somebody runs the tasks, or is about to
	closed  bool  // nothing is run any more but what was put in until then
	held    bool  // the worker waits to be woken for what it has
	busy    int32 // requests that are not answered
	weight  int   // bytes of them
	counted int   // of them, those that count for MaxPartialBytes
	ended   bool  // none do any more

	out     outbox
	session session // of the tasks
}

var _ park.Handler = (*conn)(nil)

func newConn(d *Door, who *caller) *conn {
	c := &conn{door: d, who: who}
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

func (c *conn) put(task func()) {
	if c.tasks = append(c.tasks, task); !c.running {
		c.running = true
		c.door.work.Put(c.run)
	}
}

// run runs tasks that wait, a bounded number at a time.
func (c *conn) run() {
	for range tasksAtATime {
		c.mu.Lock()
		if len(c.tasks) == 0 {
			c.running, c.tasks = false, nil
			c.mu.Unlock()
			return
		}
		task := c.tasks[0]
		c.tasks[0] = nil
		c.tasks = c.tasks[1:]
		c.mu.Unlock()
		task()
	}
	c.door.work.Put(c.run)
}

// Readable takes whatever has come.
func (c *conn) Readable(p *park.Conn, data []byte) (int, error) {
	c.parked.CompareAndSwap(nil, p)
	c.heard.Store(c.door.ticks.Load())
	for at := 0; at < len(data); {
		if c.full() {
			return at, park.Hold
		}
		n, whole, err := c.scan.next(data[at:])
		if err == nil {
			err = c.take(data[at:at+n], whole)
		}
		if err != nil {
			c.door.counts.malformed.Add(1)
			return len(data), err
		}
		at += n
	}
	return len(data), nil
}

// full reports whether so many requests are under way, or so much of their answers has
// not been read, that the next ones wait. Where those of all connections together are too
// many, that is as soon as there is more than a little of this one's.
func (c *conn) full() bool {
	l := c.door.limits.Load()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = int(c.busy) >= l.MaxUnderWay || c.weight >= l.MaxMessageBytes || c.counted > 0 && c.door.partial.Load() > l.MaxPartialBytes || c.out.unread.Load() > int64(l.MaxBacklogBytes)
	return c.held
}

// begun counts a message that is there whole.
func (c *conn) begun(bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.busy++
	c.weight += bytes
	c.count()
}

// count counts what is under way beyond a little together with what has come of messages
// that are not whole: it may wait for a place, and its parts take more than it has. With
// mu held.
func (c *conn) count() {
	n := max(0, c.weight-smallMessage)
	if c.ended {
		n = 0
	}
	c.door.partial.Add(int64(n - c.counted))
	c.counted = n
}

// finished says that what a message asked for is done, or that it asked for nothing.
func (c *conn) finished(bytes int) {
	c.mu.Lock()
	c.busy--
	c.weight -= bytes
	c.count()
	c.mu.Unlock()
	c.eased()
}

// settle has the messages of a connection that is gone count no more: not all of them are
// answered.
func (c *conn) settle() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = true
	c.count()
}

// eased has the next requests read once there is room for some.
func (c *conn) eased() {
	l := c.door.limits.Load()
	c.mu.Lock()
	wake := c.held && int(c.busy) <= l.MaxUnderWay/2 && c.weight <= l.MaxMessageBytes/2 && c.out.unread.Load() <= int64(l.MaxBacklogBytes/2)
	if wake {
		c.held = false
	}
	c.mu.Unlock()
	if wake {
		c.parked.Load().Wake()
	}
}

// take takes part of a message, perhaps its end.
func (c *conn) take(part []byte, whole bool) error {
	limits := c.door.limits.Load()
	if len(c.partial)+len(part) > limits.MaxMessageBytes {
		return incumbent.Errorf(incumbent.TooLarge, "a message has more than %d bytes", limits.MaxMessageBytes)
	}
	if !whole && !c.scan.begun() {
		return nil // space between messages
	}
	message := append(c.partial, part...)
	// Who sends little is not cut off for what others send.
	if c.door.partial.Load()+int64(len(part)) > limits.MaxPartialBytes && len(message) > smallMessage {
		return incumbent.Errorf(incumbent.Overloaded, "messages that have not come whole, and those that are not answered, have more than %d bytes", limits.MaxPartialBytes)
	}
	if whole {
		c.begun(len(message))
		c.arrived()
		c.do(func() { c.serve(message) })
		return nil
	}
	c.door.partial.Add(int64(len(part)))
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
	c.door.partial.Add(-int64(len(c.partial)))
	c.partial = nil
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

// Closed ends what the connection has.
func (c *conn) Closed(_ *park.Conn, _ park.Reason, err error) {
	if errors.Is(err, errSilent) {
		c.door.counts.silent.Add(1)
	}
	c.arrived()
	c.out.close()
	c.mu.Lock()
	c.put(c.end)
	c.closed = true
	c.mu.Unlock()
	c.who.visit.Ended()
	c.door.conns.Remove(c)
	c.who.remote.open.Add(-1)
	c.door.counts.connections.Add(-1)
}
