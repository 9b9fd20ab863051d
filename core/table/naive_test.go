package table

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// This is what RFC 7047 says of transactions once more, in maps and without a thought
// for cost: every rule is evaluated over the whole database.

// value is a set, or a map, by the texts of its atoms: integers in decimal, strings in
// quotes, uuids plain, and @name for a row of the same transaction.
type value map[string]string

func (v value) String() string {
	var list []string
	for _, k := range slices.Sorted(maps.Keys(v)) {
		list = append(list, k+"="+v[k])
	}
	return "{" + strings.Join(list, " ") + "}"
}

// base is the type of keys or values.
type base struct {
	kind   string // integer, string, uuid
	enum   []string
	lo, hi int64 // of integers, if lo < hi
	ref    string
	weak   bool
}

func (b *base) allows(a string) bool {
	if len(b.enum) > 0 {
		return slices.Contains(b.enum, a)
	}
	if b.kind == "integer" && b.lo < b.hi {
		n, _ := new(big.Int).SetString(a, 10)
		return n.Cmp(big.NewInt(b.lo)) >= 0 && n.Cmp(big.NewInt(b.hi)) <= 0
	}
	return true
}

func (b *base) zero() string {
	return map[string]string{"integer": "0", "string": `""`, "uuid": ovs.UUID{}.String()}[b.kind]
}

type column struct {
	name      string
	key, val  base // val.kind is empty but for maps
	min, max  int
	immutable bool
	ephemeral bool
}

func (c *column) initial() value {
	switch {
	case c.min == 0:
		return value{}
	case c.val.kind == "":
		return value{c.key.zero(): ""}
	}
	return value{c.key.zero(): c.val.zero()}
}

func (c *column) allows(v value) bool {
	for k, e := range v {
		if !c.key.allows(k) || c.val.kind != "" && !c.val.allows(e) {
			return false
		}
	}
	return len(v) >= c.min && len(v) <= c.max
}

type relationType struct {
	name    string
	root    bool
	maxRows int // 0: no limit
	columns []*column
	indexes [][]string
}

func (t *relationType) column(name string) *column {
	i := slices.IndexFunc(t.columns, func(c *column) bool { return c.name == name })
	if i < 0 {
		return nil
	}
	return t.columns[i]
}

type schema []*relationType

func (s schema) table(name string) *relationType {
	i := slices.IndexFunc(s, func(t *relationType) bool { return t.name == name })
	if i < 0 {
		return nil
	}
	return s[i]
}

// isRoot is that of a table: if none says so all are.
func (s schema) isRoot(t *relationType) bool {
	return t.root || !slices.ContainsFunc(s, func(o *relationType) bool { return o.root })
}

// tuple is a row, by column.
type tuple map[string]value

func (r tuple) String() string {
	var b strings.Builder
	for _, c := range slices.Sorted(maps.Keys(r)) {
		fmt.Fprintf(&b, "%s%v", c, r[c])
	}
	return b.String()
}

// rows are those of all tables: by table, then by uuid.
type rows map[string]map[string]tuple

func (r rows) clone() rows {
	c := rows{}
	for t, list := range r {
		c[t] = map[string]tuple{}
		for id, row := range list {
			c[t][id] = maps.Clone(row)
		}
	}
	return c
}

func (r rows) String() string {
	var b strings.Builder
	for _, t := range slices.Sorted(maps.Keys(r)) {
		for _, id := range slices.Sorted(maps.Keys(r[t])) {
			fmt.Fprintf(&b, "%s %s %v\n", t, id, r[t][id])
		}
	}
	return b.String()
}

// changes are the rows that differ.
func changes(was, is rows) string {
	var list []string
	for t := range is {
		for id, row := range is[t] {
			if o, there := was[t][id]; !there || o.String() != row.String() {
				list = append(list, fmt.Sprintf("%s %s %v -> %v\n", t, id, was[t][id], row))
			}
		}
	}
	for t := range was {
		for id, row := range was[t] {
			if _, there := is[t][id]; !there {
				list = append(list, fmt.Sprintf("%s %s %v -> gone\n", t, id, row))
			}
		}
	}
	slices.Sort(list)
	return strings.Join(list, "")
}

