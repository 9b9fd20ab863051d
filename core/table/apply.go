package table

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// Apply implements [core.Tables]. Its Record is the *Database of Define, as it is then,
// and the *Outcome of Convert and Transact: there, errors of operations and of the
// commit stand in the outcome.
//
// It answers Invalid for what cannot be, NotFound where there is no such database,
// Conflict where it has another schema than the command says, and TooLarge for what
// is over a limit or a quota. Commands of a load: see load.go.
func (t *tables) Apply(x *core.Exec, b []byte) core.Result {
	var c command
	if err := c.read(b); err != nil {
		return core.Result{Err: err}
	}
	switch c.verb {
	case verbDefine:
		return t.define(x, &c)
	case verbBegin:
		return t.begin(x, &c)
	case verbLoad, verbFinish, verbAbandon:
		return t.loadStep(x, &c)
	}
	d := t.database(c.namespace, c.name)
	if d == nil {
		return core.Result{Err: errNoDatabase(c.name)}
	}
	switch c.verb {
	case verbConvert:
		return t.convert(x, d, &c)
	case verbDrop:
		t.put(d, nil)
		t.tell(x, d, &Change{Index: x.Index(), TxnID: idOf(x.Index(), 0), Schema: d.Schema, Dropped: true, size: changeBytes})
		return core.Result{}
	}
	return t.transact(x, d, &c)
}

func errNoDatabase(name string) *incumbent.Error {
	return incumbent.Errorf(incumbent.NotFound, "there is no database %s", name)
}

func errOtherSchema(name string) *incumbent.Error {
	return incumbent.Errorf(incumbent.Conflict, "database %s has another schema", name)
}

func (t *tables) tell(x *core.Exec, d *Database, c *Change) {
	x.Tell(Family{}, core.FamilyChange{Topic: Topic(d.Namespace, d.Name), Before: c, After: c, Size: int(c.size)})
}

// parseSchema returns the schema that the canonical text of a schema says: it is what
// members have that restore a snapshot, and no other may be in use. (A real may be
// written with fewer digits than it had, so that it takes a second reading.)
func parseSchema(text []byte) (*ovs.Schema, *incumbent.Error) {
	s, err := ovs.ParseSchema(text)
	for range 2 {
		if err == nil && string(s.JSON) != string(text) {
			text = s.JSON
			s, err = ovs.ParseSchema(text)
		}
	}
	switch {
	case err == nil && string(s.JSON) != string(text):
		return nil, malformed("schema: its text cannot be kept as it is meant")
	case err != nil:
		return nil, incumbent.Errorf(incumbent.Invalid, "schema: %w", err)
	case len(s.Name) > MaxNameBytes:
		return nil, malformed("no name of a database")
	case len(s.JSON) > MaxSchemaBytes:
		return nil, incumbent.Errorf(incumbent.TooLarge, "schema has %d bytes: limit MaxSchemaBytes is %d", len(s.JSON), MaxSchemaBytes)
	}
	return s, nil
}

// tooIndexed is why a database may not have a schema now, though one that has it keeps it.
func tooIndexed(x *core.Exec, s *ovs.Schema) *incumbent.Error {
	if x.ActiveSchema() < boundSchema {
		return nil
	}
	for _, t := range s.Tables {
		if len(t.Indexes) > MaxIndexes {
			return incumbent.Errorf(incumbent.TooLarge, "table %s has %d indexes: limit MaxIndexes is %d", t.Name, len(t.Indexes), MaxIndexes)
		}
		for _, columns := range t.Indexes {
			if len(columns) > MaxIndexColumns {
				return incumbent.Errorf(incumbent.TooLarge, "an index of table %s has %d columns: limit MaxIndexColumns is %d", t.Name, len(columns), MaxIndexColumns)
			}
		}
	}
	return nil
}

func (t *tables) define(x *core.Exec, c *command) core.Result {
	s, err := parseSchema(c.schema)
	if err != nil {
		return core.Result{Err: err}
	}
	if d := t.database(c.namespace, s.Name); d != nil {
		t.batch = new(batch) // who asks may look at it
		if string(d.Schema.JSON) != string(s.JSON) {
			return core.Result{Record: d, Err: errOtherSchema(s.Name)}
		}
		return core.Result{Record: d}
	}
	err = t.full()
	if err == nil {
		err = tooIndexed(x, s)
	}
	if err != nil {
		return core.Result{Err: err}
	}
	d := newDatabase(c.namespace, x.Principal(), s, x.Index())
	t.put(nil, d)
	t.tell(x, d, &Change{Index: x.Index(), TxnID: d.LastTxn(), Schema: s, size: changeBytes})
	return core.Result{Record: d}
}

