package park

import (
	"errors"
	"math"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent/rawio"
)

const (
	// followUp is how long the portable reader waits for the rest of what its
	// one byte announced; normally that is there already.
	followUp = time.Millisecond
	// maxSocketBytes bounds what a barrier reads from one socket: more than
	// any receive buffer in use.
	maxSocketBytes = 16 << 20
)

// portable is a connection with a goroutine of its own. It waits in a
// one-byte read, without a buffer, borrows one for what follows, and acts as
// the connection's worker while it holds the worker's exec.
type portable struct {
	conn  *Conn
	inner net.Conn
	one   [1]byte

	// Of the goroutine, while it holds exec.
	pre []byte // read from the socket and not yet asked for
	err error  // why nothing comes behind it

	mu       sync.Mutex // guards what follows, and the read deadline; held for moments
	kicks    uint32     // how often somebody wanted the goroutine to look around
	seen     uint32     // kicks it has looked around for
	barriers []*barrier
	ended    bool

	flushing bool // under Conn.mu: the flusher runs

	proof atomic.Uint32 // see suspect
}

// newPortable takes inner over, without the deadlines of its handshake.
func newPortable(c *Conn, inner net.Conn) *portable {
	_ = inner.SetDeadline(time.Time{}) // fails when closed, which the first read tells
	return &portable{conn: c, inner: inner}
}

func (p *portable) launch() {
	w := p.conn.worker
	p.conn.posted.Store(true) // so that the first turn attends
	w.ports.Store(p, nil)
	w.running.Go(p.run)
}

// kick makes the goroutine look around: a deadline in the past ends its read.
func (p *portable) kick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.kickLocked()
}

func (p *portable) kickLocked() {
	p.kicks++
	_ = p.inner.SetReadDeadline(time.Unix(1, 0)) // fails when closed: then the read has ended too
}

// lookAround takes note of all kicks so far and takes their barriers.
func (p *portable) lookAround() []*barrier {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = p.kicks
	b := p.barriers
	p.barriers = nil
	return b
}

// arm sets the deadline of the next read, unless there was a kick.
func (p *portable) arm(t time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.kicks != p.seen {
		return false
	}
	_ = p.inner.SetReadDeadline(t)
	return true
}

func (p *portable) run() {
	c := p.conn
	for {
		barriers := p.lookAround()
		p.turn(nil)
		switch {
		case c.state.Load() == closed:
		case len(barriers) > 0:
			p.prove()
		default:
			p.await()
		}
		for _, b := range barriers {
			b.arrive()
		}
		if c.state.Load() == closed {
			p.leave()
			return
		}
	}
}

// await waits for a byte, or a kick, and serves what has come.
func (p *portable) await() {
	if !p.arm(time.Time{}) || p.readInto(p.one[:]) == 0 {
		return
	}
	buffers := &p.conn.worker.set.buffers
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	n := copy(*buf, p.one[:])
	if p.err == nil && p.arm(time.Now().Add(followUp)) {
		n += p.readInto((*buf)[n:])
	}
	p.turn((*buf)[:n])
}

// prove serves what is in the socket until it was seen empty.
func (p *portable) prove() {
	buffers := &p.conn.worker.set.buffers
	buf := buffers.Get().(*[]byte)
	defer buffers.Put(buf)
	for total := 0; total < maxSocketBytes && p.err == nil; {
		n, empty := p.drainInto(*buf)
		p.turn((*buf)[:n])
		total += n
		if empty {
			return
		}
	}
}

// drainInto reads what is there, and reports whether the socket was seen empty.
// A kick may put the deadline into the past at any time, which ends a read before
// it has asked the kernel: then nothing has been seen.
func (p *portable) drainInto(b []byte) (n int, empty bool) {
	p.mu.Lock()
	at := p.kicks
	_ = p.inner.SetReadDeadline(time.Time{}) // fails when closed, which the read tells
	p.mu.Unlock()
	n, tried, ok, err := readNow(p.inner, b)
	if ok {
		p.conn.worker.reads.Add(1)
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			p.err = err
		}
		return n, tried && n == 0
	}
	// Without a way to ask, a read that waited for some time stands for it.
	p.mu.Lock()
	if p.kicks == at {
		_ = p.inner.SetReadDeadline(time.Now().Add(followUp))
	}
	p.mu.Unlock()
	began := time.Now()
	n = p.readInto(b)
	return n, n == 0 && time.Since(began) >= followUp/2
}

