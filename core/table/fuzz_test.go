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
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// fullWorld is a state with one of everything: rows of all tables with all kinds of
// references, a history, a database in another namespace, a lease that is held, and a
// member, by which a command of a later schema is refused.
func fullWorld(t fatal) *world {
	w := newWorld(t, testSchema)
	w.must(core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: core.SchemaVersion}})
	w.must(&Define{Namespace: "other", Schema: []byte(testSchema)})
	w.must(core.OpenSessionCommand{ID: incumbent.SessionID{1}, TTL: time.Minute})
	w.must(leases.ClaimCommand{Name: lockLease, Holder: "h", Session: incumbent.SessionID{1}})
	w.run(`{"op":"insert","table":"Root","uuid":"` + fixedID + `","row":{"name":"a","number":1,"leaves":["named-uuid","l"],"must":["named-uuid","f"],"ids":["map",[["k","v"]]]}},
		{"op":"insert","table":"Leaf","uuid-name":"l","row":{"value":1,"next":["named-uuid","m"]}},{"op":"insert","table":"Leaf","uuid-name":"m","row":{"value":2}},
		{"op":"insert","table":"Few","uuid-name":"f","row":{"value":3}},{"op":"insert","table":"Needs","row":{"few":["named-uuid","f"]}}`)
	w.run(`{"op":"insert","table":"Root","row":{"name":"b","peers":["uuid","` + fixedID + `"]}}`)
	return w
}

var lockLease = incumbent.Name{Namespace: "default", Model: "m", Lease: "lock"}

const fixedID = "0d8a47b3-86fa-4c33-9c48-829982886b86"

// seeds are transactions with all operations.
var seeds = []string{
	`{"op":"insert","table":"Root","row":{"name":"c","leaves":["named-uuid","l"]}},{"op":"insert","table":"Leaf","uuid-name":"l","row":{}}`,
	`{"op":"update","table":"Root","where":[["_uuid","==",["uuid","` + fixedID + `"]]],"row":{"name":"b","number":7}}`,
	`{"op":"mutate","table":"Root","where":[["name","==","a"]],"mutations":[["number","*=",3],["ids","delete",["set",["k"]]],["ids","insert",["map",[["x","y"]]]]]}`,
	`{"op":"delete","table":"Few","where":[["value",">",2]]},{"op":"delete","table":"Needs","where":[]}`,
	`{"op":"wait","table":"Root","where":[["peers","includes",["uuid","` + fixedID + `"]]],"columns":["name","_uuid"],"until":"!=","rows":[{"name":"b"},{}]},{"op":"select","table":"Root","where":[]}`,
	`{"op":"select","table":"Leaf","where":[["value","<",5],true],"columns":["_version","value"],"sort":["value"]},{"op":"commit","durable":true},{"op":"comment","comment":"c"}`,
	`{"op":"assert","lock":"l"},{"op":"delete","table":"Root","where":[["name","!=","a"]]},{"op":"abort"}`,
}

// body is what stands behind a transaction's database and schema.
func (c *Transact) body() []byte {
	whole := (&command{verb: verbTransact, namespace: c.Namespace, name: c.Database, at: c.Schema, locks: c.Locks}).encodeBody(c.Operations)
	return whole[len(c.head()):]
}

func (c *Transact) head() []byte {
	return (&command{verb: verbTransact, namespace: c.Namespace, name: c.Database, at: c.Schema}).encodeBody(nil)
}

// raw is a command of any bytes.
type raw []byte

func (c raw) Encode(m core.Meta) []byte { return core.EncodeSince(core.RoleSchema, m, Family{}, c) }

// try lets bytes be a command of the family on a state that has one of everything:
// what is refused leaves nothing behind, a view says what happens, the invariants hold,
// a snapshot gives the same state, and a restored state comes to the same.
func (w *world) try(b []byte) {
	before := w.s.View()
	other, err := core.Restore(bytes.NewReader(w.snapshot()), leases.Family{}, Family{})
	if err != nil {
		w.t.Fatalf("restoring: %v", err)
	}
	said, idle := w.saidOf(b)
	r, changes := w.apply(raw(b))
	o, _ := r.Record.(*Outcome)
	if idle && (len(changes) > 0 || errorKind(said) != errorKind(r) || w.textOf(said.Record) != w.textOf(r.Record)) {
		w.t.Fatalf("%x: a view says %v %s and that nothing changes; it is %v %s with %d changes", b, said.Err, w.textOf(said.Record), r.Err, w.textOf(r.Record), len(changes))
	}
	if err := w.s.Check(); err != nil {
		w.t.Fatalf("%x: %v", b, err)
	}
	nothing := r.Err != nil || o != nil && o.Failed
	again := raw(b).Encode(core.Meta{})
	if nothing {
		again = core.CheckpointCommand{}.Encode(core.Meta{})
	}
	other.Apply([][]byte{again}, make([]core.Result, 1))
	if len(changes) > 0 && nothing || w.s.View().Hash() != other.View().Hash() {
		w.t.Fatalf("%x answers %v %s, and a restored state comes to another", b, r.Err, w.textOf(r.Record))
	}
	restored, err := core.Restore(bytes.NewReader(w.snapshot()), leases.Family{}, Family{})
	if err != nil || restored.View().Hash() != w.s.View().Hash() {
		w.t.Fatalf("%x: restored: %v, or it has another hash", b, err)
	}
	if before.Index() >= w.s.Index() {
		w.t.Fatalf("%x: the index stays", b)
	}
}

