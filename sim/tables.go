package sim

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/test/lists"
)

// What tablers do.
const (
	tableRests    = 2 * time.Second // between two transactions, at most
	tableLists    = 3               // rows of table List
	tablePorts    = 6               // names of ports
	tableSwitches = 2               // rows of table Switch, to which ports belong
	convertOneIn  = 150             // deeds that give the database its other schema
	tableName     = "Ports"         // of the database
)

// tableSchema is one of the two schemas that the database has by turns.
func tableSchema(noted bool) string {
	note := ""
	if noted {
		note = `,"note":{"type":"string"}`
	}
	return `{"name":"` + tableName + `","version":"1.0.0","tables":{
"Switch":{"isRoot":true,"indexes":[["name"]],"columns":{"name":{"type":"string"},
	"ports":{"type":{"key":{"type":"uuid","refTable":"Port"},"min":0,"max":"unlimited"}}}},
"Port":{"indexes":[["name"]],"columns":{"name":{"type":"string"},"tag":{"type":"integer"},
	"peers":{"type":{"key":{"type":"uuid","refTable":"Port","refType":"weak"},"min":0,"max":"unlimited"}}` + note + `}},
"Caller":{"isRoot":true,"indexes":[["client"]],"columns":{"client":{"type":"integer"},"done":{"type":"integer"}}},
"Counter":{"isRoot":true,"indexes":[["name"]],"columns":{"name":{"type":"string"},"value":{"type":"integer"}}},
"List":{"isRoot":true,"indexes":[["name"]],"columns":{"name":{"type":"string"},"elements":{"type":"string"}}}}}`
}

// tabler is a client that executes transactions on a database, at any member. What was
// not answered it sends again: what may not be done twice begins with a wait, which
// does not hold once it was done.
type tabler struct {
	w    *world
	a    *agent
	done int // transactions that count, as its row of table Caller says
}

func newTabler(w *world, id int) *tabler { return &tabler{w: w, a: newClient(w, id)} }

// begin makes the database, unless it is there, and learns what the client has done.
func (k *tabler) begin() {
	k.a.turn++
	k.a.at = k.w.anyone()
	k.a.submit(&table.Define{Namespace: incumbent.DefaultNamespace, Schema: []byte(tableSchema(false))}, func(r core.Result) {
		if r.Err != nil && r.Err.Kind != incumbent.Conflict { // it may have its other schema
			k.a.later(k.w.upTo(thinks), k.begin)
			return
		}
		k.fill()
	}, k.begin)
}

// fill makes the rows that stay. The index of names refuses it if they are there.
func (k *tabler) fill() {
	ops := []string{insertOp("Counter", `{"name":"all"}`)}
	for i := range tableLists {
		ops = append(ops, insertOp("List", fmt.Sprintf(`{"name":"%d"}`, i)))
	}
	for i := range tableSwitches {
		ops = append(ops, insertOp("Switch", fmt.Sprintf(`{"name":"%d"}`, i)))
	}
	k.transact(ops, func(*table.Outcome) { k.learn() })
}

func (k *tabler) learn() {
	k.transact([]string{k.ownRow()}, func(out *table.Outcome) {
		if out == nil { // a reading under a key that was used: what it read is not kept
			k.learn()
			return
		}
		k.done = k.doneIn(out)
		k.next()
	})
}

func (k *tabler) next() { k.a.later(k.w.upTo(tableRests), k.act) }

func (k *tabler) act() {
	w := k.w
	port := fmt.Sprintf("p%d", w.rng.IntN(tablePorts))
	of := fmt.Sprint(w.rng.IntN(tableSwitches))
	switch w.rng.IntN(10) {
	case 0, 1, 2:
		k.count()
	case 3, 4, 5:
		k.look()
	case 6, 7:
		k.do(`{"op":"insert","table":"Port","uuid-name":"p","row":`+fmt.Sprintf(`{"name":%q,"tag":%d}`, port, w.rng.IntN(100))+`}`,
			mutateOp("Switch", of, `["ports","insert",["named-uuid","p"]]`))
	case 8:
		if w.chance(convertOneIn / 10) {
			k.convert()
			return
		}
		// Ports to which nothing refers any more go, and with them what refers to them weakly.
		k.do(mutateOp("Switch", of, `["ports","delete",["uuid","`+w.check.tables.somePort()+`"]]`))
	default:
		k.do(mutateOp("Port", port, `["peers","insert",["uuid","`+w.check.tables.somePort()+`"]]`, `["tag","+=",1]`))
	}
}

