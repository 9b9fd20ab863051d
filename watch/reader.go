package watch

import "github.com/incumbent-dev/incumbent"

// Reader follows selectors through the history.
type Reader struct {
	cursor
	wake func()
}

// Subscribe returns a reader of all events after index from that one of the
// selectors picks, each once even if several do. Pull it at once: wake is
// called for what is published after a Pull has said that there is no more,
// once until the next such Pull. from may lie ahead of what this member has
// applied. The error is Compacted if the history no longer reaches back to
// from, with a [*CompactedError] as its cause; Overloaded beyond the limit of
// listeners; Unavailable once the hub is closed.
func (h *Hub) Subscribe(from incumbent.Index, wake func(), selectors ...Selector) (*Reader, error) {
	r := &Reader{wake: wake}
	if err := h.attach(&r.cursor, r, selectors, from); err != nil {
		return nil, err
	}
	h.count.readers.Add(1)
	return r, nil
}

// Batch is what one Pull gives.
type Batch struct {
	Events   []*Event        // shared: not to be changed
	Progress incumbent.Index // with these, everything up to here has been delivered; below the last event's index if that is not whole
	More     bool            // pull again; no wake will come before
}

// Whole reports whether what the last event's index changed was delivered to its
// end.
func (b Batch) Whole() bool {
	n := len(b.Events)
	return n == 0 || b.Events[n-1].Index <= b.Progress
}

// Pull appends to buf what is next: one event, and more while they are no more
// than limit and cost no more than bytes together, by their Size. What one
// index changed may take several pulls; those that do not reach its end say
// the progress before it. It never waits. An error is final: Compacted if the
// reader was too slow and history moved past it, with what was delivered and
// where to resume in its cause; Unavailable if the hub closed. The reader must
// still be closed.
func (r *Reader) Pull(buf []*Event, limit, bytes int) (Batch, error) {
	events, more, err := r.take(buf, limit, bytes)
	if err != nil {
		return Batch{Events: buf}, err
	}
	return Batch{events, r.done, more}, nil
}

// Progress returns the index up to which everything has been delivered: the
// last one published if nothing is pending. It goes on while the reader's
// topics are silent, so that a client told of it can resume after it.
func (r *Reader) Progress() incumbent.Index {
	r.hub.mu.RLock()
	defer r.hub.mu.RUnlock()
	if !r.pending() {
		r.seen.Store(r.hub.hist.head)
		r.done = max(r.done, r.hub.index)
	}
	return r.done
}

// Close ends the reader. No wake begins after it returns, though one that has
// begun may still run. It may be called once, also from wake.
func (r *Reader) Close() {
	r.armed.Store(false)
	r.hub.count.readers.Add(-1)
	r.hub.detach(&r.cursor)
}

func (r *Reader) matched() bool {
	if !r.armed.CompareAndSwap(true, false) {
		return false
	}
	r.wake()
	return true
}