type condition struct {
	column, function string // column may be _uuid
	arg              value
}

type mutation struct {
	column, mutator string
	arg             value
	keysOnly        bool
}

type operation struct {
	op, table  string
	where      []condition
	row        tuple
	mutations  []mutation
	columns    []string
	rows       []tuple
	equal      bool
	name, uuid string // uuid-name, and the uuid, of a new row
	given      bool
}

// naive is a database.
type naive struct {
	schema schema
	rows   rows
}

// errorsOf are the names that an error may have.
type errorsOf []string

var (
	noError    errorsOf
	badSyntax  = errorsOf{ovs.ConstraintError, ovs.SyntaxError} // found before the operation is executed
	constraint = errorsOf{ovs.ConstraintError}
	reference  = errorsOf{ovs.ReferentialError}
)

// play is the state of a transaction.
type naivePlay struct {
	naive
	gone  map[string]bool // rows deleted, and inserted, by table and uuid
	names map[string]string
}

// transact executes a transaction, and returns what each operation answers, up to the
// one that fails, and then the commit if it failed.
func (n *naive) transact(ops []operation) (answers []string, failed errorsOf) {
	p := naivePlay{naive{n.schema, n.rows.clone()}, map[string]bool{}, map[string]string{}}
	for _, o := range ops {
		if o.name != "" {
			p.names["@"+o.name] = o.uuid
		}
	}
	for i := range ops {
		answer, failed := p.operate(&ops[i])
		if failed != nil {
			return answers, failed
		}
		answers = append(answers, answer)
	}
	if changes(n.rows, p.rows) == "" {
		return answers, nil
	}
	if failed := p.commit(); failed != nil {
		return answers, failed
	}
	n.rows = p.rows
	return answers, nil
}

func (p *naivePlay) resolve(v value) value {
	r := value{}
	name := func(a string) string {
		if strings.HasPrefix(a, "@") {
			return p.names[a]
		}
		return a
	}
	for k, e := range v {
		r[name(k)] = name(e)
	}
	return r
}

func (p *naivePlay) operate(o *operation) (string, errorsOf) {
	t := p.schema.table(o.table)
	if t != nil && p.malformed(t, o) {
		return "", badSyntax
	}
	switch o.op {
	case "insert":
		return o.uuid, p.insert(t, o)
	case "update", "delete", "mutate":
		ids := p.matching(o)
		failed := p.change(t, o, ids)
		return fmt.Sprint(len(ids)), failed
	case "select":
		return p.project(o, p.matching(o)), nil
	case "wait":
		return "", p.wait(t, o)
	case "abort":
		return "", errorsOf{ovs.Aborted}
	case "assert":
		return "", errorsOf{ovs.NotOwner}
	}
	return "", nil
}

// malformed reports whether an operation is refused for what it says.
func (p *naivePlay) malformed(t *relationType, o *operation) bool {
	for name, v := range o.row {
		c := t.column(name)
		if !c.allows(v) || o.op == "update" && c.immutable {
			return true
		}
	}
	for _, m := range o.mutations {
		if t.column(m.column).immutable {
			return true
		}
	}
	for _, c := range t.columns {
		if _, has := o.row[c.name]; o.op == "insert" && !has && !(c.min == 0 || c.allows(c.initial())) {
			return true
		}
	}
	return false
}

func (p *naivePlay) insert(t *relationType, o *operation) errorsOf {
	if _, there := p.rows[t.name][o.uuid]; there || p.gone[t.name+o.uuid] {
		return errorsOf{ovs.DuplicateUUID}
	}
	row := tuple{}
	for _, c := range t.columns {
		row[c.name] = c.initial()
	}
	for name, v := range o.row {
		row[name] = p.resolve(v)
	}
	p.rows[t.name][o.uuid] = row
	p.gone[t.name+o.uuid] = true
	return nil
}

