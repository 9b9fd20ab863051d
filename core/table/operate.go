package table

import (
	"slices"
	"strconv"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// Result is what one operation answers.
type Result struct {
	Op      ovs.Op
	Err     *ovs.Error    // it failed
	None    bool          // it was not reached
	UUID    ovs.UUID      // insert: the new row's
	Count   int           // update, mutate, delete: rows for which the conditions held
	Table   int           // select
	Columns []int         // select
	Rows    [][]ovs.Datum // select: the columns of each row, in their order
}

// Outcome is what a transaction answers: the Record of a [Transact].
type Outcome struct {
	Results []Result // of each operation, and behind them of the commit if that failed
	Failed  bool     // nothing was changed, for an operation or the commit failed
	Waits   bool     // it failed, for a wait does not hold, and may be tried again later
	Tables  []int    // that the wait looked at
	TxnID   ovs.UUID // of the change; zero: nothing was changed
}

// AppendJSON appends the results as clients get them, for a database with a schema.
func (o *Outcome) AppendJSON(b []byte, s *ovs.Schema) []byte {
	b = append(b, '[')
	for i := range o.Results {
		if i > 0 {
			b = append(b, ',')
		}
		b = o.Results[i].appendJSON(b, s)
	}
	return append(b, ']')
}

func (r *Result) appendJSON(b []byte, s *ovs.Schema) []byte {
	switch {
	case r.None:
		return append(b, "null"...)
	case r.Err != nil:
		return r.Err.AppendJSON(b)
	}
	switch r.Op {
	case ovs.OpInsert:
		b = append(b, `{"uuid":["uuid","`...)
		return append(r.UUID.AppendText(b), `"]}`...)
	case ovs.OpUpdate, ovs.OpMutate, ovs.OpDelete:
		b = append(b, `{"count":`...)
		return append(strconv.AppendInt(b, int64(r.Count), 10), '}')
	case ovs.OpSelect:
		return r.appendRows(b, s.Tables[r.Table])
	}
	return append(b, "{}"...)
}

func (r *Result) appendRows(b []byte, t *ovs.Table) []byte {
	b = append(b, `{"rows":[`...)
	for i, row := range r.Rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, '{')
		for j, c := range r.Columns {
			if j > 0 {
				b = append(b, ',')
			}
			column := t.At(c)
			b = ovs.AppendString(b, column.Name)
			b = append(b, ':')
			b = row[j].AppendJSON(b, &column.Type)
		}
		b = append(b, '}')
	}
	return append(b, "]}"...)
}

// play is a transaction under way.
type play struct {
	*work
	ops  []ovs.Operation
	held func(lock string) bool
	as   *restricted // nil: everything may be changed
	out  *Outcome    // for as long as somebody keeps it, which does not keep the state
}

// run executes the operations in order up to the first that fails. Of a dry work false is
// returned as soon as one would change something.
func (p *play) run() bool {
	p.out.Results = make([]Result, len(p.ops), len(p.ops)+1)
	for i := range p.ops {
		o, r := &p.ops[i], &p.out.Results[i]
		r.Op = o.Op
		if r.Err = p.operate(o, r); r.Err != nil {
			p.fail(i + 1)
			return true
		}
		if p.would {
			return false
		}
	}
	return true
}

// fail says that what comes from an operation on was not reached.
func (p *play) fail(from int) {
	p.out.Failed = true
	for i := from; i < len(p.ops); i++ {
		p.out.Results[i] = Result{None: true}
	}
}

func (p *play) operate(o *ovs.Operation, r *Result) *ovs.Error {
	switch o.Op {
	case ovs.OpFail:
		return o.Err
	case ovs.OpInsert:
		r.UUID = o.UUID
		return p.insert(o)
	case ovs.OpSelect:
		return p.selects(o, r)
	case ovs.OpUpdate:
		return p.update(o, r)
	case ovs.OpMutate:
		return p.mutate(o, r)
	case ovs.OpDelete:
		return p.remove(o, r)
	case ovs.OpWait:
		return p.wait(o)
	case ovs.OpAbort:
		return ovs.AbortedError()
	case ovs.OpAssert:
		if !p.held(o.Text) {
			return ovs.NotOwnerError(o.Text)
		}
	}
	return nil
}

