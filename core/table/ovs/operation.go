package ovs

import "time"

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

// ParseTransaction parses the operations of a transaction (the params behind the
// name of the database) and checks them against the schema. New uuids are taken
// from uuid. Parsing ends with the first operation that has an error of its own,
// as [OpFail]: those before it are still to be executed, for their results, and
// those behind it are not reached. It fails as a whole only where a limit is passed.
func ParseTransaction(s *Schema, ops []Value, uuid func() UUID) ([]Operation, *Error) {
	if len(ops) > MaxOperations {
		return nil, Errorf(ResourcesExhausted, "a transaction has at most %d operations, not %d", MaxOperations, len(ops))
	}
	p := transactionParser{schema: s, uuid: uuid}
	list := make([]Operation, 0, len(ops))
	for i, v := range ops {
		var o Operation
		if err := p.operation(v, i+1, len(ops), &o); err != nil {
			return append(list, Operation{Op: OpFail, Err: err}), nil
		}
		list = append(list, o)
	}
	return list, nil
}
