package table

import (
	"fmt"
	"math/bits"
	"runtime"
	"strings"
	"testing"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// What a transaction writes is bounded while it runs: once it is committed, or refused, the
// memory has been taken, on every member. Members of earlier versions go on as they did.
func TestG39_WhatATransactionWritesIsBounded(t *testing.T) {
	w := newWorld(t, `{"name":"D","tables":{"T":{"columns":{"n":{"type":"integer"},"many":{"type":{"key":"integer","min":0,"max":"unlimited"}}}}}}`)
	w.run(`{"op":"insert","table":"T","row":{"n":1,"many":["set",[1,2,3]]}}`)
	numbers := make([]string, 20_000)
	for i := range numbers {
		numbers[i] = fmt.Sprint(i)
	}
	set := `["set",[` + strings.Join(numbers, ",") + `]]`
	for name, c := range map[string]struct {
		ops    string
		before func(*work)
		units  int // of MaxWork that are left
	}{
		"it grows":               {`{"op":"insert","table":"T","row":{"n":2}}`, func(w *work) { w.bytes += MaxGrowthBytes }, MaxWork},
		"a row is inserted":      {`{"op":"insert","table":"T","row":{"n":2,"many":` + set + `}}`, nil, 10},
		"a large row is changed": {`{"op":"mutate","table":"T","where":[],"mutations":[["many","insert",` + set + `]]},{"op":"update","table":"T","where":[],"row":{"n":3}}`, nil, 120},
		"a large row is deleted": {`{"op":"update","table":"T","where":[],"row":{"many":` + set + `}},{"op":"delete","table":"T","where":[]}`, nil, 40},
		"many small mutations":   {`{"op":"mutate","table":"T","where":[],"mutations":[` + strings.TrimSuffix(strings.Repeat(`["n","+=",1],`, 100), ",") + `]}`, nil, 4},
		"rows of a wait":         {`{"op":"wait","table":"T","where":[],"columns":["n"],"until":"!=","rows":[` + strings.TrimSuffix(strings.Repeat(`{},`, 100), ",") + `]}`, nil, 50},
	} {
		for _, bounded := range []bool{false, true} {
			cmd := w.parse(c.ops)
			p := play{work: begin(w.database()), ops: cmd.Operations, out: &Outcome{}}
			p.bounded, p.spent = bounded, MaxWork-c.units
			if c.before != nil {
				c.before(p.work)
			}
			p.run()
			failed := false
			for _, r := range p.out.Results {
				failed = failed || r.Err != nil && r.Err.Name == ovs.ResourcesExhausted
			}
			if failed != bounded {
				t.Errorf("%s, bounded %v: %+v, %d left", name, bounded, p.out.Results, MaxWork-p.spent)
			}
		}
	}
}

// Indexes cost memory that no quota counts.
func TestG39_IndexesAreBounded(t *testing.T) {
	schema := func(name string, indexes, columns int) []byte {
		var all, of []string
		for i := range columns {
			of = append(of, fmt.Sprintf(`"c%d"`, i))
			all = append(all, fmt.Sprintf(`"c%d":{"type":"integer"}`, i))
		}
		list := strings.TrimSuffix(strings.Repeat("["+strings.Join(of, ",")+"],", indexes), ",")
		return fmt.Appendf(nil, `{"name":%q,"tables":{"T":{"columns":{%s},"indexes":[%s]}}}`, name, strings.Join(all, ","), list)
	}
	w := newWorld(t, testSchema)
	w.must(&Define{Namespace: "default", Schema: schema("most", MaxIndexes, MaxIndexColumns)})
	for name, s := range map[string][]byte{"indexes": schema("I", MaxIndexes+1, 1), "columns": schema("C", 1, MaxIndexColumns+1)} {
		for _, c := range []core.Command{&Define{Namespace: "default", Schema: s}, &Begin{Namespace: "default", Schema: s}} {
			if r, _ := w.apply(c); incumbent.KindOf(asError(r.Err)) != incumbent.TooLarge {
				t.Errorf("too many %s, %T: %v", name, c, r.Err)
			}
		}
	}
	w.must(core.PutMemberCommand{Member: core.Member{ID: 1, Name: "old", Schema: boundSchema - 1}})
	w.must(&Define{Namespace: "default", Schema: schema("I", MaxIndexes+1, 1)})
	w.reload()
}

func asError(e *incumbent.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// weighing is a database of rows whose sets are large and equal, and of references.
func weighing(t *testing.T) *world {
	w := newWorld(t, `{"name":"D","tables":{
"T":{"isRoot":true,"indexes":[["many","n"]],"columns":{"n":{"type":"integer"},"many":{"type":{"key":"string","min":0,"max":"unlimited"}}}},
"To":{"isRoot":true,"columns":{"n":{"type":"integer"}}},
"From":{"isRoot":true,"columns":{"all":{"type":{"key":{"type":"uuid","refTable":"To","refType":"weak"},"min":0,"max":"unlimited"}}}}}}`)
	var ops, to []string
	for i := range 20 {
		ops = append(ops, fmt.Sprintf(`{"op":"insert","table":"T","row":{"n":%d}}`, i))
	}
	for i := range 400 {
		ops = append(ops, fmt.Sprintf(`{"op":"insert","table":"To","uuid-name":"t%d","row":{"n":%[1]d}}`, i))
		to = append(to, fmt.Sprintf(`["named-uuid","t%d"]`, i))
	}
	ops = append(ops, `{"op":"insert","table":"From","row":{"all":["set",[`+strings.Join(to, ",")+`]]}}`)
	w.run(strings.Join(ops, ","))
	w.run(`{"op":"update","table":"T","where":[],"row":{"many":` + weighed + `}}`)
	return w
}

// weighed is a set of 1,000 texts.
var weighed = func() string {
	var list []string
	for i := range 1000 {
		list = append(list, fmt.Sprintf(`"text %04d"`, i))
	}
	return `["set",[` + strings.Join(list, ",") + `]]`
}()

// weighedOperations are such as compare much, or change references, with the units of MaxWork
// that they cost at least. What else is counted costs less.
var weighedOperations = map[string]struct {
	ops   string
	units int
}{
	"a select of what is twice":  {`{"op":"select","table":"T","where":[],"columns":["many"]}`, 500},
	"a select that sorts":        {`{"op":"select","table":"T","where":[],"columns":["_uuid","n"],"sort":["many"]}`, 1000},
	"the rows of a wait":         {`{"op":"wait","table":"T","where":[],"columns":["many"],"until":"!=","rows":[]}`, 500},
	"what a wait expects":        {`{"op":"wait","table":"T","where":[["n","==",1]],"columns":["many"],"until":"==","rows":[{"many":` + weighed + `}]}`, 70},
	"many conditions":            {`{"op":"select","table":"T","where":[` + strings.Repeat(`["n","!=",-1],`, 99) + `["n","!=",-1]],"columns":["n"]}`, 250},
	"a set that is equal":        {`{"op":"select","table":"T","where":[["many","==",` + weighed + `]],"columns":["_uuid"]}`, 300},
	"a set that is included":     {`{"op":"select","table":"T","where":[["many","includes",` + weighed + `]],"columns":["_uuid"]}`, 3000},
	"a set that is excluded":     {`{"op":"select","table":"T","where":[["many","excludes",` + weighed + `]],"columns":["_uuid"]}`, 3000},
	"an update of what is so":    {`{"op":"update","table":"T","where":[],"row":{"many":` + weighed + `}}`, 300},
	"a mutation of what is so":   {`{"op":"mutate","table":"T","where":[],"mutations":[["many","insert",` + weighed + `]]}`, 450},
	"an index":                   {`{"op":"mutate","table":"T","where":[],"mutations":[["n","+=",100]]}`, 3000},
	"references that go":         {`{"op":"delete","table":"From","where":[]}`, 100},
	"a large set that is pruned": {`{"op":"delete","table":"To","where":[["n","==",1]]}`, 405},
	"references that are gone":   {`{"op":"delete","table":"To","where":[]}`, 500},
}

// spentBy executes operations, and returns the units of MaxWork that they have cost, of
// which some are left, and whether they were too much.
func (w *world) spentBy(ops string, weighs bool, left int) (units int, refused bool) {
	p := play{work: begin(w.database()), ops: w.parse(ops).Operations, out: &Outcome{}}
	p.bounded, p.weighed, p.spent = true, weighs, MaxWork-left
	p.run()
	for _, r := range p.out.Results {
		refused = refused || r.Err != nil && r.Err.Name == ovs.ResourcesExhausted
	}
	if !p.out.Failed {
		err := p.work.commit(w.s.Index() + 1)
		refused = err != nil && err.Name == ovs.ResourcesExhausted
	}
	return p.spent - MaxWork + left, refused
}

// What a transaction compares counts for what it may cost, and the references that it
// changes: large sets that are looked at again and again cost every member more than rows.
func TestG39_WhatATransactionComparesIsBounded(t *testing.T) {
	w := weighing(t)
	for name, c := range weighedOperations {
		if n, refused := w.spentBy(c.ops, true, MaxWork); n < c.units || refused {
			t.Errorf("%s: %d units, want %d, refused %v", name, n, c.units, refused)
		}
		for _, weighs := range []bool{false, true} {
			if n, refused := w.spentBy(c.ops, weighs, c.units-1); refused != weighs {
				t.Errorf("%s, weighed %v: refused %v with %d units of %d", name, weighs, refused, n, c.units-1)
			}
		}
	}
}

// What a transaction costs follows from what rows say, not from what of them a member
// shares in memory: who was restored from a snapshot refuses what the others refuse.
func TestG29_WhatIsComparedCostsAllMembersTheSame(t *testing.T) {
	w := weighing(t)
	costs := map[string]int{}
	for name, c := range weighedOperations {
		costs[name], _ = w.spentBy(c.ops, true, MaxWork)
	}
	w.reload()
	for name, c := range weighedOperations {
		if n, _ := w.spentBy(c.ops, true, MaxWork); n != costs[name] {
			t.Errorf("%s costs %d units, once restored %d", name, costs[name], n)
		}
	}
}

// Rows that differ, as many as a transaction may answer, are not too much to be compared,
// and to look at a row with a condition or two costs a row.
func TestG39_WhatIsAnsweredIsNotRefusedForComparing(t *testing.T) {
	if most := MaxAnswerBytes * (1 + bits.Len(MaxAnswerBytes/rowBytes)) / comparedAsRow; most > MaxWork/2 {
		t.Errorf("the rows of one answer cost %d units of %d", most, MaxWork)
	}
	w := weighing(t)
	for _, where := range []string{`["n","!=",-1]`, `["n",">=",0]`, `["_uuid","!=",["uuid","` + fixedID + `"]]`} {
		if n, _ := w.spentBy(`{"op":"select","table":"T","where":[`+where+`],"columns":["_uuid","n"]}`, true, MaxWork); n != 20 {
			t.Errorf("%s costs %d units for 20 rows", where, n)
		}
	}
	everything := strings.TrimSuffix(strings.Repeat(`{"op":"select","table":"T","where":[]},`, 100), ",")
	if n, _ := w.spentBy(everything, true, MaxWork); n != 20*100 {
		t.Errorf("whole rows, which differ, cost %d units", n)
	}
}

// A member of before refuses nothing for what it compares, and neither does who replays
// what it has executed.
func TestG49_ComparingCostsOnceAllMembersSayThat(t *testing.T) {
	for _, schema := range []uint32{weighSchema - 1, weighSchema} {
		w := newWorld(t, `{"name":"D","tables":{"T":{"columns":{"n":{"type":"integer"},"s":{"type":"string"}}}}}`)
		w.must(core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: schema}})
		w.run(strings.TrimSuffix(strings.Repeat(`{"op":"insert","table":"T","row":{}},`, 100), ","))
		w.run(`{"op":"update","table":"T","where":[],"row":{"s":"` + strings.Repeat("x", 100<<10) + `"}}`)
		selects := strings.Repeat(`,{"op":"select","table":"T","where":[],"columns":["s"]}`, 220)
		for _, ops := range []string{selects[1:], `{"op":"insert","table":"T","row":{"n":1}}` + selects} {
			if got := w.run(ops); strings.Contains(got, ovs.ResourcesExhausted) != (schema == weighSchema) {
				t.Errorf("schema %d answers %.100s … %s", schema, got, got[len(got)-100:])
			}
		}
	}
}

