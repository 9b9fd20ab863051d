package table

import (
	"slices"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// candidates calls try with the rows of a table for which all conditions may hold, until
// it returns false: with no more rows than an index of the conditions leads to.
func candidates(s *ovs.Schema, relations []*relation, table int, where []ovs.Condition, try func(*Row) bool) {
	r := relations[table]
	tryID := func(id ovs.UUID) bool {
		o := r.row(id)
		return o == nil || try(o)
	}
	for i := range where {
		switch c := &where[i]; {
		case c.Function == ovs.Never:
			return
		case c.Column == ovs.ColumnUUID && (c.Function == ovs.Equal || c.Function == ovs.Includes) && len(c.Arg.Keys) == 1:
			tryID(c.Arg.Keys[0].UUID())
			return
		}
	}
	if u, keys := bestIndex(s.Tables[table], r, where); u != nil {
		u.Ascend(keyed{keys: keys}, func(k keyed) bool {
			return compareKeys(k.keys[:len(keys)], keys) == 0 && tryID(k.id)
		})
		return
	}
	if to, kind, id, ok := referred(s.Tables[table], where); ok {
		relations[to].refs[kind].Ascend(ref{to: id, table: table}, func(f ref) bool {
			return f.to == id && f.table == table && tryID(f.from)
		})
		return
	}
	r.rows.Scan(try)
}

// Indexed reports whether [Database.Find] need not look at rows of a table to find those
// for which a condition holds that asks for one value. Together, conditions of different
// values find no row more often than it has values.
func (d *Database) Indexed(table int, c *ovs.Condition) bool {
	if c.Function != ovs.Equal && c.Function != ovs.Includes || len(c.Arg.Keys) != 1 || len(c.Arg.Values) > 0 {
		return false
	}
	t := d.Schema.Tables[table]
	switch {
	case c.Column < 0:
		return c.Column == ovs.ColumnUUID
	case t.Columns[c.Column].Type.Key.Ref != ovs.NoRef:
		return true
	}
	return c.Function == ovs.Equal && slices.ContainsFunc(t.Indexes, func(columns []int) bool { return columns[0] == c.Column })
}

func holds(where []ovs.Condition, r *Row) bool {
	for i := range where {
		if !where[i].Holds(r) {
			return false
		}
	}
	return true
}

// sizeOfCondition is what a condition compares of a row at most, in bytes.
func sizeOfCondition(c *ovs.Condition, r *Row) int64 {
	if c.Column < 0 || c.Function <= ovs.Always {
		return 0
	}
	d := r.Columns[c.Column]
	switch c.Function {
	case ovs.Equal, ovs.NotEqual:
		if len(d.Keys) == len(c.Arg.Keys) {
			return sizeOfDatum(d)
		}
	case ovs.Includes, ovs.Excludes:
		few, many := d, c.Arg
		if len(few.Keys) > len(many.Keys) {
			few, many = many, few
		}
		return sizeAmong([]ovs.Datum{few}, len(many.Keys))
	}
	return 0
}

// bestIndex returns the index of which conditions name most columns from the first
// on, and what they are equal to; nil: there is none.
func bestIndex(t *ovs.Table, r *relation, where []ovs.Condition) (best *uniqueIndex, keys []ovs.Datum) {
	for i, columns := range t.Indexes {
		var has []ovs.Datum
		for _, c := range columns {
			d, ok := equalTo(where, c)
			if !ok {
				break
			}
			has = append(has, d)
		}
		if len(has) > len(keys) {
			best, keys = r.unique[i], has
		}
	}
	return best, keys
}

// equalTo is what a condition says a column is equal to.
func equalTo(where []ovs.Condition, column int) (ovs.Datum, bool) {
	for i := range where {
		if c := &where[i]; c.Column == column && c.Function == ovs.Equal {
			return c.Arg, true
		}
	}
	return ovs.Datum{}, false
}

// referred returns a row to which a row refers for which the conditions hold, and how.
func referred(t *ovs.Table, where []ovs.Condition) (to, kind int, id ovs.UUID, ok bool) {
	for i := range where {
		c := &where[i]
		if c.Column < 0 || c.Function != ovs.Equal && c.Function != ovs.Includes || len(c.Arg.Keys) == 0 {
			continue
		}
		if k := &t.Columns[c.Column].Type.Key; k.Ref != ovs.NoRef {
			return k.Table, kindOf(k.Ref), c.Arg.Keys[0].UUID(), true
		}
	}
	return 0, 0, id, false
}

func kindOf(r ovs.RefKind) int {
	if r == ovs.Strong {
		return strong
	}
	return weak
}
