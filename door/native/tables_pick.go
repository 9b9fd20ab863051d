package native

import (
	"bytes"
	"maps"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// rowPick says which rows of a database a watch is about, and which of their changes. The
// zero one: all.
type rowPick struct {
	tables  map[string][]string // the columns of which one has to change, in their order; nil: all tables
	columns string              // the same as text; "": all
	ids     []ovs.UUID          // in their order; empty: all
}

// anyColumn is the column that changes whenever one does.
const anyColumn = "_version"

// pickRows reads what a request asks for. The error is Invalid.
func pickRows(r *pb.WatchTablesRequest) (*rowPick, error) {
	most := ovs.MaxTables
	if len(r.Fields)+len(r.Rows) > 0 {
		most = maxFields
	}
	switch {
	case len(r.Tables) > most:
		return nil, invalid("tables", "are %d, limit is %d", len(r.Tables), most)
	case len(r.Fields) > maxFields:
		return nil, invalid("fields", "are %d, limit is %d", len(r.Fields), maxFields)
	case len(r.Rows) > maxWatchedRows:
		return nil, invalid("rows", "are %d, limit is %d", len(r.Rows), maxWatchedRows)
	}
	p := &rowPick{}
	for _, f := range r.Fields {
		if len(f) > table.MaxPartBytes {
			return nil, invalid("fields", "one has %d bytes, limit is %d", len(f), table.MaxPartBytes)
		}
		of, column, named := strings.Cut(f, "/")
		if !named {
			column = anyColumn
		}
		if !ovs.IsID(of) || !ovs.IsID(column) {
			return nil, invalid("fields", "%.100q is neither TABLE nor TABLE/COLUMN", f)
		}
		p.pick(of, column)
	}
	for _, t := range r.Tables {
		if len(t) > table.MaxPartBytes || !ovs.IsID(t) {
			return nil, invalid("tables", "%.100q is the name of no table", t)
		}
		if p.tables[t] == nil {
			p.pick(t, anyColumn)
		}
	}
	for _, text := range r.Rows {
		id, ok := ovs.ParseUUID(text)
		if !ok {
			return nil, invalid("rows", "%.100q is no uuid", text)
		}
		p.ids = append(p.ids, id)
	}
	p.tidy()
	return p, nil
}

func (p *rowPick) pick(of, column string) {
	if p.tables == nil {
		p.tables = map[string][]string{}
	}
	p.tables[of] = append(p.tables[of], column)
}

// tidy leaves one way of asking for the same.
func (p *rowPick) tidy() {
	for t, columns := range p.tables {
		if slices.Contains(columns, anyColumn) {
			columns = []string{anyColumn}
		}
		slices.Sort(columns)
		p.tables[t] = slices.Compact(columns)
	}
	names := p.parts()
	slices.Sort(names)
	p.columns = strings.Join(names, " ")
	slices.SortFunc(p.ids, func(a, b ovs.UUID) int { return bytes.Compare(a[:], b[:]) })
	p.ids = slices.Compact(p.ids)
}

// all reports whether it is about everything.
func (p *rowPick) all() bool { return p.tables == nil && len(p.ids) == 0 }

// selectors pick the changes that a watch is told of, and the hub wakes it for no other:
// those of the schema, and of the rest those in which a column changed, row by row if rows
// are named. Only where more tables are named than the hub may look for it picks all, and
// the event is looked at when it is written.
func (p *rowPick) selectors(t watch.Topic) ([]watch.Selector, error) {
	if p.all() || len(p.tables) > 2*maxFields {
		return []watch.Selector{watch.Exact(t)}, nil
	}
	schema := table.Family{}.Fields()[table.FieldSchema]
	names := p.parts()
	if len(p.ids) == 0 {
		names = append(names, schema)
	}
	columns, err := engine.Changing(watch.Exact(t), t.Kind, names)
	if err != nil {
		return nil, inField("fields", err)
	}
	if len(p.ids) == 0 {
		return []watch.Selector{columns}, nil
	}
	another, err := engine.Changing(watch.Exact(t), t.Kind, []string{schema})
	if err != nil {
		return nil, err
	}
	list := []watch.Selector{another}
	for _, id := range p.ids {
		list = append(list, columns.Where(table.FieldRow, table.RowText(id)))
	}
	return list, nil
}

// parts are the columns, as [engine.Changing] names them.
func (p *rowPick) parts() (names []string) {
	rows := table.Family{}.Fields()[table.FieldRows]
	for t, columns := range p.tables {
		for _, c := range columns {
			names = append(names, rows+"/"+table.ColumnPart(t, c))
		}
	}
	return names
}

// checkIn returns NotFound for what a schema does not have.
func (p *rowPick) checkIn(s *ovs.Schema) error {
	for _, t := range slices.Sorted(maps.Keys(p.tables)) {
		of, _ := s.Table(t)
		if of == nil {
			return incumbent.Errorf(incumbent.NotFound, "database %s has no table %q", s.Name, t)
		}
		for _, c := range p.tables[t] {
			if of.Column(c) == nil {
				return incumbent.Errorf(incumbent.NotFound, "table %s has no column %q", t, c)
			}
		}
	}
	return nil
}

// in reports whether rows of a table may be among them.
func (p *rowPick) in(of *ovs.Table) bool { return p.tables == nil || p.tables[of.Name] != nil }

// rowsAfter calls fn with the rows of a table that are there, behind a uuid (nil: from the
// first on), in their order, until it returns false.
func (p *rowPick) rowsAfter(d *table.Database, of int, after *ovs.UUID, fn func(*ovs.Row) bool) {
	if len(p.ids) == 0 {
		d.RowsAfter(of, after, fn)
		return
	}
	for _, id := range p.ids {
		if after != nil && bytes.Compare(id[:], after[:]) <= 0 {
			continue
		}
		if r := d.Row(of, id); r != nil && !fn(r) {
			return
		}
	}
}

// changed reports whether it is about a change of a row.
func (p *rowPick) changed(of *ovs.Table, r *table.RowChange) bool {
	if !p.in(of) || len(p.ids) > 0 && !slices.Contains(p.ids, r.ID()) {
		return false
	}
	return p.tables == nil || slices.ContainsFunc(p.tables[of.Name], func(name string) bool {
		index := ovs.ColumnUUID // of what this event's schema does not have: as the hub picks it
		if c := of.Column(name); c != nil {
			index = c.Index()
		}
		return r.Changed(index)
	})
}
