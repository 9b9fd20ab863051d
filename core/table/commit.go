package table

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// commit judges what a transaction has done and completes it. It is in this order that
// other servers do so, and clients see which check comes first. Nothing has changed
// unless w.order has rows afterwards.
func (w *work) commit(at incumbent.Index) *ovs.Error {
	if w.settle(); len(w.order) == 0 {
		return nil
	}
	for _, check := range [...]func() *ovs.Error{w.checkReferences, w.collect, w.checkRows, w.pruneAll, w.checkIndexes} {
		if err := check(); err != nil {
			return err
		}
	}
	w.settle()
	slices.SortFunc(w.order, func(a, b *touch) int { return a.place.compare(b.place) })
	n := 0
	for _, t := range w.order {
		if t.new != nil {
			n++
			t.new.Version = idOf(at, n) // nobody else has seen the row
		}
	}
	return nil
}

// references calls fn with the references of one kind that a row has and another, which
// may be nil, does not have.
func (w *work) references(table, kind int, has, not *Row, fn func(column int, to place)) {
	for c, column := range w.schema.Tables[table].Columns {
		k, v := &column.Type.Key, &column.Type.Value
		d, other := datumOf(has, c), datumOf(not, c)
		if shared(d, other) {
			continue
		}
		if k.Ref != ovs.NoRef && kindOf(k.Ref) == kind {
			missing(d.Keys, other.Keys, func(a ovs.Atom) { fn(c, place{k.Table, a.UUID()}) })
		}
		if v.Ref != ovs.NoRef && kindOf(v.Ref) == kind {
			missing(d.Values, other.Values, func(a ovs.Atom) { fn(c, place{v.Table, a.UUID()}) })
		}
	}
}

// missing calls fn with the atoms of one list that do not stand in another. Where both
// ascend it costs a walk; where they do not some may be told that stand in both.
func missing(has, other []ovs.Atom, fn func(ovs.Atom)) {
	for _, a := range has {
		for len(other) > 0 && ovs.Compare(other[0], a) < 0 {
			other = other[1:]
		}
		if len(other) == 0 || other[0] != a {
			fn(a)
		}
	}
}

// checkReferences refuses strong references that lead nowhere.
func (w *work) checkReferences() (err *ovs.Error) {
	for _, t := range w.order {
		if t.new == nil {
			continue
		}
		w.references(t.table, strong, t.new, t.old, func(column int, to place) {
			if err == nil && w.row(to) == nil {
				err = ovs.Errorf(ovs.ReferentialError, "column %s of row %s of table %s refers to row %s of table %s, which is not there",
					w.schema.Tables[t.table].Columns[column].Name, t.id, w.name(t.table), to.id, w.name(to.table))
			}
		})
	}
	if err != nil {
		return err
	}
	for _, t := range w.order {
		if t.new == nil && w.relations[t.table].kept(t.table, t.id) {
			return ovs.Errorf(ovs.ReferentialError, "row %s of table %s cannot be deleted: others refer to it", t.id, w.name(t.table))
		}
	}
	return nil
}

func (w *work) name(table int) string { return w.schema.Tables[table].Name }

// collect deletes the rows that are no roots and that nothing refers to any more, and
// then those that only they referred to.
func (w *work) collect() *ovs.Error {
	var list []place
	lost := func(_ int, to place) { list = append(list, to) }
	for _, t := range w.order {
		switch {
		case t.new == nil:
			w.references(t.table, strong, t.old, nil, lost)
		case t.old == nil:
			list = append(list, t.place)
		default:
			w.references(t.table, strong, t.old, t.new, lost)
		}
	}
	w.collectOf(list)
	return nil
}

// collectOf does so of the rows of a list, which have lost a reference, and returns those
// that it has deleted.
func (w *work) collectOf(list []place) (gone []place) {
	lost := func(_ int, to place) { list = append(list, to) }
	for len(list) > 0 {
		p := list[len(list)-1]
		list = list[:len(list)-1]
		if w.schema.Tables[p.table].IsRoot {
			continue
		}
		r := w.row(p)
		if r == nil || w.relations[p.table].kept(p.table, p.id) {
			continue
		}
		w.references(p.table, strong, r, nil, lost)
		w.put(p.table, r, nil)
		gone = append(gone, p)
	}
	return gone
}

// checkRows refuses more rows, or larger ones, than there may be.
func (w *work) checkRows() *ovs.Error {
	for _, t := range w.order {
		of := w.schema.Tables[t.table]
		if n := w.relations[t.table].rows.Len(); n > of.MaxRows {
			return ovs.Errorf(ovs.ConstraintError, "table %s would have %d rows, and its schema allows %d", of.Name, n, of.MaxRows)
		}
		if size := sizeOf(t.new); size > MaxRowBytes {
			return ovs.Errorf(ovs.ResourcesExhausted, "row %s of table %s would have %d bytes, and at most %d are allowed", t.id, of.Name, size, MaxRowBytes)
		}
	}
	return nil
}

