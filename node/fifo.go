package node

// fifo is a queue in a slice. What was taken is let go at once; the array is
// reused when the queue runs empty.
type fifo[T any] struct {
	items []T
	head  int
}

func (q *fifo[T]) len() int { return len(q.items) - q.head }

func (q *fifo[T]) push(v T) { q.items = append(q.items, v) }

func (q *fifo[T]) front() *T { return &q.items[q.head] }

func (q *fifo[T]) pop() T {
	v := q.items[q.head]
	var zero T
	q.items[q.head] = zero
	q.head++
	if q.head == len(q.items) {
		q.items = q.items[:0]
		q.head = 0
	} else if q.head >= 1024 && q.head > len(q.items)/2 {
		// A queue that never runs empty must not grow without end.
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items = q.items[:n]
		q.head = 0
	}
	return v
}

// pushFront puts vs before what waits, in their order. It is for the rare case
// that something taken must go back.
func (q *fifo[T]) pushFront(vs []T) {
	rest := q.items[q.head:]
	q.items = append(append(make([]T, 0, len(vs)+len(rest)), vs...), rest...)
	q.head = 0
}

// filter keeps the items for which keep reports true.
func (q *fifo[T]) filter(keep func(*T) bool) {
	kept := q.items[:q.head]
	for i := q.head; i < len(q.items); i++ {
		if keep(&q.items[i]) {
			kept = append(kept, q.items[i])
		}
	}
	clear(q.items[len(kept):])
	q.items = kept
}