func (k *tabler) do(ops ...string) { k.transact(ops, func(*table.Outcome) { k.next() }) }

func (k *tabler) convert() {
	c := &table.Convert{Namespace: incumbent.DefaultNamespace, Database: tableName, Schema: []byte(tableSchema(k.w.chance(2)))}
	k.a.submit(c, func(core.Result) { k.next() }, k.next)
}

// count raises the counter, and its own number of times that it did: once, whatever the
// number of attempts.
func (k *tabler) count() {
	n, rows, own := k.done+1, "", insertOp("Caller", fmt.Sprintf(`{"client":%d,"done":1}`, k.a.id))
	if k.done > 0 {
		rows = fmt.Sprintf(`{"done":%d}`, k.done)
		own = fmt.Sprintf(`{"op":"update","table":"Caller","where":[["client","==",%d]],"row":{"done":%d}}`, k.a.id, n)
	}
	guard := fmt.Sprintf(`{"op":"wait","timeout":0,"table":"Caller","where":[["client","==",%d]],"columns":["done"],"until":"==","rows":[%s]}`, k.a.id, rows)
	k.transact([]string{k.ownRow(), guard, own, mutateOp("Counter", "all", `["value","+=",1]`)}, func(out *table.Outcome) {
		switch {
		case out == nil || !out.Failed:
		case k.doneIn(out) == n:
			k.w.res.TableFound++ // an earlier attempt has done it
		default:
			k.w.violate("client %d has done %d of its transactions, its row says %d (G25)", k.a.id, k.done, k.doneIn(out))
		}
		k.done = n
		k.w.check.tables.acked(k.a.id, n)
		k.next()
	})
}

// ownRow reads what the client's row says, and doneIn takes it from the answer.
func (k *tabler) ownRow() string {
	return fmt.Sprintf(`{"op":"select","table":"Caller","where":[["client","==",%d]],"columns":["done"]}`, k.a.id)
}

func (k *tabler) doneIn(out *table.Outcome) int {
	if rows := out.Results[0].Rows; len(rows) == 1 {
		return int(rows[0][0].Keys[0].Int())
	}
	return 0
}

// look reads some lists, and then may append to them if they are as they were.
func (k *tabler) look() {
	var names []string
	for len(names) == 0 {
		for i := range tableLists {
			if k.w.chance(2) {
				names = append(names, fmt.Sprint(i))
			}
		}
	}
	check := k.w.check
	t := &lists.Txn{Client: k.a.id, Called: check.keys.now(), Return: lists.Unknown}
	check.tables.history = append(check.tables.history, t)
	k.transact(selectLists(names), func(out *table.Outcome) {
		if out == nil {
			k.next()
			return
		}
		t.Return, t.Reads = check.keys.now(), listsIn(names, out)
		k.append(names, t.Reads)
	})
}

// append appends to the lists if all of them are as they were read.
func (k *tabler) append(names []string, seen map[string][]int) {
	check := k.w.check
	t := &lists.Txn{Client: k.a.id, Reads: seen, Appends: map[string]int{}, Called: check.keys.now(), Return: lists.Unknown}
	ops := selectLists(names)
	for _, name := range names {
		ops = append(ops, fmt.Sprintf(`{"op":"wait","timeout":0,"table":"List","where":[["name","==",%q]],"columns":["elements"],"until":"==","rows":[{"elements":%q}]}`,
			name, written(seen[name])))
	}
	for _, name := range names {
		e := check.lists.element()
		t.Appends[name] = e
		ops = append(ops, fmt.Sprintf(`{"op":"update","table":"List","where":[["name","==",%q]],"row":{"elements":%q}}`, name, written(append(slices.Clone(seen[name]), e))))
	}
	check.tables.history = append(check.tables.history, t)
	k.transact(ops, func(out *table.Outcome) {
		now := check.keys.now()
		if out != nil && out.Failed {
			is := listsIn(names, out)
			if t.Failed = !slices.Contains(is[names[0]], t.Appends[names[0]]); !t.Failed {
				k.w.res.TableFound++
			}
			check.tables.history = append(check.tables.history, &lists.Txn{Client: k.a.id, Called: t.Called, Return: now, Reads: is})
		}
		t.Return = now
		k.next()
	})
}

func insertOp(table, row string) string {
	return fmt.Sprintf(`{"op":"insert","table":%q,"row":%s}`, table, row)
}

