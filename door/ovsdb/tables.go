package ovsdb

import (
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// contents is what a database has at one index.
type contents interface {
	Schema() *ovs.Schema
	// Find calls fn with the rows of a table for which all conditions hold, until it
	// returns false.
	Find(table int, where []ovs.Condition, fn func(*ovs.Row) bool)
	// Indexed reports whether Find need not look at rows to find those for which one
	// condition holds: see [table.Database.Indexed].
	Indexed(table int, c *ovs.Condition) bool
	// LastTxn is the id of the last transaction that changed it.
	LastTxn() ovs.UUID
	// Since returns what has changed since a transaction; false: it is not known any
	// more, or never was.
	Since(txn ovs.UUID) ([]*change, bool)
}

// change is what a transaction has changed in a database.
type change struct {
	txn       ovs.UUID
	rows      []rowChange
	converted bool // it has another schema, or is gone
}

// rowChange is a row of a table that was (nil: it was not there) and is (nil: it is
// deleted).
type rowChange struct {
	table    int
	old, new *ovs.Row
}

// idOf is the row's.
func idOf(r *rowChange) ovs.UUID {
	if r.old != nil {
		return r.old.UUID
	}
	return r.new.UUID
}

// topicOf is that under which changes of a database are told.
func (d *Door) topicOf(name string) watch.Topic {
	return engine.FamilyTopic(table.Number, table.Topic(d.namespace, name))
}

// contentsOf is what a database has in a view; nil: it is not there.
func (d *Door) contentsOf(v *core.View, name string) contents {
	db := table.Of(v).Database(d.namespace, name)
	if db == nil {
		return nil
	}
	return databaseContents{db}
}

// databases calls fn with the databases of a view, by name.
func (d *Door) databases(v *core.View, fn func(name string, schema *ovs.Schema)) {
	table.Of(v).Databases(d.namespace, func(db *table.Database) bool {
		fn(db.Name, db.Schema)
		return true
	})
}

// changeIn is what an event says of a database.
func changeIn(e *watch.Event) (*change, bool) {
	c, ok := e.Payload.(*core.Change)
	if !ok || c.Family == nil {
		return nil, false
	}
	tc, ok := c.Family.After.(*table.Change)
	if !ok {
		return nil, false
	}
	return changeOf(tc), true
}

func changeOf(c *table.Change) *change {
	out := &change{txn: c.TxnID, rows: make([]rowChange, len(c.Rows)), converted: c.Schema != nil}
	for i, r := range c.Rows {
		out.rows[i] = rowChange{r.Table, r.Old, r.New}
	}
	return out
}

// databaseContents is what a database has in a view.
type databaseContents struct{ *table.Database }

// Schema implements contents.
func (d databaseContents) Schema() *ovs.Schema { return d.Database.Schema }

// Since implements contents.
func (d databaseContents) Since(txn ovs.UUID) ([]*change, bool) {
	list, found := d.Database.Since(txn)
	out := make([]*change, len(list))
	for i, c := range list {
		out[i] = changeOf(c)
	}
	return out, found
}
