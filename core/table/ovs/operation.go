package ovs

import (
	"slices"
	"time"
)

// Op is what an operation does. Numbers are part of the binary form.
type Op uint8

// Operations.
const (
	OpFail Op = iota // what was asked for is no operation that can be executed: it fails with Err
	OpInsert
	OpSelect
	OpUpdate
	OpMutate
	OpDelete
	OpWait
	OpCommit
	OpAbort
	OpComment
	OpAssert
	numOps
)

// ColumnValue is the datum of one column.
type ColumnValue struct {
	Column int
	Value  Datum
}

// Operation is one of a transaction, checked against the schema.
type Operation struct {
	Op    Op
	Table int

	Where     []Condition   // select, update, mutate, delete, wait: all must hold
	Row       []ColumnValue // insert, update: sorted by column
	Mutations []Mutation    // in order
	Columns   []int         // select, wait: sorted; ColumnVersion and ColumnUUID come first
	Sort      []int         // select: sorted as Columns

	UUID  UUID // insert: the new row's
	Given bool // insert: the client chose the UUID: it must be new

	Rows       [][]ColumnValue // wait: each sorted by column; columns that are left out are at their default
	Equal      bool            // wait: until "=="
	Timeout    time.Duration   // wait, in ms
	HasTimeout bool            // wait: else for ever

	Text    string // comment: the text; assert: the lock's name
	Durable bool   // commit

	Err *Error // OpFail
}

// Fails reports whether one of the operations is [OpFail]: then the transaction fails,
// whatever the state is.
func Fails(ops []Operation) bool {
	return slices.ContainsFunc(ops, func(o Operation) bool { return o.Op == OpFail })
}
