package peers

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/incumbent-dev/incumbent/rawio"
)

// socket is what lies under a connection, beneath TLS. It counts what has been
// read, knows for the barrier what has arrived, and remembers whether it was
// the other side that ended it.
type socket struct {
	net.Conn
	kernel *rawio.Reader // nil: the reads of Conn are used, and nobody can ask what has arrived
	ended  atomic.Bool   // a read met the end of the stream or a reset
	host   netip.Addr    // of the other side; zero if it has none
	then   time.Time     // deadline from the first byte on, of the goroutine that reads; zero: it does not change

	mu      sync.Mutex // guards what follows; held across a read that does not block
	read    uint64     // bytes taken out of the kernel
	settled uint64     // of those, dispatched in full frames, or part of a frame that is not complete
	waiters []waiter   // barriers
	gone    bool       // nothing will be dispatched any more
}

// waiter is a barrier's part: it arrives when settled reaches target.
type waiter struct {
	target uint64
	part   *barrier
}

func newSocket(c net.Conn) *socket {
	s := &socket{Conn: c}
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		s.host = a.AddrPort().Addr().Unmap()
	}
	s.kernel = rawio.NewReader(c, &s.mu, &s.read)
	return s
}

// awaitFirst ends the connection at first if nothing has come by then, else at
// then.
func (s *socket) awaitFirst(first, then time.Time) error {
	s.then = then
	return s.SetDeadline(first)
}

// silent reports whether nothing has come from the other side yet.
func (s *socket) silent() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.read > 0 || s.kernel == nil {
		return s.read == 0
	}
	n, err := s.kernel.Arrived()
	return err != nil || n == 0
}

// Read is called when everything that earlier reads brought has been dealt
// with: the reader above dispatches all whole frames before it asks for more,
// and TLS asks for more when it has no whole record.
func (s *socket) Read(p []byte) (n int, err error) {
	s.settle()
	if s.kernel != nil {
		n, err = s.kernel.Read(p) // counts by itself, together with the read
	} else {
		n, err = s.Conn.Read(p)
		s.mu.Lock()
		s.read += uint64(n)
		s.mu.Unlock()
	}
	if endedByOther(err) {
		s.ended.Store(true)
	}
	if n > 0 && !s.then.IsZero() {
		_ = s.SetDeadline(s.then) // fails when closed, which the next read tells
		s.then = time.Time{}
	}
	return n, err
}

func endedByOther(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

func (s *socket) settle() {
	s.mu.Lock()
	s.settled = s.read
	done := s.arrivals()
	s.mu.Unlock()
	for _, part := range done {
		part.arrive()
	}
}

// arrivals takes out those that need not wait any more. mu is held.
func (s *socket) arrivals() (done []*barrier) {
	if len(s.waiters) == 0 {
		return nil
	}
	left := s.waiters[:0]
	for _, w := range s.waiters {
		if s.gone || s.settled >= w.target {
			done = append(done, w.part)
		} else {
			left = append(left, w)
		}
	}
	s.waiters = left
	return done
}

// finish says that nothing will be dispatched any more.
func (s *socket) finish() {
	s.mu.Lock()
	s.gone = true
	done := s.arrivals()
	s.mu.Unlock()
	for _, part := range done {
		part.arrive()
	}
}

// wait makes part arrive once everything that is in the socket now has been
// dispatched. It reports false, and does nothing, if nobody can know what is.
func (s *socket) wait(part *barrier) bool {
	if s.kernel == nil {
		return false
	}
	s.mu.Lock()
	arrived, err := s.kernel.Arrived()
	if err != nil {
		arrived = 0 // closed: what was read before is all there is
	}
	s.waiters = append(s.waiters, waiter{target: s.read + arrived, part: part})
	done := s.arrivals()
	s.mu.Unlock()
	for _, part := range done {
		part.arrive()
	}
	return true
}

// bytesRead returns how much has been read so far.
func (s *socket) bytesRead() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.read
}

// tune sets what a connection between members needs of TCP: no delay, and an
// end when the other machine is gone.
func tune(c net.Conn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return
	}
	// All of these fail only on a closed connection, which the first read tells.
	_ = tcp.SetNoDelay(true)
	_ = tcp.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: keepAliveIdle, Interval: keepAliveEvery, Count: keepAliveProbes})
	_ = rawio.SetUserTimeout(tcp, userTimeout)
}

// barrier waits for its parts, each of which arrives once.
type barrier struct {
	left atomic.Int64
	done func()
}

func (b *barrier) arrive() {
	if b.left.Add(-1) == 0 {
		b.done()
	}
}

// elapsed is a stamp for pings: nanoseconds since start on the monotonic clock.
func elapsed(start time.Time) uint64 { return uint64(time.Since(start)) }

// hangUp closes what nothing was written to that must last; closing it twice is
// no mistake.
func hangUp(c io.Closer) { _ = c.Close() }
