package ovs

import (
	"math"
	"math/bits"
	"slices"
)

// Mutator is that of a mutation. Numbers are part of the binary form.
type Mutator uint8

// Mutators.
const (
	Add Mutator = iota + 1
	Subtract
	Multiply
	Divide
	Modulo
	Insert
	Delete
	numMutators
)

var mutatorNames = [...]string{"", "+=", "-=", "*=", "/=", "%=", "insert", "delete"}

func (m Mutator) String() string { return mutatorNames[m] }

// Mutation changes one column.
type Mutation struct {
	Column  int
	Mutator Mutator
	Arg     Datum // of Delete from a map: pairs, or only keys
}

// ParseMutation parses one mutation of a table's rows.
func ParseMutation(t *Table, v Value, named func(string) UUID) (m Mutation, err *Error) {
	if v.kind != Array || len(v.list) != 3 || v.list[0].kind != Text || v.list[1].kind != Text {
		return m, syntaxError(v, "Parse error in mutation.")
	}
	col := t.Column(v.list[0].text)
	if col == nil {
		return m, errorAt(v, UnknownColumn, "No column %s in table %s.", v.list[0].text, t.Name)
	}
	if !col.Mutable {
		return m, errorAt(v, ConstraintError, "Cannot mutate immutable column %s in table %s.", col.Name, t.Name)
	}
	m = Mutation{Column: col.index, Mutator: Mutator(max(0, slices.Index(mutatorNames[:], v.list[1].text)))}
	if m.Mutator == 0 {
		return m, Errorf(UnknownMutator, "No mutator named %s.", v.list[1].text)
	}
	typ, ok := m.Mutator.argType(&col.Type)
	if !ok {
		return m, syntaxError(v, "Type mismatch: \"%s\" operator may not be applied to column %s of type %s.", m.Mutator, col.Name, col.Type.English())
	}
	m.Arg, err = ParseDatum(v.list[2], &typ, named)
	if err != nil && m.Mutator == Delete && typ.IsMap() {
		// Pairs of a map may be named by their keys alone.
		typ.Value = BaseType{}
		m.Arg, err = ParseDatum(v.list[2], &typ, named)
	}
	return m, err
}

// argType returns the type of the argument where a column is of type t, false if
// the mutator is none for such columns.
func (m Mutator) argType(t *Type) (Type, bool) {
	typ := *t
	switch m {
	case Insert, Delete:
		typ.Min = 0
		if m == Delete {
			typ.Max = Unlimited
		}
		return typ, !t.IsScalar()
	case Modulo:
		if t.Key.Kind == Real {
			return typ, false
		}
	}
	if t.IsMap() || t.Key.Kind != Integer && t.Key.Kind != Real {
		return typ, false
	}
	return Type{Key: unconstrained(t.Key.Kind), Min: 1, Max: 1}, true
}

// Apply returns what the mutation makes of a datum of type t, the column's.
func (m *Mutation) Apply(t *Type, d Datum) (Datum, *Error) {
	switch m.Mutator {
	case Insert:
		d = d.Union(m.Arg)
		return d, d.checkCount(t)
	case Delete:
		d = d.Without(m.Arg)
		return d, d.checkCount(t)
	}
	r := Datum{Keys: make([]Atom, len(d.Keys))}
	for i, k := range d.Keys {
		a, err := m.Mutator.compute(k, m.Arg.Keys[0])
		if err == nil {
			err = t.Key.check(a)
		}
		if err != nil {
			return d, err
		}
		r.Keys[i] = a
	}
	if r.sort() != nil {
		return d, Errorf(ConstraintError, "Result of \"%s\" operation contains duplicates.", m.Mutator)
	}
	return r.tidy(), nil
}

func (m Mutator) compute(a, b Atom) (Atom, *Error) {
	if (m == Divide || m == Modulo) && b.hi == 0 {
		return a, Errorf(DomainError, "Division by zero.")
	}
	var ok bool
	if a.kind == Real {
		f := m.computeReal(a.Float(), b.Float())
		a, ok = RealAtom(f), !math.IsInf(f, 0) && !math.IsNaN(f)
	} else {
		var n int64
		n, ok = m.computeInteger(a.Int(), b.Int())
		a = IntegerAtom(n)
	}
	if !ok {
		return a, Errorf(RangeError, "Result of \"%s\" operation is out of range.", m)
	}
	return a, nil
}

func (m Mutator) computeReal(a, b float64) float64 {
	switch m {
	case Add:
		return a + b
	case Subtract:
		return a - b
	case Multiply:
		return a * b
	}
	return a / b
}

// computeInteger is false where the result has more than 64 bits.
func (m Mutator) computeInteger(a, b int64) (int64, bool) {
	switch m {
	case Add:
		n := a + b
		return n, (n > a) == (b > 0)
	case Subtract:
		n := a - b
		return n, (n < a) == (b > 0)
	case Multiply:
		return multiply(a, b)
	}
	if a == math.MinInt64 && b == -1 {
		return 0, false
	}
	if m == Divide {
		return a / b, true
	}
	return a % b, true
}

func multiply(a, b int64) (int64, bool) {
	hi, lo := bits.Mul64(magnitude(a), magnitude(b))
	if (a < 0) != (b < 0) {
		return int64(-lo), hi == 0 && lo <= 1<<63
	}
	return int64(lo), hi == 0 && lo < 1<<63
}

func magnitude(n int64) uint64 {
	if n < 0 {
		return -uint64(n)
	}
	return uint64(n)
}
