package ovs

// Function is that of a condition. Numbers are part of the binary form.
type Function uint8

// Functions of conditions.
const (
	Never  Function = iota // the condition is false
	Always                 // the condition is true
	Less
	LessOrEqual
	Equal
	NotEqual
	GreaterOrEqual
	Greater
	Includes
	Excludes
)

// Condition is one of a where. Without a column ([Never], [Always]) Column is 0.
type Condition struct {
	Column   int
	Function Function
	Arg      Datum
}

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
)

// Mutation changes one column.
type Mutation struct {
	Column  int
	Mutator Mutator
	Arg     Datum // of Delete from a map: pairs, or only keys
}
