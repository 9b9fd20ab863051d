package ovsdb

import (
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"
)

var (
	firstSeed = flag.Uint64("seed", 1, "first seed of random tests")
	seeds     = flag.Int("seeds", 20, "how many seeds a random test plays")
)

const randomTransactions = 150 // of each seed

// Random transactions over random schemas do to our databases what they do to
// ovsdb-server's. A seed decides everything.
func TestRandomTransactions(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*seeds); seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			g := &generator{Rand: rand.New(rand.NewPCG(seed, 0)), chosen: map[string]int{}}
			file := filepath.Join(t.TempDir(), "random.ovsschema")
			schema := g.schema()
			if err := os.WriteFile(file, schema, 0o600); err != nil {
				t.Fatal(err)
			}
			c := startPeers(t, standAlone, file).connect()
			for i := range randomTransactions {
				ops := g.transaction()
				same := c.each("transact", append([]any{"Random"}, ops...), append([]any{"Random"}, ops...))
				if !same || i%25 == 24 {
					same = c.each("transact", g.everything(), g.everything()) && same
				}
				if !same { // what follows would differ for the same reason
					t.Fatalf("transaction %d of seed %d over %s", i, seed, schema)
				}
			}
		})
	}
}

// generator makes a schema, and transactions over it.
type generator struct {
	*rand.Rand
	tables []randomTable
	chosen map[string]int // rows of each table that were given uuids

	// faults is how many values against their types an operation may still have: of
	// several either server names whichever it comes to first.
	faults int
}

type randomTable struct {
	name    string
	columns []randomColumn
}

type randomColumn struct {
	name     string
	key      string // its atoms' type
	value    string // empty: not a map
	refTable string // of keys that refer
	min, max int    // max is many if it is unlimited
	limited  bool   // keys are within limits of their type
	weak     bool   // keys refer weakly
}

const many = 1_000

func (c *randomColumn) scalar() bool { return c.min == 1 && c.max == 1 && c.value == "" }

var atomTypes = []string{"integer", "real", "boolean", "string", "uuid"}

func pick[T any](g *generator, list []T) T { return list[g.IntN(len(list))] }

// schema makes one of two to four tables.
func (g *generator) schema() []byte {
	tables := object{}
	n := 2 + g.IntN(3)
	for i := range n {
		of := randomTable{name: fmt.Sprint("T", i)}
		columns := object{}
		for k := range 2 + g.IntN(5) {
			c, is := g.column(fmt.Sprint("c", k), n)
			of.columns = append(of.columns, c)
			columns[c.name] = is
		}
		is := object{"columns": columns, "isRoot": i == 0 || g.IntN(3) > 0}
		if c := pick(g, of.columns); g.IntN(3) == 0 && c.scalar() {
			is["indexes"] = []any{[]any{c.name}}
		}
		if g.IntN(4) == 0 {
			is["maxRows"] = 3 + g.IntN(5)
		}
		tables[of.name] = is
		g.tables = append(g.tables, of)
	}
	text, err := json.Marshal(object{"name": "Random", "version": "1.0.0", "tables": tables})
	if err != nil {
		panic(err)
	}
	return text
}

// column makes one of a schema of n tables.
func (g *generator) column(name string, n int) (randomColumn, object) {
	c := randomColumn{name: name, key: pick(g, atomTypes), min: 1, max: 1}
	key := object{"type": c.key}
	if c.key == "uuid" && g.IntN(4) > 0 {
		c.refTable = fmt.Sprint("T", g.IntN(n))
		key["refTable"] = c.refTable
		if g.IntN(2) == 0 {
			key["refType"], c.weak = "weak", true
		}
	}
	if c.refTable == "" && c.key == "integer" && g.IntN(3) == 0 {
		c.limited = true
		key["minInteger"], key["maxInteger"] = -2, 3
	}
	if c.key == "string" && g.IntN(3) == 0 {
		c.limited = true
		key["maxLength"] = 2
	}
	is := object{"key": key}
	switch g.IntN(4) {
	case 0:
		c.min, c.max = 0, 1
	case 1:
		c.min, c.max = 0, many
	case 2:
		c.min, c.max = 0, many
		if c.value = pick(g, atomTypes[:4]); c.value != "" {
			is["value"] = c.value
		}
	}
	if c.refTable != "" && c.min == 1 { // a reference that has to be there is one to nothing by default
		c.min = 0
	}
	if c.min != 1 {
		is["min"] = c.min
	}
	switch c.max {
	case 1:
	case many:
		is["max"] = "unlimited"
	default:
		is["max"] = c.max
	}
	return c, object{"type": is}
}

