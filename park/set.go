package park

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Set is a set of parked connections and the workers that serve them.
type Set struct {
	cfg     Config
	workers []*worker
	corks   sync.Pool // *[]byte of corkBytes
	buffers sync.Pool // *[]byte of readBytes, Portable only

	limits   atomic.Pointer[Limits]
	hooks    atomic.Pointer[[]func(worker int)]
	now      atomic.Uint32 // ticks handled so far, from 1
	next     atomic.Uint32 // worker of the next connection
	queued   atomic.Int64
	held     atomic.Int64
	stopping atomic.Bool
	stopNow  atomic.Bool

	mu      sync.Mutex // guards hooks against concurrent additions, and closing
	closing bool
	parking sync.WaitGroup // Park calls under way
	done    chan struct{}  // ends the ticker
	all     sync.WaitGroup // every goroutine of the set
}

// New returns a set with its workers running.
func New(cfg Config) (*Set, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	s := &Set{cfg: cfg.withDefaults(), done: make(chan struct{})}
	s.cfg.Portable = s.cfg.Portable || !haveEpoll
	s.corks.New = func() any {
		b := make([]byte, 0, corkBytes)
		return &b
	}
	s.buffers.New = func() any {
		b := make([]byte, s.cfg.readBytes)
		return &b
	}
	s.now.Store(1)
	s.SetLimits(cfg.Limits)
	for i := range s.cfg.Workers {
		w := &worker{set: s, id: i, buf: make([]byte, s.cfg.readBytes), cursor: -1, now: 1}
		if err := w.open(); err != nil {
			for _, w := range s.workers {
				w.poller.close()
			}
			return nil, incumbent.Errorf(incumbent.Unavailable, "open poller: %w", err)
		}
		s.workers = append(s.workers, w)
	}
	for _, w := range s.workers {
		w.start()
	}
	s.all.Go(s.tickAlong)
	return s, nil
}

// SetLimits replaces the limits while running.
func (s *Set) SetLimits(l Limits) {
	l = l.withDefaults()
	s.limits.Store(&l)
}

// Limits returns the limits as they are.
func (s *Set) Limits() Limits { return *s.limits.Load() }

// memoryFull reports whether a connection is cut off that asked for more and has
// n bytes in one of its two places now, its incomplete frame or its queue. Beyond
// MaxHeldBytes that is so for whoever has more there than a share, so that nobody
// with much has others cut off who have little.
//
// A share is an equal part of a quarter of MaxHeldBytes, at most smallHeld and at least
// what one small message takes: by default 64 kB with 1,000 connections and 4 kB with 16,000, for a fixed share of
// 64 kB would be as good as no bound for a hundred thousand. Who took it while
// there were fewer keeps it. So all shares in one place come to that quarter if
// the connections were there before, and else to at most 1 + ln(16,000 / 1,024)
// times as much: not quite 4 with 16,000, and 5.6 with 100,000.
func (s *Set) memoryFull(n int64) bool {
	l := s.limits.Load()
	return s.held.Load() > l.MaxHeldBytes && n > s.share(l)
}

func (s *Set) share(l *Limits) int64 {
	parked := int64(0)
	for _, w := range s.workers {
		parked += w.live.Load()
	}
	return max(2*chunkBytes, min(smallHeld, l.MaxHeldBytes/sharedPart/max(parked, 1)))
}

// OnEndBatch adds a hook that each worker calls when it has called Readable,
// or Closed, of the connections that were ready in one wake-up: what was
// gathered per [Conn.Worker] is passed on at once instead of one by one.
func (s *Set) OnEndBatch(f func(worker int)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var hooks []func(int)
	if old := s.hooks.Load(); old != nil {
		hooks = append(hooks, *old...)
	}
	hooks = append(hooks, f)
	s.hooks.Store(&hooks)
}

