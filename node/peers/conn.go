package peers

import (
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent/node"
)

// conn is a connection whose hellos are done. One goroutine reads. Whoever puts
// something into the outbox writes it, if the kernel takes it at once; else a
// goroutine does that may wait: see write.go.
type conn struct {
	set    *Set
	peer   *peer
	class  node.Class
	hello  hello // the other's
	net    net.Conn
	socket *socket       // beneath net, or net itself
	direct *kernelWriter // nil: only the writer writes
	in     *frameReader
	out    *outbox
	since  time.Time
	ended  chan struct{} // closed when the reader has ended and the peer knows

	ours  atomic.Bool  // we closed it
	stale atomic.Bool  // another has taken its place
	reset atomic.Bool  // a write found that the other side is gone
	rtt   atomic.Int64 // nanoseconds; 0: not measured yet

	// Of the reader.
	replaces *conn // retired when the other side has installed this one
	batch    []node.Message
	apps     [][]byte

	// gate is held while what one read brought is handed over. Whoever sets
	// fenced under it knows that nothing is delivered any more.
	gate   sync.Mutex
	fenced bool

	// Of the housekeeper.
	heard  uint64 // bytes read, when it last looked
	silent int    // times it has not changed since

	mu    sync.Mutex  // guards what follows, for moments
	cause error       // why we closed it
	pongs []pongWaits // barriers where the system does not say what has arrived
	over  bool        // no pong will come
}

// pongWaits is a barrier that waits for the answer to a ping sent at stamp or
// later.
type pongWaits struct {
	stamp uint64
	part  *barrier
}

func newConn(p *peer, h hello, nc net.Conn, sock *socket, in *frameReader) *conn {
	if h.class == node.Bulk {
		in.admit(MaxBulkFrame)
	} else {
		in.admit(MaxControlFrame)
	}
	c := &conn{
		set: p.set, peer: p, class: h.class, hello: h, net: nc, socket: sock, in: in,
		out: newOutbox(h.class), since: time.Now(), ended: make(chan struct{}),
	}
	if nc == net.Conn(sock) {
		c.direct = newKernelWriter(sock.Conn)
	}
	// Senders may find the connection before the word is out that ends its
	// handshake: until serve, who shakes hands is alone in writing.
	c.out.writing = true
	return c
}

// serve reads until the connection ends. It lets others write, and starts the
// writer.
func (c *conn) serve() {
	c.out.wrote(nil)
	written := make(chan struct{})
	c.set.group.Go(func() {
		defer close(written)
		c.write()
	})
	c.ping(c.set.cfg.Standing())
	err := c.read()
	byOther := !c.ours.Load() && (c.socket.ended.Load() || c.reset.Load() || errors.Is(err, io.EOF))
	if c.stale.Load() && errors.Is(err, io.EOF) {
		c.out.close() // the other side has drained its half and still reads ours
		<-written
	}
	if cause := c.why(); cause != nil {
		err = cause
	}
	c.out.abandon()
	hangUp(c.socket)
	<-written
	c.endPongs()
	c.set.untrack(c.socket)
	c.peer.over(c, byOther, err)
	close(c.ended)
}

// read hands over what arrives.
func (c *conn) read() error {
	for {
		err := c.dispatch()
		if !errors.Is(err, errMore) {
			return err
		}
		f, ok, err := c.in.large()
		if ok {
			err = c.take(f)
		}
		if err != nil {
			return c.broken(err)
		}
		if ok {
			c.deliver()
			continue
		}
		if err := c.in.fill(); err != nil {
			return err
		}
	}
}

// dispatch hands over every whole frame in the buffer as one batch. It always
// returns an error: errMore, or what is wrong with the next frame.
func (c *conn) dispatch() error {
	for {
		f, err := c.in.next()
		if err == nil {
			err = c.take(f)
		}
		if err != nil {
			c.deliver()
			if errors.Is(err, errMore) {
				return err
			}
			return c.broken(err)
		}
	}
}

// broken closes a connection on which the other side does not keep to the
// protocol; errors of the socket pass unchanged.
func (c *conn) broken(err error) error {
	if !endedByOther(err) && !errors.Is(err, io.ErrUnexpectedEOF) {
		c.close(err)
	}
	return err
}