func (p *naivePlay) matching(o *operation) (ids []string) {
	for id, row := range p.rows[o.table] {
		if !slices.ContainsFunc(o.where, func(c condition) bool { return !p.holds(id, row, &c) }) {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}

func (p *naivePlay) holds(id string, row tuple, c *condition) bool {
	is, arg := row[c.column], p.resolve(c.arg)
	if c.column == "_uuid" {
		is = value{id: ""}
	}
	same := 0
	for k, e := range arg {
		if has, there := is[k]; there && has == e {
			same++
		}
	}
	switch c.function {
	case "==":
		return maps.Equal(is, arg)
	case "!=":
		return !maps.Equal(is, arg)
	case "includes":
		return same == len(arg)
	case "excludes":
		return same == 0
	}
	if len(is) == 0 {
		return false
	}
	order := number(only(is)).Cmp(number(only(arg)))
	return map[string]bool{"<": order < 0, "<=": order <= 0, ">": order > 0, ">=": order >= 0}[c.function]
}

func only(v value) string {
	for k := range v {
		return k
	}
	return ""
}

func number(a string) *big.Int {
	n, _ := new(big.Int).SetString(a, 10)
	return n
}

func (p *naivePlay) change(t *relationType, o *operation, ids []string) (failed errorsOf) {
	for _, id := range ids {
		row := p.rows[t.name][id]
		switch o.op {
		case "delete":
			delete(p.rows[t.name], id)
			p.gone[t.name+id] = true
		case "update":
			for name, v := range o.row {
				row[name] = p.resolve(v)
			}
		default:
			for i := range o.mutations {
				m := &o.mutations[i]
				v, wrong := p.mutated(t.column(m.column), m, row[m.column])
				if wrong != nil {
					failed = append(failed, wrong...)
					break
				}
				row[m.column] = v
			}
		}
	}
	return failed
}

func (p *naivePlay) mutated(c *column, m *mutation, v value) (value, errorsOf) {
	arg, is := p.resolve(m.arg), value{}
	switch m.mutator {
	case "insert":
		maps.Copy(is, arg)
		maps.Copy(is, v)
	case "delete":
		for k, e := range v {
			if has, there := arg[k]; !there || has != e && !m.keysOnly {
				is[k] = e
			}
		}
	default:
		return computed(c, m.mutator, number(only(arg)), v)
	}
	if len(is) < c.min || len(is) > c.max {
		return nil, constraint
	}
	return is, nil
}

// computed is what arithmetics makes of all elements; several of them may be wrong in
// different ways.
func computed(c *column, mutator string, by *big.Int, v value) (value, errorsOf) {
	is, failed := value{}, noError
	for k := range v {
		n := number(k)
		switch mutator {
		case "+=":
			n.Add(n, by)
		case "-=":
			n.Sub(n, by)
		case "*=":
			n.Mul(n, by)
		default:
			if by.Sign() == 0 {
				return nil, errorsOf{ovs.DomainError}
			}
			if mutator == "/=" {
				n.Quo(n, by)
			} else if !n.IsInt64() || n.String() == "-9223372036854775808" && by.String() == "-1" {
				failed = append(failed, ovs.RangeError)
			} else {
				n.Rem(n, by)
			}
		}
		switch {
		case !n.IsInt64():
			failed = append(failed, ovs.RangeError)
		case !c.key.allows(n.String()):
			failed = append(failed, ovs.ConstraintError)
		}
		is[n.String()] = ""
	}
	if failed == nil && len(is) < len(v) {
		return nil, constraint
	}
	return is, failed
}

func (p *naivePlay) projected(id string, row tuple, columns []string) string {
	var b strings.Builder
	for _, c := range columns {
		if c == "_uuid" {
			fmt.Fprintf(&b, "%s%v", c, value{id: ""})
			continue
		}
		fmt.Fprintf(&b, "%s%v", c, row[c])
	}
	return b.String()
}

// project is the different rows that there are in some columns.
func (p *naivePlay) project(o *operation, ids []string) string {
	var list []string
	for _, id := range ids {
		list = append(list, p.projected(id, p.rows[o.table][id], o.columns))
	}
	slices.Sort(list)
	return strings.Join(slices.Compact(list), "\n")
}

func (p *naivePlay) wait(t *relationType, o *operation) errorsOf {
	var list []string
	for _, row := range o.rows {
		full := tuple{}
		for _, c := range t.columns {
			full[c.name] = c.initial()
		}
		for name, v := range row {
			full[name] = p.resolve(v)
		}
		list = append(list, p.projected(ovs.UUID{}.String(), full, o.columns))
	}
	slices.Sort(list)
	expected := strings.Join(slices.Compact(list), "\n")
	if (p.project(o, p.matching(o)) == expected) == o.equal {
		return nil
	}
	return errorsOf{ovs.TimedOut}
}

// references calls fn with each reference of a row, and the element that it is in.
func (p *naivePlay) references(t *relationType, row tuple, weak bool, fn func(c *column, element, table, to string)) {
	for _, c := range t.columns {
		for k, e := range row[c.name] {
			if c.key.ref != "" && c.key.weak == weak {
				fn(c, k, c.key.ref, k)
			}
			if c.val.ref != "" && c.val.weak == weak {
				fn(c, k, c.val.ref, e)
			}
		}
	}
}

func (p *naivePlay) each(fn func(t *relationType, id string, row tuple)) {
	for _, t := range p.schema {
		for id, row := range p.rows[t.name] {
			fn(t, id, row)
		}
	}
}

func (p *naivePlay) commit() (failed errorsOf) {
	p.each(func(t *relationType, id string, row tuple) {
		p.references(t, row, false, func(_ *column, _, table, to string) {
			if _, there := p.rows[table][to]; !there {
				failed = reference
			}
		})
	})
	if failed != nil {
		return failed
	}
	p.collect()
	for _, t := range p.schema {
		if t.maxRows > 0 && len(p.rows[t.name]) > t.maxRows {
			return constraint
		}
	}
	for again := true; again; {
		if again, failed = p.prune(); failed != nil {
			return failed
		}
		p.collect()
	}
	return p.unique()
}

func (p *naivePlay) collect() {
	for again := true; again; {
		again = false
		kept := map[string]bool{}
		p.each(func(t *relationType, id string, row tuple) {
			p.references(t, row, false, func(_ *column, _, table, to string) {
				if table != t.name || to != id {
					kept[table+to] = true
				}
			})
		})
		p.each(func(t *relationType, id string, _ tuple) {
			if !p.schema.isRoot(t) && !kept[t.name+id] {
				delete(p.rows[t.name], id)
				again = true
			}
		})
	}
}

func (p *naivePlay) prune() (pruned bool, failed errorsOf) {
	p.each(func(t *relationType, id string, row tuple) {
		left := tuple{}
		p.references(t, row, true, func(c *column, element, table, to string) {
			if _, there := p.rows[table][to]; there {
				return
			}
			if left[c.name] == nil {
				left[c.name] = maps.Clone(row[c.name])
			}
			delete(left[c.name], element)
			pruned = true
		})
		for name, v := range left {
			if row[name] = v; len(v) < t.column(name).min {
				failed = constraint
			}
		}
	})
	return pruned, failed
}

func (p *naivePlay) unique() errorsOf {
	for _, t := range p.schema {
		for _, columns := range t.indexes {
			seen := map[string]bool{}
			for id, row := range p.rows[t.name] {
				if is := p.projected(id, row, columns); seen[is] {
					return constraint
				} else {
					seen[is] = true
				}
			}
		}
	}
	return nil
}

// convert gives the rows another schema.
func (n *naive) convert(to schema) bool {
	p := naivePlay{naive: naive{to, rows{}}}
	for _, t := range to {
		p.rows[t.name] = map[string]tuple{}
		from := n.schema.table(t.name)
		if from == nil {
			continue
		}
		for id, row := range n.rows[t.name] {
			is := tuple{}
			for _, c := range t.columns {
				is[c.name] = c.initial()
				if old := from.column(c.name); old != nil {
					is[c.name] = row[c.name]
					if len(row[c.name]) > 0 && (old.key.kind != c.key.kind || old.val.kind != c.val.kind) {
						return false
					}
				}
				if !c.allows(is[c.name]) {
					return false
				}
			}
			p.rows[t.name][id] = is
		}
	}
	if p.commit() != nil {
		return false
	}
	n.schema, n.rows = to, p.rows
	return true
}
