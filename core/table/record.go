package table

import (
	"bytes"
	"fmt"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Kinds of records. Each database stands before its rows, by table and uuid, those
// before its history, by index, where each change stands before its rows. Behind all
// databases stand those that are being loaded, which have no history.
const (
	databaseRecord uint8 = iota + 1
	rowRecord
	changeRecord
	rowChangeRecord
)

// Records implements [core.FamilyView].
func (v *View) Records() (n int) {
	v.loads.Scan(func(d *Database) bool {
		n += 1 + d.records
		return true
	})
	v.databases.Scan(func(d *Database) bool {
		n += 1 + d.records
		d.history.changes.Scan(func(c *Change) bool {
			n += 1 + len(c.Rows)
			return true
		})
		return true
	})
	return n
}

// Write implements [core.FamilyView].
func (v *View) Write(record func([]byte) bool) {
	w := recordWriter{record: record}
	going := true
	v.databases.Scan(func(d *Database) bool {
		going = w.database(d)
		return going
	})
	if going {
		v.loads.Scan(w.database)
	}
}

// recordWriter writes records, one after the other into the same bytes.
type recordWriter struct {
	wire.Writer
	row    []byte
	record func([]byte) bool
}

func (w *recordWriter) database(d *Database) (going bool) {
	if !w.record(w.head(d)) {
		return false
	}
	going = true
	for i := range d.relations {
		d.Rows(i, func(r *Row) bool {
			going = w.record(w.rowOf(i, r))
			return going
		})
		if !going {
			return false
		}
	}
	d.history.changes.Scan(func(c *Change) bool {
		going = w.record(w.change(c))
		for i := 0; going && i < len(c.Rows); i++ {
			going = w.record(w.rowChange(&c.Rows[i]))
		}
		return going
	})
	return going
}

func (w *recordWriter) begin(kind uint8) {
	w.B = w.B[:0]
	w.Uint(1, uint64(kind))
}

func (w *recordWriter) head(d *Database) []byte {
	w.begin(databaseRecord)
	w.Text(2, d.Namespace)
	w.Text(3, d.Owner)
	w.Bytes(4, d.Schema.JSON)
	w.Uint(5, uint64(d.SchemaIndex))
	w.Bytes(6, d.history.floor[:])
	w.Flag(7, d.loading != nil)
	w.Uint(8, uint64(d.stepped))
	return w.B
}

func (w *recordWriter) rowOf(table int, r *Row) []byte {
	w.begin(rowRecord)
	w.Uint(2, uint64(table))
	w.encoded(3, r)
	return w.B
}

func (w *recordWriter) encoded(num wire.Number, r *Row) {
	if r == nil {
		return
	}
	w.row = r.AppendBinary(w.row[:0])
	w.Bytes(num, w.row)
}

func (w *recordWriter) change(c *Change) []byte {
	w.begin(changeRecord)
	w.Uint(2, uint64(c.Index))
	w.Uint(3, uint64(len(c.Rows)))
	return w.B
}

func (w *recordWriter) rowChange(c *RowChange) []byte {
	w.begin(rowChangeRecord)
	w.Uint(2, uint64(c.Table))
	w.encoded(3, c.Old)
	w.encoded(4, c.New)
	return w.B
}

// reader is where in a section the next record belongs.
type reader struct {
	kind   uint8
	of     *work // whose rows come; nil: none has come
	load   *load // the same, if it is being loaded
	into   *tree[*Database]
	last   place   // of the newest row
	change *Change // whose rows come
	left   int     // of those
	again  recordWriter
}

// readRecord is a record, as its fields say it.
type readRecord struct {
	kind               uint8
	namespace, owner   string
	schema, floor      []byte
	number             uint64 // index of the schema, or of a change
	other              uint64 // rows of a change; index of the last command of a load
	table              uint64
	loading            bool
	oldBytes, newBytes []byte
}

func (r *readRecord) set(f *wire.Field) bool {
	if f.Num == 1 {
		return wire.Small(f, &r.kind)
	}
	switch {
	case r.kind == databaseRecord && f.Num == 2:
		return f.CopyString(&r.namespace)
	case r.kind == databaseRecord && f.Num == 3:
		return f.CopyString(&r.owner)
	case r.kind == databaseRecord && f.Num == 4:
		return f.Bytes(&r.schema)
	case r.kind == databaseRecord && f.Num == 5:
		return f.Uint(&r.number)
	case r.kind == databaseRecord && f.Num == 6:
		return f.Bytes(&r.floor)
	case r.kind == databaseRecord && f.Num == 7:
		return f.Flag(&r.loading)
	case r.kind == databaseRecord && f.Num == 8:
		return f.Uint(&r.other)
	case r.kind == changeRecord && f.Num == 2:
		return f.Uint(&r.number)
	case r.kind == changeRecord && f.Num == 3:
		return f.Uint(&r.other)
	case (r.kind == rowRecord || r.kind == rowChangeRecord) && f.Num == 2:
		return f.Uint(&r.table)
	case (r.kind == rowRecord || r.kind == rowChangeRecord) && f.Num == 3:
		return f.Bytes(&r.oldBytes)
	case r.kind == rowChangeRecord && f.Num == 4:
		return f.Bytes(&r.newBytes)
	}
	return false
}

// ReadRecord implements [core.Tables].
func (t *tables) ReadRecord(b []byte) bool {
	var r readRecord
	if !wire.Fields(b, func(f wire.Field) bool { return r.set(&f) }) {
		return false
	}
	in := &t.reader
	if in.left > 0 && r.kind != rowChangeRecord {
		return false
	}
	var again []byte
	switch r.kind {
	case databaseRecord:
		again = t.readDatabase(&r)
	case rowRecord:
		again = t.readRow(&r)
	case changeRecord:
		again = t.readChange(&r)
	case rowChangeRecord:
		again = t.readRowChange(&r)
	}
	in.kind = r.kind
	// What is kept is written as it was read, or the bytes are refused: so states that
	// are equal have equal bytes, and damage shows.
	return again != nil && bytes.Equal(again, b)
}

func (t *tables) readDatabase(r *readRecord) []byte {
	s, err := parseSchema(r.schema)
	if err != nil || incumbent.ValidateNamespace(r.namespace) != nil || len(r.floor) != len(ovs.UUID{}) {
		return nil
	}
	d := newDatabase(r.namespace, r.owner, s, incumbent.Index(r.number))
	in := &t.reader
	if in.load != nil && !r.loading || r.loading != (r.other != 0) {
		return nil
	}
	if in.into = t.databases; r.loading {
		in.into, d.loading, d.stepped = t.loads, &lack{}, incumbent.Index(r.other)
	}
	if last, ok := in.into.Max(); ok && compareDatabases(last, d) >= 0 {
		return nil
	}
	d.history = newHistory(ovs.UUID(r.floor))
	in.into.Set(d)
	in.of, in.load, in.last = begin(d), nil, place{table: -1}
	if r.loading {
		in.load = &load{work: in.of}
	}
	return in.again.head(d)
}

func (t *tables) readRow(r *readRecord) []byte {
	in := &t.reader
	if in.of == nil || in.kind > rowRecord {
		return nil
	}
	n, table, ok := in.row(r.table, r.oldBytes)
	if !ok || n == nil || in.last.compare(place{table, n.UUID}) >= 0 {
		return nil
	}
	in.last = place{table, n.UUID}
	if in.load != nil {
		in.load.add(in.last, n)
	} else {
		in.of.put(table, nil, n)
		in.of.touched, in.of.order = nil, in.of.order[:0]
	}
	t.keep()
	return in.again.rowOf(table, n)
}

// keep shows what has been read of the rows of a database. Its trees go on to be
// changed until the section is at its end: nobody else has them.
func (t *tables) keep() {
	d, _ := t.reader.into.Max()
	w := t.reader.of
	t.charge(d, w.bytes-d.bytes)
	d.relations, d.records, d.bytes = w.relations, w.records, w.bytes
	if t.reader.load != nil {
		*d.loading = t.reader.load.lack
	}
}

func (in *reader) row(table uint64, b []byte) (r *Row, at int, ok bool) {
	if table >= uint64(len(in.of.schema.Tables)) {
		return nil, 0, false
	}
	if b == nil {
		return nil, int(table), true
	}
	r, ok = ovs.DecodeRow(b, in.of.schema.Tables[table])
	return r, int(table), ok && sizeOf(r) <= MaxRowBytes
}

func (t *tables) readChange(r *readRecord) []byte {
	in := &t.reader
	if in.of == nil || in.load != nil || r.number == 0 || r.other == 0 || r.other > HistoryBytes/rowBytes {
		return nil
	}
	at := incumbent.Index(r.number)
	in.change, in.left = &Change{Index: at, TxnID: idOf(at, 0), under: in.of.schema}, int(r.other)
	d, _ := t.databases.Max()
	if last, ok := d.history.changes.Max(); ok && last.Index >= at {
		return nil
	}
	return in.again.change(&Change{Index: at, Rows: make([]RowChange, in.left)})
}

func (t *tables) readRowChange(r *readRecord) []byte {
	in := &t.reader
	if in.left == 0 {
		return nil
	}
	o, table, ok := in.row(r.table, r.oldBytes)
	n, _, also := in.row(r.table, r.newBytes)
	if !ok || !also || o == nil && n == nil || o != nil && n != nil && o.UUID != n.UUID {
		return nil
	}
	d, _ := t.databases.Max()
	c := in.change
	c.Rows = append(c.Rows, RowChange{table, o, in.shared(d, table, n)})
	if in.left--; in.left == 0 {
		c.size = sizeOfChange(c.Rows)
		h := d.history.with(nil, c, HistoryBytes)
		if h.floor != d.history.floor {
			return nil
		}
		d.history = h
	}
	return in.again.rowChange(&c.Rows[len(c.Rows)-1])
}

// shared is the row of the database if it is that of a change.
func (in *reader) shared(d *Database, table int, n *Row) *Row {
	if n != nil {
		if is := d.Row(table, n.UUID); is != nil && is.Version == n.Version {
			return is
		}
	}
	return n
}

// Check implements [core.Tables].
func (t *tables) Check(_ func(incumbent.SessionID) bool, index incumbent.Index) (err error) {
	if t.reader.left > 0 {
		return fmt.Errorf("%d rows of the last change are missing", t.reader.left)
	}
	t.reader = reader{} // nothing more is read
	check := func(d *Database) bool {
		if err = d.check(index); err != nil {
			err = fmt.Errorf("database %s in %s: %w", d.Name, d.Namespace, err)
		}
		return err == nil
	}
	if t.databases.Scan(check); err == nil {
		t.loads.Scan(check)
	}
	return err
}
