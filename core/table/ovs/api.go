package ovs

// Holds reports whether the condition holds for a row.
func (c *Condition) Holds(r *Row) bool { return c.Function == Always }

// ParseCondition parses one condition of a table: of a transaction, where named
// may resolve names of new rows, or of a monitor, where it is nil.
func ParseCondition(t *Table, v Value, named func(string) UUID) (Condition, *Error) {
	return Condition{}, syntaxError(v, "Parse error in condition.")
}

// Apply returns what the mutation makes of a datum of type t.
func (m *Mutation) Apply(t *Type, d Datum) (Datum, *Error) { return d, nil }

// ParseSchema parses a schema and checks it.
func ParseSchema(text []byte) (*Schema, *Error) { return nil, Errorf(SyntaxError, "") }

// Datum is the value of a column: a set or a map, whose keys are sorted and
// unique. A single value is a set of one. It never changes once shared.
type Datum struct {
	Keys   []Atom
	Values []Atom // as many as Keys for a map; nil for a set
}

// Equal reports whether both say the same.
func (d Datum) Equal(o Datum) bool { return false }

// CompareDatums orders datums of one type, as select sorts rows.
func CompareDatums(a, b Datum) int { return 0 }

// ParseDatum parses a datum of type t and checks it. named resolves the names of
// new rows; without it there are none.
func ParseDatum(v Value, t *Type, named func(string) UUID) (Datum, *Error) { return Datum{}, nil }

// AppendJSON appends the datum: one element bare, else ["set",[…]] or ["map",[…]].
func (d Datum) AppendJSON(b []byte, t *Type) []byte { return b }

// Check reports whether d is of type t: kinds, order, number and constraints.
func (d Datum) Check(t *Type) *Error { return nil }

// Diff returns what changes old into new, as the modify of update2 has it: for
// types of at most one element new itself, else the symmetric difference, for maps
// the pairs that were added or changed, and those that were removed.
func Diff(old, new Datum, t *Type) Datum { return new }

// ApplyDiff returns what a difference makes of old; Diff's inverse.
func ApplyDiff(old, diff Datum, t *Type) (Datum, *Error) { return diff, nil }

// AppendBinary appends the binary form of a datum.
func (d Datum) AppendBinary(b []byte) []byte { return b }

// DecodeDatum reads the datum that b begins with, and returns the rest.
func DecodeDatum(b []byte) (d Datum, rest []byte, ok bool) { return d, b, false }

// AppendBinary appends the binary form of a row.
func (r *Row) AppendBinary(b []byte) []byte { return b }

// DecodeRow reads a row of t and checks its types: kinds and numbers of elements.
func DecodeRow(b []byte, t *Table) (*Row, bool) { return nil, false }

// AppendBinary appends the binary form of an operation. It has none for [OpFail].
func (o *Operation) AppendBinary(b []byte) []byte { return b }

// DecodeOperation reads an operation and checks it against the schema, as far as
// what executes it relies on it.
func DecodeOperation(b []byte, s *Schema) (o Operation, ok bool) { return o, false }

type transactionParser struct {
	schema *Schema
	uuid   func() UUID
}

func (p *transactionParser) operation(v Value, at, of int, o *Operation) *Error { return nil }
