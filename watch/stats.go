package watch

import (
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
)

// counters are kept without the lock.
type counters struct {
	listeners, readers, waiters, queries, queryWaits atomic.Int64
	events, dropped, wakes, cutOff                   atomic.Uint64
	evals, encoded                                   atomic.Uint64
}

// Stats says what the hub holds and has done since it began.
type Stats struct {
	Index, Floor incumbent.Index // published; history begins after Floor
	Readers      int
	Waiters      int
	QueryWaits   int
	Queries      int    // in use, and kept for whoever comes next
	Listeners    int    // all that count towards MaxListeners
	Kept         int    // events in the history
	HistoryBytes int64  // what they cost
	Events       uint64 // published
	Dropped      uint64 // events that left the history
	Wakes        uint64 // callbacks run
	CutOff       uint64 // readers and waits told Compacted
	Evaluations  uint64 // of queries
	Encodings    uint64 // of their answers
}

// Stats returns the current numbers.
func (h *Hub) Stats() Stats {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return Stats{
		Index: h.index, Floor: h.floor,
		Readers: int(h.count.readers.Load()), Waiters: int(h.count.waiters.Load()),
		QueryWaits: int(h.count.queryWaits.Load()), Queries: int(h.count.queries.Load()), Listeners: int(h.count.listeners.Load()),
		Kept: int(h.hist.head + 1 - h.hist.tail), HistoryBytes: h.bytes.Load(),
		Events: h.count.events.Load(), Dropped: h.count.dropped.Load(),
		Wakes: h.count.wakes.Load(), CutOff: h.count.cutOff.Load(), Evaluations: h.count.evals.Load(), Encodings: h.count.encoded.Load(),
	}
}
