package ovsdb

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

const (
	monitoredTransactions = 60 // of each seed
	monitorsAtFirst       = 6
)

// Random monitors over random schemas are told of random transactions what
// ovsdb-server tells them, while conditions change and others begin and end.
func TestRandomMonitors(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := &generator{Rand: rand.New(rand.NewPCG(seed, 1)), chosen: map[string]int{}}
			file := filepath.Join(t.TempDir(), "random.ovsschema")
			schema := g.schema()
			if err := os.WriteFile(file, schema, 0o600); err != nil {
				t.Fatal(err)
			}
			m := &monitoring{generator: g, pair: startPeers(t, standAlone, file).connect()}
			for side := range m.sides { // a database that is not clustered names no transactions
				m.pair.known[side]["00000000-0000-0000-0000-000000000000"] = "a uuid"
			}
			for range monitorsAtFirst {
				m.begin()
			}
			for i := range monitoredTransactions {
				ops := append([]any{"Random"}, g.transaction()...)
				if m.both("transact", ops...); !t.Failed() {
					m.another()
				}
				if t.Failed() { // what follows would differ for the same reason
					t.Fatalf("transaction %d of seed %d over %s with %s", i, seed, schema, textOf(m.open))
				}
			}
		})
	}
}

// monitoring has both peers do the same with random monitors.
type monitoring struct {
	*generator
	*pair
	open  []randomMonitor
	begun int
}

// randomMonitor is one that both peers have.
type randomMonitor struct {
	ID      any
	Method  string
	Tables  object              // what was asked for, with the conditions of now
	columns map[string][]string // of each table, which conditions may name
}

// another does one of what happens between transactions, or nothing.
func (m *monitoring) another() {
	switch n := m.IntN(8); {
	case n < 2 && len(m.open) > 0:
		m.change(m.IntN(len(m.open)))
	case n == 2:
		m.begin()
	case n == 3 && len(m.open) > 1:
		i := m.IntN(len(m.open))
		m.both("monitor_cancel", m.open[i].ID)
		m.open = append(m.open[:i], m.open[i+1:]...)
	}
}

// begin begins a monitor of some tables.
func (m *monitoring) begin() {
	m.begun++
	is := randomMonitor{
		ID: fmt.Sprint("m", m.begun), Method: pick(m.generator, []string{monitorPlain, monitorCond, monitorSince}),
		Tables: object{}, columns: map[string][]string{},
	}
	for _, of := range m.tables {
		if m.IntN(3) == 0 {
			continue
		}
		asked := object{}
		names := []string{"_uuid"}
		if !refersWeakly(&of) && m.IntN(4) == 0 { // all, and _version
			for _, c := range of.columns {
				names = append(names, c.name)
			}
		} else {
			for _, c := range m.generator.columns(&of) {
				names = append(names, c.(string))
			}
			asked["columns"] = names
		}
		if m.IntN(3) == 0 {
			asked["select"] = object{pick(m.generator, []string{"initial", "insert", "delete", "modify"}): false}
		}
		is.columns[of.name] = names
		if is.Method != monitorPlain && m.IntN(3) > 0 {
			asked["where"] = m.condition(&of, names)
		}
		is.Tables[of.name] = asked
	}
	params := []any{"Random", is.ID, is.Tables}
	if is.Method == monitorSince {
		params = append(params, uuid(0))
	}
	m.both(is.Method, params...)
	m.open = append(m.open, is)
}

// refersWeakly reports whether rows of a table have weak references. The version of one
// that is given nothing but references to rows that are not there is another at
// ovsdb-server, and at ours it is not.
func refersWeakly(of *randomTable) bool {
	return slices.ContainsFunc(of.columns, func(c randomColumn) bool { return c.weak })
}

// change gives a monitor other conditions, and another id at times.
func (m *monitoring) change(i int) {
	is := &m.open[i]
	if is.Method == monitorPlain {
		return
	}
	conditions := object{}
	for _, of := range m.tables {
		if names := is.columns[of.name]; names != nil && m.IntN(3) > 0 {
			now := m.condition(&of, names)
			conditions[of.name] = []any{object{"where": now}}
			is.Tables[of.name].(object)["where"] = now
		}
	}
	next := is.ID
	if m.IntN(2) == 0 {
		m.begun++
		next = fmt.Sprint("m", m.begun)
	}
	m.both("monitor_cond_change", is.ID, next, conditions)
	is.ID = next
}

// condition makes one that names columns of a monitor only: ovsdb-server does not
// outlive others. Any of its clauses suffices. None is refused: of a change that is,
// ovsdb-server has done those tables that it came to before the fault.
func (m *monitoring) condition(of *randomTable, names []string) []any {
	if m.IntN(6) == 0 {
		return []any{m.IntN(2) == 0}
	}
	list := []any{}
	for range 1 + m.IntN(3) {
		name := pick(m.generator, names)
		if name == "_uuid" {
			list = append(list, []any{name, pick(m.generator, []string{"==", "!=", "includes", "excludes"}), m.generator.known(of.name)})
			continue
		}
		for _, c := range of.columns {
			if c.name != name {
				continue
			}
			m.faults = 0
			if c.value == "" && c.max == 1 && (c.key == "integer" || c.key == "real") && m.IntN(2) == 0 {
				list = append(list, []any{name, pick(m.generator, []string{"<", "<=", ">", ">="}), m.key(&c)})
				continue
			}
			list = append(list, []any{name, pick(m.generator, []string{"==", "==", "!=", "includes", "excludes"}), m.datum(&c, 2)})
		}
	}
	return list
}
