package ovs

import (
	"cmp"
	"encoding/binary"
	"math"
	"strings"
)

// Kind is that of an atom. Numbers are part of the binary form.
type Kind uint8

// Kinds of atoms.
const (
	Void    Kind = iota // none: the values of a set
	Integer             // 64 bits, signed
	Real
	Boolean
	String
	UUIDKind
)

var kindNames = [...]string{"void", "integer", "real", "boolean", "string", "uuid"}

func (k Kind) String() string { return kindNames[k] }

// Atom is one value. Equal atoms are ==.
type Atom struct {
	kind Kind
	s    string // of a String
	// The number of an Integer, the bits of a Real (never those of -0 or a NaN), 0
	// or 1 for a Boolean, the first half of a uuid; the second half of a uuid.
	hi, lo uint64
}

// IntegerAtom returns the atom of an integer.
func IntegerAtom(n int64) Atom { return Atom{kind: Integer, hi: uint64(n)} }

// RealAtom returns the atom of a real: -0 becomes 0. f must be a number.
func RealAtom(f float64) Atom {
	if f == 0 {
		f = 0
	}
	return Atom{kind: Real, hi: math.Float64bits(f + 0)}
}

// BooleanAtom returns the atom of a boolean.
func BooleanAtom(v bool) Atom {
	if v {
		return Atom{kind: Boolean, hi: 1}
	}
	return Atom{kind: Boolean}
}

// StringAtom returns the atom of a text, which is UTF-8 without a zero byte.
func StringAtom(s string) Atom { return Atom{kind: String, s: s} }

// UUIDAtom returns the atom of a uuid.
func UUIDAtom(u UUID) Atom {
	hi, lo := u.words()
	return Atom{kind: UUIDKind, hi: hi, lo: lo}
}

// Kind returns the kind; Void of the zero Atom.
func (a Atom) Kind() Kind { return a.kind }

// Int returns the number of an Integer.
func (a Atom) Int() int64 { return int64(a.hi) }

// Float returns the number of a Real.
func (a Atom) Float() float64 { return math.Float64frombits(a.hi) }

// Bool returns the value of a Boolean.
func (a Atom) Bool() bool { return a.hi == 1 }

// Text returns the text of a String.
func (a Atom) Text() string { return a.s }

// UUID returns the uuid of a UUIDKind.
func (a Atom) UUID() (u UUID) {
	binary.BigEndian.PutUint64(u[:8], a.hi)
	binary.BigEndian.PutUint64(u[8:], a.lo)
	return u
}

// Compare orders atoms of one kind: numbers by size, false before true, texts and
// uuids by their bytes. Atoms of different kinds are ordered by kind.
func Compare(a, b Atom) int {
	if a.kind != b.kind {
		return cmp.Compare(a.kind, b.kind)
	}
	switch a.kind {
	case Integer:
		return cmp.Compare(a.Int(), b.Int())
	case Real:
		return cmp.Compare(a.Float(), b.Float())
	case String:
		return strings.Compare(a.s, b.s)
	case UUIDKind:
		return cmp.Or(cmp.Compare(a.hi, b.hi), cmp.Compare(a.lo, b.lo))
	}
	return cmp.Compare(a.hi, b.hi)
}

// zeroAtom is the default of a kind.
func zeroAtom(k Kind) Atom { return Atom{kind: k} }
