package ovs

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent/core/wire"
)

// Fields of an operation.
const (
	fieldOp wire.Number = iota + 1
	fieldTable
	fieldWhere     // column, function and argument of each
	fieldRow       // column and value of each
	fieldMutations // column, mutator and argument of each
	fieldColumns
	fieldSort
	fieldUUID
	fieldGiven
	fieldRows // each behind its length, as fieldRow
	fieldEqual
	fieldTimeout // 1 + ms
	fieldText
	fieldDurable
)

// AppendBinary appends the binary form of an operation. It has none for [OpFail].
func (o *Operation) AppendBinary(b []byte) []byte {
	w := wire.Writer{B: b}
	w.Uint(fieldOp, uint64(o.Op))
	w.Uint(fieldTable, uint64(o.Table))
	if len(o.Where) > 0 {
		at := w.Begin(fieldWhere)
		for _, c := range o.Where {
			w.B = append(appendColumn(w.B, c.Column), byte(c.Function))
			w.B = c.Arg.AppendBinary(w.B)
		}
		w.End(at)
	}
	if len(o.Row) > 0 {
		at := w.Begin(fieldRow)
		w.B = appendValues(w.B, o.Row)
		w.End(at)
	}
	if len(o.Mutations) > 0 {
		at := w.Begin(fieldMutations)
		for _, m := range o.Mutations {
			w.B = append(appendColumn(w.B, m.Column), byte(m.Mutator))
			w.B = m.Arg.AppendBinary(w.B)
		}
		w.End(at)
	}
	writeColumns(&w, fieldColumns, o.Columns)
	writeColumns(&w, fieldSort, o.Sort)
	if o.Op == OpInsert {
		w.Bytes(fieldUUID, o.UUID[:])
	}
	w.Flag(fieldGiven, o.Given)
	w.List(fieldRows, len(o.Rows), func(i int) []byte { return appendValues(nil, o.Rows[i]) })
	w.Flag(fieldEqual, o.Equal)
	if o.HasTimeout {
		w.Uint(fieldTimeout, 1+uint64(o.Timeout/time.Millisecond))
	}
	w.Text(fieldText, o.Text)
	w.Flag(fieldDurable, o.Durable)
	return w.B
}

func appendValues(b []byte, row []ColumnValue) []byte {
	for _, v := range row {
		b = v.Value.AppendBinary(appendColumn(b, v.Column))
	}
	return b
}

func writeColumns(w *wire.Writer, num wire.Number, columns []int) {
	if len(columns) == 0 {
		return
	}
	at := w.Begin(num)
	for _, c := range columns {
		w.B = appendColumn(w.B, c)
	}
	w.End(at)
}

// DecodeOperation reads an operation and checks it against the schema, as far as
// what executes it relies on it: tables, columns, kinds and numbers of elements.
// Nothing of it aliases b.
func DecodeOperation(b []byte, s *Schema) (o Operation, ok bool) {
	t, ok := decodeHead(b, s, &o)
	if !ok {
		return o, false
	}
	ok = wire.Fields(b, func(f wire.Field) bool { return o.decodeField(&f, t) })
	return o, ok
}

// decodeHead reads the operation and its table, which stand first.
func decodeHead(b []byte, s *Schema, o *Operation) (*Table, bool) {
	r := wire.Read(b)
	f, ok := r.Next()
	if !ok || f.Num != fieldOp || !wire.Small(&f, &o.Op) || o.Op == OpFail || o.Op >= numOps {
		return nil, false
	}
	if f, ok = r.Next(); ok && f.Num == fieldTable {
		if f.Type != protowire.VarintType || f.N >= uint64(len(s.Tables)) {
			return nil, false
		}
		o.Table = int(f.N)
	}
	if o.Op >= OpCommit {
		return &Table{}, o.Table == 0
	}
	if o.Table >= len(s.Tables) {
		return nil, false
	}
	return s.Tables[o.Table], true
}

func (o *Operation) decodeField(f *wire.Field, t *Table) bool {
	d := decoder{b: f.B}
	switch f.Num {
	case fieldOp, fieldTable:
		return true
	case fieldUUID:
		o.UUID = d.uuid()
	case fieldGiven:
		return f.Flag(&o.Given)
	case fieldEqual:
		return f.Flag(&o.Equal)
	case fieldDurable:
		return f.Flag(&o.Durable)
	case fieldText:
		return f.CopyText(&o.Text)
	case fieldTimeout:
		if f.Type != protowire.VarintType || f.N == 0 || f.N > 1+maxTimeout {
			return false
		}
		o.HasTimeout, o.Timeout = true, time.Duration(f.N-1)*time.Millisecond
		return true
	case fieldWhere:
		o.Where = d.where(t)
	case fieldRow:
		o.Row = d.values(t)
		d.bad = d.bad || !o.stores(t)
	case fieldMutations:
		o.Mutations = d.mutations(t)
	case fieldColumns:
		o.Columns = d.columns(t)
	case fieldSort:
		o.Sort = d.columns(t)
	case fieldRows:
		return f.Each(MaxElements, func(b []byte) bool {
			row := decoder{b: b}
			o.Rows = append(o.Rows, row.values(t))
			return !row.bad
		})
	default:
		return false
	}
	return f.Type == protowire.BytesType && !d.bad && len(d.b) == 0
}

// stores reports whether the values of an insert or update are of columns that may be
// stored in.
func (o *Operation) stores(t *Table) bool {
	for _, v := range o.Row {
		if v.Column < 0 || o.Op == OpUpdate && !t.Columns[v.Column].Mutable {
			return false
		}
	}
	return true
}

func (d *decoder) where(t *Table) (list []Condition) {
	for len(d.b) > 0 && !d.bad {
		col, f := d.column(t), Function(d.byte())
		c := Condition{Column: col.index, Function: f}
		typ, ok := Type{}, f < numFunctions
		if ok && f > Always {
			typ, ok = f.argType(&col.Type)
		}
		c.Arg = d.typed(&typ)
		d.bad = d.bad || !ok
		list = append(list, c)
	}
	return list
}

func (d *decoder) mutations(t *Table) (list []Mutation) {
	for len(d.b) > 0 && !d.bad {
		col, m := d.column(t), Mutator(d.byte())
		if d.bad || m == 0 || m >= numMutators || !col.Mutable {
			d.bad = true
			break
		}
		typ, ok := m.argType(&col.Type)
		if m == Delete && typ.IsMap() && len(d.b) > 0 && d.b[0]>>4 == 0 {
			typ.Value = BaseType{}
		}
		list = append(list, Mutation{Column: col.index, Mutator: m, Arg: d.typed(&typ)})
		d.bad = d.bad || !ok
	}
	return list
}

// values reads values of columns, which are in order.
func (d *decoder) values(t *Table) (list []ColumnValue) {
	for len(d.b) > 0 && !d.bad {
		col := d.column(t)
		v := ColumnValue{col.index, d.typed(&col.Type)}
		d.bad = d.bad || len(list) > 0 && list[len(list)-1].Column >= v.Column
		list = append(list, v)
	}
	return list
}

func (d *decoder) columns(t *Table) (list []int) {
	for len(d.b) > 0 && !d.bad {
		c := d.column(t).index
		d.bad = d.bad || len(list) > 0 && list[len(list)-1] >= c
		list = append(list, c)
	}
	return list
}
