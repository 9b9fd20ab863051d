package ovs

// Unlimited is the Max of a type without a limit.
const Unlimited = int(^uint(0) >> 1)

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
	MinReal, MaxReal       float64 // of Real
	MinLength, MaxLength   int     // of String, in characters

	RefTable string // of a uuid
	Ref      RefKind
	Table    int // index of RefTable in the schema; -1 if it refers to none
}

// Type is that of a column.
type Type struct {
	Key, Value BaseType // Value.Kind is Void but for maps
	Min, Max   int      // elements: Min 0 or 1, Max at least 1, or Unlimited
}

// IsMap reports whether t is of pairs.
func (t *Type) IsMap() bool { return t.Value.Kind != Void }

// IsSet reports whether t is of atoms other than exactly one.
func (t *Type) IsSet() bool { return t.Value.Kind == Void && (t.Min != 1 || t.Max != 1) }

// IsScalar reports whether t is of exactly one atom.
func (t *Type) IsScalar() bool { return t.Value.Kind == Void && t.Min == 1 && t.Max == 1 }

// IsOptional reports whether t is of one atom or none.
func (t *Type) IsOptional() bool { return t.Value.Kind == Void && t.Min == 0 && t.Max == 1 }
