package ovsdb

import (
	"crypto/rand"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// serverName is the name of the database about the server itself, which is always there
// and is never changed by clients.
const serverName = "_Server"

// serverSchema is its schema: a row for each database that the server has, of which
// a client is shown those that it may know of.
const serverSchema = `{"cksum":"3009684573 744","name":"_Server","tables":{"Database":{"columns":{` +
	`"cid":{"type":{"key":"uuid","max":1,"min":0}},"connected":{"type":"boolean"},"index":{"type":{"key":"integer","max":1,"min":0}},` +
	`"leader":{"type":"boolean"},"model":{"type":{"key":{"enum":["set",["clustered","relay","standalone"]],"type":"string"}}},` +
	`"name":{"type":"string"},"schema":{"type":{"key":"string","max":1,"min":0}},"sid":{"type":{"key":"uuid","max":1,"min":0}}}}},"version":"1.2.0"}`

// maxServerAnswer is how much a transaction may have selected before it selects once more: each
// row has a schema, and operations are many.
const maxServerAnswer = 1 << 20

// serverDatabase makes the rows of that database, and tells its feed of what is another.
type serverDatabase struct {
	door   *Door
	schema *ovs.Schema
	table  int

	mu   sync.Mutex // guards the rest; held to make or to read rows
	rows map[string]*ovs.Row
	last ovs.UUID
	led  time.Time // when this member last knew a leader

	waits   map[*serverTxn]struct{} // transactions that wait for other rows; of the feed
	crowded bool                    // some of them had no place when they were to be looked at; of the feed
}

func newServerDatabase(d *Door) *serverDatabase {
	s, err := ovs.ParseSchema([]byte(serverSchema))
	if err != nil {
		panic(err)
	}
	_, i := s.Table("Database")
	return &serverDatabase{door: d, schema: s, table: i, rows: map[string]*ovs.Row{}, waits: map[*serverTxn]struct{}{}}
}

// tick makes the rows anew.
func (s *serverDatabase) tick() {
	f := s.door.feeds.of(serverName)
	f.do(func() {
		s.dropClosed()
		s.update(f)
		if s.crowded {
			s.retryAll()
		}
	})
}

// update makes the rows of the moment, on the feed, and tells of what is another those
// who, by the policies of then or later ones, may know of it.
func (s *serverDatabase) update(f *feed) {
	v := s.door.view()
	f.rejudge()
	if c := s.refresh(v); c != nil {
		f.changed(0, c)
		s.retryAll()
	}
}

// refresh makes the rows of a view; nil: they are what they were.
func (s *serverDatabase) refresh(v *core.View) *change {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.door.cfg.Standing()
	if now := s.door.now(); st.Connected {
		s.led = now
	} else {
		st.Connected = now.Sub(s.led) < leaderless
	}
	seen := map[string]bool{}
	var rows []rowChange
	put := func(name, model string, schema string, index *int64, member bool) {
		seen[name] = true
		was := s.rows[name]
		row := &ovs.Row{UUID: uuidFor(st.Member, name), Columns: s.columns(name, model, schema, index, st, member)}
		if was != nil && equalRows(was, row) {
			return
		}
		row.Version = newUUID()
		s.rows[name] = row
		rows = append(rows, rowChange{table: s.table, old: was, new: row})
	}
	put(serverName, "standalone", string(s.schema.JSON), nil, false)
	s.door.databases(v, func(name string, schema *ovs.Schema) {
		index := int64(v.Index() &^ (indexStep - 1)) //nolint:gosec // it is far from that
		put(name, "clustered", string(schema.JSON), &index, true)
	})
	for name, was := range s.rows {
		if !seen[name] {
			delete(s.rows, name)
			rows = append(rows, rowChange{table: s.table, old: was})
		}
	}
	if len(rows) == 0 {
		return nil
	}
	s.last = newUUID()
	return &change{txn: s.last, rows: rows}
}

func (s *serverDatabase) column(name string) int {
	return s.schema.Tables[s.table].Column(name).Index()
}

// columns are those of a row: of a database of the cluster if member.
func (s *serverDatabase) columns(name, model, schema string, index *int64, st Standing, member bool) []ovs.Datum {
	t := s.schema.Tables[s.table]
	out := make([]ovs.Datum, len(t.Columns))
	for i := range t.Columns {
		out[i] = t.Columns[i].Default
	}
	set := func(column string, a ovs.Atom) { out[s.column(column)] = ovs.Datum{Keys: []ovs.Atom{a}} }
	set("name", ovs.StringAtom(name))
	set("model", ovs.StringAtom(model))
	set("schema", ovs.StringAtom(schema))
	// Every member serves everything: whoever is in touch with the cluster is as good as
	// its leader.
	set("connected", ovs.BooleanAtom(!member || st.Connected))
	set("leader", ovs.BooleanAtom(!member || st.Connected))
	if member {
		set("cid", ovs.UUIDAtom(uuidFor(st.Cluster, name)))
		set("sid", ovs.UUIDAtom(uuidOf(st.Member)))
		set("index", ovs.IntegerAtom(*index))
	}
	return out
}

func equalRows(a, b *ovs.Row) bool {
	for i := range a.Columns {
		if !a.Columns[i].Equal(b.Columns[i]) {
			return false
		}
	}
	return true
}

// newUUID is one that nobody else has.
func newUUID() (u ovs.UUID) {
	_, _ = rand.Read(u[:]) // never fails
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return u
}

// uuidOf is an id of ours as a UUID.
func uuidOf(id [16]byte) ovs.UUID { return ovs.UUID(id) }

// uuidFor is the id that something of an id of ours has under a name: always the same.
func uuidFor(id [16]byte, name string) ovs.UUID {
	out := uuidOf(id)
	for i := range len(name) {
		k := i % len(out)
		out[k] = out[k]*31 + name[i]
	}
	return out
}

// serverContents is what the database has: its rows of the moment.
type serverContents struct{ of *serverDatabase }

// Schema implements contents.
func (c serverContents) Schema() *ovs.Schema { return c.of.schema }

// Find implements contents.
func (c serverContents) Find(_ int, where []ovs.Condition, fn func(*ovs.Row) bool) {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	for _, name := range slices.Sorted(maps.Keys(c.of.rows)) {
		if r := c.of.rows[name]; holdsAll(where, r) && !fn(r) {
			return
		}
	}
}

func holdsAll(where []ovs.Condition, r *ovs.Row) bool {
	for i := range where {
		if !where[i].Holds(r) {
			return false
		}
	}
	return true
}

// Indexed implements contents.
func (serverContents) Indexed(int, *ovs.Condition) bool { return false }

// LastTxn implements contents.
func (c serverContents) LastTxn() ovs.UUID {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	return c.of.last
}

// Since implements contents: nothing is known of what was.
func (serverContents) Since(ovs.UUID) ([]*change, bool) { return nil, false }

// transact executes operations that look; nobody changes this database.
func (s *serverDatabase) transact(r *request) {
	ops, err := ovs.ParseTransaction(s.schema, r.params[1:], newUUID)
	if err != nil {
		r.refuse(err)
		return
	}
	f := s.door.feeds.of(serverName)
	f.do(func() {
		s.update(f) // nobody may have looked at it yet
		s.try(&serverTxn{request: r, ops: ops, came: s.door.now()})
	})
}

// run executes operations, on the feed, and appends their results. waits is one that does
// not hold and has time left: what was appended counts for nothing.
func (s *serverDatabase) run(out []byte, t *serverTxn) (_ []byte, waits *ovs.Operation) {
	out = append(out, '[')
	broken, who := false, t.request.conn.who.knows()
	for i := range t.request.params[1:] {
		if i > 0 {
			out = append(out, ',')
		}
		if broken || i >= len(t.ops) {
			out = append(out, null...)
			continue
		}
		o := &t.ops[i]
		if o.Op == ovs.OpWait && !s.holds(o, who) {
			waited := s.door.now().Sub(t.came)
			if !o.HasTimeout || o.Timeout > waited {
				return out, o
			}
			if o.Timeout == 0 {
				waited = 0
			}
			out, broken = ovs.TimedOutError(waited).AppendJSON(out), true
			continue
		}
		if len(out) > maxServerAnswer {
			out, broken = ovs.Errorf(ovs.ResourcesExhausted, "what the transaction has selected has more than %d bytes", maxServerAnswer).AppendJSON(out), true
			continue
		}
		out, broken = s.execute(out, o, who)
	}
	return append(out, ']'), nil
}

// execute appends the result of an operation, and reports whether it failed.
func (s *serverDatabase) execute(b []byte, o *ovs.Operation, who known) ([]byte, bool) {
	switch o.Op {
	case ovs.OpFail:
		return o.Err.AppendJSON(b), true
	case ovs.OpComment, ovs.OpCommit, ovs.OpWait: // one that holds
		return append(b, nothing...), false
	case ovs.OpSelect:
		return s.sel(b, o, who), false
	}
	return ovs.Errorf(ovs.NotAllowed, "the database %s is not changed by clients", serverName).AppendJSON(b), true
}

// sel appends the rows that a select finds, of those that its caller may know of.
func (s *serverDatabase) sel(b []byte, o *ovs.Operation, who known) []byte {
	e := &encoder{shape: newShape(s.schema), table: o.Table}
	for _, c := range o.Columns {
		e.columns = append(e.columns, shown{c, everything})
	}
	b = append(b, `{"rows":[`...)
	n := 0
	serverContents{s}.Find(o.Table, o.Where, func(r *ovs.Row) bool {
		if !who.shows(r) {
			return true
		}
		if n++; n > 1 {
			b = append(b, ',')
		}
		b, _ = e.object(b, initial, func(b []byte, c int) ([]byte, bool) { return e.value(b, r, c), true })
		return true
	})
	return append(b, `]}`...)
}
