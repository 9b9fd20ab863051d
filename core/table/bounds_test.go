package table

import (
	"fmt"
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
