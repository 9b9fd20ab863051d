package core

import (
	"iter"
	"slices"
	"sort"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
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
	Critical bool
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
	since   incumbent.Index
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
	return a.Since < b.Since
}

func lessWaiter(a, b byWaiter) bool {
	if c := compareID(&a.session, &b.session); c != 0 {
		return c < 0
	}
	if a.entry.row != b.entry.row {
		return a.entry.row < b.entry.row
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
func (t *shared) position(e *entry, since incumbent.Index) int {
	rank := func(p place) int {
		return sort.Search(t.places.Len(), func(i int) bool {
			at, _ := t.places.GetAt(i)
			return !lessPlace(at, p)
		})
	}
	return 1 + rank(place{row: e.row, Waiter: Waiter{Since: since}}) - rank(place{row: e.row})
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
		list = append(list, t.placeAt(e, w.since))
		return true
	})
	return list
}

func (t *shared) placeAt(e *entry, since incumbent.Index) Waiter {
	p, _ := t.places.Get(place{row: e.row, Waiter: Waiter{Since: since}})
	return p.Waiter
}

// placeOf finds a place by who stands there.
func (t *tables) placeOf(e *entry, session incumbent.SessionID, holder string) (Waiter, bool) {
	since, ok := t.waiting[placeKey{e.row, session, holder}]
	if !ok {
		return Waiter{}, false
	}
	return t.placeAt(e, since), true
}

func (t *tables) addPlace(e *entry, w Waiter) {
	t.steps++
	if t.journal != nil {
		*t.journal = append(*t.journal, func() { t.dropPlace(e, w) })
	}
	t.places.Set(place{e.row, w})
	t.waits.Set(byWaiter{w.Session, e, w.Since})
	t.waiting[placeKey{e.row, w.Session, w.Holder}] = w.Since
	t.count(w.Session, 0, 0, 1)
	t.usage.namespaces.get(e.Name.Namespace).add(Places, 1)
}

func (t *tables) dropPlace(e *entry, w Waiter) {
	t.steps++
	if t.journal != nil {
		*t.journal = append(*t.journal, func() { t.addPlace(e, w) })
	}
	t.places.Delete(place{e.row, w})
	t.waits.Delete(byWaiter{w.Session, e, w.Since})
	delete(t.waiting, placeKey{e.row, w.Session, w.Holder})
	t.count(w.Session, 0, 0, -1)
	t.usage.namespaces.get(e.Name.Namespace).add(Places, -1)
}
