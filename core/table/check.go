package table

import (
	"fmt"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// check verifies the invariants. It looks at everything.
func (d *Database) check(index incumbent.Index) error {
	if d.SchemaIndex > index || d.stepped > index || len(d.relations) != len(d.Schema.Tables) {
		return fmt.Errorf("the schema is of index %d, and there are %d tables", d.SchemaIndex, len(d.relations))
	}
	fresh := newDatabase(d.Namespace, d.Owner, d.Schema, d.SchemaIndex)
	w := begin(fresh)
	l := &load{work: w}
	for i := range d.relations {
		d.Rows(i, func(r *Row) bool {
			if d.loading != nil {
				l.add(place{i, r.UUID}, r)
			} else {
				w.put(i, nil, r)
			}
			return true
		})
	}
	if w.records != d.records || w.bytes != d.bytes {
		return fmt.Errorf("%d rows of %d bytes are there, and %d of %d counted", w.records, w.bytes, d.records, d.bytes)
	}
	for i, r := range d.relations {
		if err := r.check(w.relations[i], d.Schema.Tables[i]); err != nil {
			return err
		}
	}
	if d.loading != nil {
		if *d.loading != l.lack {
			return fmt.Errorf("of its load are missing %+v, counted are %+v", l.lack, *d.loading)
		}
		return nil
	}
	return w.checkWhole(index)
}

// check compares what is derived from rows with what has been made of them anew.
func (r *relation) check(anew *relation, t *ovs.Table) error {
	for i := range r.unique {
		if !sameTrees(r.unique[i], anew.unique[i], keyed.compare) {
			return fmt.Errorf("index %d of table %s does not have its rows", i+1, t.Name)
		}
	}
	for i := range r.refs {
		if !sameTrees(r.refs[i], anew.refs[i], func(a, b ref) int {
			if a.times != b.times {
				return 1
			}
			return a.compare(b)
		}) {
			return fmt.Errorf("the references to rows of table %s are not those that there are", t.Name)
		}
	}
	return nil
}

// checkWhole has all rows pass what rows pass at a commit.
func (w *work) checkWhole(index incumbent.Index) error {
	n := len(w.order)
	for _, check := range [...]func() *ovs.Error{w.checkReferences, w.collect, w.checkRows, w.checkIndexes} {
		if err := check(); err != nil {
			return err
		}
	}
	for _, t := range w.order[:n] {
		if t.new == nil {
			return fmt.Errorf("nothing refers to row %s of table %s, which is no root", t.id, w.name(t.table))
		}
		if at := IndexOf(t.new.Version); at == 0 || at > index {
			return fmt.Errorf("row %s of table %s is of index %d", t.id, w.name(t.table), at)
		}
		var err error
		w.references(t.table, weak, t.new, nil, func(column int, to place) {
			if w.row(to) == nil {
				err = fmt.Errorf("a weak reference of row %s of table %s leads nowhere", t.id, w.name(t.table))
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func sameTrees[T any](a, b *tree[T], compare func(a, b T) int) bool {
	if a.Len() != b.Len() {
		return false
	}
	x, y := a.Iter(), b.Iter()
	defer x.Release()
	defer y.Release()
	for x.Next() {
		if !y.Next() || compare(x.Item(), y.Item()) != 0 {
			return false
		}
	}
	return true
}