func mutateOp(table, name string, mutations ...string) string {
	return fmt.Sprintf(`{"op":"mutate","table":%q,"where":[["name","==",%q]],"mutations":[%s]}`, table, name, strings.Join(mutations, ","))
}

func selectLists(names []string) (ops []string) {
	for _, name := range names {
		ops = append(ops, fmt.Sprintf(`{"op":"select","table":"List","where":[["name","==",%q]],"columns":["elements"]}`, name))
	}
	return ops
}

// listsIn are the lists that the first operations of a transaction have read.
func listsIn(names []string, out *table.Outcome) map[string][]int {
	reads := map[string][]int{}
	for i, name := range names {
		if rows := out.Results[i].Rows; len(rows) == 1 && len(rows[0][0].Keys) == 1 {
			reads[name] = numbersIn(rows[0][0].Keys[0].Text())
		}
	}
	return reads
}

func written(list []int) string { return strings.Trim(fmt.Sprint(list), "[]") }

// transact has operations executed, once or more often, until it is known what became
// of one attempt. What then gets is nil if an earlier attempt of the same call was
// executed and has not failed: what it answered is not kept.
func (k *tabler) transact(ops []string, then func(*table.Outcome)) {
	c := tableCall("[" + strings.Join(ops, ",") + "]")
	again := func() {
		k.w.res.TableRetries++
		k.a.later(k.w.upTo(tableRests), func() { k.transact(ops, then) })
	}
	k.a.at = k.w.anyone()
	var n uint64
	n = k.a.submit(c, func(r core.Result) {
		out, is := r.Record.(*table.Outcome)
		switch {
		case is:
			k.w.res.TableTxns++
			k.w.check.tables.answered(n, out, r.Index)
			then(out)
		case r.Replayed && r.Err == nil:
			k.w.res.TableTxns++
			then(nil)
		case r.Err != nil && r.Err.Kind == incumbent.NotFound: // the database was lost with its cluster
			k.a.later(k.w.upTo(returns), k.begin)
		default: // it has another schema, or nothing more is known than that the attempt failed
			again()
		}
	}, again)
}

// tableCall is a transaction as a client sends it: operations as JSON, which the member
// that is asked parses.
type tableCall string

// Encode implements [core.Command].
func (tableCall) Encode(core.Meta) []byte {
	panic("sim: a transaction is parsed before it is proposed")
}

// parsed is the transaction by the schema of a state.
func (c tableCall) parsed(v *core.View, w *world) (*table.Transact, *incumbent.Error) {
	d := table.Of(v).Database(incumbent.DefaultNamespace, tableName)
	if d == nil {
		return nil, incumbent.Errorf(incumbent.NotFound, "there is no database %s", tableName)
	}
	ops, bad := ovs.ParseJSON(string(c))
	if bad != nil {
		panic(bad)
	}
	t := &table.Transact{Namespace: incumbent.DefaultNamespace, Database: tableName, Schema: d.SchemaIndex}
	var err *ovs.Error
	if t.Operations, err = ovs.ParseTransaction(d.Schema, ops.Elements(), w.someUUID); err != nil {
		panic(err)
	}
	return t, nil
}

// someUUID draws that of a row.
func (w *world) someUUID() (u ovs.UUID) {
	binary.BigEndian.PutUint64(u[:8], w.rng.Uint64())
	binary.BigEndian.PutUint64(u[8:], w.rng.Uint64())
	return u
}

// submitTable hands a transaction on as a door does: what changes nothing is answered
// from a confirmed view, unless an earlier attempt may yet change something.
func (p *process) submitTable(call lease.Call, c tableCall, first bool, done func(core.Result)) {
	var t *table.Transact
	try := func() (r core.Result, idle bool) {
		v := p.group.View()
		var err *incumbent.Error
		if t, err = c.parsed(v, p.w); err != nil {
			return core.Result{Err: err, Index: v.Index()}, true
		}
		t.Kept = call.KeyID != nil
		r, idle = table.Of(v).Idling(v, t)
		r.Index = v.Index()
		return r, idle && first
	}
	execute := func() { p.group.Execute(engine.Call{Meta: call.Meta(), Deadline: call.Deadline}, t, done) }
	if _, idle := try(); !idle {
		execute()
		return
	}
	p.group.Confirm(func(err error) {
		if err != nil {
			done(failed(err))
			return
		}
		if r, idle := try(); idle {
			p.w.res.Idle++
			done(r)
			return
		}
		execute()
	})
}
