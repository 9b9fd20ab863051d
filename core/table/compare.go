package table

import "github.com/tidwall/btree"

// Comparison finds the rows in which two states of a database differ. It keeps both, and
// belongs to one goroutine.
type Comparison struct {
	was, is *Database
	table   int
	old     *rowWalk // of the table; nil: it is to begin
	new     *rowWalk
}

// Compare begins to compare a state with a later one, both of the same SchemaIndex.
func Compare(was, is *Database) *Comparison { return &Comparison{was: was, is: is} }

// Next appends to buf what has become of rows, by table and uuid, and reports whether that
// is all. It looks at no more than limit rows of either state: tables that nothing has
// touched cost nothing.
func (c *Comparison) Next(buf []RowChange, limit int) (_ []RowChange, all bool) {
	for ; c.table < len(c.was.relations); c.table++ {
		a, b := c.was.relations[c.table], c.is.relations[c.table]
		if a == b {
			continue
		}
		if c.old == nil {
			c.old, c.new = newRowWalk(a), newRowWalk(b)
		}
		for ; c.old.row != nil || c.new.row != nil; limit-- {
			if limit <= 0 {
				return buf, false
			}
			buf = c.step(buf)
		}
		c.old, c.new = nil, nil
	}
	return buf, true
}

// step looks at the row with the least uuid of both states.
func (c *Comparison) step(buf []RowChange) []RowChange {
	was, is := c.old.row, c.new.row
	if was != nil && is != nil {
		switch n := compareIDs(was.UUID, is.UUID); {
		case n < 0:
			is = nil
		case n > 0:
			was = nil
		}
	}
	if was != nil {
		c.old.next()
	}
	if is != nil {
		c.new.next()
	}
	if SameRow(was, is) {
		return buf
	}
	return append(buf, RowChange{c.table, was, is})
}

// SameRow reports whether a row, nil where it is not there, is the same in two states: of one
// that was changed the version is another, also where a snapshot was read in between.
func SameRow(a, b *Row) bool { return a == b || a != nil && b != nil && a.Version == b.Version }

// rowWalk goes through the rows of a relation that nobody changes any more.
type rowWalk struct {
	iter btree.IterG[*Row]
	row  *Row // nil: there are no more
}

func newRowWalk(r *relation) *rowWalk {
	i := &rowWalk{iter: r.rows.Iter()}
	i.next()
	return i
}

func (i *rowWalk) next() {
	if i.row = nil; i.iter.Next() {
		i.row = i.iter.Item()
	}
}
