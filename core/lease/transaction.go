package lease

import (
	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

var (
	_ core.Granting   = (*tables)(nil)
	_ core.Transacted = (*View)(nil)
)

// IfHeld holds while a lease is held under a token, or offered: the state need not
// know of an acceptance. It is judged by the state. The leader's clock may be about to end the
// holding, which is why its holder's own deadline comes before that.
type IfHeld struct {
	Name  incumbent.Name
	Token incumbent.Token
}

// Condition implements [core.Condition].
func (c IfHeld) Condition() (wire.Number, uint32, []byte) {
	var w wire.Writer
	w.Text(1, c.Name.Namespace)
	w.Text(2, c.Name.Model)
	w.Text(3, c.Name.Lease)
	w.Uint(4, uint64(c.Token))
	return Number, Family{}.Schema(), w.B
}

// Holds implements [core.Transacted]: it judges an [IfHeld].
func (t *shared) Holds(_ *core.Reading, says []byte) core.Verdict {
	var name [3][]byte
	var token uint64
	r, ok := wire.Read(says), true
	for ok {
		f, more := r.Next()
		if !more {
			break
		}
		switch f.Num {
		case 1, 2, 3:
			ok = f.Bytes(&name[f.Num-1])
		case 4:
			ok = f.Uint(&token) && token > 0
		default:
			ok = false
		}
	}
	if !ok || r.Bad() || token == 0 {
		return core.Verdict{Err: fail(incumbent.Invalid, "malformed")}
	}
	n := incumbent.Name{Namespace: string(name[0]), Model: string(name[1]), Lease: string(name[2])}
	return core.Verdict{Holds: t.Held(n, incumbent.Token(token))}
}

// Held implements [core.Holding], as [IfHeld] says.
func (t *shared) Held(name incumbent.Name, token incumbent.Token) bool {
	l := t.named(name)
	return l != nil && token > 0 && l.Token == token
}

// Idle implements [core.Transacted]. What claims or releases is for the log to answer,
// whatever a view says of it.
func (t *shared) Idle(*core.Reading, []byte, func(incumbent.SessionID) bool) (core.Result, bool) {
	return core.Result{}, false
}

// partOfTransaction reports whether a command may be an operation of a transaction:
// a claim that does not wait, or a release.
func (c *command) partOfTransaction() bool {
	return c.verb == doRelease || c.verb == doClaim && !c.wait
}

func errAlone() *incumbent.Error {
	return fail(incumbent.Invalid, "it is malformed, or no part of a transaction")
}

// Grants implements [core.Granting]: a claim begins one holding at most, and so does a
// release, that of who waits next.
func (t *tables) Grants([]byte) int { return 1 }

// marked is how the tables were before the transaction under way. Trees are copied;
// of maps it has what has changed since.
type marked struct {
	shared
	derived
	counts  map[incumbent.SessionID]*counts
	charges []charge // since
}

// charge is what was counted for somebody, whose count may be another by the time that
// it is taken back.
type charge struct {
	scope core.Scope
	name  string
	of    core.Counted
	by    int
}

// Mark implements [core.Undoable].
func (t *tables) Mark() {
	m := &marked{shared: t.shared.copied(), derived: t.derived, counts: make(map[incumbent.SessionID]*counts)}
	m.free, m.turns = copies(t.free), copies(t.turns)
	t.directory.mark()
	t.waiting.mark()
	t.shares.mark()
	t.marked = m
}

func copies[T any](t *btree.BTreeG[T]) *btree.BTreeG[T] { return t.Copy() }

// Settle implements [core.Undoable].
func (t *tables) Settle(back bool) {
	m := t.marked
	t.marked = nil
	t.directory.settle(back)
	t.waiting.settle(back)
	t.shares.settle(back)
	if !back {
		return
	}
	t.shared, t.derived = m.shared, m.derived
	for _, c := range m.charges {
		t.usage.Count(c.scope, c.name).Add(c.of, int64(-c.by))
	}
	for id, c := range m.counts { // in any order: each by itself
		t.counts[id] = c
	}
}

// count keeps what a session has before that changes.
func (m *marked) count(id incumbent.SessionID, c *counts) {
	if _, kept := m.counts[id]; !kept {
		was := *c
		m.counts[id] = &was
	}
}

// book is a map that goes back to how it was at a mark.
type book[K comparable, V any] struct {
	now map[K]V
	was map[K]former[V] // what has changed since the mark; nil: there is none
}

// former is what stood under a key, if anything did.
type former[V any] struct {
	value V
	there bool
}

func newBook[K comparable, V any]() *book[K, V] { return &book[K, V]{now: make(map[K]V)} }

func (b *book[K, V]) mark() { b.was = make(map[K]former[V]) }

func (b *book[K, V]) settle(back bool) {
	was := b.was
	b.was = nil
	if !back {
		return
	}
	for k, f := range was { // in any order: each by itself
		if f.there {
			b.now[k] = f.value
		} else {
			delete(b.now, k)
		}
	}
}

// keep remembers what stands under a key that is about to change.
func (b *book[K, V]) keep(k K) {
	if b.was == nil {
		return
	}
	if _, kept := b.was[k]; !kept {
		v, there := b.now[k]
		b.was[k] = former[V]{v, there}
	}
}

func (b *book[K, V]) set(k K, v V) {
	b.keep(k)
	b.now[k] = v
}

func (b *book[K, V]) drop(k K) {
	b.keep(k)
	delete(b.now, k)
}
