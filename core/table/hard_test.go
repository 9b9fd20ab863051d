package table

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/parts"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// A schema may name _uuid in an index: every row is alone there.
func TestIndexesMayNameUUIDs(t *testing.T) {
	w := newWorld(t, `{"name":"D","tables":{"T":{"columns":{"c":{"type":"integer"}},"indexes":[["_uuid","c"],["c"]]}}}`)
	w.run(`{"op":"insert","table":"T","uuid":"` + fixedID + `","row":{"c":1}}`)
	for ops, want := range map[string]string{
		`{"op":"update","table":"T","where":[["_uuid","==",["uuid","` + fixedID + `"]],["c","==",1]],"row":{"c":2}}`: `{"count":1}`,
		`{"op":"insert","table":"T","row":{"c":1}},{"op":"insert","table":"T","row":{"c":1}}`:                        `constraint violation`,
	} {
		if got := w.run(ops); !strings.Contains(got, want) {
			t.Errorf("%s answers %s", ops, got)
		}
	}
	w.s = restoredWorld(t, w.snapshot()).s
	if err := w.check(); err != nil {
		t.Error(err)
	}
}

// Bytes of the log that store in columns that cannot be stored in are refused, and
// nobody stops at them.
func TestOnlyColumnsAreStored(t *testing.T) {
	w := fullWorld(t)
	root, at := w.database().Schema.Table("Root")
	u := ovs.Datum{Keys: []ovs.Atom{ovs.UUIDAtom(ovs.UUID{7})}}
	text := ovs.Datum{Keys: []ovs.Atom{ovs.StringAtom("x")}}
	for _, o := range []ovs.Operation{
		{Op: ovs.OpUpdate, Table: at, Row: []ovs.ColumnValue{{Column: ovs.ColumnVersion, Value: u}}},
		{Op: ovs.OpUpdate, Table: at, Row: []ovs.ColumnValue{{Column: ovs.ColumnUUID, Value: u}}},
		{Op: ovs.OpInsert, Table: at, Row: []ovs.ColumnValue{{Column: ovs.ColumnUUID, Value: u}}},
		{Op: ovs.OpUpdate, Table: at, Row: []ovs.ColumnValue{{Column: root.Column("fixed").Index(), Value: text}}},
	} {
		c := w.parse("")
		c.Operations = []ovs.Operation{o}
		r, changes := w.apply(c)
		if errorKind(r) != incumbent.Invalid || len(changes) > 0 {
			t.Errorf("%+v answers %v with %d changes", o, r.Err, len(changes))
		}
	}
}

// What a schema means follows from the text that a snapshot has of it: whoever was
// restored decides as those who saw it defined.
func TestSchemasAreTheirText(t *testing.T) {
	for _, typ := range awkwardTypes {
		w := &world{t: t, s: core.New(leases.Family{}, Family{}), db: "D"}
		r, _ := w.apply(&Define{Namespace: "default", Schema: []byte(schemaOf(typ))})
		if r.Err != nil {
			if errorKind(r) != incumbent.Invalid {
				t.Errorf("%s answers %v", typ, r.Err)
			}
			continue
		}
		old := w.database().Schema.Tables[0].Columns[0].Type.Key
		w.reload()
		is := w.database().Schema.Tables[0].Columns[0].Type.Key
		if fmt.Sprint(old) != fmt.Sprint(is) {
			t.Errorf("%s is %v, restored %v", typ, old, is)
		}
	}
}

// What a strong reference kept that went with a weak one in the same pair is collected.
func TestPairsThatGoLetGo(t *testing.T) {
	for _, typ := range []string{
		`{"key":{"type":"uuid","refTable":"Gone","refType":"weak"},"value":{"type":"uuid","refTable":"Leaf"},"min":0,"max":"unlimited"}`,
		`{"value":{"type":"uuid","refTable":"Gone","refType":"weak"},"key":{"type":"uuid","refTable":"Leaf"},"min":0,"max":"unlimited"}`,
	} {
		pair := `[["named-uuid","g"],["named-uuid","l"]]`
		if strings.HasPrefix(typ, `{"value"`) {
			pair = `[["named-uuid","l"],["named-uuid","g"]]`
		}
		w := newWorld(t, `{"name":"D","tables":{"Leaf":{"columns":{"next":{"type":{"key":{"type":"uuid","refTable":"Leaf"},"min":0,"max":1}}}},
			"Gone":{"isRoot":true,"columns":{"c":{"type":"integer"}}},"Root":{"isRoot":true,"columns":{"pairs":{"type":`+typ+`}}}}}`)
		w.run(`{"op":"insert","table":"Leaf","uuid-name":"m","row":{}},{"op":"insert","table":"Leaf","uuid-name":"l","row":{"next":["named-uuid","m"]}},
			{"op":"insert","table":"Gone","uuid-name":"g","row":{}},{"op":"insert","table":"Root","row":{"pairs":["map",[` + pair + `]]}}`)
		w.run(`{"op":"delete","table":"Gone","where":[]}`)
		if _, leaf := w.database().Schema.Table("Leaf"); w.database().Count(leaf) != 0 {
			t.Errorf("%d leaves stay that nothing refers to", w.database().Count(leaf))
		}
		w.reload()
	}
}

