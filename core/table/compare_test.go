package table

import (
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
)

// Two states differ in the rows that the changes between them have left different, however
// few are looked at in a turn, and whether or not a snapshot was read in between.
func TestCompare(t *testing.T) {
	const seed, runs, steps = 7, 20, 40
	r := rand.New(rand.NewPCG(seed, 0))
	w := newWorld(t, testSchema)
	for run := range runs {
		was := w.database()
		for range r.IntN(steps) {
			name, table := strconv.Itoa(r.IntN(steps)), []string{"Root", "Leaf"}[r.IntN(2)]
			switch r.IntN(3) {
			case 0:
				w.run(`{"op":"insert","table":"Root","row":{"name":"` + name + `","leaves":["named-uuid","x"]}},{"op":"insert","table":"Leaf","uuid-name":"x","row":{}}`)
			case 1:
				w.run(`{"op":"delete","table":"Root","where":[["name","==","` + name + `"]]}`)
			case 2:
				w.run(`{"op":"update","table":"` + table + `","where":[],"row":{"` + map[string]string{"Root": "number", "Leaf": "value"}[table] + `":` + name + `}}`)
			}
		}
		net := map[place]*RowChange{}
		changes, _ := w.database().Since(was.LastTxn())
		for _, c := range changes {
			for _, row := range c.Rows {
				p := place{row.Table, row.ID()}
				if net[p] == nil {
					net[p] = &RowChange{row.Table, row.Old, nil}
				}
				net[p].New = row.New
			}
		}
		var expected []RowChange
		for _, c := range net {
			if c.Old != nil || c.New != nil {
				expected = append(expected, *c)
			}
		}
		slices.SortFunc(expected, func(a, b RowChange) int { return place{a.Table, a.ID()}.compare(place{b.Table, b.ID()}) })
		if run%2 == 1 {
			w.reload()
		}
		var got []RowChange
		c := Compare(was, w.database())
		for all, turns := false, 0; !all; turns++ {
			if got, all = c.Next(got, 1+r.IntN(5)); turns > 100*steps {
				t.Fatalf("run %d: it does not end", run)
			}
		}
		same := func(a, b RowChange) bool { return a.Table == b.Table && SameRow(a.Old, b.Old) && SameRow(a.New, b.New) }
		if !slices.EqualFunc(got, expected, same) {
			t.Fatalf("run %d: %d rows differ, want %d:\n%v\n%v", run, len(got), len(expected), got, expected)
		}
	}
}

// Tables that nothing has touched are not looked at.
func TestCompareLooksAtTablesThatWereTouched(t *testing.T) {
	w := newWorld(t, testSchema)
	for i := range 50 {
		w.run(`{"op":"insert","table":"Root","row":{"name":"` + strconv.Itoa(i) + `"}}`)
	}
	was := w.database()
	w.run(`{"op":"insert","table":"Few","row":{"value":1}}`)
	if got, all := Compare(was, w.database()).Next(nil, 1); len(got) != 1 || !all {
		t.Errorf("%d rows, all: %v", len(got), all)
	}
}