func (p *play) insert(o *ovs.Operation) *ovs.Error {
	at := place{o.Table, o.UUID}
	if p.row(at) != nil || p.touched[at] != nil {
		return ovs.DuplicateUUIDError(o.UUID)
	}
	columns := p.schema.Tables[o.Table].Columns
	n := &Row{UUID: o.UUID, Columns: make([]ovs.Datum, len(columns))}
	given := o.Row
	for i, c := range columns {
		if len(given) > 0 && given[0].Column == i {
			n.Columns[i], given = given[0].Value, given[1:]
			continue
		}
		n.Columns[i] = c.Default // parsing has found it to fit
	}
	if err := p.mayInsert(o.Table, n); err != nil {
		return err
	}
	p.put(o.Table, nil, n)
	return p.written()
}

// next is a row that may be changed in the place of another.
func next(r *Row) *Row {
	return &Row{UUID: r.UUID, Version: r.Version, Columns: slices.Clone(r.Columns)}
}

// sizeOfNext is what making it costs, counted as bytes that are compared.
func sizeOfNext(r *Row) int64 { return int64(len(r.Columns)) * datumBytes }

func (p *play) update(o *ovs.Operation, res *Result) *ovs.Error {
	rows, err := p.matching(o.Table, o.Where)
	if err != nil {
		return err
	}
	if err := p.mayChange("modification of", o.Table, rows, len(o.Row), func(i int) int { return o.Row[i].Column }); err != nil {
		return err
	}
	given := int64(0)
	for _, v := range o.Row {
		given += sizeOfDatum(v.Value)
	}
	for _, r := range rows {
		if err := p.compares(given + sizeOfNext(r)); err != nil {
			return err
		}
		n := next(r)
		for _, v := range o.Row {
			if !equal(n.Columns[v.Column], v.Value) {
				n.Columns[v.Column] = v.Value
			}
		}
		if err := p.replace(o.Table, r, n); err != nil {
			return err
		}
	}
	res.Count = len(rows)
	return nil
}

// replace puts n in the place of o unless it says the same.
func (p *play) replace(table int, o, n *Row) *ovs.Error {
	if equalRows(o, n) {
		return nil
	}
	p.put(table, o, n)
	return p.written()
}

func (p *play) mutate(o *ovs.Operation, res *Result) *ovs.Error {
	rows, err := p.matching(o.Table, o.Where)
	if err != nil {
		return err
	}
	if err := p.mayChange("mutate operation on", o.Table, rows, len(o.Mutations), func(i int) int { return o.Mutations[i].Column }); err != nil {
		return err
	}
	columns := p.schema.Tables[o.Table].Columns
	given := int64(0)
	for i := range o.Mutations {
		given += sizeOfDatum(o.Mutations[i].Arg)
	}
	for _, r := range rows {
		if err := p.compares(given + sizeOfNext(r)); err != nil {
			return err
		}
		n := next(r)
		for i := range o.Mutations {
			m := &o.Mutations[i]
			if err := p.mutates(len(n.Columns[m.Column].Keys) + len(m.Arg.Keys)); err != nil {
				return err
			}
			d, err := m.Apply(&columns[m.Column].Type, n.Columns[m.Column])
			if err != nil {
				return err
			}
			n.Columns[m.Column] = d
		}
		if err := p.replace(o.Table, r, n); err != nil {
			return err
		}
	}
	res.Count = len(rows)
	return nil
}