// take adds one frame to the batch, or answers it.
func (c *conn) take(f frame) error {
	if c.replaces != nil {
		c.replaces.retire()
		c.replaces = nil
	}
	switch f.kind {
	case frameApp:
		p := f.payload
		if !f.owned {
			p = slices.Clone(p)
		}
		c.apps = append(c.apps, p)
		return nil
	case framePing:
		p, err := decodePing(f.payload)
		if err != nil {
			return err
		}
		c.set.book.note(c.peer.id, p.shows, c.hello.boot)
		c.putSmall(func(b []byte) []byte { return appendPong(b, p.stamp, c.set.cfg.Group) })
		return nil
	case framePong:
		stamp, err := decodePong(f.payload)
		if err != nil {
			return err
		}
		c.pong(stamp)
		return nil
	case frameRedial:
		if c.set.dials(c.peer.id) {
			c.peer.redialAll()
		}
		return nil
	default:
		m, err := decodeMessage(f)
		if err != nil {
			return err
		}
		m.From, m.To = c.peer.id, c.set.cfg.Self
		if err := check(&m, c.peer.id, c.set.cfg.Self); err != nil {
			return err
		}
		c.batch = append(c.batch, m)
		return nil
	}
}

// deliver hands the batch over, raft's messages before the user's, unless the
// connection is fenced.
func (c *conn) deliver() {
	if len(c.batch) == 0 && len(c.apps) == 0 {
		return
	}
	c.gate.Lock()
	defer c.gate.Unlock()
	if !c.fenced {
		if len(c.batch) > 0 {
			c.set.cfg.Deliver(c.batch)
		}
		for _, a := range c.apps {
			c.set.cfg.App(c.peer.id, a)
		}
	}
	clear(c.batch)
	clear(c.apps)
	c.batch, c.apps = c.batch[:0], c.apps[:0]
}

// fence returns when nothing is being delivered, and nothing will be.
func (c *conn) fence() {
	c.gate.Lock()
	defer c.gate.Unlock()
	c.fenced = true
}

// close ends the connection at once; why is what people see. It never blocks:
// the socket is closed beneath TLS, whose farewell could wait for the other.
func (c *conn) close(why error) {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = why
	}
	c.mu.Unlock()
	c.ours.Store(true)
	c.out.close()
	hangUp(c.socket)
}

func (c *conn) why() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.cause
}

// retire lets a replaced connection write what is queued and read what is on
// its way, for a while.
func (c *conn) retire() {
	c.mu.Lock()
	if c.cause == nil {
		c.cause = errReplaced
	}
	c.mu.Unlock()
	_ = c.net.SetReadDeadline(time.Now().Add(c.set.cfg.waits.retire)) // fails when closed, which ends it as well
	c.out.close()
}

// putSmall queues a frame of the transport's own. If the queue is full it is
// dropped: the next ping tries again.
func (c *conn) putSmall(encode func([]byte) []byte) {
	c.out.put(&c.out.raft, maxSmallFrame, encode)
	c.flush()
}

// attend is what the housekeeper, and nobody else, does at each interval: a
// connection that has been silent for too long is closed, any other pinged.
func (c *conn) attend(shows Standing) {
	if n := c.socket.bytesRead(); n != c.heard {
		c.heard, c.silent = n, 0
	} else if c.silent++; c.silent > silentPings {
		c.close(errSilent)
		return
	}
	c.ping(shows)
}

// ping shows the other where we stand and asks for an answer.
func (c *conn) ping(shows Standing) {
	c.putSmall(func(b []byte) []byte {
		return appendPing(b, ping{stamp: elapsed(c.set.start), shows: shows}, c.set.cfg.Group)
	})
}

// pong takes the answer to the ping of a stamp. What came before it is handed
// over first, for a barrier may wait for that.
func (c *conn) pong(stamp uint64) {
	c.deliver()
	if now := elapsed(c.set.start); stamp < now {
		c.rtt.Store(int64(now - stamp))
		c.peer.answeredAt(stamp)
	}
	c.mu.Lock()
	var done []*barrier
	c.pongs = slices.DeleteFunc(c.pongs, func(w pongWaits) bool {
		if stamp >= w.stamp {
			done = append(done, w.part)
		}
		return stamp >= w.stamp
	})
	c.mu.Unlock()
	for _, part := range done {
		part.arrive()
	}
}

// waitPong makes part arrive when a ping sent from now on has been answered, or
// the connection has ended.
func (c *conn) waitPong(part *barrier) {
	c.mu.Lock()
	over := c.over
	if !over {
		c.pongs = append(c.pongs, pongWaits{stamp: elapsed(c.set.start), part: part})
	}
	c.mu.Unlock()
	if over {
		part.arrive()
		return
	}
	shows := c.set.cfg.Standing()
	c.putSmall(func(b []byte) []byte {
		return appendPing(b, ping{stamp: elapsed(c.set.start), shows: shows}, c.set.cfg.Group)
	})
}

// endPongs lets barriers go: nothing will be delivered any more.
func (c *conn) endPongs() {
	c.mu.Lock()
	done := c.pongs
	c.pongs, c.over = nil, true
	c.mu.Unlock()
	for _, w := range done {
		w.part.arrive()
	}
}
