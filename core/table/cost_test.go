package table

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// What rows share is not compared, however large it is.
func TestWhatIsSharedIsNotCompared(t *testing.T) {
	const atoms, times, less = 1 << 18, 10, 100
	set := func() []ovs.Datum {
		d := ovs.Datum{Keys: make([]ovs.Atom, atoms)}
		for i := range d.Keys {
			d.Keys[i] = ovs.IntegerAtom(int64(i))
		}
		return []ovs.Datum{d}
	}
	a, b := set(), set()
	took := func(b []ovs.Datum) time.Duration { // at best, for others are running, too
		best := time.Duration(math.MaxInt64)
		for range times {
			began := time.Now()
			if compareKeys(a, b) != 0 {
				t.Fatal("they differ")
			}
			best = min(best, time.Since(began))
		}
		return best
	}
	if shared, apart := took(a), took(b); shared > apart/less {
		t.Errorf("it takes %v, apart %v", shared, apart)
	}
}

// What goes of weak references costs what refers to the rows that are gone: no look at the
// others that a large set refers to, and none again at what went before.
func TestPruningLooksAtWhatIsGone(t *testing.T) {
	const rows, chain = 2000, 300
	w := newWorld(t, `{"name":"D","tables":{
"Leaf":{"columns":{"c":{"type":"integer"}}},
"Gone":{"isRoot":true,"columns":{"c":{"type":"integer"}}},
"Set":{"isRoot":true,"columns":{"all":{"type":{"key":{"type":"uuid","refTable":"Gone","refType":"weak"},"min":0,"max":"unlimited"}}}},
"Link":{"isRoot":true,"columns":{"next":{"type":{"key":{"type":"uuid","refTable":"Leaf","refType":"weak"},"value":{"type":"uuid","refTable":"Leaf"},"min":0,"max":1}}}},
"End":{"isRoot":true,"columns":{"first":{"type":{"key":{"type":"uuid","refTable":"Leaf"},"min":0,"max":1}}}}}}`)
	var inserts, all []string
	for i := range rows {
		inserts = append(inserts, fmt.Sprintf(`{"op":"insert","table":"Gone","uuid-name":"g%d","row":{}}`, i))
		all = append(all, fmt.Sprintf(`["named-uuid","g%d"]`, i))
	}
	for range 10 {
		inserts = append(inserts, `{"op":"insert","table":"Set","row":{"all":["set",[`+strings.Join(all, ",")+`]]}}`)
	}
	// Each leaf is kept by the link of the one before.
	inserts = append(inserts, `{"op":"insert","table":"Leaf","uuid-name":"l0","row":{}},{"op":"insert","table":"End","row":{"first":["named-uuid","l0"]}}`)
	for i := range chain {
		inserts = append(inserts, fmt.Sprintf(`{"op":"insert","table":"Leaf","uuid-name":"l%d","row":{}},{"op":"insert","table":"Link","row":{"next":["map",[[["named-uuid","l%d"],["named-uuid","l%[1]d"]]]]}}`, i+1, i))
	}
	w.run(strings.Join(inserts, ","))
	_, gone := w.database().Schema.Table("Gone")
	var one ovs.UUID
	w.database().Rows(gone, func(r *Row) bool {
		one = r.UUID
		return false
	})
	for _, c := range []struct {
		ops  string
		left map[string]int
		most int // comparisons of uuids, in the trees of rows
	}{
		{`{"op":"delete","table":"Gone","where":[["_uuid","==",["uuid","` + one.String() + `"]]]}`, map[string]int{"Gone": rows - 1, "Set": 10}, 1000},
		{`{"op":"delete","table":"End","where":[]}`, map[string]int{"Leaf": 0, "Link": chain}, chain * 150},
	} {
		d, n := *w.database(), 0
		d.relations = slices.Clone(d.relations)
		for i, r := range d.relations {
			counted := *r
			counted.rows = newTree(func(a, b *Row) int {
				n++
				return compareIDs(a.UUID, b.UUID)
			})
			r.rows.Scan(func(r *Row) bool {
				counted.rows.Set(r)
				return true
			})
			d.relations[i] = &counted
		}
		p := play{work: begin(&d), ops: w.parse(c.ops).Operations, out: &Outcome{}}
		n = 0
		if p.run(); p.out.Failed {
			t.Fatal(p.out.Results)
		}
		if err := p.work.commit(9); err != nil {
			t.Fatal(err)
		}
		for name, want := range c.left {
			if _, at := d.Schema.Table(name); p.relations[at].rows.Len() != want {
				t.Errorf("%s: %d rows of %s are left, want %d", c.ops, p.relations[at].rows.Len(), name, want)
			}
		}
		if n > c.most {
			t.Errorf("%s: %d comparisons, want %d at most", c.ops, n, c.most)
		}
	}
}