// roomToGrow is what is left of MaxGrowthBytes in tests of what stops there, in bytes.
const roomToGrow = 4 << 20

// wideSchema is one of rows with an integer n, and with as many empty columns as a table may
// have besides: such a row has few bytes in a command, or none, and many in memory.
var wideSchema = func() string {
	columns := []string{`"n":{"type":"integer"}`}
	for i := range ovs.MaxColumns - 1 {
		columns = append(columns, fmt.Sprintf(`"c%d":{"type":{"key":"integer","min":0,"max":1}}`, i))
	}
	return `{"name":"D","tables":{"T":{"columns":{` + strings.Join(columns, ",") + `}}}}`
}()

// allocated is what fn has allocated, in bytes.
func allocated(fn func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A conversion is bounded while it runs: small rows become large ones by what a few bytes of
// a schema say, and what was refused at the end would have been in memory, on every member.
func TestG39_AConversionIsBoundedWhileItRuns(t *testing.T) {
	const rows = 500
	w := newWorld(t, `{"name":"D","tables":{"T":{"columns":{"n":{"type":"integer"}}}}}`)
	w.run(strings.TrimSuffix(strings.Repeat(`{"op":"insert","table":"T","row":{"n":1}},`, rows), ","))
	s, bad := parseSchema([]byte(wideSchema))
	if bad != nil {
		t.Fatal(bad)
	}
	for _, active := range []uint32{0, bulkSchema} {
		p := play{work: begin(newDatabase("default", "", s, 2))}
		p.from.bytes = w.database().bytes
		p.limitBy(active)
		p.bytes += MaxGrowthBytes - roomToGrow
		var err *ovs.Error
		n := allocated(func() { err = p.fill(w.database(), true) })
		switch bounded := active > 0; {
		case (err != nil) != bounded:
			t.Errorf("of schema %d: %v, %d rows", active, err, p.records)
		case bounded && (err.Name != ovs.ResourcesExhausted || p.records > roomToGrow/ovs.MaxColumns/datumBytes+2 || n > 8*roomToGrow):
			t.Errorf("%v: %d rows, %d bytes were allocated for %d", err, p.records, n, roomToGrow)
		}
	}
}

// So is a load: empty columns are a byte each in its command.
func TestG39_ALoadIsBoundedWhileItRuns(t *testing.T) {
	const rows = 200
	w := newWorld(t, `{"name":"Other","tables":{}}`)
	d := w.must(&Begin{Namespace: "default", Schema: []byte(wideSchema)}).Record.(*Database)
	var list [][]byte
	for range rows {
		r := &Row{UUID: w.uuid(), Columns: make([]ovs.Datum, ovs.MaxColumns)}
		r.Columns[d.Schema.Tables[0].Column("n").Index()] = ovs.Datum{Keys: []ovs.Atom{ovs.IntegerAtom(1)}}
		list = append(list, LoadedRow(0, r))
	}
	for _, active := range []uint32{0, bulkSchema} {
		l := load{work: begin(d), lack: *d.loading}
		l.limitBy(active)
		l.bytes += MaxGrowthBytes - roomToGrow
		var err *incumbent.Error
		n := allocated(func() { err = l.takeAll(3, list) })
		switch bounded := active > 0; {
		case (err != nil) != bounded:
			t.Errorf("of schema %d: %v, %d rows", active, err, l.records)
		case bounded && (err.Kind != incumbent.TooLarge || l.records > roomToGrow/ovs.MaxColumns/datumBytes+2 || n > 8*roomToGrow):
			t.Errorf("%v: %d rows, %d bytes were allocated for %d", err, l.records, n, roomToGrow)
		}
	}
}

// indexedRows and indexedSchema are rows, and a schema with whose indexes they take more than
// MaxWork, half of them less.
const indexedRows = 400

var indexedSchema = strings.Replace(numbersSchema, `"columns"`, `"indexes":[`+strings.TrimSuffix(strings.Repeat(`["n","many"],`, MaxIndexes), ",")+`],"columns"`, 1)

const numbersSchema = `{"name":"D","tables":{"T":{"columns":{"n":{"type":"integer"},"many":{"type":{"key":"integer","min":0,"max":"unlimited"}}}}}}`

// withNumbers is a world of such rows.
func withNumbers(t *testing.T, schema uint32) *world {
	w := newWorld(t, numbersSchema)
	w.must(core.PutMemberCommand{Member: core.Member{ID: 1, Name: "m", Schema: schema}})
	var inserts, numbers []string
	for i := range indexedRows {
		inserts = append(inserts, fmt.Sprintf(`{"op":"insert","table":"T","row":{"n":%d}}`, i))
	}
	for i := range 1000 {
		numbers = append(numbers, fmt.Sprint(i))
	}
	w.run(strings.Join(inserts, ","))
	w.run(`{"op":"update","table":"T","where":[],"row":{"many":["set",[` + strings.Join(numbers, ",") + `]]}}`)
	return w
}

// Members of before convert whatever the schema says, and load what a command has, and so
// does who replays what they have executed. Once all members bound both, what is refused
// changes nothing, and half of the rows are loaded by a command each.
func TestG49_ConversionsAndLoadsAreBoundedOnceAllMembersBoundThem(t *testing.T) {
	for _, schema := range []uint32{bulkSchema - 1, bulkSchema} {
		w := withNumbers(t, schema)
		rows, before := rowsOf(w.database()), w.database()
		o := w.must(&Convert{"default", "D", []byte(indexedSchema)}).Record.(*Outcome)
		if bounded := schema == bulkSchema; o.Failed != bounded || (w.database() == before) != bounded ||
			bounded && o.Results[len(o.Results)-1].Err.Name != ovs.ResourcesExhausted {
			t.Errorf("converted by schema %d: %+v", schema, o)
		}
		if o := w.must(&Convert{"default", "D", []byte(strings.Replace(numbersSchema, `"n"`, `"new":{"type":"string"},"n"`, 1))}).Record.(*Outcome); o.Failed || w.database().Len() != len(rows) {
			t.Errorf("an ordinary conversion by schema %d: %+v", schema, o)
		}
		w.reload()

		began := w.must(&Begin{Namespace: "default", Schema: []byte(indexedSchema)}).Record.(*Database).SchemaIndex
		load := func(rows []placed) incumbent.Kind {
			r, _ := w.apply(&Load{Namespace: "default", Database: "D", Began: began, Rows: loaded(rows...)})
			return incumbent.KindOf(asError(r.Err))
		}
		want, there := incumbent.OK, len(rows)
		if schema == bulkSchema {
			want, there = incumbent.TooLarge, 0
		}
		if got, n := load(rows), w.view().Loading("default", "D").Len(); got != want || n != there {
			t.Errorf("loaded by schema %d: %v, %d rows", schema, got, n)
		}
		for _, half := range [][]placed{rows[:len(rows)/2], rows[len(rows)/2:]} {
			if got := load(half); got != incumbent.OK {
				t.Errorf("half of the rows by schema %d: %v", schema, got)
			}
		}
		w.must(&Finish{Namespace: "default", Database: "D", Began: began, Replace: true})
		if n := w.database().Len(); n != len(rows) {
			t.Errorf("%d rows of %d are loaded", n, len(rows))
		}
		w.reload()
	}
}

// What is there may cost its conversion as much as it does: references and indexes of all
// columns leave MaxWork alone, so that no database is too large by itself.
func TestNoDatabaseIsTooLargeToBeConverted(t *testing.T) {
	w := weighing(t)
	d := w.database()
	p := play{work: begin(newDatabase(d.Namespace, d.Owner, d.Schema, 1))}
	p.from.bytes = d.bytes
	p.limitBy(bulkSchema)
	p.allow(d)
	err := p.fill(d, true)
	if err == nil {
		err = p.work.commit(w.s.Index() + 1)
	}
	if done := p.spent + int(d.bytes/keptAsRow); err != nil || p.spent > 0 || done < 100 {
		t.Errorf("%v: %d units of MaxWork, and %d in all", err, p.spent, done)
	}
}
