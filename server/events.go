package server

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// timelineKept is how many events a member keeps for `incumbent events`.
const timelineKept = 10_000

// lossesNoted is how many lost leases are noted one by one in a second.
const lossesNoted = 100

// Event is one entry of a member's timeline: state transitions, never requests.
type Event struct {
	At      time.Time
	What    string // started, leading, following, lease lost, refusing, …
	Subject string
	Detail  string
	Index   uint64
	Lease   incumbent.Name // that it is about, for those who may not see it; zero: none
}

// timeline is a ring of events with readers that follow it. Writers never wait:
// a reader is a position in the ring and misses what was overwritten.
type timeline struct {
	now  func() time.Time
	loss struct {
		second  atomic.Int64
		noted   atomic.Int64
		skipped atomic.Int64
	}

	mu   sync.Mutex // protects the rest; held for one append or one copy
	ring []Event
	next uint64        // number of the event that comes next
	more chan struct{} // closed at the next append
}

func newTimeline(now func() time.Time) *timeline {
	return &timeline{now: now, more: make(chan struct{})}
}

func (t *timeline) add(e Event) {
	e.At = t.now()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.ring) < timelineKept {
		t.ring = append(t.ring, e)
	} else {
		t.ring[t.next%timelineKept] = e
	}
	t.next++
	close(t.more)
	t.more = make(chan struct{})
}

// last returns where the newest n events begin.
func (t *timeline) last(n int) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next - uint64(min(n, len(t.ring)))
}

// after returns at most limit events from position from on, the position to go
// on from, and a channel that is closed when more come.
func (t *timeline) after(from uint64, limit int) (out []Event, next uint64, more <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if oldest := t.next - uint64(len(t.ring)); from < oldest {
		from = oldest
	}
	for from < t.next && len(out) < limit {
		out = append(out, t.ring[from%timelineKept])
		from++
	}
	return out, from, t.more
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
