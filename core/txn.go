package core

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// txnNumber is the field of a transaction in a Command, among those of families:
// none has it.
const txnNumber wire.Number = 42

// condSession is the number, in a transaction, of the condition that is core's own.
// Those from firstFamily on are a family's.
const condSession wire.Number = 2

// TxnCommand does several things or none, guarded by what its caller saw.
//
// If all conditions hold the operations of Then are executed, else those of Else:
// in their order, each on what the ones before it left, all under one index. If
// one fails nothing of the transaction has happened. An operation is a command
// without meta of a family that takes part ([Transacted]).
//
// The answer has a [TxnResult]. Its index is that under which all was told; if
// the operations can grant leases ([Granting]), that is as many indexes behind the first as
// there may be grants but one, and each token is one of those indexes.
type TxnCommand struct {
	If   []Condition
	Then []Command
	Else []Command
	// All has the operations behind one that fails tried, too, though nothing of the
	// transaction happens, so that [TxnResult.Failures] has all that fail.
	All bool
}

// Condition is something that holds for a state, or does not.
type Condition interface {
	// Condition returns whose it is, the number of a family and its schema, and what it says.
	Condition() (of wire.Number, schema uint32, says []byte)
}

// IfOpen holds while a session is open.
type IfOpen struct{ ID incumbent.SessionID }

// Condition implements [Condition].
func (c IfOpen) Condition() (wire.Number, uint32, []byte) {
	var w wire.Writer
	w.Session(1, c.ID)
	return condSession, familySchema, w.B
}

// TxnResult is what a transaction answers besides its error, which is that of the
// operation that failed. It is kept with a key but for Results.
type TxnResult struct {
	Unmet   int      // the first condition that did not hold, from 1; 0: all held
	Failed  int      // the operation that failed, from 1; 0: none did
	Results []Result // of each operation, in their order; none if one failed

	Failures []Failure // of a transaction with All, in their order; not kept with a key
}

// Failure is an operation that failed: where it stands, from 1, and its answer.
type Failure struct {
	Operation int
	Result    Result
}

// Txn is a transaction as the log has it, without meta:
//
//	1  conditions: fields one behind the other, each with the number of whose it is
//	2  then: operations, each the field that it is in a Command
//	3  else: the same
//	4  flag: all that fails is told
//	5  the schema that its conditions and operations need, if that is a later one than its own
type Txn []byte

// Pack returns the transaction as the log has it.
func (c TxnCommand) Pack() Txn {
	var w wire.Writer
	schema := uint64(familySchema)
	if len(c.If) > 0 {
		m := w.Begin(1)
		for _, is := range c.If {
			num, needs, says := is.Condition()
			schema = max(schema, uint64(needs))
			w.B = protowire.AppendTag(w.B, num, protowire.BytesType)
			w.B = protowire.AppendBytes(w.B, says)
		}
		w.End(m)
	}
	pack := func(num wire.Number, ops []Command) {
		if len(ops) == 0 {
			return
		}
		m := w.Begin(num)
		for _, op := range ops {
			b := op.Encode(Meta{}) // its schema, then the operation
			_, _, n := protowire.ConsumeField(b)
			if r := wire.Read(b); n > 0 {
				f, _ := r.Next()
				schema = max(schema, f.N)
			}
			w.B = append(w.B, b[max(n, 0):]...)
		}
		w.End(m)
	}
	pack(2, c.Then)
	pack(3, c.Else)
	w.Flag(4, c.All)
	if schema > familySchema {
		w.Uint(5, schema)
	}
	return w.B
}

// Encode implements [Command].
func (c TxnCommand) Encode(meta Meta) []byte { return c.Pack().Encode(meta) }

// Encode implements [Command].
func (t Txn) Encode(meta Meta) []byte {
	return encodeBytes(t.schema(), meta, txnNumber, t)
}

// schema is what all members must know to execute the transaction.
func (t Txn) schema() uint64 {
	r := wire.Read(t)
	for {
		f, more := r.Next()
		if !more {
			return familySchema
		}
		if f.Num == 5 {
			return max(f.N, familySchema)
		}
	}
}

// steps are conditions or operations as they are encoded, with how many they are.
type steps struct {
	b     []byte
	count int
}

// next takes the first step off. It is well-formed: see count.
func (q *steps) next() (num wire.Number, says []byte, more bool) {
	if len(q.b) == 0 {
		return 0, nil, false
	}
	num, _, n := protowire.ConsumeTag(q.b)
	says, m := protowire.ConsumeBytes(q.b[n:])
	q.b = q.b[n+m:]
	return num, says, true
}

// countSteps counts the steps that bytes are; false: they are none.
func countSteps(b []byte) (q steps, ok bool) {
	q.b = b
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 || typ != protowire.BytesType {
			return q, false
		}
		m := protowire.ConsumeFieldValue(num, typ, b[n:])
		if m < 0 {
			return q, false
		}
		q.count++
		b = b[n+m:]
	}
	return q, true
}

// txn is a decoded transaction.
type txn struct {
	conditions, then, otherwise steps
	all                         bool
}

func decodeTxn(b []byte) (t txn, err *incumbent.Error) {
	r := wire.Read(b)
	for {
		f, more := r.Next()
		if !more {
			if r.Bad() {
				return t, fail(incumbent.Invalid, "malformed transaction")
			}
			return t, nil
		}
		if f.Num > 3 {
			var schema uint64
			if f.Num == 4 && f.Flag(&t.all) || f.Num == 5 && f.Uint(&schema) {
				continue
			}
			return t, fail(incumbent.Invalid, "malformed transaction")
		}
		q, ok := countSteps(f.B)
		switch f.Num {
		case 1:
			t.conditions = q
		case 2:
			t.then = q
		case 3:
			t.otherwise = q
		default:
			ok = false
		}
		switch {
		case !ok || q.count == 0 || f.Type != protowire.BytesType:
			return t, fail(incumbent.Invalid, "malformed transaction")
		case q.count > MaxTxnSteps:
			return t, tooLarge("conditions, then or else of a transaction", "MaxTxnSteps", MaxTxnSteps)
		}
	}
}
