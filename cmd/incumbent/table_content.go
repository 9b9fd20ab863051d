package main

import (
	"errors"
	"io"
	"math"
	"strings"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// content is what a database has.
type content struct {
	schema *ovs.Schema
	tables []map[ovs.UUID]*ovs.Row // as the schema's
	behind int                     // entries of a clustered file that were not committed
}

func newContent(s *ovs.Schema) *content {
	c := &content{schema: s, tables: make([]map[ovs.UUID]*ovs.Row, len(s.Tables))}
	for i := range c.tables {
		c.tables[i] = map[ovs.UUID]*ovs.Row{}
	}
	return c
}

func (c *content) rows() (n int) {
	for _, t := range c.tables {
		n += len(t)
	}
	return n
}

// readDatabase reads a file of ovsdb-server's, stand-alone or clustered. Its errors name
// the record.
func readDatabase(in io.Reader) (*content, error) {
	l := newFileLog(in)
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
	c := newContent(schema)
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
func (c *content) apply(record ovs.Value) error {
	is, _ := record.Member("_is_diff")
	for i := range record.Members() {
		name, rows := record.MemberAt(i)
		if strings.HasPrefix(name, "_") { // date, comment, and the like
			continue
		}
		of, at := c.schema.Table(name)
		if of == nil {
			return ovs.Errorf(ovs.SyntaxError, "there is no table %s", name)
		}
		for j := range rows.Members() {
			id, columns := rows.MemberAt(j)
			if err := c.applyRow(of, at, id, columns, is.Kind() == ovs.True); err != nil {
				return ovs.Errorf(ovs.SyntaxError, "row %s of table %s: %v", id, name, err)
			}
		}
	}
	return nil
}

// applyRow applies what a record says of a row: null removes it, columns are those that
// it has, or differences to those that it had.
func (c *content) applyRow(of *ovs.Table, at int, id string, columns ovs.Value, differs bool) error {
	u, ok := ovs.ParseUUID(id)
	if !ok {
		return errors.New("it has no uuid")
	}
	is := c.tables[at][u]
	switch {
	case columns.Kind() == ovs.Null && is == nil:
		return errors.New("it goes, and is not there")
	case columns.Kind() == ovs.Null:
		delete(c.tables[at], u)
		return nil
	case is == nil:
		r, err := ovs.ParseRow(of, id, columns)
		if err != nil {
			return err
		}
		c.tables[at][u] = r
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

// appendFileRow appends a row as files have it: without the columns that are at their
// default.
func appendFileRow(b []byte, of *ovs.Table, columns []ovs.Datum) []byte {
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
