package park

import (
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// The states of a connection, in the only order they are passed through.
const (
	open      uint32 = iota
	finishing        // Finish: nothing new is sent, what is queued still goes out
	closing          // the worker will close it at its next turn
	closed
)

// Conn is a parked connection. Its methods may be called from any goroutine,
// also from within its handler.
type Conn struct {
	// Handler is whom Park was given. Only the handler itself may replace it,
	// from within Readable.
	Handler Handler

	worker *worker
	socket *Socket
	tls    *tls.Conn // nil without TLS; all calls but the first under mu
	port   *portable // nil with epoll

	// Of the worker alone.
	partial      []byte // what the handler has not consumed
	slot         int32  // place in worker.slots; -1 before the worker saw it
	heard        uint32 // tick of the last byte
	partialSince uint32 // tick at which the incomplete frame began
	drained      bool   // the kernel has nothing until the next event
	hungUp       bool   // an end or an error is in the kernel: read until it shows
	held         bool   // the handler said Hold
	unread       bool   // nothing was read although there may be something: enough was kept
	again        bool   // is in worker.again

	// From any goroutine.
	state     atomic.Uint32 // written under mu
	idleTicks atomic.Uint32
	posted    atomic.Bool // is in the worker's inbox
	woken     atomic.Bool // Wake was called
	backlog   atomic.Bool // out is not nil; written under mu

	// mu guards what follows, the descriptor and tls. It is held for
	// nonblocking system calls and the cryptography of a few records.
	mu      sync.Mutex
	fd      int32
	reason  Reason
	err     error
	out     *queue  // nil when everything has been sent
	cork    *[]byte // ciphertext being gathered within one seal or read call
	ended   uint32  // tick of Finish
	alerted bool    // TLS was told that we send no more
	half    bool    // our sending side is shut
}

// Worker returns the number of the worker that serves the connection, from 0
// to Config.Workers-1. Two handlers of one worker never run at the same time,
// so a door can keep what it gathers per worker, without a lock, until
// [Set.OnEndBatch] calls it.
func (c *Conn) Worker() int { return c.worker.id }

// Send queues the buffers as one unit and sends what the kernel takes at
// once; it never blocks. The buffers may be shared with other connections and
// must never be changed again: what is not sent yet is kept by reference. An
// error means that the connection has ended or was cut off by this call.
func (c *Conn) Send(bufs ...[]byte) error {
	c.mu.Lock()
	err := c.push(bufs, false)
	c.mu.Unlock()
	return err
}

// Write is [Conn.Send] for a buffer that the caller will use again: what the
// kernel does not take is copied. It writes all or fails.
func (c *Conn) Write(p []byte) (int, error) {
	one := [1][]byte{p}
	c.mu.Lock()
	err := c.push(one[:], true)
	c.mu.Unlock()
	if err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close ends the connection now; what is queued is lost. The handler's Closed
// follows from its worker, with err. Further calls change nothing.
func (c *Conn) Close(err error) {
	if c.state.Load() >= closing {
		return // also reached from within tls.Conn.Close, which runs under mu
	}
	c.mu.Lock()
	c.failLocked(LocalClosed, err)
	c.mu.Unlock()
}

// Finish ends the connection politely: what is queued is sent, then the
// sending side is shut, and when the peer has closed too, or after
// WriteTimeout, Closed follows. What arrives meanwhile is thrown away.
func (c *Conn) Finish(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state.Load() != open {
		return
	}
	c.reason, c.err = LocalClosed, err
	c.ended = c.worker.set.now.Load()
	c.state.Store(finishing)
	c.post()
}

// SetIdleTimeout cuts the connection off when nothing was heard for d; 0 is
// never. Under TLS only decrypted bytes count.
func (c *Conn) SetIdleTimeout(d time.Duration) {
	c.idleTicks.Store(ticks(d))
	c.post()
}

// Wake makes the worker hand over again what the handler left unconsumed, if
// anything; it ends a [Hold].
func (c *Conn) Wake() {
	c.woken.Store(true)
	c.post()
}

// Queued returns the unsent bytes, with what keeping them costs.
func (c *Conn) Queued() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil {
		return 0
	}
	return c.out.bytes
}

// WhenDrained has f called once, when the kernel has taken all that is queued
// now and by then, and reports whether anything is: if not, f is never called,
// nor if the connection ends first. f is called with the connection's lock held:
// it must neither block nor call the connection.
func (c *Conn) WhenDrained(f func()) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out == nil {
		return false
	}
	c.out.drained = append(c.out.drained, f)
	return true
}

// RemoteAddr returns the peer's address. It is known until Closed returns.
func (c *Conn) RemoteAddr() net.Addr { return c.addr(remoteAddr) }

// LocalAddr returns our address. It is known until Closed returns.
func (c *Conn) LocalAddr() net.Addr { return c.addr(localAddr) }

type side bool

const (
	localAddr  side = false
	remoteAddr side = true
)

// gone is the address of a connection that is no more.
type gone struct{}

func (gone) Network() string { return "tcp" }
func (gone) String() string  { return "closed" }

// fail is failLocked for callers without mu.
func (c *Conn) fail(r Reason, err error) {
	c.mu.Lock()
	c.failLocked(r, err)
	c.mu.Unlock()
}

// failLocked decides how the connection ends, if that is not decided yet, and
// leaves the rest to the worker. A connection that was finishing ends as it
// was going to, unless one of our limits says otherwise.
func (c *Conn) failLocked(r Reason, err error) {
	switch c.state.Load() {
	case open:
		c.reason, c.err = r, err
	case finishing:
		if r == WriteTimedOut || r == SlowReader || r == MemoryFull {
			c.reason, c.err = r, err
		}
	default:
		return
	}
	c.state.Store(closing)
	c.post()
}

// limitLocked cuts the connection off for one of the set's limits and returns what
// the caller is told.
func (c *Conn) limitLocked(r Reason) error {
	err := limitError(r, c.worker.set.limits.Load())
	c.failLocked(r, err)
	return err
}

// endedLocked returns why nothing can be sent any more.
func (c *Conn) endedLocked() error {
	if c.err != nil {
		return c.err
	}
	return errClosed(c.reason)
}

// post makes the worker attend to the connection at its next turn.
func (c *Conn) post() {
	if c.posted.Swap(true) {
		return
	}
	if c.port != nil {
		c.port.kick()
		return
	}
	c.worker.post(c)
}

// read reads decrypted bytes. Only the worker calls it. What crypto/tls answers
// meanwhile leaves in one write, for a write costs ten times what a key update
// does, and what the kernel does not take is bounded as all that waits is.
func (c *Conn) read(p []byte) (int, error) {
	if c.tls == nil {
		return c.rawRead(p)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cork = &c.worker.answers
	n, err := c.tls.Read(p)
	answered := len(*c.cork) > 0
	answerErr := c.uncork()
	c.cork = nil
	switch {
	case answerErr != nil && (err == nil || isTemporary(err)):
		c.failLocked(WriteFailed, answerErr)
	case answered:
		_ = c.withinLimits() // whoever reads on sees the state
	}
	return n, err
}