// dangling are the weak references that lead nowhere.
type dangling struct {
	from []place        // the rows that have them, some more than once
	to   map[place]bool // where they lead
}

func (d *dangling) add(from, to place) {
	if d.to == nil {
		d.to = map[place]bool{}
	}
	d.from, d.to[to] = append(d.from, from), true
}

// addAll adds the references to a row that is gone, of rows that the transaction has not
// touched, too.
func (w *work) addAll(d *dangling, gone place) {
	w.relations[gone.table].from(weak, gone.id, func(table int, from ovs.UUID) { d.add(place{table, from}, gone) })
}

// pruneAll removes the weak references that lead nowhere, and collects what lost its last
// strong reference by it (that stood in one pair with a weak one) until there is nothing
// left to remove. Each time it looks only at what refers to the rows that went last.
func (w *work) pruneAll() *ovs.Error {
	var d dangling
	for _, t := range w.order {
		if t.new == nil {
			w.addAll(&d, t.place)
			continue
		}
		w.references(t.table, weak, t.new, t.old, func(_ int, to place) {
			if w.row(to) == nil {
				d.add(t.place, to)
			}
		})
	}
	for len(d.from) > 0 {
		lost, err := w.prune(&d)
		if err != nil {
			return err
		}
		d = dangling{}
		for _, gone := range w.collectOf(lost) {
			w.addAll(&d, gone)
		}
	}
	return nil
}

// prune removes references, and returns the rows that lost a strong one with them.
func (w *work) prune(d *dangling) (lost []place, _ *ovs.Error) {
	if w.weighed {
		if err := w.spend(len(d.from) * referenceBytes / comparedAsRow); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(d.from, place.compare)
	for _, p := range slices.Compact(d.from) {
		also, err := w.pruneRow(p, d)
		if err != nil {
			return nil, err
		}
		lost = append(lost, also...)
	}
	return lost, nil
}

func (w *work) pruneRow(p place, gone *dangling) (lost []place, _ *ovs.Error) {
	r := w.row(p)
	if w.weighed {
		if err := w.spend(1 + int(sizeOf(r)/comparedAsRow)); err != nil {
			return nil, err
		}
	}
	n := next(r)
	for c, column := range w.schema.Tables[p.table].Columns {
		t := &column.Type
		if t.Key.Ref != ovs.Weak && t.Value.Ref != ovs.Weak {
			continue
		}
		d := gone.pruned(t, r.Columns[c])
		if len(d.Keys) < t.Min {
			return nil, ovs.Errorf(ovs.ConstraintError, "column %s of row %s of table %s would have %d elements without its references to rows that are not there, and needs %d",
				column.Name, p.id, w.name(p.table), len(d.Keys), t.Min)
		}
		n.Columns[c] = d
	}
	w.put(p.table, r, n)
	w.references(p.table, strong, r, n, func(_ int, to place) { lost = append(lost, to) })
	return lost, nil
}

// pruned is a datum without the elements that have these references.
func (d *dangling) pruned(t *ovs.Type, of ovs.Datum) (n ovs.Datum) {
	stays := func(b *ovs.BaseType, a ovs.Atom) bool { return b.Ref != ovs.Weak || !d.to[place{b.Table, a.UUID()}] }
	for i, k := range of.Keys {
		if !stays(&t.Key, k) || of.Values != nil && !stays(&t.Value, of.Values[i]) {
			continue
		}
		n.Keys = append(n.Keys, k)
		if of.Values != nil {
			n.Values = append(n.Values, of.Values[i])
		}
	}
	if len(n.Keys) == len(of.Keys) {
		return of
	}
	return n
}

// checkIndexes refuses rows whose columns of an index are those of another.
func (w *work) checkIndexes() *ovs.Error {
	for _, t := range w.order {
		if t.new == nil {
			continue
		}
		for i, columns := range w.schema.Tables[t.table].Indexes {
			if t.old != nil && sameKeys(t.old, t.new, columns) {
				continue
			}
			if w.twice(t, i, keysOf(t.new, columns)) {
				return ovs.Errorf(ovs.ConstraintError, "row %s of table %s would have the same values as another in the columns of index %d", t.id, w.name(t.table), i+1)
			}
		}
	}
	return nil
}

func (w *work) twice(t *touch, index int, keys []ovs.Datum) (twice bool) {
	w.relations[t.table].unique[index].Ascend(keyed{keys: keys}, func(k keyed) bool {
		twice = compareKeys(k.keys, keys) == 0 && k.id != t.id
		return compareKeys(k.keys, keys) == 0 && !twice
	})
	return twice
}
