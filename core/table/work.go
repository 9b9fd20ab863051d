package table

import (
	"cmp"
	"slices"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// work is a database while a command changes it. It leaves alone the one that it
// began from, but for relations that its batch has copied already: see undo.
type work struct {
	from      *Database
	batch     *batch // that it is part of; nil: none
	schema    *ovs.Schema
	relations []*relation
	owned     []bool // the relations that are this one's
	touched   map[place]*touch
	order     []*touch // as they were touched first
	records   int
	bytes     int64
	bounded   bool  // by what it may write while it runs: see boundSchema
	weighed   bool  // by what it compares: see weighSchema
	moved     int64 // bytes of rows that were written, or taken away, and are not spent yet
	mutated   int   // atoms of columns that were mutated, and are not spent yet
	compared  int64 // bytes that were compared, and are not spent yet
	spent     int   // of MaxWork
	answered  int64 // of MaxAnswerBytes
	dry       bool  // a change is not made, only noted: it is all there is to know
	would     bool  // one was noted
}

// place is where a row is.
type place struct {
	table int
	id    ovs.UUID
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.table, o.table), compareIDs(p.id, o.id))
}

// touch is a row that the transaction has touched: what it was, and what it is by now.
type touch struct {
	place
	old, new *Row
}

func begin(d *Database) *work { return beginIn(nil, d) }

func beginIn(b *batch, d *Database) *work {
	return &work{from: d, batch: b, schema: d.Schema, relations: d.relations, records: d.records, bytes: d.bytes}
}

// limitBy sets the limits of a schema version that is active.
func (w *work) limitBy(active uint32) {
	w.bounded, w.weighed = active >= boundSchema, active >= weighSchema
}

// undo takes back what was done: the batch goes on with the relations that it has copied.
func (w *work) undo() {
	if w.batch == nil {
		return
	}
	for _, t := range w.order {
		if t.new != t.old {
			w.put(t.table, t.new, t.old)
		}
	}
}

// own returns a table's relation, to be changed.
func (w *work) own(table int) *relation {
	if r := w.relations[table]; w.batch != nil && r.of == w.batch {
		return r
	}
	if w.owned == nil {
		w.owned = make([]bool, len(w.relations))
		w.relations = slices.Clone(w.relations)
	}
	if !w.owned[table] {
		w.owned[table] = true
		w.relations[table] = w.relations[table].fork(w.batch)
	}
	return w.relations[table]
}

// put stores n in the place of o in a table; either may be nil. n is a row that nobody
// else has, and whose version is still to be chosen.
func (w *work) put(table int, o, n *Row) {
	if w.dry {
		w.would = true
		return
	}
	r := w.own(table)
	w.note(table, o, n)
	if n == nil {
		r.rows.Delete(o)
	} else {
		r.rows.Set(n)
	}
	w.records += one(o == nil) - one(n == nil)
	was, is := sizeOf(o), sizeOf(n)
	w.bytes += is - was
	w.moved += is + was
	for i, columns := range w.schema.Tables[table].Indexes {
		if o != nil && n != nil && sameKeys(o, n, columns) {
			continue
		}
		if o != nil {
			keys := keysOf(o, columns)
			w.weigh(sizeAmong(keys, r.unique[i].Len()))
			r.unique[i].Delete(keyed{keys, o.UUID})
		}
		if n != nil {
			keys := keysOf(n, columns)
			w.weigh(sizeAmong(keys, r.unique[i].Len()))
			r.unique[i].Set(keyed{keys, n.UUID})
		}
	}
	w.refer(table, o, n)
}

func one(is bool) int {
	if is {
		return 1
	}
	return 0
}

// note remembers what a row was before the transaction.
func (w *work) note(table int, o, n *Row) {
	p := place{table, (&RowChange{Old: o, New: n}).ID()}
	if t := w.touched[p]; t != nil {
		t.new = n
		return
	}
	if w.touched == nil {
		w.touched = map[place]*touch{}
	}
	t := &touch{p, o, n}
	w.touched[p] = t
	w.order = append(w.order, t)
}

// refer lists the references of n in the place of those of o.
func (w *work) refer(table int, o, n *Row) {
	for c, column := range w.schema.Tables[table].Columns {
		k, v := &column.Type.Key, &column.Type.Value
		if k.Ref == ovs.NoRef && v.Ref == ovs.NoRef {
			continue
		}
		was, is := datumOf(o, c), datumOf(n, c)
		if shared(was, is) {
			continue
		}
		if k.Ref != ovs.NoRef {
			w.recount(table, k, o, n, was.Keys, is.Keys)
		}
		if v.Ref != ovs.NoRef {
			w.recount(table, v, o, n, was.Values, is.Values)
		}
	}
}