// A lock that is asserted is held as long as its lease is, under its token alone.
func TestG24_AssertedLocksAreLeases(t *testing.T) {
	w := fullWorld(t)
	const ops = `{"op":"assert","lock":"l"},{"op":"insert","table":"Root","row":{"name":"%s"}}`
	answer := func(c *Transact) string {
		v := w.s.View()
		said, idle := Of(v).Idling(v, c)
		r := w.must(c)
		if idle && w.textOf(said.Record) != w.textOf(r.Record) {
			t.Errorf("a view says %s, it answers %s", w.textOf(said.Record), w.textOf(r.Record))
		}
		return w.textOf(r.Record)
	}
	held := w.withLock(fmt.Sprintf(ops, "one"))
	if got := answer(held); !strings.Contains(got, `"uuid"`) || strings.Contains(got, "error") {
		t.Errorf("with the lock: %s", got)
	}
	for name, change := range map[string]func(*Lock){
		"another lock": func(l *Lock) { l.Name = "k" }, "another token": func(l *Lock) { l.Token++ }, "another lease": func(l *Lock) { l.Lease.Lease = "k" },
	} {
		c := w.withLock(fmt.Sprintf(ops, "two"))
		if change(&c.Locks[0]); !strings.Contains(answer(c), "not owner") {
			t.Errorf("%s counts as held", name)
		}
	}
	late := w.withLock(fmt.Sprintf(ops, "three"))
	w.must(core.CloseSessionCommand{ID: incumbent.SessionID{1}})
	if got := answer(late); !strings.Contains(got, "not owner") {
		t.Errorf("once the session is over: %s", got)
	}
}

// governedFamily has settings of its own.
type governedFamily struct {
	Family
	terms core.Terms
}

type governed struct {
	*tables
	terms *core.Terms
}

func (g governed) Terms() *core.Terms { return g.terms }

func (f *governedFamily) New() core.Tables { return governed{newTables(), &f.terms} }

// A transaction that would have more than the quota is refused as a whole, for whom
// the database belongs to and for its namespace; one that makes room is not.
func TestG39_QuotasBoundTables(t *testing.T) {
	for _, bound := range []func(*core.Terms, int64){
		func(terms *core.Terms, n int64) { terms.Principals[core.TableBytes].Each = n },
		func(terms *core.Terms, n int64) { terms.Namespaces[core.TableBytes].Each = n },
	} {
		f := &governedFamily{terms: core.Terms{Quotas: core.Enforce}}
		bound(&f.terms, 2000)
		w := &world{t: t, s: core.New(leases.Family{}, f), db: "Test"}
		do := func(c core.Command) *Outcome {
			results := make([]core.Result, 1)
			w.s.Apply([][]byte{c.Encode(core.Meta{Origin: core.Origin{Principal: "agent:a"}})}, results)
			if err := w.s.Check(); err != nil || results[0].Err != nil {
				t.Fatalf("%v, %v", results[0].Err, err)
			}
			o, _ := results[0].Record.(*Outcome)
			return o
		}
		do(&Define{Namespace: "default", Schema: []byte(testSchema)})
		insert := func(name string, n int) *Outcome {
			return do(w.parse(`{"op":"insert","table":"Root","row":{"name":"` + name + strings.Repeat("x", n) + `"}}`))
		}
		insert("a", 1000)
		was := w.database()
		if o := insert("b", 1000); !o.Failed || o.Results[len(o.Results)-1].Err.Name != ovs.ResourcesExhausted || w.database() != was {
			t.Errorf("over the quota: %s", w.textOf(o))
		}
		longer := strings.Replace(testSchema, `"Few":{`, `"Many":{"isRoot":true,"columns":{"c":{"type":"string"}}},"Few":{`, 1)
		if o := do(&Convert{"default", "Test", []byte(longer)}); o.Failed {
			t.Errorf("a conversion that needs no more: %s", w.textOf(o))
		}
		if o := do(w.parse(`{"op":"delete","table":"Root","where":[]},{"op":"insert","table":"Root","row":{"name":"c"}}`)); o.Failed {
			t.Errorf("what makes room: %s", w.textOf(o))
		}
		if n := w.s.View().Usage().Principal("agent:a").Of(core.TableBytes); n != w.database().Bytes() {
			t.Errorf("%d bytes are counted of %d", n, w.database().Bytes())
		}
		do(&Drop{"default", "Test"})
		if n := w.s.View().Usage().Principal("agent:a").Of(core.TableBytes); n != 0 {
			t.Errorf("%d bytes are counted without a database", n)
		}
	}
}

