// Package linequeue hands lines to whoever writes them down, without that anybody
// waits: those of a member's log, and those of its audit log.
//
// # Invariants
//
//   - [Queue.Put] never waits and takes bounded memory, whatever the writer does.
//   - What is lost, since there was no room or it could not be written, is counted,
//     and a line behind it says how much, as soon as one can be written.
//   - Lines are written whole, in the order in which they came.
//
// # Concurrency
//
// A Queue may be used from any goroutine. One of its own writes: all functions of a
// [Config] but Size are called there.
package linequeue

import (
	"sync"
	"time"
)

// Every is how long after lines were written [Config].Settle is called, and how long
// after a loss that no line could tell of one is tried again.
const Every = time.Second

// maxPiece is how much is written at once: a line is begun while there is less.
const maxPiece = 64 << 10 // bytes

// Config says what a queue of lines is made of. Settle, Reopen and End may be nil.
type Config[T any] struct {
	Max  int // what may wait, as Size counts it; more is lost
	Size func(line T) int
	// Append appends a line, ended. Lost appends the one that says how many were lost.
	Append func(b []byte, line T) []byte
	Lost   func(b []byte, n uint64) []byte

	Write  func(lines []byte) error // if it fails, the lines are lost
	Settle func()                   // lines were written, up to [Every] ago
	Reopen func()                   // as [Queue.Reopen] has asked for
	End    func()                   // nothing is written any more
}

// Queue is lines that wait to be written. Make it with New, and close it, or its last
// lines may not be written.
type Queue[T any] struct {
	cfg Config[T]

	mu      sync.Mutex // protects what follows; held for a copy of one line, never while writing
	waiting []T
	size    int    // of those
	untold  uint64 // lost ones that no line tells of yet
	lost    uint64
	reopen  bool
	closed  bool

	wake  chan struct{} // has room for one
	ended chan struct{} // closed when the writer has ended

	unsettled bool // lines were written, of which Settle has not heard; of the writer
}

// New returns an empty queue, whose lines are written from now on.
func New[T any](cfg Config[T]) *Queue[T] {
	for _, f := range []*func(){&cfg.Settle, &cfg.Reopen, &cfg.End} {
		if *f == nil {
			*f = func() {}
		}
	}
	q := &Queue[T]{cfg: cfg, wake: make(chan struct{}, 1), ended: make(chan struct{})}
	go q.run()
	return q
}

// Put adds a line, or counts it as lost.
func (q *Queue[T]) Put(line T) {
	size := q.cfg.Size(line)
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed || q.size+size > q.cfg.Max {
		q.lost++
		q.untold++
		return
	}
	q.waiting, q.size = append(q.waiting, line), q.size+size
	q.nudge()
}

// Lost is how many lines were lost so far.
func (q *Queue[T]) Lost() uint64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost
}

// Reopen has Config.Reopen called, once what waits was written. It does not wait for
// that.
func (q *Queue[T]) Reopen() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.reopen = true
	q.nudge()
}

// Close has what waits written, for as long as within at most, and takes no more.
func (q *Queue[T]) Close(within time.Duration) {
	q.mu.Lock()
	q.closed = true
	q.nudge()
	q.mu.Unlock()
	t := time.NewTimer(within)
	defer t.Stop()
	select {
	case <-q.ended:
	case <-t.C:
	}
}

func (q *Queue[T]) nudge() {
	select {
	case q.wake <- struct{}{}:
	default: // the writer is to look already
	}
}

// run writes until the queue is closed and nothing waits.
func (q *Queue[T]) run() {
	defer close(q.ended)
	defer q.cfg.End()
	t := time.NewTimer(Every)
	defer t.Stop()
	var spare []T
	for due, armed := false, true; ; due = false {
		select {
		case <-q.wake:
		case <-t.C:
			due, armed = true, false
		}
		got := q.take(spare)
		q.writeAll(&got)
		if got.reopen {
			q.cfg.Reopen()
		}
		if due || got.closed {
			q.settle()
		}
		if got.closed {
			return
		}
		if !armed && (q.unsettled || q.behind()) {
			t.Reset(Every)
			armed = true
		}
		clear(got.lines)
		spare = got.lines[:0]
	}
}

// taken is what the writer has to do.
type taken[T any] struct {
	lines          []T
	lost           uint64 // behind them
	reopen, closed bool
}

func (q *Queue[T]) take(spare []T) taken[T] {
	q.mu.Lock()
	defer q.mu.Unlock()
	got := taken[T]{q.waiting, q.untold, q.reopen, q.closed}
	q.waiting, q.size, q.untold, q.reopen = spare, 0, 0, false
	return got
}

// behind reports whether lines were lost that no line tells of.
func (q *Queue[T]) behind() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.untold > 0
}

// writeAll writes lines in pieces, and behind them how many were lost.
func (q *Queue[T]) writeAll(got *taken[T]) {
	var b []byte
	n := uint64(0)
	for _, line := range got.lines {
		if len(b) >= maxPiece {
			q.write(b, n, 0)
			b, n = b[:0], 0
		}
		b, n = q.cfg.Append(b, line), n+1
	}
	if got.lost > 0 {
		b = q.cfg.Lost(b, got.lost)
	}
	if len(b) > 0 {
		q.write(b, n, got.lost)
	}
}

// write writes n lines, and the one that tells of lost ones. If it cannot they are
// lost, and the lost ones are still to be told of.
func (q *Queue[T]) write(b []byte, n, told uint64) {
	if q.cfg.Write(b) == nil {
		q.unsettled = true
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.lost += n
	q.untold += n + told
}

func (q *Queue[T]) settle() {
	if q.unsettled {
		q.unsettled = false
		q.cfg.Settle()
	}
}
