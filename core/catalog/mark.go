package catalog

import (
	"cmp"

	"github.com/incumbent-dev/incumbent"
)

// mark is the index of the last change of what one name stands for.
type mark struct {
	namespace string
	of        markKind
	name      string
	at        incumbent.Index
}

type markKind uint8

// The kinds of marks. The numbers are part of snapshots: append only.
const (
	ofTable markKind = iota + 1 // all records of a kind: its name
	ofService
	ofNode
	numMarkKinds
)

func (m mark) compare(o mark) int {
	return cmp.Or(compare(m.namespace, o.namespace), cmp.Compare(m.of, o.of), incumbent.CompareNames(m.name, o.name))
}

// Table is one of the tables of the catalog.
type Table string

// The tables, each with the topics' scope of its records.
const (
	Nodes    Table = "nodes"
	Services Table = "services"
	Checks   Table = "checks"
	Sessions Table = "sessions"
)

// at is the index of a name, or the floor.
func (t *shared) at(namespace string, of markKind, name string) incumbent.Index {
	m, _ := t.marks.Get(mark{namespace: namespace, of: of, name: name})
	return max(m.at, t.floor)
}

// touch moves the index of a name. gone: it is of nothing now.
func (t *tables) touch(m mark, gone bool) {
	if old, had := t.marks.Set(m); had {
		t.dead.Delete(old)
	}
	if gone {
		t.bury(m)
	}
}

// bury lets a mark be forgotten; of too many the oldest goes.
func (t *tables) bury(m mark) {
	t.dead.Set(m)
	for t.dead.Len() > t.limits.tombstones {
		oldest, _ := t.dead.PopMin()
		t.marks.Delete(oldest)
		t.floor = max(t.floor, oldest.at)
	}
}

// isDead reports whether a mark is of nothing.
func (t *shared) isDead(m mark) bool {
	switch m.of {
	case ofService:
		none := true
		t.instancesOf(m.namespace, m.name, func(*Instance) bool {
			none = false
			return false
		})
		return none
	case ofNode:
		return t.host(m.namespace, m.name) == nil
	}
	return false
}