// readInto reads from the socket. An error that is not a passed deadline is
// kept for read to report behind the bytes.
func (p *portable) readInto(b []byte) int {
	n, err := p.inner.Read(b)
	p.conn.worker.reads.Add(1)
	if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		p.err = err
	}
	return n
}

// turn is a turn of the worker with this connection alone.
func (p *portable) turn(data []byte) {
	c, w := p.conn, p.conn.worker
	w.exec.Lock()
	defer w.exec.Unlock()
	w.now = w.set.now.Load()
	p.pre = data
	if c.posted.Load() {
		w.attend(c)
	}
	w.serve(c, len(data), math.MaxInt) // bounded by data; its goroutine looks for more
	if c.posted.Load() {
		w.attend(c)
	}
	p.pre = nil
	w.endBatch()
}

// leave follows the end of the connection.
func (p *portable) leave() {
	p.conn.worker.ports.Delete(p)
	p.mu.Lock()
	p.ended = true
	barriers := p.barriers
	p.barriers = nil
	p.mu.Unlock()
	for _, b := range barriers {
		b.arrive()
	}
}

// read gives out what was read before, below crypto/tls if there is one.
func (p *portable) read(b []byte) (int, error) {
	if len(p.pre) > 0 {
		n := copy(b, p.pre)
		p.pre = p.pre[n:]
		return n, nil
	}
	if p.err != nil {
		return 0, p.err
	}
	return 0, errWouldBlock
}

// startFlush starts the goroutine that writes the queue, if it does not run.
// Conn.mu is held.
func (p *portable) startFlush() {
	if p.flushing {
		return
	}
	p.flushing = true
	p.conn.worker.running.Go(p.flush)
}

// flush writes until the queue is empty or the socket closed.
func (p *portable) flush() {
	c := p.conn
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.out != nil {
		if err := p.flushOne(); err != nil {
			c.failLocked(WriteFailed, err)
			c.dropQueue()
		}
	}
	p.flushing = false
	if c.state.Load() == finishing || c.worker.set.stopping.Load() {
		c.post()
	}
}

// flushOne writes one buffer. Conn.mu is released meanwhile; only the end of
// the connection takes away what is queued.
func (p *portable) flushOne() error {
	c := p.conn
	if c.tls != nil && len(c.out.cipher) == 0 {
		_, err := c.flushSome()
		return err
	}
	q := c.out
	b, sent := q.cipher, c.cipherSent
	if len(b) == 0 {
		b, sent = q.entries[0].b, c.entriesSent
	}
	c.mu.Unlock()
	n, err := p.inner.Write(b)
	c.worker.writes.Add(1)
	c.mu.Lock()
	if c.out == q {
		sent(n)
	}
	return err
}

func (p *portable) closeWrite() {
	_ = rawio.CloseWrite(p.inner) // fails if the peer has gone; a read says so
}

func (p *portable) close() { p.inner.Close() }

func (p *portable) addr(s side) net.Addr {
	if s == remoteAddr {
		return p.inner.RemoteAddr()
	}
	return p.inner.LocalAddr()
}

// portableBarrier asks every connection for a proof that its socket is empty.
func (w *worker) portableBarrier(b *barrier) {
	part := &barrier{done: b.arrive}
	part.left.Store(1)
	w.ports.Range(func(key, _ any) bool {
		p := key.(*portable)
		p.mu.Lock()
		defer p.mu.Unlock()
		if !p.ended {
			part.left.Add(1)
			p.barriers = append(p.barriers, part)
			p.kickLocked()
		}
		return true
	})
	part.arrive()
}

// The states of portable.proof.
const (
	unsuspected uint32 = iota
	proofAsked
	proofGiven
)

// suspect is called while the connection seems to have been silent for too
// long. It reports whether that is proved: the socket was seen empty since.
func (p *portable) suspect() bool {
	switch p.proof.Load() {
	case proofGiven:
		return true
	case unsuspected:
		p.proof.Store(proofAsked)
		b := &barrier{done: func() { p.proof.Store(proofGiven) }}
		b.left.Store(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.barriers = append(p.barriers, b)
		p.kickLocked()
	}
	return false
}

func (w *worker) portableTick() {
	w.exec.Lock()
	defer w.exec.Unlock()
	w.now = w.set.now.Load()
	w.beginScan()
	for !w.scan() {
	}
	w.endBatch()
}