// A transaction of more than an entry may have travels in parts, and is one.
func TestTransactionsInParts(t *testing.T) {
	w := &world{t: t, s: core.New(parts.Family{}, Family{}), db: "Test"}
	w.must(&Define{Namespace: "default", Schema: []byte(testSchema)})
	var ops []string
	for i := range 3000 {
		ops = append(ops, fmt.Sprintf(`{"op":"insert","table":"Root","row":{"name":"%d","ids":["map",[["k","%s"]]]}}`, i, strings.Repeat("v", 600)))
	}
	c := w.parse(strings.Join(ops, ","))
	whole := c.Encode(core.Meta{})
	if len(whole) < 1<<20 {
		t.Fatalf("it has %d bytes", len(whole))
	}
	p := parts.Part{Member: 1, Whole: whole, Commutes: true}
	var r core.Result
	var changes []core.Change
	for ; p.Offset < len(whole); p.Offset += parts.PartBytes {
		if w.database().Len() > 0 {
			t.Fatal("something is there before the last part")
		}
		if r, changes = w.apply(p); r.Err != nil {
			t.Fatal(r.Err)
		}
		if p.Began == 0 {
			p.Began = w.s.Index()
		}
		var b bytes.Buffer
		if err := w.s.View().WriteSnapshot(&b); err != nil {
			t.Fatal(err)
		}
		s, err := core.Restore(&b, parts.Family{}, Family{})
		if err != nil || s.View().Hash() != w.s.View().Hash() {
			t.Fatalf("restored: %v", err)
		}
		w.s = s
	}
	told := 0
	for i := range changes {
		if changes[i].Family.Family == Number {
			told++
		}
	}
	o, _ := r.Record.(*Outcome)
	if o == nil || o.Failed || len(o.Results) != 3000 || w.database().Len() != 3000 || told != 1 {
		t.Errorf("%d rows, %d changes, answered %+v", w.database().Len(), told, r.Err)
	}
	if err := w.s.Check(); err != nil {
		t.Error(err)
	}
}

// A namespace that is restored alone has its databases, and works on.
func TestNamespacesAreRestoredAlone(t *testing.T) {
	w := fullWorld(t)
	var b bytes.Buffer
	if err := w.s.View().Namespace("default").WriteSnapshot(&b); err != nil {
		t.Fatal(err)
	}
	was := w.database()
	w.s = restoredWorld(t, b.Bytes()).s
	if w.view().Database("other", "Test") != nil || w.database().Len() != was.Len() || w.database().LastTxn() != was.LastTxn() {
		t.Errorf("there are %d rows of %d", w.database().Len(), was.Len())
	}
	if list, ok := w.database().Since(was.LastTxn()); !ok || len(list) > 0 {
		t.Error("a client cannot resume")
	}
	w.must(core.EpochCommand{})
	w.must(core.OpenSessionCommand{ID: incumbent.SessionID{2}, TTL: time.Minute})
	w.run(`{"op":"insert","table":"Root","row":{"name":"after"}}`)
	if list, ok := w.database().Since(was.LastTxn()); !ok || len(list) != 1 {
		t.Errorf("since the backup: %d changes, %v", len(list), ok)
	}
	w.reload()
}

// What one transaction may cost every member is bounded: the rows that it looks at, and
// those that it answers.
func TestG39_TransactionsAreBounded(t *testing.T) {
	w := newWorld(t, `{"name":"D","tables":{"T":{"columns":{"c":{"type":"integer"},"s":{"type":"string"}}}}}`)
	const rows = 4000
	inserts := strings.Repeat(`{"op":"insert","table":"T","row":{"c":1}},`, rows)
	w.run(strings.TrimSuffix(inserts, ","))
	w.run(`{"op":"insert","table":"T","row":{"c":2,"s":"` + strings.Repeat("x", 1<<19) + `"}}`)
	before := w.database()
	one := `{"op":"insert","table":"T","row":{"c":3}}`
	for _, tt := range []struct {
		op     string
		most   int // how often it may be in one transaction
		answer string
	}{
		{`{"op":"update","table":"T","where":[["c","==",9]],"row":{"c":4}}`, MaxWork / (rows + 2), `{"count":0}`},
		{`{"op":"select","table":"T","where":[["c","==",2]],"columns":["s"]}`, MaxAnswerBytes / (1<<19 + rowBytes + datumBytes + atomBytes), `{"rows":[{"s":"xxx`},
	} {
		got := w.run(one + strings.Repeat(","+tt.op, tt.most+1))
		if !strings.Contains(got, ovs.ResourcesExhausted) {
			t.Errorf("%d of %s: %.200s", tt.most+1, tt.op, got)
		}
		if w.database() != before {
			t.Fatalf("%s: a transaction that failed has changed something", tt.op)
		}
		if got := w.run(strings.TrimPrefix(strings.Repeat(","+tt.op, tt.most-1), ",")); strings.Contains(got, ovs.ResourcesExhausted) || !strings.Contains(got, tt.answer) {
			t.Errorf("%d of %s: %.200s", tt.most-1, tt.op, got)
		}
	}
}