// Park takes over a connection of [Listen]: a *Socket, or a *tls.Conn over
// one whose handshake is complete. buffered is what the caller has read and
// not used; it is copied. Nobody else may use conn from now on, whatever
// Park returns: after an error it has been closed. The handler's methods may
// be called before Park returns.
func (s *Set) Park(conn net.Conn, buffered []byte, h Handler) (*Conn, error) {
	if !s.enter() {
		conn.Close()
		return nil, incumbent.Errorf(incumbent.Unavailable, "shutting down")
	}
	defer s.parking.Done()
	socket, secure, err := socketOf(conn)
	if err != nil {
		conn.Close()
		return nil, err
	}
	if len(buffered) > s.limits.Load().MaxPartial {
		conn.Close()
		return nil, limitError(PartialTooLong, s.limits.Load())
	}
	c := &Conn{Handler: h, socket: socket, tls: secure, slot: -1, fd: -1}
	c.worker = s.workers[int(s.next.Add(1))%len(s.workers)]
	c.idleTicks.Store(ticks(s.cfg.IdleTimeout))
	if err := c.adopt(socket.inner); err != nil {
		conn.Close()
		return nil, err
	}
	if len(buffered) > 0 {
		c.partial = append([]byte(nil), buffered...)
		s.held.Add(int64(cap(c.partial)))
	}
	socket.parked = c
	socket.inner = nil
	c.launch()
	return c, nil
}

func (s *Set) enter() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closing {
		return false
	}
	s.parking.Add(1)
	return true
}

// Close ends all connections and waits for every goroutine of the set. What
// is queued is still sent until ctx ends, or for WriteTimeout; then the error
// is that of ctx. Doors that want to say good-bye do so before.
func (s *Set) Close(ctx context.Context) error {
	s.mu.Lock()
	first := !s.closing
	s.closing = true
	s.mu.Unlock()
	s.parking.Wait()
	if first {
		s.stopping.Store(true)
		for _, w := range s.workers {
			w.stop(stopFlush)
		}
	}
	left := make(chan struct{})
	go func() {
		for _, w := range s.workers {
			w.wait()
		}
		close(left)
	}()
	var err error
	select {
	case <-left:
	case <-ctx.Done():
		err = ctx.Err()
		s.stopNow.Store(true)
		for _, w := range s.workers {
			w.stop(stopNow)
		}
		<-left
	}
	if first {
		close(s.done)
	}
	s.all.Wait()
	return err
}

func (s *Set) tickAlong() {
	in := s.cfg.Ticks
	if in == nil {
		t := time.NewTicker(TickInterval)
		defer t.Stop()
		in = t.C
	}
	for {
		select {
		case <-in:
			s.tick()
		case <-s.done:
			return
		}
	}
}

// tick moves the set's clock on by one and has the workers look at deadlines.
func (s *Set) tick() {
	s.now.Add(1)
	for _, w := range s.workers {
		if w.live.Load() > 0 {
			w.tick()
		}
	}
}

// Stats are numbers about a set since it began, but for the first five, which
// are of the moment.
type Stats struct {
	Parked      int64 // connections
	Unread      int64 // of them those that are left unread, for their handlers hold and enough is kept
	QueuedBytes int64 // unsent, each connection's counted by itself
	HeldBytes   int64 // memory held for connections: incomplete frames and queues
	Workers     int
	Reads       uint64 // system calls, or their portable counterpart
	Writes      uint64
	Ended       [NumReasons]uint64
}

// Stats returns the numbers of the moment.
func (s *Set) Stats() Stats {
	st := Stats{QueuedBytes: s.queued.Load(), HeldBytes: s.held.Load(), Workers: len(s.workers)}
	for _, w := range s.workers {
		st.Parked += w.live.Load()
		st.Unread += w.unread.Load()
		st.Reads += w.reads.Load()
		st.Writes += w.writes.Load()
		for r := range st.Ended {
			st.Ended[r] += w.ended[r].Load()
		}
	}
	return st
}