// uuid is that of the n-th row of a table: no two tables have the same.
func (g *generator) uuid(table string, n int) string {
	var of int
	if _, err := fmt.Sscanf(table, "T%d", &of); err != nil {
		panic(err)
	}
	return uuid((of+1)*many + n)
}

// known is the uuid of a row of a table that is or was there, or comes next.
func (g *generator) known(table string) []any {
	return []any{"uuid", g.uuid(table, 1+g.IntN(g.chosen[table]+1))}
}

// atom makes one of a type, from few so that transactions meet the same rows.
func (g *generator) atom(kind, refTable string) any {
	switch kind {
	case "integer":
		return g.IntN(8) - 3
	case "real":
		return float64(g.IntN(9)-4) / 2
	case "boolean":
		return g.IntN(2) == 0
	case "string":
		return pick(g, []string{"", "a", "b", "cc", "ddd"})
	}
	if refTable == "" {
		refTable = pick(g, g.tables).name
	}
	return g.known(refTable)
}

// inLimits reports whether a key is within the limits that columns have.
func inLimits(key any) bool {
	switch v := key.(type) {
	case int:
		return v >= -2 && v <= 3
	case string:
		return len(v) <= 2
	}
	return true
}

// fault reports whether the next value is against its type.
func (g *generator) fault() bool {
	if g.faults == 0 || g.IntN(4) > 0 {
		return false
	}
	g.faults--
	return true
}

func (g *generator) key(c *randomColumn) any {
	key := g.atom(c.key, c.refTable)
	for c.limited && !inLimits(key) && !g.fault() {
		key = g.atom(c.key, c.refTable)
	}
	return key
}

// datum makes a value of a column of up to n elements.
func (g *generator) datum(c *randomColumn, n int) any {
	size := c.min + g.IntN(min(n, c.max)-c.min+1)
	if g.fault() {
		size = c.max%many + 1 // one too many, where that can be
	}
	if c.scalar() && size == 1 {
		return g.key(c)
	}
	elements, used := []any{}, map[string]bool{}
	for range size {
		key := g.key(c)
		if text := textOf(key); used[text] {
			continue
		} else {
			used[text] = true
		}
		if c.value != "" {
			elements = append(elements, []any{key, g.atom(c.value, "")})
		} else {
			elements = append(elements, key)
		}
	}
	if c.value != "" {
		return []any{"map", elements}
	}
	return []any{"set", elements}
}

func (g *generator) row(of *randomTable) object {
	row := object{}
	for _, c := range of.columns {
		if g.IntN(3) > 0 {
			row[c.name] = g.datum(&c, 3)
		}
	}
	return row
}

// where makes a condition of up to two clauses.
func (g *generator) where(of *randomTable) []any {
	list := []any{}
	for range g.IntN(3) {
		if g.IntN(3) == 0 {
			list = append(list, []any{"_uuid", pick(g, []string{"==", "!=", "includes", "excludes"}), g.known(of.name)})
			continue
		}
		c := pick(g, of.columns)
		functions := []string{"==", "!=", "includes", "excludes"}
		if c.value == "" && c.max == 1 && (c.key == "integer" || c.key == "real") || g.IntN(20) == 0 {
			functions = append(functions, "<", "<=", ">", ">=")
		}
		list = append(list, []any{c.name, pick(g, functions), g.datum(&c, 2)})
	}
	return list
}

