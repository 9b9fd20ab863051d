package juju

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gobwas/ws"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/park"
	"github.com/incumbent-dev/incumbent/websocket"
)

// conn is a connection that has logged in. While it is idle, this struct, its
// agent and the parked connection are all there is.
type conn struct {
	door   *Door
	who    *agent
	parked atomic.Pointer[park.Conn]
	rights atomic.Pointer[auth.Rights] // by the policies of the last look
	open   atomic.Int32                // requests without an answer; of a wait for several leases, each

	park.Link[*conn] // in door.conns

	pace admit.Pace // its worker's

	mu     sync.Mutex // guards the rest; held to change it
	gone   bool       // Closed was called
	blocks []*block   // that wait
}

var _ park.Handler = (*conn)(nil)

// Readable reads whatever messages are complete.
func (c *conn) Readable(p *park.Conn, data []byte) (int, error) {
	c.parked.CompareAndSwap(nil, p)
	read := websocket.Reader{Op: ws.OpText, Limit: c.door.limits.Load().MaxMessageBytes}
	n := 0
	for n < len(data) {
		m, bad := read.Next(data[n:])
		if bad == nil && m.Size == 0 {
			break
		}
		n += m.Size
		rest := time.Duration(0)
		if bad == nil {
			rest, bad = c.message(p, &m)
		}
		if bad != nil {
			c.end(p, websocket.Close(bad.Code, bad.Reason), bad)
			return len(data), nil
		}
		if m.Op == ws.OpClose {
			c.end(p, websocket.CloseReply(m.Payload), nil)
			return len(data), nil
		}
		if rest > 0 {
			time.AfterFunc(rest, p.Wake)
			return n, park.Hold
		}
	}
	return n, nil
}

// message serves one message or control frame, and returns how long the next one is to wait: see
// [admit.Pace].
func (c *conn) message(p *park.Conn, m *websocket.Message) (rest time.Duration, bad *websocket.Error) {
	asked := 0
	for i := range m.Controls {
		c.control(p, &m.Controls[i])
	}
	if m.Op == ws.OpText {
		r, ok := decodeRequest(m.Payload)
		if !ok {
			return 0, &websocket.Error{Code: ws.StatusPolicyViolation, Reason: "message is not a request"}
		}
		asked = c.serve(&r)
	} else {
		c.control(p, m)
	}
	spent := m.Size + (1+len(m.Controls))*admit.MessageBytes - asked*bytesOfOne
	return c.door.lanes.Slow(&c.pace, spent), nil
}

func (c *conn) control(p *park.Conn, m *websocket.Message) {
	if m.Op == ws.OpPing {
		_ = p.Send(websocket.Frame(ws.OpPong, m.Payload)) // if it has ended, Closed follows
	}
}

// end says good-bye and closes once that was sent.
func (c *conn) end(p *park.Conn, frame []byte, err error) {
	if p.Send(frame) == nil {
		p.Finish(err)
	}
}

// goAway closes the connection from our side.
func (c *conn) goAway() {
	if p := c.parked.Load(); p != nil { // else park has not been told, and greeting.park will see
		c.end(p, websocket.Close(ws.StatusGoingAway, "connect to another member"), nil)
	}
}

// send sends bytes that are this connection's alone: what has to wait for its reader
// counts as memory of the connection. What cannot be sent is lost with it.
func (c *conn) send(b []byte) {
	if p := c.parked.Load(); p != nil {
		_, _ = p.Write(b)
	}
}

// isGone reports whether the connection has ended: whoever tries something again
// for it stops.
func (c *conn) isGone() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gone
}

// Closed ends what the connection waits for. Leases live on until they expire.
func (c *conn) Closed(_ *park.Conn, reason park.Reason, _ error) {
	if reason == park.Idle {
		c.door.counts.silent.Add(1)
	}
	c.mu.Lock()
	c.gone = true
	blocks := c.blocks
	c.blocks = nil
	c.mu.Unlock()
	for _, b := range blocks {
		b.abandon()
	}
	c.door.conns.Remove(c)
	c.who.giveBack()
	c.door.counts.connections.Add(-1)
}

// addBlock remembers who waits; false once the connection has ended.
func (c *conn) addBlock(b *block) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.gone {
		c.blocks = append(c.blocks, b)
	}
	return !c.gone
}

// waiting are the blocks that have not ended.
func (c *conn) waiting() []*block {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.blocks)
}

func (c *conn) dropBlock(b *block) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i := slices.Index(c.blocks, b); i >= 0 {
		c.blocks[i] = c.blocks[len(c.blocks)-1]
		c.blocks[len(c.blocks)-1] = nil
		if c.blocks = c.blocks[:len(c.blocks)-1]; len(c.blocks) == 0 {
			c.blocks = nil
		}
	}
}
