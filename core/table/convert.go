package table

import (
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// convert puts a database with the rows of another, as far as its schema has them, in
// the place of that.
func (t *tables) convert(x *core.Exec, d *Database, c *command) core.Result {
	s, err := parseSchema(c.schema)
	if err != nil {
		return core.Result{Err: err}
	}
	if s.Name != d.Name {
		return core.Result{Err: errOtherSchema(d.Name)}
	}
	if string(s.JSON) == string(d.Schema.JSON) {
		return core.Result{Record: &Outcome{}}
	}
	if err := tooIndexed(x, s); err != nil {
		return core.Result{Err: err}
	}
	empty := newDatabase(d.Namespace, d.Owner, s, x.Index())
	p := play{work: begin(empty)}
	p.from.bytes = d.bytes // it is what the rows cost until now that may not grow
	active := x.ActiveSchema()
	if active >= bulkSchema {
		p.limitBy(active)
		p.allow(d)
	}
	failed := p.fill(d, active >= numberSchema)
	if failed == nil {
		failed = p.work.commit(x.Index())
	}
	if failed == nil {
		failed = p.overQuota(x)
	}
	if failed != nil {
		return core.Result{Record: &Outcome{Failed: true, Results: []Result{{Err: failed}}}}
	}
	n, change := p.done(x.Index())
	n.history = empty.history
	t.put(d, n)
	t.tell(x, n, &Change{Index: x.Index(), TxnID: change.TxnID, Schema: s, size: changeBytes})
	return core.Result{Record: &Outcome{TxnID: change.TxnID}}
}

// numberSchema is the [core.SchemaVersion] that brought conversions between integers and
// reals: while a member knows only an earlier one they fail, as they do there.
const numberSchema = 11

// allow lets the conversion of a database cost what its rows do, besides MaxWork: no size is
// too large by itself. A reference is 24 bytes of them, and counts as a quarter of a row; an
// index of all columns of 2^31 rows compares 32 times their bytes.
func (w *work) allow(d *Database) { w.spent -= int(d.bytes / keptAsRow) }

// fill takes the rows of another database, by the tables and columns that both have;
// numbers: those of one kind become such of the other.
func (p *play) fill(d *Database, numbers bool) *ovs.Error {
	for from, t := range d.Schema.Tables {
		of, to := p.schema.Table(t.Name)
		if of == nil {
			continue
		}
		var err *ovs.Error
		d.Rows(from, func(r *Row) bool {
			var n *Row
			if n, err = converted(t, of, r, numbers); err == nil {
				p.put(to, nil, n)
				err = p.written()
			}
			return err == nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func converted(from, to *ovs.Table, r *Row, numbers bool) (_ *Row, err *ovs.Error) {
	n := &Row{UUID: r.UUID, Columns: make([]ovs.Datum, len(to.Columns))}
	for i, c := range to.Columns {
		n.Columns[i] = c.Default
		if old := from.Column(c.Name); old != nil && old.Index() >= 0 {
			n.Columns[i] = r.Columns[old.Index()]
		}
		if numbers {
			if n.Columns[i], err = n.Columns[i].Converted(&c.Type); err != nil {
				return nil, err
			}
		}
		if err := n.Columns[i].Check(&c.Type); err != nil {
			return nil, err
		}
	}
	return n, nil
}
