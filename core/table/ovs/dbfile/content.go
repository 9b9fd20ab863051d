package dbfile

import (
	"errors"
	"io"
	"math"
	"strings"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// Content is what a database has.
type Content struct {
	Schema *ovs.Schema
	Tables []map[ovs.UUID]*ovs.Row // as the schema's
	Behind int                     // entries of a clustered file that were not committed
}

// New returns a database without rows.
func New(s *ovs.Schema) *Content {
	c := &Content{Schema: s, Tables: make([]map[ovs.UUID]*ovs.Row, len(s.Tables))}
	for i := range c.Tables {
		c.Tables[i] = map[ovs.UUID]*ovs.Row{}
	}
	return c
}

// Rows returns how many rows there are.
func (c *Content) Rows() (n int) {
	for _, t := range c.Tables {
		n += len(t)
	}
	return n
}

// Read reads a file, stand-alone or clustered. Its errors are Invalid, and name the record,
// or those of the reader.
func Read(in io.Reader) (*Content, error) {
	l := newRecords(in)
	first, err := l.next()
	if errors.Is(err, io.EOF) {
		return nil, l.bad("there is none")
	}
	if err != nil {
		return nil, err
	}
	if l.kind == clusteredFile {
		return readClustered(l, first)
	}
	schema, bad := ovs.SchemaOf(first)
	if bad != nil {
		return nil, l.bad("it is no schema: %w", bad)
	}
	c := New(schema)
	for {
		record, err := l.next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return nil, err
		}
		if err := c.apply(record); err != nil {
			return nil, l.bad("%w", err)
		}
	}
}

// apply applies the record of a transaction.
func (c *Content) apply(record ovs.Value) error {
	is, _ := record.Member("_is_diff")
	for i := range record.Members() {
		name, rows := record.MemberAt(i)
		if strings.HasPrefix(name, "_") { // date, comment, and the like
			continue
		}
		of, at := c.Schema.Table(name)
		if of == nil {
			return ovs.Errorf(ovs.SyntaxError, "there is no table %s", name)
		}
		for j := range rows.Members() {
			id, columns := rows.MemberAt(j)
			if err := c.ApplyRow(of, at, id, columns, is.Kind() == ovs.True); err != nil {
				return ovs.Errorf(ovs.SyntaxError, "row %s of table %s: %v", id, name, err)
			}
		}
	}
	return nil
}

// ApplyRow applies what a record, or a monitor, says of a row of the table at a place in
// the schema: null removes it, columns are those that it has, or differences to those that
// it had.
func (c *Content) ApplyRow(of *ovs.Table, at int, id string, columns ovs.Value, differs bool) error {
	u, ok := ovs.ParseUUID(id)
	if !ok {
		return errors.New("it has no uuid")
	}
	is := c.Tables[at][u]
	switch {
	case columns.Kind() == ovs.Null && is == nil:
		return errors.New("it goes, and is not there")
	case columns.Kind() == ovs.Null:
		delete(c.Tables[at], u)
		return nil
	case is == nil:
		r, err := ovs.ParseRow(of, id, columns)
		if err != nil {
			return err
		}
		c.Tables[at][u] = r
		return nil
	case columns.Kind() != ovs.Object:
		return errors.New("it is no object")
	}
	for i := range columns.Members() {
		name, value := columns.MemberAt(i)
		column := of.Column(name)
		if column == nil || column.Index() < 0 {
			return ovs.Errorf(ovs.UnknownColumn, "there is no column %s", name)
		}
		d, err := changed(is.Columns[column.Index()], value, &column.Type, differs)
		if err != nil {
			return ovs.Errorf(ovs.SyntaxError, "column %s: %v", name, err)
		}
		is.Columns[column.Index()] = d
	}
	return nil
}

// changed is what becomes of a column's value.
func changed(old ovs.Datum, value ovs.Value, t *ovs.Type, differs bool) (ovs.Datum, *ovs.Error) {
	if !differs {
		return ovs.ParseDatum(value, t, nil)
	}
	of := *t
	if t.Max > 1 { // a difference has as many elements as there are
		of.Min, of.Max = 0, math.MaxInt
	}
	d, err := ovs.ParseDatum(value, &of, nil)
	if err != nil {
		return d, err
	}
	return ovs.ApplyDiff(old, d, t)
}

// AppendRow appends a row as files have it: without the columns that are at their
// default.
func AppendRow(b []byte, of *ovs.Table, columns []ovs.Datum) []byte {
	b = append(b, '{')
	some := false
	for i, c := range of.Columns {
		if columns[i].IsDefault(&c.Type) {
			continue
		}
		if some {
			b = append(b, ',')
		}
		some = true
		b = ovs.AppendString(b, c.Name)
		b = append(b, ':')
		b = columns[i].AppendJSON(b, &c.Type)
	}
	return append(b, '}')
}