func errorKind(r core.Result) incumbent.Kind {
	if r.Err == nil {
		return incumbent.OK
	}
	return r.Err.Kind
}

func (w *world) textOf(record any) string {
	if o, ok := record.(*Outcome); ok && w.database() != nil {
		return string(o.AppendJSON(nil, w.database().Schema)) + fmt.Sprint(o.Failed, o.Waits, o.Tables)
	}
	return ""
}

// saidOf is what a view says of bytes that are a transaction of the database.
func (w *world) saidOf(b []byte) (core.Result, bool) {
	var c command
	if c.read(b) != nil || c.verb != verbTransact {
		return core.Result{}, false
	}
	d := w.view().Database(c.namespace, c.name)
	x := &Transact{Namespace: c.namespace, Database: c.name, Schema: c.at, Locks: c.locks, Role: c.role, Client: c.client, Roles: c.roles}
	for _, op := range c.ops {
		if d == nil {
			break
		}
		o, ok := ovs.DecodeOperation(op, d.Schema)
		if !ok {
			return core.Result{}, false
		}
		x.Operations = append(x.Operations, o)
	}
	v := w.s.View()
	return Of(v).Idling(v, x)
}

func (w *world) snapshot() []byte {
	var b bytes.Buffer
	if err := w.s.View().WriteSnapshot(&b); err != nil {
		w.t.Fatalf("writing a snapshot: %v", err)
	}
	return b.Bytes()
}

// FuzzTransact lets any bytes be the operations and locks of a transaction.
func FuzzTransact(f *testing.F) {
	w := fullWorld(f)
	from := w.snapshot()
	head := w.parse(seeds[0]).head()
	for _, text := range seeds {
		f.Add(w.withLock(text).body())
	}
	f.Fuzz(func(t *testing.T, b []byte) { restoredWorld(t, from).try(append(bytes.Clone(head), b...)) })
}

// FuzzCommand lets any bytes be a command of the family.
func FuzzCommand(f *testing.F) {
	w := fullWorld(f)
	from := w.snapshot()
	other := strings.Replace(testSchema, "1.0.0", "2.0.0", 1)
	for _, c := range []*command{
		{verb: verbDefine, namespace: "third", schema: []byte(testSchema)},
		{verb: verbConvert, namespace: "default", name: "Test", schema: []byte(other)},
		{verb: verbDrop, namespace: "default", name: "Test"},
		{verb: verbTransact, namespace: "default", name: "Test", at: w.database().SchemaIndex},
	} {
		f.Add(c.encodeBody(w.withLock(seeds[0]).Operations))
	}
	f.Fuzz(func(t *testing.T, b []byte) { restoredWorld(t, from).try(b) })
}

func restoredWorld(t fatal, from []byte) *world {
	s, err := core.Restore(bytes.NewReader(from), leases.Family{}, Family{})
	if err != nil {
		t.Fatalf("restoring: %v", err)
	}
	return &world{t: t, s: s, db: "Test"}
}

// withLock is a transaction of who holds the lock l.
func (w *world) withLock(text string) *Transact {
	c := w.parse(text)
	c.Locks = []Lock{{Name: "l", Lease: lockLease, Token: leases.Of(w.s.View()).Lease(lockLease).Token}}
	return c
}

// FuzzSchema lets any text be a schema: what is taken has one text, of which a
// snapshot makes the same schema.
func FuzzSchema(f *testing.F) {
	f.Add([]byte(testSchema))
	for _, typ := range awkwardTypes {
		f.Add([]byte(schemaOf(typ)))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := parseSchema(text)
		if err != nil {
			return
		}
		again, failed := ovs.ParseSchema(s.JSON)
		if failed != nil || !bytes.Equal(again.JSON, s.JSON) {
			t.Fatalf("%s has text %s, which is %v", text, s.JSON, failed)
		}
		w := restoredWorld(t, emptySnapshot(t))
		w.must(&Define{Namespace: "default", Schema: text})
		w.db = s.Name
		for i := range s.Tables {
			w.run(`{"op":"insert","table":"` + s.Tables[i].Name + `","row":{}}`)
		}
		w.reload()
	})
}

func emptySnapshot(t fatal) []byte {
	return (&world{t: t, s: core.New(leases.Family{}, Family{})}).snapshot()
}

// awkwardTypes have numbers that a text with fewer digits says otherwise.
var awkwardTypes = []string{
	`{"key":{"type":"real","maxReal":1.7976931348623157e308}}`,
	`{"key":{"type":"real","enum":["set",[1.7976931348623157e308]]}}`,
	`{"key":{"type":"real","enum":["set",[0.12345678901234567,0.12345678901234568,1]]}}`,
	`{"key":{"type":"real","enum":0.30000000000000004}}`,
	`{"key":{"type":"real","minReal":-1e-400}}`,
	`{"key":{"type":"real","minReal":-0.0,"maxReal":5e-324}}`,
	`{"key":{"type":"integer","minInteger":-9223372036854775808,"maxInteger":9223372036854775807}}`,
}

func schemaOf(typ string) string {
	return `{"name":"D","tables":{"T":{"columns":{"c":{"type":` + typ + `}},"indexes":[["c","_uuid"]]}}}`
}
