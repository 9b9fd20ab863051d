package table

import (
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// A load brings in a database that is larger than a transaction may be, with the uuids
// of its rows. Its rows are put into a database that nobody sees, in as many commands as
// it takes, and in any order: references may lead for a while to rows that are still to
// come. What is missing is counted with each row, so that the last command looks at
// counters, whatever the size of the database, and shows it as it is. What a transaction
// checks at its commit is checked: constraints and indexes with each row, references and
// what nothing refers to with the last. Nothing is collected and nothing pruned.
//
// A load whose client is gone has a deadline: [LoadRest] behind its last command the
// leader has it abandoned.

// Begin begins a load of a database, whose name is the schema's, in the place of one
// that was not finished. The Record of its result is the *Database, whose SchemaIndex
// names the load.
type Begin struct {
	Namespace string
	Schema    []byte // JSON
}

// Load puts rows into a database that is being loaded, all or none. One that is there as
// it says is left as it is; one that is there with other columns is refused as Exists.
// More of them than MaxGrowthBytes and MaxWork let one command have are TooLarge: they are
// to come in several.
// Its result's Record is the *Database.
type Load struct {
	Namespace, Database string
	Began               incumbent.Index
	Rows                [][]byte // as of [LoadedRow]
}

// Finish shows a database that was loaded: Invalid if something is missing, Exists if
// there is one of the name, unless that is to be replaced. The Record of its result is
// the *Database.
type Finish struct {
	Namespace, Database string
	Began               incumbent.Index
	Replace             bool
}

// Abandon forgets what waits of a load. With Stepped it is void, and refused as Conflict,
// if the last command of the load is another than that.
type Abandon struct {
	Namespace, Database string
	Stepped             incumbent.Index // 0: whichever
}

var (
	_ core.Command = (*Begin)(nil)
	_ core.Command = (*Load)(nil)
	_ core.Command = (*Finish)(nil)
	_ core.Command = (*Abandon)(nil)
)

// Encode implements [core.Command].
func (c *Begin) Encode(m core.Meta) []byte {
	return (&command{verb: verbBegin, namespace: c.Namespace, schema: c.Schema}).encode(m, nil)
}

// Encode implements [core.Command].
func (c *Load) Encode(m core.Meta) []byte {
	return (&command{verb: verbLoad, namespace: c.Namespace, name: c.Database, at: c.Began, rows: c.Rows}).encode(m, nil)
}

// LoadedRow returns a row of a table as a [Load] has it, whose version is chosen by the
// command. An empty column is a byte there, and many in memory.
func LoadedRow(table int, r *Row) []byte {
	var w recordWriter
	w.Uint(1, uint64(table))
	w.encoded(2, r)
	return w.B
}

// Encode implements [core.Command].
func (c *Finish) Encode(m core.Meta) []byte {
	return (&command{verb: verbFinish, namespace: c.Namespace, name: c.Database, at: c.Began, flag: c.Replace}).encode(m, nil)
}

// Encode implements [core.Command].
func (c *Abandon) Encode(m core.Meta) []byte {
	return (&command{verb: verbAbandon, namespace: c.Namespace, name: c.Database, at: c.Stepped}).encode(m, nil)
}

// Loading returns the database of a name that is being loaded, nil if none is.
func (v *View) Loading(namespace, name string) *Database {
	d, _ := v.loads.Get(&Database{Namespace: namespace, Name: name})
	return d
}

// Loads calls fn with the databases of a namespace that are being loaded, by name, until
// it returns false.
func (v *View) Loads(namespace string, fn func(*Database) bool) {
	v.loads.Ascend(&Database{Namespace: namespace}, func(d *Database) bool {
		return d.Namespace == namespace && fn(d)
	})
}

// lack is what a load still needs.
type lack struct {
	rows int // that references lead to, and that are not there
	refs int // rows that are there and are no roots, and that nothing refers to strongly
}

func (t *tables) begin(x *core.Exec, c *command) core.Result {
	s, err := parseSchema(c.schema)
	if err == nil {
		err = tooIndexed(x, s)
	}
	if err != nil {
		return core.Result{Err: err}
	}
	d := newDatabase(c.namespace, x.Principal(), s, x.Index())
	d.loading, d.stepped = &lack{}, x.Index()
	o, _ := t.loads.Get(d)
	if err := t.full(); o == nil && err != nil {
		return core.Result{Err: err}
	}
	t.putLoad(x, o, d)
	return core.Result{Record: d}
}

// putLoad stores n in the place of o among those that are being loaded; either may be
// nil. No watcher is told, the leader's clock is.
func (t *tables) putLoad(x *core.Exec, o, n *Database) {
	if o != nil {
		t.loads.Delete(o)
		t.charge(o, -o.bytes)
	}
	if n != nil {
		t.loads.Set(n)
		t.charge(n, n.bytes)
		x.Tell(Family{}, core.FamilyChange{Deadline: n.loadDeadline()})
		return
	}
	x.Tell(Family{}, core.FamilyChange{Deadline: &core.Deadline{Family: Number, ID: o.loadDeadline().ID}})
}

// loadDeadline is that of a database that is being loaded. A namespace has no control
// character.
func (d *Database) loadDeadline() *core.Deadline {
	return &core.Deadline{Family: Number, ID: d.Namespace + "\x00" + d.Name, Generation: d.stepped, After: LoadRest}
}

var _ core.Timed = (*View)(nil)

// Deadlines implements [core.Timed]: one for each load.
func (v *View) Deadlines(fn func(*core.Deadline) bool) {
	v.loads.Scan(func(d *Database) bool { return fn(d.loadDeadline()) })
}

// EndDeadline implements [core.Timed].
func (v *View) EndDeadline(d *core.Deadline) core.Command {
	namespace, name, _ := strings.Cut(d.ID, "\x00")
	return &Abandon{Namespace: namespace, Database: name, Stepped: d.Generation}
}

func (t *tables) loadStep(x *core.Exec, c *command) core.Result {
	d, ok := t.loads.Get(&Database{Namespace: c.namespace, Name: c.name})
	switch {
	case !ok:
		return core.Result{Err: incumbent.Errorf(incumbent.NotFound, "database %s is not being loaded", c.name)}
	case c.verb == verbAbandon && c.at != 0 && c.at != d.stepped:
		return core.Result{Err: incumbent.Errorf(incumbent.Conflict, "the load of database %s has gone on", c.name)}
	case c.verb == verbAbandon:
		t.putLoad(x, d, nil)
		return core.Result{}
	case d.SchemaIndex != c.at:
		return core.Result{Err: incumbent.Errorf(incumbent.Conflict, "another load of database %s has begun", c.name)}
	case c.verb == verbFinish:
		return t.finish(x, d, c.flag)
	}
	return t.load(x, d, c)
}

func (t *tables) load(x *core.Exec, d *Database, c *command) core.Result {
	l := load{work: begin(d), lack: *d.loading}
	if active := x.ActiveSchema(); active >= bulkSchema {
		l.limitBy(active)
	}
	if err := l.takeAll(x.Index(), c.rows); err != nil {
		return core.Result{Err: err}
	}
	if err := l.overQuota(x); err != nil {
		return core.Result{Err: tooLarge(err)}
	}
	next := *d
	next.relations, next.records, next.bytes, next.loading = l.relations, l.records, l.bytes, &l.lack
	next.stepped = x.Index()
	t.putLoad(x, d, &next)
	return core.Result{Record: &next}
}

// takeAll adds the rows of a command that are not there.
func (l *load) takeAll(at incumbent.Index, rows [][]byte) *incumbent.Error {
	n := 0
	for _, b := range rows {
		p, r, err := readLoaded(b, l.schema)
		if err != nil {
			return err
		}
		if is := l.row(p); is != nil {
			if !equalRows(is, r) {
				return incumbent.Errorf(incumbent.Exists, "row %s of table %s is there and says something else", p.id, l.name(p.table))
			}
			continue
		}
		n++
		r.Version = idOf(at, n)
		if err := l.take(p, r); err != nil {
			return err
		}
	}
	return nil
}

// tooLarge is an error of resources that are exhausted, as that of a load.
func tooLarge(err *ovs.Error) *incumbent.Error {
	return &incumbent.Error{Kind: incumbent.TooLarge, Message: err.Details}
}

// readLoaded reads a row of a load, and checks it as an insert is.
func readLoaded(b []byte, s *ovs.Schema) (at place, r *Row, _ *incumbent.Error) {
	var table uint64
	var row []byte
	ok := wire.Fields(b, func(f wire.Field) bool {
		switch f.Num {
		case 1:
			return f.Uint(&table)
		case 2:
			return f.Bytes(&row)
		}
		return false
	})
	if !ok || table >= uint64(len(s.Tables)) {
		return at, nil, malformed("malformed row")
	}
	of := s.Tables[table]
	if r, ok = ovs.DecodeRow(row, of); !ok {
		return at, nil, malformed("malformed row")
	}
	for i, c := range of.Columns {
		if err := r.Columns[i].Check(&c.Type); err != nil {
			return at, nil, incumbent.Errorf(incumbent.Invalid, "row %s of table %s, column %s: %w", r.UUID, of.Name, c.Name, err)
		}
	}
	if size := sizeOf(r); size > MaxRowBytes {
		return at, nil, incumbent.Errorf(incumbent.TooLarge, "row %s of table %s has %d bytes: limit MaxRowBytes is %d", r.UUID, of.Name, size, MaxRowBytes)
	}
	return place{int(table), r.UUID}, r, nil
}

// load is a database while rows are put into it.
type load struct {
	*work
	lack
}

// take adds a row that is not there, unless the schema is against it, or a limit.
func (l *load) take(p place, r *Row) *incumbent.Error {
	l.add(p, r)
	if err := l.written(); err != nil {
		return tooLarge(err)
	}
	of := l.schema.Tables[p.table]
	if n := l.relations[p.table].rows.Len(); n > of.MaxRows {
		return incumbent.Errorf(incumbent.Invalid, "table %s would have %d rows, and its schema allows %d", of.Name, n, of.MaxRows)
	}
	for i, columns := range of.Indexes {
		if l.twice(&touch{p, nil, r}, i, keysOf(r, columns)) {
			return incumbent.Errorf(incumbent.Invalid, "row %s of table %s has the same values as another in the columns of index %d", p.id, of.Name, i+1)
		}
	}
	return nil
}

// add adds a row that is not there, and counts what is missing by it.
func (l *load) add(p place, r *Row) {
	if l.referred(strong, p, p, p) || l.referred(weak, p, p, p) {
		l.rows--
	}
	l.put(p.table, nil, r)
	l.touched, l.order = nil, l.order[:0] // nobody asks what it was
	if l.needsRef(p) && !l.referred(strong, p, p, p) {
		l.refs++
	}
	var to, strongly []place // rows that it refers to
	l.references(p.table, strong, r, nil, func(_ int, q place) { strongly = append(strongly, q) })
	l.references(p.table, weak, r, nil, func(_ int, q place) { to = append(to, q) })
	for _, q := range distinct(strongly) {
		if q != p && l.row(q) != nil && l.needsRef(q) && !l.referred(strong, q, p, q) {
			l.refs--
		}
	}
	for _, q := range distinct(append(to, strongly...)) {
		if l.row(q) == nil && !l.referred(strong, q, p, p) && !l.referred(weak, q, p, p) {
			l.rows++
		}
	}
}

func distinct(list []place) []place {
	slices.SortFunc(list, place.compare)
	return slices.Compact(list)
}

// needsRef reports whether a row goes that nothing refers to.
func (l *load) needsRef(p place) bool { return !l.schema.Tables[p.table].IsRoot }

// referred reports whether rows other than these two refer to a row.
func (l *load) referred(kind int, to, but, also place) (found bool) {
	l.relations[to.table].refs[kind].Ascend(ref{to: to.id, table: -1}, func(f ref) bool {
		from := place{f.table, f.from}
		found = f.to == to.id && from != but && from != also
		return f.to == to.id && !found
	})
	return found
}

// finish shows a database that was loaded.
func (t *tables) finish(x *core.Exec, d *Database, replace bool) core.Result {
	if m := *d.loading; m != (lack{}) {
		return core.Result{Err: incumbent.Errorf(incumbent.Invalid,
			"database %s is not whole: %d rows are missing that others refer to, and nothing refers to %d rows that need it", d.Name, m.rows, m.refs)}
	}
	o := t.database(d.Namespace, d.Name)
	if o != nil && !replace {
		return core.Result{Err: incumbent.Errorf(incumbent.Exists, "there is a database %s", d.Name)}
	}
	n := *d
	n.loading, n.stepped, n.SchemaIndex, n.history = nil, 0, x.Index(), newHistory(idOf(x.Index(), 0))
	t.putLoad(x, d, nil)
	t.put(o, &n)
	t.tell(x, &n, &Change{Index: x.Index(), TxnID: n.LastTxn(), Schema: n.Schema, size: changeBytes})
	return core.Result{Record: &n}
}
