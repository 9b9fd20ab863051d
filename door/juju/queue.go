package juju

import "sync"

// queue hands work to a few goroutines without ever blocking who puts it in:
// the lease loop, the apply goroutine, the hub. What is in it is bounded by
// what connections may have unanswered.
type queue[T any] struct {
	mu     sync.Mutex // guards the rest; held to append or to swap a slice
	wake   sync.Cond
	items  []T
	closed bool
}

func newQueue[T any]() *queue[T] {
	q := &queue[T]{}
	q.wake.L = &q.mu
	return q
}

// put adds an item; it is lost once the queue is closed.
func (q *queue[T]) put(item T) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.closed {
		q.items = append(q.items, item)
		q.wake.Signal()
	}
}

// take waits for items and moves at most limit of them to buf, which is
// emptied first. It returns none when the queue is closed and empty.
func (q *queue[T]) take(buf []T, limit int) []T {
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

// close lets take return none once everything has been taken.
func (q *queue[T]) close() {
	q.mu.Lock()
	q.closed = true
	q.wake.Broadcast()
	q.mu.Unlock()
}
