package ovsdb

import (
	"cmp"
	"hash/maphash"
	"slices"
	"sort"

	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// matcher finds the monitors that a change concerns. Monitors of the same columns of a
// table under the same conditions are one spec; a spec whose conditions ask for values is
// found by the values, the others are looked at.
type matcher struct {
	tables []tableSpecs
	specs  map[string]*spec
	encs   map[string]*encoder
	turn   uint64 // the row under way
	made   uint64 // specs so far, each has its number
	seed   maphash.Seed
}

// tableSpecs are the specs of a table.
type tableSpecs struct {
	looked  []*spec               // at each change
	byValue map[uint64][]*spec    // by hashes of what their conditions ask for: that of another value finds some that do not hold
	columns map[int]*soughtColumn // that conditions ask for
}

// soughtColumn counts the conditions on a column by their way.
type soughtColumn struct{ exact, within int }

// sought is what a condition asks of a column.
type sought struct {
	column     int
	way        way
	key, value ovs.Atom
}

// way is how a condition asks for a value.
type way uint8

const (
	exactly way = iota // the column is this one value
	empty              // the column has no value
	among              // this value is among those of the column
	mapped             // so is this key with this value
)

// spec is what one or more monitors want of a table. The zero key has none.
type spec struct {
	id      uint64 // no other spec of the feed has or had it
	key     string
	table   int
	encoder *encoder
	where   []ovs.Condition // in order, one of which is to hold
	groups  members[*group]
	seen    uint64   // the turn in which it was last looked at
	found   []byte   // what the change under way is to its monitors
	kept    [][]byte // the rows as they are, in pieces, if they were asked for twice since they changed
	all     bool     // whatever holds
	known   known    // as of a wish
	hit     bool     // something was found
	asked   bool     // for the rows since they changed
}

// holds reports whether the monitors of the spec have a row.
func (s *spec) holds(r *ovs.Row) bool {
	if r == nil {
		return false
	}
	return s.known.shows(r) && (s.all || holdsAny(s.where, r))
}

// holdsAny reports whether one of conditions holds for a row. They are in order, so that
// one that asks for a value is looked up among thousands.
func holdsAny(where []ovs.Condition, r *ovs.Row) bool {
	for len(where) > 0 {
		first := &where[0]
		n := sort.Search(len(where), func(i int) bool {
			return where[i].Column != first.Column || where[i].Function != first.Function
		})
		if anyHolds(where[:n], r.Datum(first.Column)) {
			return true
		}
		where = where[n:]
	}
	return false
}

// anyHolds is holdsAny of conditions of one column with one function.
func anyHolds(where []ovs.Condition, d ovs.Datum) bool {
	has := func(arg ovs.Datum) bool {
		_, found := slices.BinarySearchFunc(where, arg, func(c ovs.Condition, arg ovs.Datum) int { return ovs.CompareDatums(c.Arg, arg) })
		return found
	}
	switch {
	case where[0].Function == ovs.Equal:
		return has(d)
	case where[0].Function == ovs.Includes && len(d.Keys) < len(where): // else it is faster to look for each in d
		for i := range d.Keys {
			one := ovs.Datum{Keys: d.Keys[i : i+1]}
			if d.Values != nil {
				one.Values = d.Values[i : i+1]
			}
			if has(one) {
				return true
			}
		}
		// What is left asks for several values, for it comes last, or for none.
		n := sort.Search(len(where), func(i int) bool { return len(where[i].Arg.Keys) > 1 })
		if len(where[0].Arg.Keys) == 0 {
			return true
		}
		where = where[n:]
	}
	for i := range where {
		if where[i].HoldsFor(d) {
			return true
		}
	}
	return false
}

// looksUp reports whether a condition is found among others by what a row has.
func looksUp(c *ovs.Condition) bool {
	return c.Function == ovs.Equal || c.Function == ovs.Includes && len(c.Arg.Keys) == 1
}

// compareConditions orders conditions by column, function and argument.
func compareConditions(a, b ovs.Condition) int {
	return cmp.Or(cmp.Compare(a.Column, b.Column), cmp.Compare(a.Function, b.Function), ovs.CompareDatums(a.Arg, b.Arg))
}

func (m *matcher) init(x *shape) {
	*m = matcher{made: m.made, turn: m.turn, seed: maphash.MakeSeed(), tables: make([]tableSpecs, len(x.schema.Tables)), specs: map[string]*spec{}, encs: map[string]*encoder{}}
	for i := range m.tables {
		m.tables[i] = tableSpecs{byValue: map[uint64][]*spec{}, columns: map[int]*soughtColumn{}}
	}
}

// asks is what a condition asks for; false: something that no value leads to.
func asks(c *ovs.Condition) (sought, bool) {
	s := sought{column: c.Column}
	if c.Column < 0 {
		return s, false
	}
	keys, values := c.Arg.Keys, c.Arg.Values
	switch {
	case c.Function == ovs.Includes && len(keys) == 1 && len(values) == 1:
		s.way, s.key, s.value = mapped, keys[0], values[0]
	case c.Function == ovs.Includes && len(keys) == 1:
		s.way, s.key = among, keys[0]
	case c.Function == ovs.Equal && len(keys) == 1 && len(values) == 0:
		s.way, s.key = exactly, keys[0]
	case c.Function == ovs.Equal && len(keys) == 0:
		s.way = empty
	default:
		return s, false
	}
	return s, true
}

// add has a spec be found.
func (m *matcher) add(s *spec) {
	m.specs[s.key] = s
	t := &m.tables[s.table]
	if !s.all {
		all := make([]sought, 0, len(s.where))
		for i := range s.where {
			a, ok := asks(&s.where[i])
			if !ok {
				all = nil
				break
			}
			all = append(all, a)
		}
		if len(all) == len(s.where) {
			for _, a := range all {
				h := maphash.Comparable(m.seed, a)
				t.byValue[h] = append(t.byValue[h], s)
				t.sought(a, 1)
			}
			return
		}
	}
	t.looked = append(t.looked, s)
}

// remove forgets a spec that nobody has any more.
func (m *matcher) remove(s *spec) {
	delete(m.specs, s.key)
	if s.encoder.specs--; s.encoder.specs == 0 {
		delete(m.encs, s.encoder.key)
	}
	t := &m.tables[s.table]
	for i := range s.where {
		a, ok := asks(&s.where[i])
		if !ok {
			continue
		}
		h := maphash.Comparable(m.seed, a)
		if list, found := without(t.byValue[h], s); found {
			t.sought(a, -1)
			if t.byValue[h] = list; len(list) == 0 {
				delete(t.byValue, h)
			}
		}
	}
	t.looked, _ = without(t.looked, s)
}

func without(list []*spec, s *spec) ([]*spec, bool) {
	for i := range list {
		if list[i] == s {
			list[i] = list[len(list)-1]
			list[len(list)-1] = nil
			return list[:len(list)-1], true
		}
	}
	return list, false
}

func (t *tableSpecs) sought(a sought, n int) {
	c := t.columns[a.column]
	if c == nil {
		c = &soughtColumn{}
		t.columns[a.column] = c
	}
	if a.way == exactly || a.way == empty {
		c.exact += n
	} else {
		c.within += n
	}
	if c.exact == 0 && c.within == 0 {
		delete(t.columns, a.column)
	}
}

// each calls f with the specs that may have a row.
func (t *tableSpecs) each(seed maphash.Seed, r *ovs.Row, f func(*spec)) {
	if r == nil {
		return
	}
	find := func(a sought) {
		for _, s := range t.byValue[maphash.Comparable(seed, a)] {
			f(s)
		}
	}
	for column, c := range t.columns {
		d := &r.Columns[column]
		if c.exact > 0 {
			switch len(d.Keys) {
			case 0:
				find(sought{column: column, way: empty})
			case 1:
				find(sought{column: column, way: exactly, key: d.Keys[0]})
			}
		}
		if c.within == 0 {
			continue
		}
		for i, k := range d.Keys {
			find(sought{column: column, way: among, key: k})
			if len(d.Values) > 0 {
				find(sought{column: column, way: mapped, key: k, value: d.Values[i]})
			}
		}
	}
}

// match tells all monitors of a change that it concerns.
func (m *matcher) match(c *change) {
	if len(m.specs) == 0 {
		return
	}
	var hits []*spec
	for i := range c.rows {
		row := &c.rows[i]
		t := &m.tables[row.table]
		m.turn++
		look := func(s *spec) {
			if s.seen != m.turn {
				s.seen = m.turn
				if s.asked && (s.holds(row.old) || s.holds(row.new)) {
					s.kept, s.asked = nil, false // also for kinds of changes that nobody is told of
				}
				if s.note(row) && !s.hit {
					s.hit = true
					hits = append(hits, s)
				}
			}
		}
		for _, s := range t.looked {
			look(s)
		}
		t.each(m.seed, row.old, look)
		t.each(m.seed, row.new, look)
	}
	deliver(hits, c)
	for _, s := range hits {
		s.hit, s.found = false, nil
	}
}

// note adds what a row's change is to the monitors of the spec, and reports whether it
// is anything.
func (s *spec) note(row *rowChange) bool {
	kind, ok := kindOf(s.holds(row.old), s.holds(row.new))
	if !ok {
		return false
	}
	b := s.encoder.change(row, kind)
	if len(b) == 0 {
		return false
	}
	if len(s.found) > 0 {
		s.found = append(s.found, ',')
	}
	s.found = append(s.found, b...)
	return true
}

func kindOf(was, is bool) (kind, bool) {
	switch {
	case was && is:
		return modify, true
	case is:
		return insert, true
	case was:
		return remove, true
	}
	return 0, false
}
