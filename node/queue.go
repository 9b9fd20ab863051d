package node

import "sync"

// queue hands work from one goroutine to another, in order. It has no bound of
// its own: what is in it is bounded by raft's limits on bytes being appended and
// applied. Answers that carry none do not queue: see Append.answerWith.
type queue[T any] struct {
	mu    sync.Mutex // held to append or to take, never longer
	items []T
	wake  chan struct{} // has a token when items may be waiting
}

func newQueue[T any]() *queue[T] { return &queue[T]{wake: make(chan struct{}, 1)} }

func (q *queue[T]) push(v T) {
	q.mu.Lock()
	q.items = append(q.items, v)
	q.mu.Unlock()
	signal(q.wake)
}

// take returns all that waits, or nil. The caller gives the slice back with the
// next call.
func (q *queue[T]) take(spare []T) []T {
	clear(spare)
	q.mu.Lock()
	defer q.mu.Unlock()
	items := q.items
	q.items = spare[:0]
	return items
}

// signal puts a token in a channel that holds one.
func signal(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}
