package watch

import (
	"runtime"
	"sync"
)

// job is a node whose listeners are to be looked at, or one listener to be told.
type job struct {
	node *node
	to   listener
}

// drain is how far a worker is through the listeners of a node. It goes from
// the last one down, so that listeners that leave meanwhile (the last takes
// the place of who left) make it look twice at some and never past any, and
// ones that come, who know of the event already, are not looked at.
type drain struct {
	queued bool // on the queue or with a worker
	again  bool // matched anew since the drain began
	left   int  // listeners still to look at
}

// schedule queues nodes, each at most once.
func (h *Hub) schedule(nodes []*node) {
	if len(nodes) == 0 {
		return
	}
	h.jobs.mu.Lock()
	for _, n := range nodes {
		if d := &n.more.drain; d.queued {
			d.again = true
			continue
		}
		n.more.drain = drain{queued: true, left: -1}
		h.jobs.push(job{node: n})
	}
	h.jobs.mu.Unlock()
	h.jobs.signal()
}

// ready queues listeners. Once the hub is closed and its workers may be gone,
// it tells them itself.
func (h *Hub) ready(ls ...listener) {
	if len(ls) == 0 {
		return
	}
	h.jobs.mu.Lock()
	closed := h.jobs.closed
	for _, l := range ls {
		if !closed {
			h.jobs.push(job{to: l})
		}
	}
	h.jobs.mu.Unlock()
	if !closed {
		h.jobs.signal()
		return
	}
	for _, l := range ls {
		l.matched()
	}
}

// notify is the loop of one worker: a slice of one job, then the others get
// their turn, and whoever applies gets the processor. There is no other pace: a
// reader that was woken is not woken again before it has pulled, and what writes to
// clients yields in its turn.
func (h *Hub) notify() {
	var slice [wakeSlice]listener
	for {
		j, ok := h.jobs.take()
		if !ok {
			return
		}
		h.perform(j, slice[:0])
		runtime.Gosched()
	}
}

// perform does a slice of one job.
func (h *Hub) perform(j job, ready []listener) {
	woken := 0
	if j.node != nil {
		woken = h.drainSlice(j.node, ready)
	} else if j.to.matched() {
		woken = 1
	}
	h.count.wakes.Add(uint64(woken))
}

// Busy reports whether something waits for [Hub.Turn].
func (h *Hub) Busy() bool { return h.jobs.some() || h.evals.some() }

// Turn does all that waits, in the place of the goroutines that a hub with
// [Config.Manual] does not have.
func (h *Hub) Turn() {
	var slice [wakeSlice]listener
	for {
		if j, ok, _ := h.jobs.next(); ok {
			h.perform(j, slice[:0])
			continue
		}
		q, ok, _ := h.evals.next()
		if !ok {
			return
		}
		q.run()
	}
}

// drainSlice tells the next few listeners of a node that have something
// pending, and queues the node again if there are more.
func (h *Hub) drainSlice(n *node, ready []listener) (woken int) {
	h.mu.RLock()
	legs, left := n.more.legs, n.more.drain.left
	if left < 0 || left > len(legs) {
		left = len(legs)
	}
	for looked := 0; left > 0 && looked < wakeSlice; looked++ {
		left--
		if f := legs[left].owner; f.pending() {
			ready = append(ready, f)
		}
	}
	h.mu.RUnlock()

	for i, l := range ready {
		if l.matched() {
			woken++
		}
		ready[i] = nil
	}
	h.drained(n, left)
	return woken
}

// drained says how many listeners of the node are left to look at.
func (h *Hub) drained(n *node, left int) {
	h.jobs.mu.Lock()
	defer h.jobs.mu.Unlock()
	d := &n.more.drain
	switch {
	case left > 0:
		d.left = left
	case d.again:
		d.again, d.left = false, -1 // from the start
	default:
		d.queued = false
		return
	}
	h.jobs.push(job{node: n})
	h.jobs.signal()
}

// queue hands items to workers in order. It has no bound of its own: what is
// on it is bounded by the nodes, listeners and queries that exist.
type queue[T any] struct {
	mu     sync.Mutex // protects items and head, for a few moves
	items  []T
	head   int
	closed bool
	filled chan struct{} // holds one signal while there may be items
	ended  chan struct{}
}

func newQueue[T any]() *queue[T] {
	return &queue[T]{filled: make(chan struct{}, 1), ended: make(chan struct{})}
}

// push appends an item; mu is held, and signal called after.
func (q *queue[T]) push(item T) {
	if q.head > 64 && q.head*2 > len(q.items) {
		n := copy(q.items, q.items[q.head:])
		clear(q.items[n:])
		q.items, q.head = q.items[:n], 0
	}
	q.items = append(q.items, item)
}

func (q *queue[T]) put(item T) {
	q.mu.Lock()
	q.push(item)
	q.mu.Unlock()
	q.signal()
}

func (q *queue[T]) signal() {
	select {
	case q.filled <- struct{}{}:
	default:
	}
}

// take waits for the next item; false means closed and empty.
func (q *queue[T]) take() (item T, ok bool) {
	for {
		item, ok, closed := q.next()
		if ok || closed {
			return item, ok
		}
		select {
		case <-q.filled:
		case <-q.ended:
		}
	}
}

// next takes the next item if there is one, and says whether the queue is
// closed.
func (q *queue[T]) next() (item T, ok, closed bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.head == len(q.items) {
		q.items, q.head = q.items[:0], 0
		return item, false, q.closed
	}
	var zero T
	item, q.items[q.head] = q.items[q.head], zero
	if q.head++; q.head < len(q.items) {
		q.signal() // for the other workers
	}
	return item, true, q.closed
}

func (q *queue[T]) some() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.head < len(q.items)
}

// close lets workers end once the queue is empty.
func (q *queue[T]) close() {
	q.mu.Lock()
	q.closed = true
	q.mu.Unlock()
	close(q.ended)
}
