package lease

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// message is what the loop is told. Exactly one field is set. One queue for
// all keeps the order in which a connection sent, and in which the node told.
type message struct {
	batch *Batch
	call  *call
	other any // one of the types below, *attach or *Inspection
}

type applied struct {
	view    *core.View
	changes []core.Change
}

type lead struct {
	term uint64
	view *core.View
}

type follow struct{ leader, term uint64 }

type restored struct{ view *core.View }

type received struct {
	from  uint64
	frame *frame
}

type confirmed struct {
	id, term uint64
	err      error
}

type passed struct{ barrier uint64 }

type woken struct{}

type proposed struct {
	ticket Ticket
	result core.Result
	err    error
}

type detach struct {
	session incumbent.SessionID
	counter uint64
}

// inbox is the only way to the loop.
type inbox struct {
	mu      sync.Mutex // held to append, or to swap the slices; never longer
	list    []message
	calls   int // in list
	frames  int // in list
	batches int // in list
	closed  bool
	refused uint64

	wake chan struct{} // 1: something is in the list
}

func newInbox() inbox { return inbox{wake: make(chan struct{}, 1)} }

// post hands in what is never refused. It reports false if the loop has ended.
func (b *inbox) post(m message) bool {
	b.mu.Lock()
	ok := !b.closed
	if ok {
		b.list = append(b.list, m)
	}
	b.mu.Unlock()
	b.ring()
	return ok
}

func (b *inbox) ring() {
	select {
	case b.wake <- struct{}{}:
	default: // it will look anyway
	}
}

// postBatch hands in a batch of extensions, or says why not.
func (b *inbox) postBatch(x *Batch) incumbent.Kind {
	b.mu.Lock()
	kind := incumbent.OK
	switch {
	case b.closed:
		kind = incumbent.Unavailable
	case b.batches >= MaxQueuedBatches:
		kind = incumbent.Overloaded
		b.refused++
	default:
		b.batches++
		b.list = append(b.list, message{batch: x})
	}
	b.mu.Unlock()
	if kind == incumbent.OK {
		b.ring()
	}
	return kind
}

// postFrame hands in a frame, or reports that there is no room.
func (b *inbox) postFrame(r received) bool {
	b.mu.Lock()
	ok := !b.closed && b.frames < MaxQueuedFrames
	if ok {
		b.frames++
		b.list = append(b.list, message{other: r})
	}
	b.mu.Unlock()
	if ok {
		b.ring()
	}
	return ok
}

// postCalls hands in calls that stand together, all or none. Releases find room
// longer than claims, and extensions longer than both: no extension is refused
// while a claim is admitted.
func (b *inbox) postCalls(ms []message, n int, release bool) *incumbent.Error {
	limit := MaxQueuedCalls
	if release {
		limit = MaxQueuedReleases
	}
	b.mu.Lock()
	var err *incumbent.Error
	switch {
	case b.closed:
		err = errStopped()
	case b.calls >= limit || b.batches >= MaxQueuedBatches:
		b.refused++
		err = incumbent.Errorf(incumbent.Overloaded, "%d calls wait for the lease loop, limit is %d", b.calls, limit)
	default:
		b.calls += n
		b.list = append(b.list, ms...)
	}
	b.mu.Unlock()
	if err != nil && err.Kind == incumbent.Overloaded {
		err.RetryAfter = spread(overloadRetry)
	}
	b.ring()
	return err
}

// take swaps the list for an empty one.
func (b *inbox) take(empty []message) (list []message, refused uint64) {
	b.mu.Lock()
	list, b.list = b.list, empty[:0]
	b.calls, b.batches, b.frames = 0, 0, 0
	refused = b.refused
	b.mu.Unlock()
	return list, refused
}

// close refuses everything from now on and returns what is left.
func (b *inbox) close() []message {
	b.mu.Lock()
	b.closed = true
	list := b.list
	b.list = nil
	b.mu.Unlock()
	return list
}

func errStopped() *incumbent.Error {
	return &incumbent.Error{Kind: incumbent.Unavailable, Message: "the member is stopping"}
}

// spread varies a retry hint by half, so that callers do not return together.
func spread(d time.Duration) time.Duration { return d/2 + rand.N(d) }
