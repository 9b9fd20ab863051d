package table

import (
	"strings"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// Database is one state of a database. It never changes once a [View] has it or a
// command has answered it, and any number of goroutines may read it then.
type Database struct {
	Namespace, Name string
	Owner           string // the principal that defined it, whose quota it counts against
	Schema          *ovs.Schema
	SchemaIndex     incumbent.Index // of the command that brought the schema

	relations []*relation // by table
	records   int         // rows
	bytes     int64       // that they cost
	history   history
	loading   *lack           // it is being loaded; nil: it is there
	stepped   incumbent.Index // of the last command of its load
}

func compareDatabases(a, b *Database) int {
	if c := strings.Compare(a.Namespace, b.Namespace); c != 0 {
		return c
	}
	return strings.Compare(a.Name, b.Name)
}

// newDatabase returns one without rows.
func newDatabase(namespace, owner string, s *ovs.Schema, at incumbent.Index) *Database {
	d := &Database{Namespace: namespace, Name: s.Name, Owner: owner, Schema: s, SchemaIndex: at}
	d.relations = make([]*relation, len(s.Tables))
	for i, t := range s.Tables {
		d.relations[i] = newRelation(t)
	}
	d.history = newHistory(idOf(at, 0))
	return d
}

// Bytes is what all rows cost, about.
func (d *Database) Bytes() int64 { return d.bytes }

// Len is the number of all rows.
func (d *Database) Len() int { return d.records }

// Count is the number of rows of a table.
func (d *Database) Count(table int) int { return d.relations[table].rows.Len() }

// RowsAfter is Rows of those behind a uuid; nil: of all.
func (d *Database) RowsAfter(table int, after *ovs.UUID, fn func(*Row) bool) {
	if after == nil { // zeroes are a uuid, too
		d.Rows(table, fn)
		return
	}
	d.relations[table].rows.Ascend(&Row{UUID: *after}, func(r *Row) bool { return r.UUID == *after || fn(r) })
}

// Row returns a row, nil if it is not there.
func (d *Database) Row(table int, id ovs.UUID) *Row { return d.relations[table].row(id) }

// Rows calls fn with the rows of a table, by uuid, until it returns false.
func (d *Database) Rows(table int, fn func(*Row) bool) { d.relations[table].rows.Scan(fn) }

// Find calls fn with the rows of a table for which all conditions hold, until it
// returns false, in an order that follows from the rows. Conditions that are equal to
// a value of an index or of a reference, or to a uuid, it need not look for.
func (d *Database) Find(table int, where []ovs.Condition, fn func(*Row) bool) {
	candidates(d.Schema, d.relations, table, where, func(r *Row) bool { return !holds(where, r) || fn(r) })
}

// HistoryBytes is what the changes cost that are kept, at most [HistoryBytes].
func (d *Database) HistoryBytes() int64 { return d.history.bytes }

// LastTxn is the id of the newest change.
func (d *Database) LastTxn() ovs.UUID { return d.history.last }

// Since returns the changes behind that with an id, oldest first; false: it is not
// known, or too long ago.
func (d *Database) Since(id ovs.UUID) ([]*Change, bool) { return d.history.since(id) }

// ChangesAfter returns the transactions behind an index, oldest first; false: they are too
// long ago, or the schema or the database is another since.
func (d *Database) ChangesAfter(at incumbent.Index) ([]*Change, bool) { return d.history.after(at) }

// View is the family after one batch of commands. It never changes and any number of
// goroutines may read it.
type View struct{ databases, loads *btree.BTreeG[*Database] }

// Of is the family's view of a state that has it.
func Of(v *core.View) *View {
	f, _ := v.Family(Number).(*View)
	return f
}

// Database returns a database, nil if there is none.
func (v *View) Database(namespace, name string) *Database {
	d, _ := v.databases.Get(&Database{Namespace: namespace, Name: name})
	return d
}

// Databases calls fn with the databases of a namespace, by name, until it returns
// false.
func (v *View) Databases(namespace string, fn func(*Database) bool) {
	v.databases.Ascend(&Database{Namespace: namespace}, func(d *Database) bool {
		return d.Namespace == namespace && fn(d)
	})
}

// All calls fn with all databases, by namespace and name, until it returns false.
func (v *View) All(fn func(*Database) bool) { v.databases.Scan(fn) }

// Namespace implements [core.Namespaced].
func (v *View) Namespace(namespace string, _ func(incumbent.SessionID)) core.FamilyView {
	t := newTables() // without loads: they go on where they were begun
	v.Databases(namespace, func(d *Database) bool {
		t.databases.Set(d)
		return true
	})
	return &View{t.databases, t.loads}
}

// tables are the family's. The databases are values: one is replaced by the next.
type tables struct {
	databases *btree.BTreeG[*Database]
	loads     *btree.BTreeG[*Database] // that are being loaded
	usage     *core.Usage              // where bytes are counted; nil: nowhere
	batch     *batch                   // under way
	reader    reader                   // of the section that is being restored
}

func newTables() *tables {
	return &tables{databases: newTree(compareDatabases), loads: newTree(compareDatabases), batch: new(batch)}
}

// View implements [core.Tables].
func (t *tables) View() core.FamilyView {
	t.batch = new(batch)
	return &View{t.databases.Copy(), t.loads.Copy()}
}

func (t *tables) database(namespace, name string) *Database {
	d, _ := t.databases.Get(&Database{Namespace: namespace, Name: name})
	return d
}

// EndSession implements [core.Tables]: no row belongs to a session.
func (t *tables) EndSession(*core.Exec, *core.Ending) {}

var _ core.Counting = (*tables)(nil)

// CountIn implements [core.Counting].
func (t *tables) CountIn(u *core.Usage, _ func(incumbent.SessionID) *core.Session) { t.usage = u }

// Recount implements [core.Counting].
func (t *tables) Recount(u *core.Usage) {
	add := func(d *Database) bool {
		u.Add(d.Owner, d.Namespace, &core.Growth{core.TableBytes: d.bytes})
		return true
	}
	t.databases.Scan(add)
	t.loads.Scan(add)
}

// put stores n in the place of o; either may be nil.
func (t *tables) put(o, n *Database) {
	if o != nil {
		t.charge(o, -o.bytes)
	}
	if n == nil {
		t.databases.Delete(o)
		return
	}
	t.databases.Set(n)
	t.charge(n, n.bytes)
}

func (t *tables) charge(d *Database, by int64) {
	if t.usage != nil && by != 0 {
		t.usage.Add(d.Owner, d.Namespace, &core.Growth{core.TableBytes: by})
	}
}
