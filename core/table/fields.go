package table

import (
	"cmp"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// Fields of changes, by which watchers select them.
const (
	FieldSchema = iota // whatever is no transaction: what is told of it is no row
	FieldRows          // parts: [ColumnPart]
	FieldRow           // of each row, [RowText]
)

// MaxPartBytes is what the name of a part may have.
const MaxPartBytes = 1024

var fieldNames = []string{FieldSchema: "schema", FieldRows: "rows", FieldRow: "row"}

var _ core.Plural = Family{}

// ColumnPart is the name of the part of [FieldRows] that changes with a column of a
// table's rows: as [RowChange.Changed] says.
func ColumnPart(table, column string) string { return table + "/" + column }

// RowText is what [FieldRow] says of a row.
func RowText(id ovs.UUID) string { return string(id[:]) }

// Fields implements [core.Fielded].
func (Family) Fields() []string { return fieldNames }

// Changed implements [core.Fielded]: of one change, which is both records.
func (Family) Changed(_, change any) uint64 {
	switch c, _ := change.(*Change); {
	case c == nil:
		return 0
	case c.Schema != nil:
		return 1 << FieldSchema
	}
	return 1<<FieldRows | 1<<FieldRow
}

// Text implements [core.Fielded]: it is Texts that says something.
func (Family) Text(any, int) (string, bool) { return "", false }

// Texts implements [core.Plural].
func (Family) Texts(list []string, change any, field int) []string {
	c, _ := change.(*Change)
	if c == nil || field != FieldRow {
		return list
	}
	list = slices.Grow(list, len(c.Rows))
	for i := range c.Rows {
		list = append(list, RowText(c.Rows[i].ID()))
	}
	return list
}

// ValidatePart implements [core.Parted].
func (Family) ValidatePart(field int, name string) error {
	table, column, parted := strings.Cut(name, "/")
	switch {
	case field != FieldRows:
		return incumbent.Errorf(incumbent.Invalid, "only rows have parts")
	case len(name) > MaxPartBytes:
		return incumbent.Errorf(incumbent.Invalid, "table and column have %d bytes; %d are allowed", len(name), MaxPartBytes)
	case !parted || !ovs.IsID(table) || !ovs.IsID(column):
		return incumbent.Errorf(incumbent.Invalid, "%.100q does not name a table and a column", name)
	}
	return nil
}

// PartsChanged implements [core.Parted]: of one change, which is both records.
func (Family) PartsChanged(_, change any, parts []core.Part) bool {
	c, _ := change.(*Change)
	return c != nil && slices.ContainsFunc(parts, func(p core.Part) bool {
		return c.changed(p.Name, c.rowsOf)
	})
}

// PartsChangedOf implements [core.Plural]: of the rows with a uuid.
func (Family) PartsChangedOf(change any, parts []core.Part, field int, text string) bool {
	c, _ := change.(*Change)
	if c == nil || field != FieldRow || len(text) != len(ovs.UUID{}) {
		return false
	}
	id := ovs.UUID([]byte(text))
	return slices.ContainsFunc(parts, func(p core.Part) bool {
		return c.changed(p.Name, func(table int) []RowChange { return c.rowOf(table, id) })
	})
}

// changed reports whether a part changed in one of the rows of its table.
func (c *Change) changed(part string, rows func(table int) []RowChange) bool {
	if c.Schema != nil {
		return false // it has no rows
	}
	name, column, _ := strings.Cut(part, "/")
	of, table := c.under.Table(name)
	if of == nil {
		return false
	}
	index := ovs.ColumnUUID // of a column that is not there: rows that go are told to who was shown them
	if at := of.Column(column); at != nil {
		index = at.Index()
	}
	list := rows(table)
	for i := range list {
		if list[i].Changed(index) {
			return true
		}
	}
	return false
}

// rowsOf are those of a table.
func (c *Change) rowsOf(table int) []RowChange {
	from, _ := slices.BinarySearchFunc(c.Rows, table, func(r RowChange, t int) int { return cmp.Compare(r.Table, t) })
	to, _ := slices.BinarySearchFunc(c.Rows, table+1, func(r RowChange, t int) int { return cmp.Compare(r.Table, t) })
	return c.Rows[from:to]
}

// rowOf is that of a table with a uuid, or none.
func (c *Change) rowOf(table int, id ovs.UUID) []RowChange {
	i, found := slices.BinarySearchFunc(c.Rows, place{table, id}, func(r RowChange, p place) int { return place{r.Table, r.ID()}.compare(p) })
	if !found {
		return nil
	}
	return c.Rows[i : i+1]
}

// Changed reports whether a column of the row changed. In one that comes or goes all do;
// _uuid does in no other, and _version in each.
func (c *RowChange) Changed(column int) bool {
	switch {
	case c.Old == nil || c.New == nil || column == ovs.ColumnVersion:
		return true
	case column == ovs.ColumnUUID:
		return false
	}
	return !equal(c.Old.Columns[column], c.New.Columns[column])
}
