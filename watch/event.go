package watch

import (
	"sync"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
)

// Event is one change. It is shared by all its readers and never changes.
type Event struct {
	Index   incumbent.Index
	Topics  []Topic
	Shared  *Shared // topics besides, which others may have as well; nil: none
	Payload any
	Size    int // bytes that keeping Payload costs; about what it takes on a wire

	links []link  // by their nodes' ids; under the hub's mu
	few   [3]link // where links are, of an event with one topic, of its own, that no filter picks
	cost          // of the hub's bytes
	encodings
}

// Encoding names a form of an event or answer on some wire. Doors give the
// numbers.
type Encoding uint8

// Encode returns the event in encoding k. The first reader that asks has f
// make it; all others, at the same time or later, share those bytes, which
// nobody may change.
func (e *Event) Encode(k Encoding, f func(*Event) []byte) []byte {
	return e.EncodeFor(k, "", f)
}

// maxSelections is how many encodings an event keeps that are for selections: each costs
// the history what it takes, and no client may have it keep any number.
const maxSelections = 16

// EncodeFor is Encode of what a selection shows of an event, for all who have selected the
// same; "": all of it. Of an event that has been encoded for many selections already f makes
// it for the caller alone.
func (e *Event) EncodeFor(k Encoding, selection string, f func(*Event) []byte) []byte {
	x := e.find(k, selection)
	if x == nil {
		return f(e)
	}
	b, fresh := x.get(func() []byte { return f(e) })
	if fresh {
		e.charge(int64(len(b) + len(selection)))
	}
	return b
}

// cost is what something costs as long as it is kept, in a sum of all.
type cost struct {
	sum     *atomic.Int64 // nil: none
	charged atomic.Int64  // of the sum; negative once refunded
}

// charge adds n bytes to what it costs, unless that has been refunded.
func (c *cost) charge(n int64) {
	for c.sum != nil {
		old := c.charged.Load()
		if old < 0 {
			return
		}
		if c.charged.CompareAndSwap(old, old+n) {
			c.sum.Add(n)
			return
		}
	}
}

// refund takes back all that was charged, and all that will be.
func (c *cost) refund() { c.sum.Add(-c.charged.Swap(-1)) }

// encodings is a short list, grown at its head, of forms made once each.
type encodings struct{ first atomic.Pointer[encoded] }

type encoded struct {
	kind      Encoding
	selection string
	once      sync.Once
	bytes     []byte
	next      *encoded
}

// get returns the bytes and whether this call made them.
func (x *encoded) get(f func() []byte) (b []byte, fresh bool) {
	x.once.Do(func() { x.bytes, fresh = f(), true })
	return x.bytes, fresh
}

// find returns the place of an encoding; nil: there is none for another selection.
func (c *encodings) find(k Encoding, selection string) *encoded {
	for {
		first, selections := c.first.Load(), 0
		for x := first; x != nil; x = x.next {
			if x.kind == k && x.selection == selection {
				return x
			}
			if x.selection != "" {
				selections++
			}
		}
		if selection != "" && selections >= maxSelections {
			return nil
		}
		x := &encoded{kind: k, selection: selection, next: first}
		if c.first.CompareAndSwap(first, x) {
			return x
		}
	}
}