func (p *play) remove(o *ovs.Operation, res *Result) *ovs.Error {
	rows, err := p.matching(o.Table, o.Where)
	if err != nil {
		return err
	}
	if err := p.mayDelete(o.Table, rows); err != nil {
		return err
	}
	for _, r := range rows {
		p.put(o.Table, r, nil)
		if err := p.written(); err != nil {
			return err
		}
	}
	res.Count = len(rows)
	return nil
}

func (p *play) selects(o *ovs.Operation, r *Result) *ovs.Error {
	rows, err := p.matching(o.Table, o.Where)
	if err != nil {
		return err
	}
	if err := p.sortBy(rows, o.Sort); err != nil {
		return err
	}
	r.Table, r.Columns = o.Table, o.Columns
	seen, differ := newTree(compareKeys), slices.Contains(o.Columns, ovs.ColumnUUID) // then they do, and are not compared
	for _, row := range rows {
		is := project(row, o.Columns)
		if !differ {
			if err := p.compares(sizeAmong(is, seen.Len())); err != nil {
				return err
			}
			if _, there := seen.Set(is); there {
				continue
			}
		}
		if err := p.answer(is); err != nil {
			return err
		}
		r.Rows = append(r.Rows, is)
	}
	return nil
}

// sortBy sorts rows by columns; those of equal ones stay in their order.
func (p *play) sortBy(rows []*Row, columns []int) *ovs.Error {
	if len(columns) == 0 {
		return nil
	}
	type keyedRow struct {
		key []ovs.Datum
		row *Row
	}
	list := make([]keyedRow, len(rows))
	for i, r := range rows {
		list[i] = keyedRow{project(r, columns), r}
		if err := p.compares(sizeAmong(list[i].key, len(rows))); err != nil {
			return err
		}
	}
	slices.SortStableFunc(list, func(a, b keyedRow) int { return compareKeys(a.key, b.key) })
	for i := range list {
		rows[i] = list[i].row
	}
	return nil
}

func project(r *Row, columns []int) []ovs.Datum {
	list := make([]ovs.Datum, len(columns))
	for i, c := range columns {
		list[i] = r.Datum(c)
	}
	return list
}

func (p *play) wait(o *ovs.Operation) *ovs.Error {
	is, expected := newTree(compareKeys), newTree(compareKeys)
	rows, err := p.matching(o.Table, o.Where)
	if err != nil {
		return err
	}
	for _, r := range rows {
		row := project(r, o.Columns)
		if err := p.compares(sizeAmong(row, is.Len())); err != nil {
			return err
		}
		is.Set(row)
	}
	same := true
	for _, given := range o.Rows {
		if p.bounded {
			if err := p.spend(1 + len(o.Columns)/columnsAsRow); err != nil {
				return err
			}
		}
		row := p.expected(o, given)
		if err := p.compares(sizeAmong(row, is.Len()) + sizeAmong(row, expected.Len())); err != nil {
			return err
		}
		expected.Set(row)
		if _, there := is.Get(row); !there {
			same = false
		}
	}
	if same = same && is.Len() == expected.Len(); same == o.Equal {
		return nil
	}
	p.out.Waits, p.out.Tables = !o.HasTimeout || o.Timeout > 0, []int{o.Table}
	return ovs.TimedOutError(0)
}

// expected is a row of a wait; columns that it leaves out are at their default.
func (p *play) expected(o *ovs.Operation, given []ovs.ColumnValue) []ovs.Datum {
	list := make([]ovs.Datum, len(o.Columns))
	for i, c := range o.Columns {
		for len(given) > 0 && given[0].Column < c { // both ascend
			given = given[1:]
		}
		if len(given) > 0 && given[0].Column == c {
			list[i] = given[0].Value
			continue
		}
		list[i] = defaultOf(p.schema.Tables[o.Table], c)
	}
	return list
}

func defaultOf(t *ovs.Table, column int) ovs.Datum {
	if column < 0 {
		return (&Row{}).Datum(column)
	}
	return t.Columns[column].Default
}
