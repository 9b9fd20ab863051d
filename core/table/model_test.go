package table

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

var textAtoms = []string{`""`, `"x"`, `"y"`, `"z"`}

// drawSchema draws a schema of a few tables with the same names and columns, so that
// a database can often be converted to it.
func drawSchema(t *rapid.T) (s schema) {
	names := []string{"A", "B", "C"}[:rapid.IntRange(1, 3).Draw(t, "tables")]
	for _, name := range names {
		r := &relationType{name: name, root: rapid.Bool().Draw(t, "root")}
		if rapid.IntRange(0, 2).Draw(t, "limited") == 0 {
			r.maxRows = rapid.IntRange(1, 4).Draw(t, "maxRows")
		}
		for _, c := range []string{"n", "s", "ns", "m", "strong", "weak", "sm", "wm", "both"} {
			if c == "s" || rapid.IntRange(0, 2).Draw(t, "has "+c) > 0 {
				r.columns = append(r.columns, drawColumn(t, c, names))
			}
		}
		r.drawIndexes(t)
		s = append(s, r)
	}
	return s
}

func drawColumn(t *rapid.T, name string, tables []string) *column {
	c := &column{name: name, min: rapid.SampledFrom([]int{0, 0, 1}).Draw(t, "min"), max: rapid.SampledFrom([]int{1, 2, 9}).Draw(t, "max")}
	ref := func(weak bool) base {
		return base{kind: "uuid", ref: rapid.SampledFrom(tables).Draw(t, "refTable"), weak: weak}
	}
	text := base{kind: "string"}
	switch name {
	case "n":
		c.key, c.min, c.max = base{kind: "integer"}, 1, 1
	case "ns":
		c.key = base{kind: "integer"}
	case "s":
		if c.key, c.min, c.max = text, 1, 1; rapid.IntRange(0, 3).Draw(t, "enum") == 0 {
			c.key.enum = textAtoms[rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "enum from"):3]
		}
	case "m":
		c.key, c.val = text, base{kind: "integer"}
	case "strong", "weak":
		c.key = ref(name == "weak")
	case "sm", "wm":
		c.key, c.val = text, ref(name == "wm")
	case "both":
		c.key = ref(rapid.Bool().Draw(t, "weak keys"))
		c.val = ref(!c.key.weak)
	}
	if c.key.kind == "integer" && rapid.Bool().Draw(t, "ranged") {
		c.key.lo, c.key.hi = -1, 5
	}
	if c.key.ref != "" || c.val.ref != "" {
		c.min = rapid.SampledFrom([]int{0, 0, 0, 0, 0, 1}).Draw(t, "min refs")
	}
	c.immutable = rapid.IntRange(0, 9).Draw(t, "immutable") == 0
	c.ephemeral = rapid.IntRange(0, 5).Draw(t, "ephemeral") == 0
	return c
}

func (t *relationType) drawIndexes(r *rapid.T) {
	var may []string
	for _, c := range t.columns {
		if !c.ephemeral {
			may = append(may, c.name)
		}
	}
	if may = append(may, "_uuid"); rapid.Bool().Draw(r, "index") {
		n := rapid.IntRange(1, min(3, len(may))).Draw(r, "columns of index")
		t.indexes = append(t.indexes, rapid.Permutation(may).Draw(r, "index of")[:n])
	}
	if rapid.IntRange(0, 5).Draw(r, "more") == 0 {
		t.indexes = append(t.indexes, []string{may[0]})
	}
}

type object = map[string]any

func (b *base) document() object {
	o := object{"type": b.kind}
	if len(b.enum) > 0 {
		o["enum"] = []any{"set", atoms(b, b.enum)}
	}
	if b.lo < b.hi {
		o["minInteger"], o["maxInteger"] = b.lo, b.hi
	}
	if b.ref != "" {
		o["refTable"] = b.ref
		if b.weak {
			o["refType"] = "weak"
		}
	}
	return o
}

func atoms(b *base, list []string) (as []any) {
	for _, a := range list {
		as = append(as, b.atom(a))
	}
	return as
}

