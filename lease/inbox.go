package lease

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/overload"
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

type aheadOf struct {
	id uint64
	node.Ahead
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

// load is what takes memory until it is answered, wherever it waits for that: in
// the inbox, for a confirmation, for a command to be applied, or for the leader.
type load struct {
	batches    int // of extensions, without those of other members
	extensions int // in batches, and in frames of other members
	calls      int
	attaches   int
	looks      int // items of inspections
	frames     int // of other members
}

// add is l with what o counts, times n.
func (l load) add(o load, n int) load {
	return load{
		l.batches + n*o.batches, l.extensions + n*o.extensions, l.calls + n*o.calls,
		l.attaches + n*o.attaches, l.looks + n*o.looks, l.frames + n*o.frames,
	}
}

// full reports whether no further extension is taken, and so nothing that is
// refused before extensions are.
func (l *load) full() bool {
	return l.batches >= MaxQueuedBatches || l.extensions >= MaxQueuedExtensions
}

// inbox is the only way to the loop.
type inbox struct {
	mu      sync.Mutex // held to append, to swap the slices, or to count; never longer
	list    []message
	load    load // taken and not answered
	closed  bool
	refused uint64

	wake chan struct{} // 1: something is in the list
}

func newInbox() inbox { return inbox{wake: make(chan struct{}, 1)} }

// post hands in what is never refused. When the loop has ended nothing happens.
func (b *inbox) post(m message) {
	b.mu.Lock()
	if !b.closed {
		b.list = append(b.list, m)
	}
	b.mu.Unlock()
	b.ring()
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
	case b.load.full():
		kind = incumbent.Overloaded
		b.refused++
	default:
		b.load.batches++
		b.load.extensions += len(x.Items)
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
	l := r.frame.load()
	b.mu.Lock()
	ok := !b.closed && b.load.frames < MaxQueuedFrames && (l.extensions == 0 || !b.load.full())
	if ok {
		b.load = b.load.add(l, 1)
		b.list = append(b.list, message{other: r})
	}
	b.mu.Unlock()
	if ok {
		b.ring()
	}
	return ok
}

// postCalls hands in calls, and extensions among them, that stand together: all
// or none. Releases find room longer than claims, and extensions longer than
// both: no extension is refused while a claim is admitted.
func (b *inbox) postCalls(ms []message, release bool) *incumbent.Error {
	limit := MaxQueuedCalls
	if release {
		limit = MaxQueuedReleases
	}
	var l load
	for i := range ms {
		if x := ms[i].batch; x != nil {
			l.batches, l.extensions = l.batches+1, l.extensions+len(x.Items)
		} else {
			l.calls++
		}
	}
	return b.postUnless(func(w *load) *incumbent.Error {
		if w.full() {
			return overload.Errorf("%d batches of %d extensions wait for an answer, limits are %d and %d",
				w.batches, w.extensions, MaxQueuedBatches, MaxQueuedExtensions)
		}
		if l.calls > 0 && w.calls >= limit {
			return overload.Errorf("%d calls wait for an answer, limit is %d", w.calls, limit)
		}
		return nil
	}, l, ms...)
}

// postAttach hands in an attachment, or says why not.
func (b *inbox) postAttach(a *attach) *incumbent.Error {
	return b.postUnless(func(w *load) *incumbent.Error {
		if w.attaches >= MaxQueuedAttaches {
			return overload.Errorf("%d attachments wait for an answer, limit is %d", w.attaches, MaxQueuedAttaches)
		}
		return nil
	}, load{attaches: 1}, message{other: a})
}

// postLooks hands in an inspection, or says why not.
func (b *inbox) postLooks(q *Inspection) *incumbent.Error {
	return b.postUnless(func(w *load) *incumbent.Error {
		if w.looks >= MaxQueuedLooks {
			return overload.Errorf("%d deadlines wait to be looked up, limit is %d", w.looks, MaxQueuedLooks)
		}
		return nil
	}, load{looks: len(q.Items)}, message{other: q})
}

// postUnless hands in messages, which together count l, unless refusal finds too
// much among what waits.
func (b *inbox) postUnless(refusal func(*load) *incumbent.Error, l load, ms ...message) *incumbent.Error {
	b.mu.Lock()
	var err *incumbent.Error
	if b.closed {
		err = errStopped()
	} else if err = refusal(&b.load); err != nil {
		b.refused++
	} else {
		b.load = b.load.add(l, 1)
		b.list = append(b.list, ms...)
	}
	b.mu.Unlock()
	b.ring()
	return err
}

// take swaps the list for an empty one. What was in it counts until it is answered.
func (b *inbox) take(empty []message) (list []message, refused uint64) {
	b.mu.Lock()
	list, b.list = b.list, empty[:0]
	refused = b.refused
	b.mu.Unlock()
	return list, refused
}

// answered makes room of what has been answered.
func (b *inbox) answered(l load) {
	if l == (load{}) {
		return
	}
	b.mu.Lock()
	b.load = b.load.add(l, -1)
	b.mu.Unlock()
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