func datumOf(r *Row, column int) ovs.Datum {
	if r == nil {
		return ovs.Datum{}
	}
	return r.Columns[column]
}

// recount counts the references of atoms anew. Those that stay where they are, as most
// of a large set do, cost a comparison.
func (w *work) recount(table int, b *ovs.BaseType, o, n *Row, was, is []ovs.Atom) {
	id, kind := (&RowChange{Old: o, New: n}).ID(), kindOf(b.Ref)
	count := func(to ovs.Atom, by int) {
		w.weigh(referenceBytes)
		w.own(b.Table).count(kind, ref{to.UUID(), table, id, 0}, by)
	}
	for len(was) > 0 || len(is) > 0 {
		switch {
		case len(is) == 0:
			count(was[0], -1)
			was = was[1:]
		case len(was) == 0:
			count(is[0], 1)
			is = is[1:]
		case was[0] == is[0]:
			was, is = was[1:], is[1:]
		case ovs.Compare(was[0], is[0]) < 0: // keys ascend; values need not, and are counted one by one
			count(was[0], -1)
			was = was[1:]
		default:
			count(is[0], 1)
			is = is[1:]
		}
	}
}

// row returns a row as it is by now.
func (w *work) row(p place) *Row { return w.relations[p.table].row(p.id) }

// matching are the rows of a table for which all conditions hold, as they are by now.
func (w *work) matching(table int, where []ovs.Condition) (rows []*Row, err *ovs.Error) {
	candidates(w.schema, w.relations, table, where, func(r *Row) bool {
		if err = w.spend(1); err != nil {
			return false
		}
		var ok bool
		if ok, err = w.holds(where, r); ok {
			rows = append(rows, r)
		}
		return err == nil
	})
	return rows, err
}

// holds reports whether all conditions hold for a row, and counts what they compare. The
// first is part of looking at the row, unless it compares much.
func (w *work) holds(where []ovs.Condition, r *Row) (bool, *ovs.Error) {
	if !w.weighed {
		return holds(where, r), nil
	}
	n, ok := int64(0), true
	for i := 0; ok && i < len(where); i++ {
		n += max(conditionBytes, sizeOfCondition(&where[i], r))
		ok = where[i].Holds(r)
	}
	return ok, w.compares(max(0, n-conditionBytes))
}

// spend counts work towards what one command may cost every member.
func (w *work) spend(n int) *ovs.Error {
	if w.spent += n; w.spent > MaxWork {
		return ovs.Errorf(ovs.ResourcesExhausted, "too many rows are looked at, or as much is done besides: limit MaxWork is %d", MaxWork)
	}
	return nil
}

// written is why a command may write no more, behind each row: what it has written is there
// from then on, whether or not it will be let keep it.
func (w *work) written() *ovs.Error {
	if !w.bounded || w.dry {
		return nil
	}
	if w.bytes-w.from.bytes > MaxGrowthBytes {
		return ovs.Errorf(ovs.ResourcesExhausted, "the database would become too much larger at once: limit MaxGrowthBytes is %d", int64(MaxGrowthBytes))
	}
	n := w.moved / bytesAsRow
	w.moved -= n * bytesAsRow
	if err := w.spend(int(n)); err != nil {
		return err
	}
	return w.compares(0)
}

// weigh notes bytes that are compared, for who counts them next.
func (w *work) weigh(bytes int64) {
	if w.weighed {
		w.compared += bytes
	}
}

// compares counts bytes that are compared.
func (w *work) compares(bytes int64) *ovs.Error {
	w.weigh(bytes)
	n := w.compared / comparedAsRow
	w.compared -= n * comparedAsRow
	return w.spend(int(n))
}

// mutates counts a mutation of a column that, with what it is told, has so many atoms.
func (w *work) mutates(atoms int) *ovs.Error {
	if !w.bounded {
		return w.spend(atoms / atomsAsRow)
	}
	w.mutated += atoms + mutationAtoms
	n := w.mutated / atomsAsRow
	w.mutated -= n * atomsAsRow
	return w.spend(n)
}

// answer counts a row that is answered.
func (w *work) answer(row []ovs.Datum) *ovs.Error {
	if w.answered += rowBytes + sizeOfColumns(row); w.answered > MaxAnswerBytes {
		return ovs.Errorf(ovs.ResourcesExhausted, "the rows that the transaction selects are too large: limit MaxAnswerBytes is %d", int64(MaxAnswerBytes))
	}
	return nil
}

// settle forgets the rows that are as they were.
func (w *work) settle() {
	w.order = slices.DeleteFunc(w.order, func(t *touch) bool {
		same := t.old == t.new
		if !same && t.old != nil && t.new != nil && equalRows(t.old, t.new) {
			w.put(t.table, t.new, t.old)
			same = true
		}
		if same {
			delete(w.touched, t.place)
		}
		return same
	})
}
