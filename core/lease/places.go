package lease

import (
	"iter"
	"slices"
	"sort"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// The queues of all leases are rows of one tree, in the order of the queues. So
// a place that is taken, given up or looked for costs the logarithm of their
// number and never a queue's length, wherever it stands; a lease's record says
// only how many wait.

// Waiter is a session in the queue of a lease.
type Waiter struct {
	Session  incumbent.SessionID
	Holder   string
	Since    incumbent.Index // no two of one queue have the same
	Turn     uint64          // comes before Since: see exec.turnOf
	Critical bool
}

// before reports whether one place of a queue comes before another.
func (w *Waiter) before(o *Waiter) bool {
	if w.Turn != o.Turn {
		return w.Turn < o.Turn
	}
	return w.Since < o.Since
}

// place is a waiter in the queue of the lease that has a row.
type place struct {
	row uint64
	Waiter
}

// byWaiter finds the places of a session, those of one lease by their order.
type byWaiter struct {
	session incumbent.SessionID
	entry   *entry
	spot
}

// spot is where in its queue a place stands.
type spot struct {
	turn  uint64
	since incumbent.Index
}

func (w *Waiter) spot() spot { return spot{w.Turn, w.Since} }

// byTurn finds the last place of a principal in a queue.
type byTurn struct {
	row       uint64
	principal string
	turn      uint64
	since     incumbent.Index
}

// share is a principal in the queue of the lease that has a row.
type share struct {
	row       uint64
	principal string
}

// placeKey finds a place by what no two places have in common.
type placeKey struct {
	row     uint64
	session incumbent.SessionID
	holder  string
}

func newPlaces(o btree.Options) *btree.BTreeG[place] {
	return btree.NewBTreeGOptions(lessPlace, o)
}

func lessPlace(a, b place) bool {
	if a.row != b.row {
		return a.row < b.row
	}
	return a.before(&b.Waiter)
}

func lessTurn(a, b byTurn) bool {
	if a.row != b.row {
		return a.row < b.row
	}
	if a.principal != b.principal {
		return a.principal < b.principal
	}
	if a.turn != b.turn {
		return a.turn < b.turn
	}
	return a.since < b.since
}

func lessWaiter(a, b byWaiter) bool {
	if c := compareID(&a.session, &b.session); c != 0 {
		return c < 0
	}
	if a.entry.row != b.entry.row {
		return a.entry.row < b.entry.row
	}
	if a.turn != b.turn {
		return a.turn < b.turn
	}
	return a.since < b.since
}

// Queue lists who waits for a lease: the first is next. How many they are says
// the lease's record.
func (v *View) Queue(name incumbent.Name) iter.Seq[Waiter] {
	return func(yield func(Waiter) bool) {
		if e, ok := v.names.Get(&entry{Name: name}); ok {
			v.queue(e)(yield)
		}
	}
}

func (t *shared) queue(e *entry) iter.Seq[Waiter] {
	return func(yield func(Waiter) bool) {
		t.places.Ascend(place{row: e.row}, func(p place) bool { return p.row == e.row && yield(p.Waiter) })
	}
}

// position is where in its queue a place stands, from 1: two searches by rank.
func (t *shared) position(e *entry, w Waiter) int {
	rank := func(p place) int {
		return sort.Search(t.places.Len(), func(i int) bool {
			at, _ := t.places.GetAt(i)
			return !lessPlace(at, p)
		})
	}
	return 1 + rank(place{row: e.row, Waiter: w}) - rank(place{row: e.row})
}

// waitedFor lists the leases in whose queues a session stands, by name.
func (t *shared) waitedFor(id incumbent.SessionID) []*entry {
	var list []*entry
	t.waits.Ascend(byWaiter{session: id, entry: new(entry)}, func(w byWaiter) bool {
		if w.session != id {
			return false
		}
		if len(list) == 0 || list[len(list)-1] != w.entry {
			list = append(list, w.entry)
		}
		return true
	})
	slices.SortFunc(list, func(a, b *entry) int { return a.Name.Compare(b.Name) })
	return list
}

// placesIn lists the places of a session in one queue, in its order, up to a
// number of them.
func (t *tables) placesIn(e *entry, session incumbent.SessionID, limit int) []Waiter {
	var list []Waiter
	t.waits.Ascend(byWaiter{session: session, entry: e}, func(w byWaiter) bool {
		if w.session != session || w.entry != e || len(list) >= limit {
			return false
		}
		t.steps++
		list = append(list, t.placeAt(e, w.spot))
		return true
	})
	return list
}

func (t *shared) placeAt(e *entry, at spot) Waiter {
	p, _ := t.places.Get(place{row: e.row, Waiter: Waiter{Since: at.since, Turn: at.turn}})
	return p.Waiter
}

// placeOf finds a place by who stands there.
func (t *tables) placeOf(e *entry, session incumbent.SessionID, holder string) (Waiter, bool) {
	at, ok := t.waiting.now[placeKey{e.row, session, holder}]
	if !ok {
		return Waiter{}, false
	}
	return t.placeAt(e, at), true
}

func (t *tables) addPlace(e *entry, w Waiter) {
	t.steps++
	t.places.Set(place{e.row, w})
	t.waits.Set(byWaiter{w.Session, e, w.spot()})
	t.waiting.set(placeKey{e.row, w.Session, w.Holder}, w.spot())
	owner := t.ownerOf(w.Session)
	t.turns.Set(byTurn{e.row, owner, w.Turn, w.Since})
	t.countPlace(e, w, owner, 1)
}

func (t *tables) dropPlace(e *entry, w Waiter) {
	t.steps++
	t.places.Delete(place{e.row, w})
	t.waits.Delete(byWaiter{w.Session, e, w.spot()})
	t.waiting.drop(placeKey{e.row, w.Session, w.Holder})
	owner := t.ownerOf(w.Session)
	t.turns.Delete(byTurn{e.row, owner, w.Turn, w.Since})
	t.countPlace(e, w, owner, -1)
}

func (t *tables) countPlace(e *entry, w Waiter, owner string, by int) {
	t.count(w.Session, 0, 0, by)
	t.chargeSpace(e, core.Places, by)
	of := share{e.row, owner}
	if n := t.shares.now[of] + by; n == 0 {
		t.shares.drop(of)
	} else {
		t.shares.set(of, n)
	}
}
