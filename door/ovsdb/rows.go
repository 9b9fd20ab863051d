package ovsdb

import (
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
)

// Source is a column whose rows, or texts, say what is to be listened at.
type Source struct{ Database, Table, Column string }

// ParseSource reads what comes behind "db:", DATABASE,TABLE,COLUMN.
func ParseSource(text string) (Source, error) {
	parts := strings.Split(text, ",")
	if len(parts) != 3 || slices.ContainsFunc(parts, func(p string) bool { return !ovs.IsID(p) }) {
		return Source{}, incumbent.Errorf(incumbent.Invalid, "%q is not DATABASE,TABLE,COLUMN", text)
	}
	return Source{parts[0], parts[1], parts[2]}, nil
}

// retryRemote is after how many ticks a target is tried again that could not be opened, or
// whose listener has failed.
const retryRemote = 5

// rowRemotes are the remotes that rows of databases say. They belong to the door's clock.
type rowRemotes struct {
	door *Door
	last map[string]ovs.UUID // transactions that were seen, by database
	open map[string]*rowRemote
}

// rowRemote is one of them, by its target.
type rowRemote struct {
	Remote
	row    rowID
	wanted bool
	ln     net.Listener          // nil: it is not open
	failed atomic.Pointer[error] // why nobody is accepted any more, though it is open; nil: it is not so
	err    error
	tried  uint64 // tick
}

// rowID is a row that says what to listen at; no table: a text does.
type rowID struct {
	database, table string
	id              ovs.UUID
}

// tick opens, changes and closes what the rows of now say. Rows are looked at if their
// database has changed.
func (s *rowRemotes) tick(at uint64) {
	if len(s.door.cfg.Sources) == 0 || s.door.pending.IsClosed() {
		return
	}
	if s.changed() {
		s.read()
	}
	for target, r := range s.open {
		if failed := r.failed.Swap(nil); failed != nil {
			r.ln.Close()
			r.ln, r.err, r.tried = nil, *failed, at
		}
		if !r.wanted {
			s.shut(target, r)
		} else if r.ln == nil && (r.tried == 0 || at >= r.tried+retryRemote) {
			s.listen(target, r, at)
		}
	}
	if at%uint64(tellEvery/tickEvery) == 0 {
		s.tell()
	}
}

func (s *rowRemotes) changed() (is bool) {
	for _, from := range s.door.cfg.Sources {
		db := table.Of(s.door.view()).Database(s.door.namespace, from.Database)
		var last ovs.UUID
		if db != nil {
			last = db.LastTxn()
		}
		if was, seen := s.last[from.Database]; !seen || was != last {
			s.last[from.Database], is = last, true
		}
	}
	return is
}

// read notes what rows say.
func (s *rowRemotes) read() {
	for _, r := range s.open {
		r.wanted = false
	}
	for _, from := range s.door.cfg.Sources {
		db := table.Of(s.door.view()).Database(s.door.namespace, from.Database)
		if db == nil {
			continue
		}
		t, i := db.Schema.Table(from.Table)
		if t == nil || t.Column(from.Column) == nil || t.Column(from.Column).Index() < 0 {
			s.door.log.Warn("there is no such column to listen by", "database", from.Database, "table", from.Table, "column", from.Column)
			continue
		}
		c := t.Column(from.Column)
		db.Rows(i, func(r *ovs.Row) bool {
			for _, a := range r.Columns[c.Index()].Keys {
				s.want(db, &c.Type, a)
			}
			return true
		})
	}
}

// want notes one target, or the row that a reference leads to.
func (s *rowRemotes) want(db *table.Database, t *ovs.Type, a ovs.Atom) {
	if a.Kind() == ovs.String {
		s.put(a.Text(), rowID{database: db.Name}, Options{})
		return
	}
	if t.Key.Ref == ovs.NoRef {
		return
	}
	of := db.Schema.Tables[t.Key.Table]
	row := db.Row(of.Index(), a.UUID())
	if row == nil {
		return
	}
	target, ok := atomOf(of, row, "target", ovs.String)
	if !ok {
		return
	}
	var o Options
	if role, ok := atomOf(of, row, "role", ovs.String); ok {
		o.Role = role.Text()
	}
	if ro, ok := atomOf(of, row, "read_only", ovs.Boolean); ok {
		o.ReadOnly = ro.Bool()
	}
	if ms, ok := atomOf(of, row, "inactivity_probe", ovs.Integer); ok {
		if o.Probe = time.Duration(min(max(ms.Int(), 0), maxProbeMillis)) * time.Millisecond; o.Probe == 0 {
			o.Probe = -1
		}
	}
	s.put(target.Text(), rowID{db.Name, of.Name, row.UUID}, o)
}

// maxProbeMillis is the longest time between probes that a row can say, a year.
const maxProbeMillis = 365 * 24 * 60 * 60 * 1000

// atomOf is the one atom of a kind that a column of a row has.
func atomOf(t *ovs.Table, r *ovs.Row, column string, k ovs.Kind) (ovs.Atom, bool) {
	c := t.Column(column)
	if c == nil || c.Type.Key.Kind != k || c.Type.IsMap() || len(r.Columns[c.Index()].Keys) != 1 {
		return ovs.Atom{}, false
	}
	return r.Columns[c.Index()].Keys[0], true
}