func (t *tables) transact(x *core.Exec, d *Database, c *command) core.Result {
	if d.SchemaIndex != c.at {
		return core.Result{Err: errOtherSchema(d.Name)}
	}
	p := play{work: beginIn(t.batch, d), ops: make([]ovs.Operation, len(c.ops)), as: restrictedIn(d.Schema, c.role, c.roles, c.client, x.ActiveSchema()), out: &Outcome{}}
	for i, b := range c.ops {
		var ok bool
		if p.ops[i], ok = ovs.DecodeOperation(b, d.Schema); !ok {
			return core.Result{Err: malformed("malformed operation")}
		}
	}
	p.held = holdsOf(c.locks, x.Held)
	p.limitBy(x.ActiveSchema())
	p.run()
	if !p.out.Failed {
		p.commit(t, x)
	}
	if p.out.Failed {
		p.undo()
	}
	r := core.Result{Record: p.out}
	if c.flag && p.out.Failed {
		r.Err = errFailed(p.out)
	}
	return r
}

// errFailed is what is kept with a key of a transaction that failed.
func errFailed(o *Outcome) *incumbent.Error {
	if o.Waits {
		return incumbent.Errorf(incumbent.Conflict, "a wait does not hold")
	}
	return malformed("the transaction failed")
}

// full is why there can be no more databases.
func (t *tables) full() *incumbent.Error {
	if t.databases.Len()+t.loads.Len() < MaxDatabases {
		return nil
	}
	return incumbent.Errorf(incumbent.TooLarge, "databases: limit MaxDatabases is %d", MaxDatabases)
}

// holdsOf reports of a lock whether its lease is held, by what held says.
func holdsOf(locks []Lock, held func(incumbent.Name, incumbent.Token) bool) func(string) bool {
	return func(name string) bool {
		for _, l := range locks {
			if l.Name == name && held(l.Lease, l.Token) {
				return true
			}
		}
		return false
	}
}

// commit makes what was done the state of the database, if all checks let it.
func (p *play) commit(t *tables, x *core.Exec) {
	err := p.work.commit(x.Index())
	if err == nil {
		err = p.overQuota(x)
	}
	if err != nil {
		p.out.Failed = true
		p.out.Results = append(p.out.Results, Result{Err: err})
		return
	}
	if len(p.order) == 0 {
		return
	}
	n, change := p.done(x.Index())
	p.out.TxnID = change.TxnID
	t.put(p.from, n)
	t.tell(x, n, change)
}

// overQuota is why a transaction fails that makes the database larger; nil: it may.
func (w *work) overQuota(x *core.Exec) *ovs.Error {
	by := w.bytes - w.from.bytes
	if by <= 0 {
		return nil
	}
	g := core.Growth{core.TableBytes: by}
	if err := x.OverQuota(w.from.Owner, w.from.Namespace, g, g); err != nil {
		return ovs.Errorf(ovs.ResourcesExhausted, "%s", err.Message)
	}
	return nil
}

// done returns the database after the transaction, and what that has changed.
func (w *work) done(at incumbent.Index) (*Database, *Change) {
	rows := make([]RowChange, len(w.order))
	for i, t := range w.order {
		rows[i] = RowChange{t.table, t.old, t.new}
	}
	c := &Change{Index: at, TxnID: idOf(at, 0), Rows: rows, size: sizeOfChange(rows), under: w.schema}
	n := *w.from
	n.relations, n.records, n.bytes = w.relations, w.records, w.bytes
	n.history = w.from.history.with(w.batch, c, HistoryBytes)
	return &n, c
}

// Idling answers a transaction of which no operation changes anything in this state up to
// the first that fails, or of which one is none ([ovs.OpFail]), and reports whether it is
// one. all is the view of the state. Its Record is an *Outcome. One that takes back what it
// has done is none: to find that out costs as much as to execute it, for each that does
// change something.
func (v *View) Idling(all *core.View, c *Transact) (core.Result, bool) {
	d := v.Database(c.Namespace, c.Database)
	switch {
	case d == nil:
		return core.Result{Err: errNoDatabase(c.Database)}, true
	case d.SchemaIndex != c.Schema:
		return core.Result{Err: errOtherSchema(c.Database)}, true
	}
	p := play{work: begin(d), ops: c.Operations, held: holdsOf(c.Locks, all.Held), as: restrictedIn(d.Schema, c.Role, c.Roles, c.Client, all.ActiveSchema()), out: &Outcome{}}
	p.limitBy(all.ActiveSchema())
	// One that fails for sure is answered here whatever it does before: the log takes none.
	p.dry = !ovs.Fails(c.Operations)
	if !p.run() {
		return core.Result{}, false
	}
	return core.Result{Record: p.out}, true
}
