package ovsdb

import (
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// kind is what a change of a row is to who monitors it.
type kind uint8

const (
	initial kind = iota
	insert
	remove
	modify
	numKinds
)

// selects is a set of kinds.
type selects uint8

func (s selects) has(k kind) bool { return s>>k&1 == 1 }

const everything = selects(1<<numKinds - 1)

// shown is a column that a monitor shows, and for which kinds of change.
type shown struct {
	column  int
	selects selects
}

// encoder writes rows of a table as monitors of the same columns are told of them.
type encoder struct {
	key     string
	shape   *shape
	table   int
	columns []shown
	selects selects // which kinds of changes are told, whatever columns show
	old     bool    // in the form of the first version of monitors
	specs   int     // that use it

	// What it has written of the change of a row: specs share it.
	row  *rowChange
	made [numKinds]bool
	kept [numKinds][]byte
}

// change is a change of a row as a member of an object; empty: nothing that the monitor
// shows has changed.
func (e *encoder) change(row *rowChange, k kind) []byte {
	if e.row != row {
		e.row, e.made, e.kept = row, [numKinds]bool{}, [numKinds][]byte{}
	}
	if !e.made[k] {
		e.made[k] = true
		e.kept[k] = e.append(nil, row.old, row.new, k)
	}
	return e.kept[k]
}

// append appends a row: what was, and what is.
func (e *encoder) append(b []byte, was, is *ovs.Row, k kind) []byte {
	row := is
	if k == remove {
		row = was
	}
	if !e.selects.has(k) {
		return b
	}
	start := len(b)
	b = append(append(b, '"'), row.UUID.String()...)
	b = append(b, `":{`...)
	var ok bool
	if e.old {
		b, ok = e.updates(b, was, is, k)
	} else {
		b, ok = e.updates2(b, was, is, k)
	}
	if !ok {
		return b[:start]
	}
	return append(b, '}')
}

// updates2 writes a row in the form of the second version.
func (e *encoder) updates2(b []byte, was, is *ovs.Row, k kind) ([]byte, bool) {
	switch k {
	case remove:
		return append(b, `"delete":null`...), true
	case modify:
		b = append(b, `"modify":`...)
		return e.object(b, k, func(b []byte, c int) ([]byte, bool) { return e.difference(b, was, is, c) })
	case initial:
		b = append(b, `"initial":`...)
	default:
		b = append(b, `"insert":`...)
	}
	b, _ = e.object(b, k, func(b []byte, c int) ([]byte, bool) {
		if c >= 0 && is.Columns[c].Equal(e.columnOf(c).Default) {
			return b, false
		}
		return e.value(b, is, c), true
	})
	return b, true
}

// updates writes a row in the form of the first version.
func (e *encoder) updates(b []byte, was, is *ovs.Row, k kind) ([]byte, bool) {
	if k == remove || k == modify {
		var any bool
		b = append(b, `"old":`...)
		b, any = e.object(b, k, func(b []byte, c int) ([]byte, bool) {
			if k == modify && e.same(was, is, c) {
				return b, false
			}
			return e.value(b, was, c), true
		})
		if k == remove {
			return b, true
		}
		if !any {
			return b, false
		}
		b = append(b, ',')
	}
	b = append(b, `"new":`...)
	b, _ = e.object(b, k, func(b []byte, c int) ([]byte, bool) { return e.value(b, is, c), true })
	return b, true
}

// object writes the columns that are shown for a kind of change, as far as there is
// something to write, and reports whether there was.
func (e *encoder) object(b []byte, k kind, value func(b []byte, column int) ([]byte, bool)) ([]byte, bool) {
	b = append(b, '{')
	any := false
	for _, c := range e.columns {
		if !c.selects.has(k) {
			continue
		}
		start := len(b)
		if any {
			b = append(b, ',')
		}
		b = append(b, e.name(c.column)...)
		more, ok := value(b, c.column)
		if !ok {
			b = b[:start]
			continue
		}
		b, any = more, true
	}
	return append(b, '}'), any
}

func (e *encoder) columnOf(c int) *ovs.Column { return e.shape.schema.Tables[e.table].Columns[c] }

var uuidName, versionName = []byte(`"_uuid":`), []byte(`"_version":`)

func (e *encoder) name(c int) []byte {
	switch c {
	case ovs.ColumnUUID:
		return uuidName
	case ovs.ColumnVersion:
		return versionName
	}
	return e.shape.column[e.table][c]
}

func (e *encoder) value(b []byte, r *ovs.Row, c int) []byte {
	switch c {
	case ovs.ColumnUUID:
		return appendUUID(b, r.UUID)
	case ovs.ColumnVersion:
		return appendUUID(b, r.Version)
	}
	return r.Columns[c].AppendJSON(b, &e.columnOf(c).Type)
}

func appendUUID(b []byte, id ovs.UUID) []byte {
	return append(append(append(b, `["uuid","`...), id.String()...), `"]`...)
}

func (e *encoder) same(was, is *ovs.Row, c int) bool {
	switch c {
	case ovs.ColumnUUID:
		return true
	case ovs.ColumnVersion:
		return was.Version == is.Version
	}
	return was.Columns[c].Equal(is.Columns[c])
}

// difference writes what a column's change is, if it has changed.
func (e *encoder) difference(b []byte, was, is *ovs.Row, c int) ([]byte, bool) {
	if e.same(was, is, c) {
		return b, false
	}
	if c < 0 {
		return e.value(b, is, c), true
	}
	t := &e.columnOf(c).Type
	d := ovs.Diff(was.Columns[c], is.Columns[c], t)
	return d.AppendJSON(b, t), true
}
