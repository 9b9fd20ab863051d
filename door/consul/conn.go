package consul

import (
	"bytes"
	"container/list"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/tally"
)

// conn is a parked connection. While it is idle, or its request waits, this struct, the
// request and the parked connection are all there is.
type conn struct {
	door     *Door
	parked   atomic.Pointer[park.Conn]
	peer     auth.Peer   // of the connection, without what a request brings
	known    atomic.Bool // somebody has shown who he is
	visit    atomic.Pointer[gate.Visit]
	stranger *list.Element // under door.strangers.mu
	holds    atomic.Bool   // something is given back with the connection

	park.Link[*conn] // in door.conns

	// Of the worker alone.
	looked int         // bytes that are known not to hold the end of a head
	in     *incoming   // whose body has not come whole; nil: there is none
	slow   *time.Timer // ends the wait for that

	mu      sync.Mutex  // guards the rest; held to change it
	gone    bool        // Closed was called
	late    *time.Timer // ends the connection if its large answer is not read; nil: there is none
	last    bool        // nothing is read any more
	rests   bool        // nothing is served for a while
	pace    admit.Pace  // of what is refused for what it asks
	held    bool        // the worker waits to be woken for what it has
	current *request    // that is not answered
	give    func()      // gives back what the connection holds; nil: nothing
}

var _ park.Handler = (*conn)(nil)

// Readable reads whatever has come. A request that comes before the one before it is
// answered waits: answers go out in the order of requests.
func (c *conn) Readable(p *park.Conn, data []byte) (int, error) {
	c.parked.CompareAndSwap(nil, p)
	n := 0
	for {
		switch c.standing() {
		case busy:
			if c.in == nil { // else that is refused, and what is still to come of it is forgotten meanwhile
				return n, park.Hold
			}
		case finished:
			return len(data), nil
		}
		if c.in == nil {
			n += blankLines(data[n:])
			if n == len(data) {
				return n, nil
			}
			used, bad := c.head(p, data[n:])
			if n += used; bad != nil {
				c.refuse(p, bad)
				return len(data), nil
			}
			switch {
			case c.in == nil:
				return n, nil
			case c.in.unread:
				continue // and the connection may end with it
			}
		}
		used, bad := c.in.feed(data[n:])
		if n += used; bad == nil && c.in.whole() {
			if c.in.unread {
				c.arrived()
			} else {
				c.begin()
			}
			if n == len(data) {
				return n, nil // to hold nothing would cost a wake
			}
			continue
		}
		if bad == nil {
			bad = c.await(p)
		}
		if bad != nil {
			c.refuse(p, bad)
			return len(data), nil
		}
		return n, nil
	}
}

// standings of a connection, as the worker sees them.
type standing uint8

const (
	open standing = iota
	busy
	finished
)

func (c *conn) standing() standing {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.last:
		return finished
	case c.current != nil || c.rests:
		c.held = true
		return busy
	}
	return open
}

// blankLines are those that some clients send behind a body.
func blankLines(data []byte) int {
	n := 0
	for n < len(data) && (data[n] == '\r' || data[n] == '\n') {
		n++
	}
	return n
}

// head reads a head, if it is there whole.
func (c *conn) head(p *park.Conn, data []byte) (int, *refusal) {
	limits := c.door.limits.Load()
	end := endOfHead(data, c.looked)
	if end > limits.MaxHeadBytes || end == 0 && len(data) > limits.MaxHeadBytes {
		return 0, headTooLarge
	}
	if end == 0 {
		c.looked = len(data)
		return 0, nil
	}
	c.looked = 0
	if bytes.Count(data[:end], []byte{'\n'}) > maxHeadLines {
		return 0, headTooLarge
	}
	in, bad := newIncoming(data[:end], limits)
	if bad == nil && !in.arrives(len(data)-end) {
		in.unread = c.refusesEarly(in)
	}
	if bad == nil && in.waiting && !in.unread && end == len(data) {
		_ = p.Send(continueReply) // if it has ended, Closed follows
	}
	c.in = in
	return end, bad
}

// refusesEarly answers a request before its body is read, if it is refused whatever that
// says. The connection ends with the answer unless what is still to come is little: then
// it is read and forgotten.
func (c *conn) refusesEarly(in *incoming) bool {
	r := c.door.newRequest(c, in, nil)
	if in.waiting || in.chunks != nil || in.left > maxUnread {
		r.keepAlive = false
	}
	if !r.refusedEarly() {
		return false
	}
	in.head = nil
	if !r.keepAlive { // the answer may be held back
		c.mu.Lock()
		c.last = true
		c.mu.Unlock()
	}
	return true
}

// owes says that a request is answered later: the next ones wait. false: it is not to be begun,
// for the connection has been ended meanwhile.
func (c *conn) owes(r *request) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last && c.current != r {
		return false
	}
	c.current = r
	return true
}

// await takes note of a part of a body that has not come whole.
func (c *conn) await(p *park.Conn) *refusal {
	limits := c.door.limits.Load()
	if c.slow == nil {
		c.slow = time.AfterFunc(limits.BodyTimeout, func() {
			c.door.counts.malformed.Add(1)
			p.Close(errSlowBody)
		})
	}
	// Who sends little is never refused for what others send. More than that is taken from
	// those alone who have shown who they are, and of them from who has little of it under
	// way before who has much: it may all stop before its end, and stay until the timeout.
	more := int64(len(c.in.body)) - smallBody - c.in.counted
	if c.in.unread || more <= 0 {
		return nil
	}
	if !c.in.known {
		if c.in.who, c.in.known = c.sender(c.in.head); !c.in.known {
			return bodyOfStranger
		}
	}
	if !c.door.bodies.Take(c.in.who, more, c.door.lanes.Bound(limits.MaxBodies)) {
		return bodiesFull
	}
	c.in.counted += more
	return nil
}

