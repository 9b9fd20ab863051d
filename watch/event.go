package watch

import (
	"strings"
	"sync"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
)

// Kind tells families of topics apart: leases, sessions, services, tables …
// Who publishes gives the numbers.
type Kind uint8

// Topic is something one can watch: a name within a scope of a kind, such as
// lease "db/0" in namespace and model.
type Topic struct {
	Kind  Kind
	Scope [2]string
	Name  string
}

// Event is one change. It is shared by all its readers and never changes.
type Event struct {
	Index   incumbent.Index
	Topics  []Topic
	Payload any
	Size    int // bytes that keeping Payload costs; about what it takes on a wire

	links   []link        // by their nodes' ids; under the hub's mu
	charged atomic.Int64  // of the hub's bytes; negative once dropped
	bytes   *atomic.Int64 // the hub's
	encodings
}

// Encoding names a form of an event or answer on some wire. Doors give the
// numbers.
type Encoding uint8

// Encode returns the event in encoding k. The first reader that asks has f
// make it; all others, at the same time or later, share those bytes, which
// nobody may change.
func (e *Event) Encode(k Encoding, f func(*Event) []byte) []byte {
	b, fresh := e.get(k, func() []byte { return f(e) })
	if fresh {
		e.charge(int64(len(b)))
	}
	return b
}

// charge adds n to what the event costs, unless it has been dropped.
func (e *Event) charge(n int64) {
	for e.bytes != nil {
		old := e.charged.Load()
		if old < 0 {
			return
		}
		if e.charged.CompareAndSwap(old, old+n) {
			e.bytes.Add(n)
			return
		}
	}
}

// refund takes back all that was charged, and all that will be.
func (e *Event) refund() { e.bytes.Add(-e.charged.Swap(-1)) }

// encodings is a short list, grown at its head, of forms made once each.
type encodings struct{ first atomic.Pointer[encoded] }

type encoded struct {
	kind  Encoding
	once  sync.Once
	bytes []byte
	next  *encoded
}

// get returns the bytes of encoding k and whether this call made them.
func (c *encodings) get(k Encoding, f func() []byte) (b []byte, fresh bool) {
	x := c.find(k)
	x.once.Do(func() { x.bytes, fresh = f(), true })
	return x.bytes, fresh
}

func (c *encodings) find(k Encoding) *encoded {
	for {
		first := c.first.Load()
		for x := first; x != nil; x = x.next {
			if x.kind == k {
				return x
			}
		}
		x := &encoded{kind: k, next: first}
		if c.first.CompareAndSwap(first, x) {
			return x
		}
	}
}

// Selector picks events by their topics. Selectors are comparable.
//
// A condition on a value (column == "x") finds its place here as one more
// match, with a node per value in use below the group's node, as prefixes have.
type Selector struct {
	match match
	topic Topic
}

type match uint8

const (
	matchExact match = iota
	matchPrefix
	matchScope
	matchKind
)

// Exact selects the events of one topic.
func Exact(t Topic) Selector { return Selector{matchExact, t} }

// Prefix selects the topics of a scope whose name begins with prefix.
func Prefix(k Kind, scope [2]string, prefix string) Selector {
	if prefix == "" {
		return Scope(k, scope)
	}
	return Selector{matchPrefix, Topic{k, scope, prefix}}
}

// Scope selects all topics of a scope.
func Scope(k Kind, scope [2]string) Selector {
	return Selector{matchScope, Topic{Kind: k, Scope: scope}}
}

// All selects all topics of a kind.
func All(k Kind) Selector { return Selector{matchKind, Topic{Kind: k}} }

// Matches reports whether the selector picks the topic.
func (s Selector) Matches(t Topic) bool {
	if t.Kind != s.topic.Kind {
		return false
	}
	switch s.match {
	case matchKind:
		return true
	case matchScope:
		return t.Scope == s.topic.Scope
	case matchPrefix:
		return t.Scope == s.topic.Scope && strings.HasPrefix(t.Name, s.topic.Name)
	default:
		return t == s.topic
	}
}

// Picks reports whether the selector picks one of the event's topics.
func (s Selector) Picks(e *Event) bool {
	for _, t := range e.Topics {
		if s.Matches(t) {
			return true
		}
	}
	return false
}