func (s *rowRemotes) put(target string, row rowID, o Options) {
	r := s.open[target]
	if r == nil {
		r = &rowRemote{}
		s.open[target] = r
	}
	r.row, r.wanted = row, true
	if r.get() != o {
		r.Set(o)
	}
}

func (s *rowRemotes) listen(target string, r *rowRemote, at uint64) {
	before := r.err
	r.tried = at
	if r.ln, r.Secure, r.err = s.door.cfg.Listen(target); r.err != nil {
		r.ln = nil
		if before == nil {
			s.door.log.Warn("what a row of a database says cannot be listened at", "target", target, "cause", r.err)
		}
		return
	}
	s.door.log.Info("listening as a row of a database says", "target", target, "address", r.ln.Addr())
	ln := r.ln
	s.door.goroutines.Go(func() {
		if err := s.door.Serve(ln, &r.Remote); err != nil {
			s.door.log.Warn("a listener of a row of a database has ended", "target", target, "cause", err)
			r.failed.Store(&err)
		}
	})
}

func (s *rowRemotes) shut(target string, r *rowRemote) {
	r.gone.Store(true)
	if r.ln != nil {
		r.ln.Close()
		s.door.log.Info("not listening any more: no row of a database says so", "target", target)
	}
	s.door.leave(&r.Remote) // also who came before its listener failed
	delete(s.open, target)
}

// closeAll closes what is open.
func (s *rowRemotes) closeAll() {
	for target, r := range s.open {
		s.shut(target, r)
	}
}

// tell writes into the rows what has become of them. Only the member that leads does so:
// it tells of its own listeners.
func (s *rowRemotes) tell() {
	if !s.door.cfg.Standing().Leads || s.door.writing.Load() {
		return
	}
	byDatabase := map[string][]ovs.Operation{}
	for _, target := range slices.Sorted(maps.Keys(s.open)) {
		r := s.open[target]
		db := table.Of(s.door.view()).Database(s.door.namespace, r.row.database)
		if db == nil || r.row.table == "" {
			continue
		}
		if o, ok := r.status(db); ok {
			byDatabase[db.Name] = append(byDatabase[db.Name], o)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byDatabase)) {
		db := table.Of(s.door.view()).Database(s.door.namespace, name)
		cmd := &table.Transact{Namespace: db.Namespace, Database: name, Schema: db.SchemaIndex, Operations: byDatabase[name]}
		s.door.writing.Store(true)
		s.door.engine.Execute(engine.Call{Meta: core.Meta{Origin: core.Origin{At: s.door.now(), Door: doorName}}}, cmd, func(core.Result) {
			s.door.writing.Store(false) // what was not written is different again at the next look
		})
	}
}

// status is the operation that writes what has become of a row; false: it says that.
func (r *rowRemote) status(db *table.Database) (ovs.Operation, bool) {
	t, i := db.Schema.Table(r.row.table)
	if t == nil {
		return ovs.Operation{}, false
	}
	row := db.Row(i, r.row.id)
	if row == nil {
		return ovs.Operation{}, false
	}
	n := r.Remote.open.Load()
	o := ovs.Operation{Op: ovs.OpUpdate, Table: i, Where: []ovs.Condition{
		{Column: ovs.ColumnUUID, Function: ovs.Equal, Arg: ovs.Datum{Keys: []ovs.Atom{ovs.UUIDAtom(row.UUID)}}},
	}}
	set := func(column string, isMap bool, k ovs.Kind, d ovs.Datum) {
		c := t.Column(column)
		if c == nil || c.Type.Key.Kind != k || c.Type.IsMap() != isMap || row.Columns[c.Index()].Equal(d) {
			return
		}
		o.Row = append(o.Row, ovs.ColumnValue{Column: c.Index(), Value: d})
	}
	set("is_connected", false, ovs.Boolean, ovs.Datum{Keys: []ovs.Atom{ovs.BooleanAtom(n > 0)}})
	set("status", true, ovs.String, r.statusTexts(n))
	slices.SortFunc(o.Row, func(a, b ovs.ColumnValue) int { return a.Column - b.Column })
	return o, len(o.Row) > 0
}

// statusTexts are what other servers write into the column, as far as it does not move
// on by itself.
func (r *rowRemote) statusTexts(n int64) (d ovs.Datum) {
	texts := map[string]string{}
	switch {
	case r.ln == nil && r.err != nil:
		texts["state"], texts["last_error"] = "BACKOFF", r.err.Error()
	default:
		if r.ln != nil {
			if at, ok := r.ln.Addr().(*net.TCPAddr); ok {
				texts["bound_port"] = strconv.Itoa(at.Port)
			}
		}
		if n > 0 {
			texts["state"] = "ACTIVE"
		}
		if n > 1 {
			texts["n_connections"] = strconv.FormatInt(n, 10)
		}
	}
	for _, k := range slices.Sorted(maps.Keys(texts)) {
		d.Keys, d.Values = append(d.Keys, ovs.StringAtom(k)), append(d.Values, ovs.StringAtom(texts[k]))
	}
	return d
}
