package watch

import (
	"container/heap"
	"math"
	"sync"

	"github.com/incumbent-dev/incumbent"
)

// Fired is why a wait ended.
type Fired struct {
	Index incumbent.Index // of the event, or the index reached
	Event *Event          // nil if it is an index or an error that ended the wait
	Err   error           // Compacted: events were lost, look again; Unavailable: the hub closed
}

// Waiter is a one-shot wait.
type Waiter struct {
	cursor
	cond func(*Event) bool
	fire func(Fired)

	mu   sync.Mutex // protects over and the cursor, while there are events to judge
	over bool
}

const waitSlice = 16 // events a waiter judges at a time; most fire at the first

// Wait calls fire once: for the first event after index after that the
// selector picks and cond (nil: any) accepts, whether it has been published
// already or not. So there is no gap between having looked at the state of
// index after and waiting (G10). If the history no longer reaches back to
// after, it fires with Compacted: the caller looks again. fire and cond run on
// the hub's goroutines and must not block. The error is
// Overloaded or Unavailable, and fire is then never called.
func (h *Hub) Wait(s Selector, after incumbent.Index, cond func(*Event) bool, fire func(Fired)) (*Waiter, error) {
	w := &Waiter{cond: cond, fire: fire}
	w.mu.Lock() // a worker that comes early finds the cursor complete
	err := h.attach(&w.cursor, w, []Selector{s}, after)
	w.over = err != nil
	w.mu.Unlock()
	switch incumbent.KindOf(err) {
	case incumbent.OK:
		h.count.waiters.Add(1)
		if h.behind(&w.cursor) {
			h.ready(w)
		}
		return w, nil
	case incumbent.Compacted:
		h.ready(fireNow{fire, Fired{Err: err}})
		return w, nil
	default:
		return nil, err
	}
}

// fireNow is a wait that is over before it began.
type fireNow struct {
	fire  func(Fired)
	fired Fired
}

func (f fireNow) matched() bool {
	f.fire(f.fired)
	return true
}

// Cancel ends the wait and reports whether it did: if so, fire will never be
// called.
func (w *Waiter) Cancel() bool {
	w.mu.Lock()
	was := w.over
	w.over = true
	w.mu.Unlock()
	if was {
		return false
	}
	w.end()
	return true
}

// end is called once, by whoever set over.
func (w *Waiter) end() {
	w.hub.count.waiters.Add(-1)
	w.hub.detach(&w.cursor)
}

func (w *Waiter) matched() bool {
	fired, ok := w.judge()
	if !ok {
		return false
	}
	w.end()
	w.fire(fired)
	return true
}

// judge looks through what is there until an event ends the wait.
func (w *Waiter) judge() (f Fired, ok bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var buf [waitSlice]*Event
	for more := !w.over; more; {
		var events []*Event
		var err error
		if events, more, err = w.take(buf[:0], waitSlice, math.MaxInt); err != nil {
			w.over = true
			return Fired{Err: err}, true
		}
		for _, e := range events {
			if w.cond == nil || w.cond(e) {
				w.over = true
				return Fired{Index: e.Index, Event: e}, true
			}
		}
	}
	return Fired{}, false
}

// indexWait waits for an index.
type indexWait struct {
	hub   *Hub
	index incumbent.Index
	fire  func(Fired)
	slot  int // in hub.reached; -1 once out of it
}

// await calls fire once the hub has published index i, or has been closed.
// Who has seen an index elsewhere that this member has not applied yet waits
// here before it reads, so that it never goes backwards (G14).
func (h *Hub) await(i incumbent.Index, fire func(Fired)) (*indexWait, error) {
	if err := h.admit(); err != nil {
		return nil, err
	}
	w := &indexWait{hub: h, index: i, fire: fire, slot: -1}
	h.mu.Lock()
	there, closed := h.index >= i, h.closed
	if !there && !closed {
		heap.Push(&h.reached, w)
	}
	h.mu.Unlock()
	if closed {
		h.count.listeners.Add(-1)
		return nil, errClosed()
	}
	if there {
		h.ready(w)
	}
	return w, nil
}

// cancel ends the wait and reports whether it did: if so, fire will never be
// called.
func (w *indexWait) cancel() bool {
	w.hub.mu.Lock()
	was := w.slot
	if was >= 0 {
		heap.Remove(&w.hub.reached, was)
	}
	w.hub.mu.Unlock()
	if was < 0 {
		return false
	}
	w.hub.count.listeners.Add(-1)
	return true
}

func (w *indexWait) matched() bool {
	w.hub.count.listeners.Add(-1)
	f := Fired{Index: w.index}
	if w.hub.Index() < w.index {
		f.Err = errClosed()
	}
	w.fire(f)
	return true
}

// indexWaits is a heap by index.
type indexWaits []*indexWait

// upTo takes out the waits for indexes up to i.
func (q *indexWaits) upTo(i incumbent.Index) []listener {
	var due []listener
	for len(*q) > 0 && (*q)[0].index <= i {
		due = append(due, heap.Pop(q).(*indexWait))
	}
	return due
}

// Len, Less, Swap, Push and Pop make it a heap.
func (q indexWaits) Len() int           { return len(q) }
func (q indexWaits) Less(i, j int) bool { return q[i].index < q[j].index }
func (q indexWaits) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].slot, q[j].slot = i, j
}

func (q *indexWaits) Push(x any) {
	w := x.(*indexWait)
	w.slot = len(*q)
	*q = append(*q, w)
}

func (q *indexWaits) Pop() any {
	old := *q
	w := old[len(old)-1]
	old[len(old)-1] = nil
	*q = old[:len(old)-1]
	w.slot = -1
	return w
}