// sender says who a request is from of which the head is there, if that brings what shows
// it. Whoever cannot be told from somebody yet is taken for one.
func (c *conn) sender(head *http.Request) (w admit.Who, known bool) {
	d, peer := c.door, c.peer
	peer.Bearer = (&request{header: head.Header, query: head.URL.Query()}).token()
	peer.Forwarded = peer.Forwarded || auth.Forwarded(head.Header)
	p, err := d.cfg.Guard.Identify(peer)
	switch {
	case err == nil && p.Kind != auth.Anonymous:
	case d.cfg.Anonymous.Kind != auth.Anonymous:
		p = d.cfg.Anonymous
	case incumbent.KindOf(err) != incumbent.Unavailable:
		return admit.Who{}, false
	}
	return admit.Who{Client: admit.ClientOf(p.Name, peer.Remote.String())}, true
}

var errSlowReader = incumbent.Errorf(incumbent.DeadlineExceeded, "an answer took too long to be read").WithHint("read it faster")

var errSlowBody = incumbent.Errorf(incumbent.DeadlineExceeded, "the body of a request took too long").WithHint("send it faster")

// arrived forgets that a body was waited for.
func (c *conn) arrived() {
	if c.slow != nil {
		c.slow.Stop()
		c.slow = nil
	}
	if c.in != nil {
		if c.in.counted > 0 {
			c.door.bodies.Give(c.in.who, c.in.counted)
		}
		c.in = nil
	}
}

// begin hands a request on that is there whole.
func (c *conn) begin() {
	in := c.in
	c.arrived()
	r := c.door.newRequest(c, in, in.body)
	if !c.owes(r) {
		return
	}
	if !keepsAlive(r.method, r.path) {
		r.later(r.serve)
		return
	}
	n := c.door.unheard.came()
	r.later(func() {
		defer c.door.unheard.left(n)
		r.serve()
	})
}

// refuse answers what is no request, or finds no room, and ends the connection.
func (c *conn) refuse(p *park.Conn, bad *refusal) {
	c.arrived()
	c.mu.Lock()
	c.last = true
	c.mu.Unlock()
	if bad == bodiesFull {
		c.door.counts.noRoom.Add(1)
		c.visit.Load().Excused()
	} else {
		c.door.counts.malformed.Add(1)
	}
	if p.Send(c.door.refusalReply(bad)) == nil {
		p.Finish(nil)
	}
}

// answered says that the answer to the current request has been sent: the next one may be served,
// or, where it was refused for what it asks, perhaps later: see [admit.Pace].
func (c *conn) answered(p *park.Conn, r *request, keepAlive bool) {
	c.mu.Lock()
	c.inTime()
	c.current, c.last = nil, c.last || !keepAlive || r.leaving.Load()
	last, rest := c.last, time.Duration(0)
	if !last {
		rest = c.door.lanes.Slow(&c.pace, r.spent)
	}
	c.rests = rest > 0
	held := c.goOn()
	c.mu.Unlock()
	switch {
	case last:
		p.Finish(nil)
	case rest > 0:
		time.AfterFunc(rest, func() { c.rested(p) })
	case held:
		p.Wake()
	}
}

// goOn reports whether the worker is to be woken for what it has, which it is then. With mu held.
func (c *conn) goOn() (wake bool) {
	if wake = c.held && !c.rests; wake {
		c.held = false
	}
	return wake
}

// rested says that the connection has rested.
func (c *conn) rested(p *park.Conn) {
	c.mu.Lock()
	c.rests = false
	held := c.goOn()
	c.mu.Unlock()
	if held {
		p.Wake()
	}
}

// expect ends the connection unless its answer of so many bytes is handed on in time: it stays
// in memory as long as it is not read, whatever becomes of what it was made of.
func (c *conn) expect(p *park.Conn, bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.late = time.AfterFunc(slowestFirst+time.Duration(bytes)*time.Second/slowestBytes, func() { p.Close(errSlowReader) })
	}
}

// inTime says that the answer has been handed on, or never will be. With mu held.
func (c *conn) inTime() {
	if c.late != nil {
		c.late.Stop()
		c.late = nil
	}
}

// goAway ends the connection from our side: at once if it is idle, else with the answer
// to what it waits for.
func (c *conn) goAway() {
	c.mu.Lock()
	r := c.current
	if r == nil {
		c.last = true // what comes now is not begun, for it could not be answered
	} else {
		r.leaving.Store(true) // before answered looks, which is under the lock too
	}
	c.mu.Unlock()
	p := c.parked.Load()
	switch {
	case p == nil: // park has not been told, and accept will see
	case r == nil:
		p.Finish(nil)
	default:
		r.leave()
	}
}

var _ tally.Connection = (*conn)(nil)

// Holds implements [tally.Connection].
func (c *conn) Holds() bool { return c.holds.Load() }

// Hold implements [tally.Connection].
func (c *conn) Hold(give func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.gone || c.give != nil {
		return false
	}
	c.give = give
	c.holds.Store(true)
	return true
}

// Closed ends what the connection waits for.
func (c *conn) Closed(*park.Conn, park.Reason, error) {
	c.arrived()
	c.mu.Lock()
	c.gone = true
	c.inTime()
	r, give := c.current, c.give
	c.mu.Unlock()
	if give != nil {
		give()
	}
	if r != nil {
		r.abandon()
	}
	c.visit.Load().Ended()
	c.door.strangers.remove(c)
	c.door.conns.Remove(c)
	c.door.counts.connections.Add(-1)
}