// atom is an atom as JSON has it.
func (b *base) atom(a string) any {
	switch {
	case strings.HasPrefix(a, "@"):
		return []any{"named-uuid", a[1:]}
	case b.kind == "uuid":
		return []any{"uuid", a}
	}
	return json.RawMessage(a)
}

func (s schema) text() []byte {
	tables := object{}
	for _, t := range s {
		columns := object{}
		for _, c := range t.columns {
			typ := object{"key": c.key.document(), "min": c.min, "max": c.max}
			if c.val.kind != "" {
				typ["value"] = c.val.document()
			}
			if c.max == 9 {
				typ["max"] = "unlimited"
			}
			columns[c.name] = object{"type": typ, "mutable": !c.immutable, "ephemeral": c.ephemeral}
		}
		table := object{"columns": columns, "isRoot": t.root}
		if t.maxRows > 0 {
			table["maxRows"] = t.maxRows
		}
		if len(t.indexes) > 0 {
			table["indexes"] = t.indexes
		}
		tables[t.name] = table
	}
	return marshal(object{"name": "Test", "tables": tables})
}

func marshal(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// datum is a value as JSON has it.
func (c *column) datum(v value, keysOnly bool) any {
	list := []any{}
	for _, k := range slices.Sorted(maps.Keys(v)) {
		if c.val.kind == "" || keysOnly {
			list = append(list, c.key.atom(k))
		} else {
			list = append(list, []any{c.key.atom(k), c.val.atom(v[k])})
		}
	}
	if c.val.kind != "" && !keysOnly {
		return []any{"map", list}
	}
	return []any{"set", list}
}

func (t *relationType) row(r tuple) object {
	o := object{}
	for name, v := range r {
		o[name] = t.column(name).datum(v, false)
	}
	return o
}

var uuidColumn = column{name: "_uuid", key: base{kind: "uuid"}, min: 1, max: 1}

// document is an operation as JSON has it.
func (o *operation) document(s schema) object {
	d := object{"op": o.op}
	t := s.table(o.table)
	if t == nil {
		if o.op == "comment" {
			d["comment"] = "c"
		}
		if o.op == "assert" {
			d["lock"] = "l"
		}
		return d
	}
	d["table"] = o.table
	if o.op != "insert" {
		where := []any{}
		for _, c := range o.where {
			col := t.column(c.column)
			if col == nil {
				col = &uuidColumn
			}
			where = append(where, []any{c.column, c.function, col.datum(c.arg, false)})
		}
		d["where"] = where
	}
	switch o.op {
	case "insert":
		if o.name != "" {
			d["uuid-name"] = o.name
		}
		if o.given {
			d["uuid"] = o.uuid
		}
		d["row"] = t.row(o.row)
	case "update":
		d["row"] = t.row(o.row)
	case "mutate":
		list := []any{}
		for _, m := range o.mutations {
			list = append(list, []any{m.column, m.mutator, t.column(m.column).datum(m.arg, m.keysOnly)})
		}
		d["mutations"] = list
	case "select":
		d["columns"] = o.columns
	case "wait":
		list := []any{}
		for _, r := range o.rows {
			list = append(list, t.row(r))
		}
		d["rows"], d["columns"], d["timeout"], d["until"] = list, o.columns, 0, "!="
		if o.equal {
			d["until"] = "=="
		}
	}
	return d
}

// model plays the same on a state, on others that are never restored, and on the naive
// database.
type model struct {
	*world
	naive
	other *core.State
	// batched gets the same commands, many at once: pending are those that it lacks.
	batched *core.State
	pending [][]byte
	names   []string // of rows of the transaction that is drawn
}

func (m *model) drawAtom(t *rapid.T, b *base, wrong bool) string {
	switch {
	case b.kind == "string" && len(b.enum) > 0 && !wrong:
		return rapid.SampledFrom(b.enum).Draw(t, "text")
	case b.kind == "string":
		return rapid.SampledFrom(textAtoms).Draw(t, "text")
	case b.kind == "integer" && b.lo < b.hi && !wrong:
		return strconv.Itoa(rapid.IntRange(-1, 5).Draw(t, "number"))
	case b.kind == "integer":
		return rapid.SampledFrom([]string{"0", "1", "2", "3", "-1", "7", "9223372036854775807", "-9223372036854775808"}).Draw(t, "number")
	}
	var ids []string
	if t := m.schema.table(b.ref); t != nil {
		ids = slices.Sorted(maps.Keys(m.rows[t.name]))
	}
	for _, n := range m.names {
		if b.ref == "" || strings.HasPrefix(n, "@"+b.ref) {
			ids = append(ids, n, n)
		}
	}
	if len(ids) == 0 || rapid.IntRange(0, 15).Draw(t, "nowhere") == 0 {
		ids = []string{ovs.UUID{9}.String()}
	}
	return rapid.SampledFrom(ids).Draw(t, "to")
}

func (m *model) drawValue(t *rapid.T, c *column, least, most int) value {
	v, n := value{}, least
	if most > least {
		n = rapid.IntRange(least, min(most, least+3)).Draw(t, "elements")
	}
	wrong := rapid.IntRange(0, 19).Draw(t, "wrong") == 0
	for range n {
		e := ""
		if c.val.kind != "" {
			e = m.drawAtom(t, &c.val, wrong)
		}
		v[m.drawAtom(t, &c.key, wrong)] = e
	}
	return v
}

func (m *model) drawRow(t *rapid.T, of *relationType, some int) tuple {
	r := tuple{}
	for _, c := range of.columns {
		if rapid.IntRange(0, some).Draw(t, "store "+c.name) > 0 || !c.allows(c.initial()) || c.min > 0 && c.key.kind == "uuid" {
			r[c.name] = m.drawValue(t, c, c.min, c.max)
		}
	}
	return r
}

func (m *model) drawWhere(t *rapid.T, of *relationType) (list []condition) {
	for range rapid.SampledFrom([]int{0, 1, 1, 1, 2}).Draw(t, "conditions") {
		if rapid.IntRange(0, 3).Draw(t, "by uuid") == 0 {
			b := base{kind: "uuid", ref: of.name}
			f := rapid.SampledFrom([]string{"==", "!=", "includes", "excludes"}).Draw(t, "function")
			list = append(list, condition{"_uuid", f, value{m.drawAtom(t, &b, false): ""}})
			continue
		}
		c := rapid.SampledFrom(of.columns).Draw(t, "column")
		functions, least, most := []string{"==", "==", "!=", "includes", "excludes"}, c.min, c.max
		if c.key.kind == "integer" && c.val.kind == "" && c.max == 1 {
			functions = append(functions, "<", "<=", ">", ">=")
		}
		f := rapid.SampledFrom(functions).Draw(t, "function")
		switch {
		case f == "includes" && (c.val.kind != "" || c.min != 1 || c.max != 1):
			least = 0
		case f == "excludes" && (c.val.kind != "" || c.min != 1 || c.max != 1):
			least, most = 0, 9
		case f[0] == '<' || f[0] == '>':
			least = 1
		}
		v := m.drawValue(t, c, least, most)
		if !(&column{key: c.key, val: c.val, max: most}).allows(v) {
			v = value{}
			if least > 0 {
				continue
			}
		}
		list = append(list, condition{c.name, f, v})
	}
	return list
}

func (m *model) drawMutations(t *rapid.T, of *relationType) (list []mutation) {
	for range rapid.IntRange(1, 2).Draw(t, "mutations") {
		c := rapid.SampledFrom(of.columns).Draw(t, "mutate")
		x := mutation{column: c.name}
		sets := c.val.kind != "" || c.min != 1 || c.max != 1
		switch {
		case c.key.kind == "integer" && c.val.kind == "" && (!sets || rapid.Bool().Draw(t, "compute")):
			x.mutator = rapid.SampledFrom([]string{"+=", "-=", "*=", "/=", "%="}).Draw(t, "mutator")
			x.arg = value{m.drawAtom(t, &base{kind: "integer"}, false): ""}
		case sets && rapid.Bool().Draw(t, "insert"):
			x.mutator, x.arg = "insert", m.drawValue(t, c, 0, c.max)
		case sets:
			x.mutator, x.arg = "delete", m.drawValue(t, c, 0, 9)
			x.keysOnly = c.val.kind != "" && len(x.arg) > 0 && rapid.Bool().Draw(t, "keys only")
		default:
			continue
		}
		if !(&column{key: c.key, val: c.val, max: 9}).allows(x.arg) && x.arg != nil && x.mutator != "" && len(x.mutator) > 2 {
			continue
		}
		list = append(list, x)
	}
	return list
}

func (m *model) drawOperation(t *rapid.T) operation {
	of := rapid.SampledFrom(m.schema).Draw(t, "table")
	o := operation{table: of.name}
	switch k := rapid.IntRange(0, 39).Draw(t, "op"); {
	case k < 14:
		o.op, o.row = "insert", m.drawRow(t, of, 1)
		if k == 0 && len(m.rows[of.name]) > 0 {
			o.given, o.uuid = true, rapid.SampledFrom(slices.Sorted(maps.Keys(m.rows[of.name]))).Draw(t, "uuid")
		}
	case k < 20:
		o.op, o.where, o.row = "update", m.drawWhere(t, of), m.drawRow(t, &relationType{columns: []*column{rapid.SampledFrom(of.columns).Draw(t, "update")}}, 9)
	case k < 27:
		o.op, o.where, o.mutations = "mutate", m.drawWhere(t, of), m.drawMutations(t, of)
	case k < 32:
		o.op, o.where = "delete", m.drawWhere(t, of)
	case k < 36:
		o.op, o.where, o.columns = "select", m.drawWhere(t, of), []string{"_uuid", of.columns[0].name}
		if rapid.Bool().Draw(t, "one column") {
			o.columns = o.columns[1:]
		}
	case k < 38:
		o.op, o.where, o.equal = "wait", m.drawWhere(t, of), rapid.Bool().Draw(t, "until")
		c := rapid.SampledFrom(of.columns).Draw(t, "of")
		o.columns = []string{c.name}
		for range rapid.IntRange(0, 2).Draw(t, "rows") {
			row := tuple{}
			if v := m.drawValue(t, c, c.min, c.max); rapid.Bool().Draw(t, "given") && c.allows(v) {
				row[c.name] = v
			}
			o.rows = append(o.rows, row)
		}
	case k < 39:
		o = operation{op: "comment"}
	default:
		o = operation{op: rapid.SampledFrom([]string{"abort", "assert"}).Draw(t, "end")}
	}
	return o
}

// drawTransaction draws operations. The rows that it inserts have names that all its
// operations may use, earlier ones, too.
func (m *model) drawTransaction(t *rapid.T) (ops []operation) {
	m.names = nil
	for i := range rapid.IntRange(0, 3).Draw(t, "named") {
		of := rapid.SampledFrom(m.schema).Draw(t, "table of named")
		m.names = append(m.names, fmt.Sprintf("@%s%d", of.name, i))
	}
	for _, name := range m.names {
		of := m.schema.table(name[1:2])
		ops = append(ops, operation{op: "insert", table: of.name, name: name[1:], row: m.drawRow(t, of, 1)})
	}
	for range rapid.IntRange(0, 4).Draw(t, "operations") {
		ops = append(ops, m.drawOperation(t))
	}
	return rapid.Permutation(ops).Draw(t, "order")
}

func (m *model) transact(t *rapid.T) {
	ops := m.drawTransaction(t)
	var documents []string
	for i := range ops {
		documents = append(documents, string(marshal(ops[i].document(m.schema))))
	}
	text := strings.Join(documents, ",")
	c := m.parse(text)
	for i, o := range c.Operations {
		if ops[i].op == "insert" {
			ops[i].uuid = o.UUID.String()
		}
		if o.UUID == (ovs.UUID{}) { // behind one that is malformed nothing is read: names lead to different rows even so
			ops[i].uuid = fmt.Sprintf("unread-%d", i)
		}
	}
	before := m.rows
	answers, failed := m.transactNaively(ops)
	out, told := m.commit(t, text, c)
	if out.Failed != (failed != nil) {
		t.Fatalf("%s\n on\n%s answers %s; want error %v", text, before, m.text(out), failed)
	}
	for i, want := range answers {
		if got := m.answer(&out.Results[i]); got != want {
			t.Fatalf("%s\n on\n%s: operation %d answers %s, want %s", text, before, i, got, want)
		}
	}
	if failed != nil {
		if err := out.Results[len(answers)].Err; err == nil || !slices.Contains(failed, err.Name) {
			t.Fatalf("%s\n on\n%s answers %s behind %d; want error %v", text, before, m.text(out), len(answers), failed)
		}
	}
	m.compare(t, text, before, told)
}

// transactNaively executes a transaction on the naive database.
func (m *model) transactNaively(ops []operation) ([]string, errorsOf) { return m.naive.transact(ops) }

func (m *model) text(o *Outcome) string { return string(o.AppendJSON(nil, m.database().Schema)) }

// commit executes a transaction on both states, and checks that a view that says that
// it changes nothing is right.
func (m *model) commit(t *rapid.T, text string, c *Transact) (*Outcome, *Change) {
	v := m.s.View()
	r, idle := Of(v).Idling(v, c)
	if ovs.Fails(c.Operations) {
		if !idle {
			t.Fatalf("%s has an error, and needs an entry", text)
		}
		return r.Record.(*Outcome), nil
	}
	is, changes := m.apply(c)
	m.also(c)
	if is.Err != nil {
		t.Fatalf("%s is refused: %v", text, is.Err)
	}
	out := is.Record.(*Outcome)
	if idle && (len(changes) > 0 || m.text(r.Record.(*Outcome)) != m.text(out)) {
		t.Fatalf("%s: a view says %s and that nothing changes; it answers %s with %d changes", text, m.text(r.Record.(*Outcome)), m.text(out), len(changes))
	}
	if len(changes) == 0 {
		return out, nil
	}
	told := changes[0].Family.After.(*Change)
	if len(changes) > 1 || told.TxnID != out.TxnID || m.database().LastTxn() != told.TxnID {
		t.Fatalf("%s: %d changes; told of %v, answered %v, the last is %v", text, len(changes), told.TxnID, out.TxnID, m.database().LastTxn())
	}
	return out, told
}

// also gives the other states the same command.
func (m *model) also(c core.Command) {
	b := c.Encode(core.Meta{})
	m.other.Apply([][]byte{b}, make([]core.Result, 1))
	m.pending = append(m.pending, b)
}

// flush has the commands executed in one batch that were executed one by one before:
// they come to the same, and what a view shows stays as it was.
func (m *model) flush(t *rapid.T) {
	view := m.batched.View()
	was := view.Hash()
	m.batched.Apply(m.pending, make([]core.Result, len(m.pending)))
	n := len(m.pending)
	m.pending = nil
	if view.Hash() != was {
		t.Fatalf("a batch of %d commands changes the view before it", n)
	}
	now := m.batched.View()
	if now.Hash() != m.s.View().Hash() {
		t.Fatalf("%d commands in one batch come to another state", n)
	}
	f := Of(now)
	if err := (&tables{databases: f.databases, loads: f.loads}).Check(nil, now.Index()); err != nil {
		t.Fatalf("after a batch of %d commands: %v", n, err)
	}
}

func atomText(a ovs.Atom) string {
	switch a.Kind() {
	case ovs.Void:
		return ""
	case ovs.UUIDKind:
		return a.UUID().String()
	}
	return string(a.AppendJSON(nil))
}

func valueOf(d ovs.Datum) value {
	v := value{}
	for i, k := range d.Keys {
		e := ovs.Atom{}
		if d.Values != nil {
			e = d.Values[i]
		}
		v[atomText(k)] = atomText(e)
	}
	return v
}

func (m *model) answer(r *Result) string {
	switch r.Op {
	case ovs.OpInsert:
		return r.UUID.String()
	case ovs.OpUpdate, ovs.OpMutate, ovs.OpDelete:
		return fmt.Sprint(r.Count)
	case ovs.OpSelect:
		var list []string
		for _, row := range r.Rows {
			var b strings.Builder
			for i, c := range r.Columns {
				fmt.Fprintf(&b, "%s%v", m.database().Schema.Tables[r.Table].At(c).Name, valueOf(row[i]))
			}
			list = append(list, b.String())
		}
		slices.Sort(list)
		return strings.Join(list, "\n")
	}
	return ""
}

func (m *model) tupleOf(table int, r *Row) tuple {
	if r == nil {
		return nil
	}
	row := tuple{}
	for i, c := range m.database().Schema.Tables[table].Columns {
		row[c.Name] = valueOf(r.Columns[i])
	}
	return row
}

// stored is all rows of the state.
func (m *model) stored() rows {
	all := rows{}
	for i, t := range m.database().Schema.Tables {
		all[t.Name] = map[string]tuple{}
		m.database().Rows(i, func(r *Row) bool {
			all[t.Name][r.UUID.String()] = m.tupleOf(i, r)
			return true
		})
	}
	return all
}

// compare checks all rows, and that the change which was told, if one was, is the one
// there is.
func (m *model) compare(t *rapid.T, text string, before rows, told *Change) {
	if got, want := m.stored().String(), m.rows.String(); got != want {
		t.Fatalf("%s\n on\n%s makes\n%s want\n%s", text, before, got, want)
	}
	var list []string
	if told != nil {
		for _, c := range told.Rows {
			table, was, is := m.database().Schema.Tables[c.Table].Name, m.tupleOf(c.Table, c.Old), m.tupleOf(c.Table, c.New)
			switch {
			case c.New == nil:
				list = append(list, fmt.Sprintf("%s %s %v -> gone\n", table, c.ID(), was))
			default:
				list = append(list, fmt.Sprintf("%s %s %v -> %v\n", table, c.ID(), was, is))
				if c.Old != nil && c.Old.Version == c.New.Version || m.database().Row(c.Table, c.New.UUID) != c.New {
					t.Fatalf("%s: told of another row than there is, or without a new version", text)
				}
			}
		}
	}
	slices.Sort(list)
	if got, want := strings.Join(list, ""), changes(before, m.rows); got != want {
		t.Fatalf("%s\n on\n%s told of\n%s want\n%s", text, before, got, want)
	}
	if err := m.check(); err != nil {
		t.Fatalf("%s\n on\n%s: %v", text, before, err)
	}
	if m.s.View().Hash() != m.other.View().Hash() {
		t.Fatalf("%s\n on\n%s: two states have other hashes", text, before)
	}
}

func (m *model) convert(t *rapid.T) {
	to := drawSchema(t)
	before := m.rows
	c := &Convert{"default", "Test", to.text()}
	r := m.must(c)
	m.also(c)
	if failed := r.Record.(*Outcome).Failed; failed == m.naive.convert(to) {
		t.Fatalf("conversion of\n%s to %s fails: %v, %s", before, to.text(), failed, m.text(r.Record.(*Outcome)))
	}
	if got, want := m.stored().String(), m.rows.String(); got != want {
		t.Fatalf("conversion of\n%s to %s makes\n%s want\n%s", before, to.text(), got, want)
	}
}

// redefine drops the database and makes it anew.
func (m *model) redefine(t *rapid.T) {
	m.naive = naive{schema: drawSchema(t), rows: rows{}}
	for _, r := range m.schema {
		m.rows[r.name] = map[string]tuple{}
	}
	var cmds []core.Command
	if m.database() != nil {
		cmds = append(cmds, &Drop{"default", "Test"})
	}
	for _, c := range append(cmds, &Define{Namespace: "default", Schema: m.schema.text()}) {
		m.must(c)
		m.also(c)
	}
}

// TestModel plays random transactions over random schemas on states and on a naive
// database: answers, rows and what is told are the same, with conversions and restored
// snapshots in between.
func TestModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{world: &world{t: t, s: core.New(leases.Family{}, Family{}), db: "Test"}, other: core.New(leases.Family{}, Family{}), batched: core.New(leases.Family{}, Family{})}
		m.redefine(t)
		for range rapid.IntRange(1, 12).Draw(t, "steps") {
			switch k := rapid.IntRange(0, 24).Draw(t, "step"); {
			case k < 20:
				m.transact(t)
			case k < 21:
				m.redefine(t)
			case k < 23:
				m.convert(t)
			default:
				m.reload()
			}
			if rapid.IntRange(0, 5).Draw(t, "flush") == 0 {
				m.flush(t)
			}
		}
		m.flush(t)
		m.reload()
	})
}