func (g *generator) mutations(of *randomTable) []any {
	list := []any{}
	for range 1 + g.IntN(2) {
		c := pick(g, of.columns)
		mutators := []string{"insert", "delete"}
		if c.key == "integer" || c.key == "real" {
			mutators = append(mutators, "+=", "-=")
			if c.max == 1 { // of several numbers they make equal ones, which ovsdb-server ends at
				mutators = append(mutators, "*=", "/=", "%=")
			}
		}
		mutator := pick(g, mutators)
		var argument any
		switch {
		case mutator != "insert" && mutator != "delete":
			argument = g.atom(c.key, "")
			if (mutator == "/=" || mutator == "%=") && isZero(argument) {
				// Alone: where one row fails for this and another for something else, the server
				// says that of the row which it comes to first, and its order is that of a hash.
				return []any{[]any{c.name, mutator, argument}}
			}
			for mutator == "*=" && argument == 0 { // at 0 times a negative integer ovsdb-server ends
				argument = g.atom(c.key, "")
			}
		case c.value != "" && mutator == "delete" && g.IntN(2) == 0:
			keys := c
			keys.value = ""
			argument = g.datum(&keys, 2)
		default:
			argument = g.datum(&c, 2)
		}
		list = append(list, []any{c.name, mutator, argument})
	}
	return list
}

func isZero(number any) bool { return number == 0 || number == 0.0 }

// columns names those that an operation answers or compares, and never none.
func (g *generator) columns(of *randomTable) []any {
	list := []any{}
	for _, c := range of.columns {
		if len(list) == 0 || g.IntN(2) == 0 {
			list = append(list, c.name)
		}
	}
	return list
}

func (g *generator) operation() object {
	of := pick(g, g.tables)
	g.faults = 0
	if g.IntN(8) == 0 {
		g.faults = 1
	}
	switch g.IntN(10) {
	case 0, 1, 2, 3:
		op := object{"op": "insert", "table": of.name}
		if n := g.chosen[of.name]; g.faults == 0 && n > 0 && g.IntN(20) == 0 {
			op["uuid"], op["row"] = g.uuid(of.name, 1+g.IntN(n)), g.row(&of) // is there, or was
			return op
		}
		g.chosen[of.name]++
		op["uuid"], op["row"] = g.uuid(of.name, g.chosen[of.name]), g.row(&of)
		return op
	case 4, 5:
		return update(of.name, g.where(&of), g.row(&of))
	case 6, 7:
		return object{"op": "mutate", "table": of.name, "where": g.where(&of), "mutations": g.mutations(&of)}
	case 8:
		return remove(of.name, append(g.where(&of), []any{"_uuid", "==", g.known(of.name)}))
	}
	columns := g.columns(&of)
	if g.IntN(2) == 0 {
		return object{"op": "select", "table": of.name, "where": g.where(&of), "columns": append(columns, "_uuid")}
	}
	rows := []any{}
	for range g.IntN(2) {
		row := object{}
		for _, c := range of.columns {
			for _, name := range columns {
				if name == c.name {
					row[c.name] = g.datum(&c, 2)
				}
			}
		}
		rows = append(rows, row)
	}
	return object{
		"op": "wait", "timeout": 0, "table": of.name, "where": g.where(&of), "columns": columns,
		"until": pick(g, []string{"==", "!="}), "rows": rows,
	}
}

func (g *generator) transaction() []any {
	list := []any{}
	for range 1 + g.IntN(4) {
		list = append(list, g.operation())
	}
	return list
}

// everything reads all tables, for what a transaction has left.
func (g *generator) everything() []any {
	list := []any{"Random"}
	for _, of := range g.tables {
		list = append(list, object{"op": "select", "table": of.name, "where": []any{}})
	}
	return list
}
