package ovs

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"unicode/utf8"
)

// Unlimited is the Max of a type without a limit.
const Unlimited = math.MaxInt

// RefKind says what a reference means.
type RefKind uint8

// Kinds of references.
const (
	NoRef  RefKind = iota
	Strong         // keeps its row, and must have one
	Weak           // goes when its row goes
)

// BaseType is the type of keys or of values.
type BaseType struct {
	Kind Kind   // Void for the values of a set
	Enum []Atom // sorted; empty if all are allowed

	MinInteger, MaxInteger int64   // of Integer
	MinReal, MaxReal       float64 // of Real; infinite where there is no limit
	MinLength, MaxLength   int     // of String, in characters

	RefTable string // of a uuid
	Ref      RefKind
	Table    int // index of RefTable in the schema; -1 if it refers to none
}

// unconstrained is a base type that allows everything of its kind.
func unconstrained(k Kind) BaseType {
	return BaseType{
		Kind: k, MinInteger: math.MinInt64, MaxInteger: math.MaxInt64,
		MinReal: math.Inf(-1), MaxReal: math.Inf(1), MaxLength: math.MaxUint32, Table: -1,
	}
}

// Type is that of a column.
type Type struct {
	Key, Value BaseType // Value.Kind is Void but for maps
	Min, Max   int      // elements: Min 0 or 1, Max at least 1, or Unlimited
}

// IsMap reports whether t is of pairs.
func (t *Type) IsMap() bool { return t.Value.Kind != Void }

// IsScalar reports whether t is of exactly one atom.
func (t *Type) IsScalar() bool { return t.Value.Kind == Void && t.Min == 1 && t.Max == 1 }

// IsOptional reports whether t is of one atom or none.
func (t *Type) IsOptional() bool { return t.Value.Kind == Void && t.Min == 0 && t.Max == 1 }

// English names the type in errors, without its constraints.
func (t *Type) English() string {
	if t.IsScalar() {
		return t.Key.Kind.String()
	}
	var b strings.Builder
	b.WriteString("set of ")
	if t.IsMap() {
		b.Reset()
		b.WriteString("map of ")
	}
	switch {
	case t.Max == Unlimited && t.Min > 0:
		fmt.Fprintf(&b, "%d or more ", t.Min)
	case t.Max == Unlimited:
	case t.Min > 0:
		fmt.Fprintf(&b, "%d to %d ", t.Min, t.Max)
	default:
		fmt.Fprintf(&b, "up to %d ", t.Max)
	}
	if t.IsMap() {
		fmt.Fprintf(&b, "(%s, %s) pairs", t.Key.Kind, t.Value.Kind)
	} else {
		fmt.Fprintf(&b, "%ss", t.Key.Kind)
	}
	return b.String()
}

// check reports whether the constraints allow an atom of the type's kind.
func (t *BaseType) check(a Atom) *Error {
	if len(t.Enum) > 0 {
		if _, ok := slices.BinarySearchFunc(t.Enum, a, Compare); !ok {
			return t.notInEnum(a)
		}
	}
	switch t.Kind {
	case Integer:
		n := a.Int()
		if n < t.MinInteger || n > t.MaxInteger {
			return outOfRange(n, t.MinInteger, t.MaxInteger, t.MinInteger != math.MinInt64, t.MaxInteger != math.MaxInt64)
		}
	case Real:
		f := a.Float()
		if f < t.MinReal || f > t.MaxReal {
			return outOfRange(realText(f), realText(t.MinReal), realText(t.MaxReal), !math.IsInf(t.MinReal, -1), !math.IsInf(t.MaxReal, 1))
		}
	case String:
		return t.checkLength(a.s)
	}
	return nil
}

func outOfRange[T any](v, least, most T, hasLeast, hasMost bool) *Error {
	switch {
	case hasLeast && hasMost:
		return Errorf(ConstraintError, "%v is not in the valid range %v to %v (inclusive)", v, least, most)
	case hasLeast:
		return Errorf(ConstraintError, "%v is less than minimum allowed value %v", v, least)
	}
	return Errorf(ConstraintError, "%v is greater than maximum allowed value %v", v, most)
}

func realText(f float64) string { return string(appendReal(nil, f)) }

func (t *BaseType) checkLength(s string) *Error {
	if t.MinLength == 0 && len(s) <= t.MaxLength {
		return nil
	}
	switch n := utf8.RuneCountInString(s); {
	case n < t.MinLength:
		return Errorf(ConstraintError, "\"%s\" length %d is less than minimum allowed length %d", s, n, t.MinLength)
	case n > t.MaxLength:
		return Errorf(ConstraintError, "\"%s\" length %d is greater than maximum allowed length %d", s, n, t.MaxLength)
	}
	return nil
}

func (t *BaseType) notInEnum(a Atom) *Error {
	b := a.appendText(nil)
	b = append(b, " is not one of the allowed values (["...)
	for i, e := range t.Enum {
		if i > 0 {
			b = append(b, ", "...)
		}
		b = e.appendText(b)
	}
	return &Error{Name: ConstraintError, Details: string(append(b, "])"...))}
}

// appendText appends the atom as command lines and errors have it: texts in quotes
// only where they might be taken for something else.
func (a Atom) appendText(b []byte) []byte {
	switch {
	case a.kind == UUIDKind:
		return a.UUID().AppendText(b)
	case a.kind == String && !needsQuotes(a.s):
		return append(b, a.s...)
	}
	return a.AppendJSON(b)
}

func needsQuotes(s string) bool {
	if _, uuid := ParseUUID(s); uuid || s == "" || s == "true" || s == "false" {
		return true
	}
	for i := range len(s) {
		c := s[i]
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_'
		inside := c == '-' || c == '.' || c >= '0' && c <= '9'
		if !letter && (i == 0 || !inside) {
			return true
		}
	}
	return false
}
