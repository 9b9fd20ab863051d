// Package workqueue hands work from goroutines that must not wait (the lease loop,
// the apply goroutine, the hub) to a few that do it. Doors share it.
package workqueue

import (
	"runtime"
	"sync"
)

// Queue is a list of work. Putting in never blocks; what is in it is bounded by
// what its producers may have under way at once. All methods may be called from
// any goroutine. Use New to make one.
type Queue[T any] struct {
	mu     sync.Mutex // guards the rest; held to append or to copy a few items
	wake   sync.Cond
	items  []T
	closed bool
}

// New returns an empty queue.
func New[T any]() *Queue[T] {
	q := &Queue[T]{}
	q.wake.L = &q.mu
	return q
}

// Put adds an item. Once the queue is closed the item is lost.
func (q *Queue[T]) Put(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return
	}
	q.items = append(q.items, item)
	q.wake.Signal()
}

// Take waits for items and moves at most limit of them to buf, which is emptied
// first. It returns none when the queue is closed and empty.
func (q *Queue[T]) Take(buf []T, limit int) []T {
	clear(buf)
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.items) == 0 && !q.closed {
		q.wake.Wait()
	}
	n := min(limit, len(q.items))
	buf = append(buf[:0], q.items[:n]...)
	clear(q.items[:n])
	if q.items = q.items[n:]; len(q.items) == 0 {
		q.items = nil // the array has been walked through
	}
	return buf
}

// Close lets Take return none once everything has been taken.
func (q *Queue[T]) Close() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.closed = true
	q.wake.Broadcast()
}

// callsAtATime is how many calls Run takes from a queue at once.
const callsAtATime = 16

// Run makes the calls that are put into q, until it is closed and empty. Several
// goroutines may run one queue.
func Run(q *Queue[func()]) {
	var calls []func()
	for {
		calls = q.Take(calls, callsAtATime)
		if len(calls) == 0 {
			return
		}
		for _, call := range calls {
			call()
		}
		runtime.Gosched() // thousands may be waiting: whoever applies comes first
	}
}
