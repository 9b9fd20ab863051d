package table

import (
	"cmp"
	"math/bits"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// relation is what a table has. It never changes once a [View] has it.
type relation struct {
	of     *batch                 // that may change it; nil: none
	rows   *btree.BTreeG[*Row]    // by uuid
	unique []*btree.BTreeG[keyed] // of each index of the schema
	refs   [2]*btree.BTreeG[ref]  // strong and weak references to its rows, whether those are there or not
}

// keyed is a row in an index. keys that are fewer than those of the index come before
// all that begin with them.
type keyed struct {
	keys []ovs.Datum
	id   ovs.UUID
}

// ref says that a row refers to another, in how many places.
type ref struct {
	to    ovs.UUID
	table int // of from
	from  ovs.UUID
	times int
}

// Strong references come before weak ones.
const (
	strong = iota
	weak
)

// uniqueIndex is the rows of a table by the columns of an index.
type uniqueIndex = btree.BTreeG[keyed]

// tree is a tree without locks.
type tree[T any] = btree.BTreeG[T]

func newTree[T any](compare func(a, b T) int) *btree.BTreeG[T] {
	return btree.NewBTreeGOptions(func(a, b T) bool { return compare(a, b) < 0 }, btree.Options{NoLocks: true, Degree: treeDegree})
}

// fork returns a copy of a tree in constant time, and leaves alone the tree itself,
// which others may be reading.
func fork[T any](t *btree.BTreeG[T]) *btree.BTreeG[T] {
	own := *t
	return own.Copy()
}

func newRelation(t *ovs.Table) *relation {
	r := &relation{
		rows:   newTree(func(a, b *Row) int { return compareIDs(a.UUID, b.UUID) }),
		unique: make([]*btree.BTreeG[keyed], len(t.Indexes)),
		refs:   [2]*btree.BTreeG[ref]{newTree(ref.compare), newTree(ref.compare)},
	}
	for i := range r.unique {
		r.unique[i] = newTree(keyed.compare)
	}
	return r
}

// batch is the commands between one view and the next: what it has copied no view has,
// so that it need not be copied again for each of its transactions.
type batch struct{ _ byte } // of a size, so that no two have the same address

func (r *relation) fork(of *batch) *relation {
	f := &relation{of: of, rows: fork(r.rows), unique: make([]*btree.BTreeG[keyed], len(r.unique))}
	for i, u := range r.unique {
		f.unique[i] = fork(u)
	}
	for i, t := range r.refs {
		f.refs[i] = fork(t)
	}
	return f
}

func (a keyed) compare(b keyed) int {
	if c := compareKeys(a.keys, b.keys); c != 0 {
		return c
	}
	return compareIDs(a.id, b.id)
}

// compareKeys costs nothing for what is shared, as rows share what one operation gave them.
func compareKeys(a, b []ovs.Datum) int {
	for i := range min(len(a), len(b)) {
		if shared(a[i], b[i]) {
			continue
		}
		if c := ovs.CompareDatums(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func (a ref) compare(b ref) int {
	if c := compareIDs(a.to, b.to); c != 0 {
		return c
	}
	return cmp.Or(cmp.Compare(a.table, b.table), compareIDs(a.from, b.from))
}

func (r *relation) row(id ovs.UUID) *Row {
	o, _ := r.rows.Get(&Row{UUID: id})
	return o
}

// kept reports whether another row refers strongly to a row.
func (r *relation) kept(table int, id ovs.UUID) (kept bool) {
	r.refs[strong].Ascend(ref{to: id, table: -1}, func(f ref) bool {
		kept = f.to == id && (f.table != table || f.from != id)
		return f.to == id && !kept
	})
	return kept
}

// from calls fn with the rows that refer to a row, by table and uuid.
func (r *relation) from(kind int, id ovs.UUID, fn func(table int, from ovs.UUID)) {
	r.refs[kind].Ascend(ref{to: id, table: -1}, func(f ref) bool {
		if f.to == id {
			fn(f.table, f.from)
		}
		return f.to == id
	})
}

// count counts references.
func (r *relation) count(kind int, f ref, by int) {
	t := r.refs[kind]
	was, _ := t.Get(f)
	if f.times = was.times + by; f.times > 0 {
		t.Set(f)
		return
	}
	t.Delete(f)
}

// keysOf are those of a row in an index.
func keysOf(r *Row, columns []int) []ovs.Datum {
	keys := make([]ovs.Datum, len(columns))
	for i, c := range columns {
		keys[i] = r.Datum(c) // a schema may name _uuid in an index
	}
	return keys
}

// sameKeys reports whether two states of a row have equal keys in an index.
func sameKeys(a, b *Row, columns []int) bool {
	for _, c := range columns {
		if c >= 0 && !equal(a.Columns[c], b.Columns[c]) { // of the same uuid they are
			return false
		}
	}
	return true
}

// equal is Equal, at no cost for what is shared.
func equal(a, b ovs.Datum) bool { return shared(a, b) || a.Equal(b) }

// shared reports whether two datums are one.
func shared(a, b ovs.Datum) bool {
	if len(a.Keys) != len(b.Keys) || len(a.Values) != len(b.Values) {
		return false
	}
	return (len(a.Keys) == 0 || &a.Keys[0] == &b.Keys[0]) && (len(a.Values) == 0 || &a.Values[0] == &b.Values[0])
}

// equalRows reports whether two rows say the same.
func equalRows(a, b *Row) bool {
	for i := range a.Columns {
		if !equal(a.Columns[i], b.Columns[i]) {
			return false
		}
	}
	return true
}

// sizeOf is what a row costs, about. No encoding of it is longer.
func sizeOf(r *Row) int64 {
	if r == nil {
		return 0
	}
	return rowBytes + sizeOfColumns(r.Columns)
}

func sizeOfColumns(list []ovs.Datum) (n int64) {
	for _, d := range list {
		n += sizeOfDatum(d)
	}
	return n
}

func sizeOfDatum(d ovs.Datum) int64 {
	n := int64(datumBytes)
	for _, list := range [...][]ovs.Atom{d.Keys, d.Values} {
		for _, a := range list {
			n += atomBytes + int64(len(a.Text()))
		}
	}
	return n
}

// sizeAmong is what it costs at most to find columns among n others, in bytes compared.
// It follows from what they say: what is shared differs between members, and costs less.
func sizeAmong(list []ovs.Datum, n int) int64 {
	return sizeOfColumns(list) * int64(1+bits.Len(uint(n)))
}

const (
	datumBytes = 16 // what a column costs besides its atoms
	atomBytes  = 24 // what an atom costs besides its text
)
