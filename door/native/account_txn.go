package native

import (
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/audit"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
)

// changedBy are the names of what a transaction that has succeeded has changed.
func changedBy(in *pb.TxnRequest, r *core.Result) (names audit.Names) {
	if r.Idle || r.Txn == nil {
		return names
	}
	ops := in.Then
	if r.Txn.Unmet > 0 {
		ops = in.Else
	}
	for i, op := range ops {
		if !stepWrites(op) {
			continue
		}
		if len(r.Txn.Results) == len(ops) { // else the answer is repeated, and has none
			of := r.Txn.Results[i]
			of.Index = r.Index
			if o := (operation{action: callOfStep(op).Action()}); !o.changed(&of) {
				continue
			}
		}
		names.AddOf(func() string { return subjectOf(messageOf(op)) })
	}
	return names
}

// txnSubject is what a transaction is about: what it may change, or what it reads where that
// is nothing.
func txnSubject(in *pb.TxnRequest) string {
	var writes, reads audit.Names
	for _, ops := range [][]*pb.TxnOperation{in.Then, in.Else} {
		for _, op := range ops {
			subject := func() string { return subjectOf(messageOf(op)) }
			if stepWrites(op) {
				writes.AddOf(subject)
			} else {
				reads.AddOf(subject)
			}
		}
	}
	if writes.None() {
		return reads.String()
	}
	return writes.String()
}

// stepWrites reports whether an operation of a transaction may change something.
func stepWrites(op *pb.TxnOperation) bool {
	c := callOfStep(op)
	return c != calls.GetKey && c != calls.ListKeys
}

// messageOf is the message of an operation of a transaction; nil: it has none.
func messageOf(op *pb.TxnOperation) any {
	switch is := op.GetOp().(type) {
	case *pb.TxnOperation_Claim:
		return is.Claim
	case *pb.TxnOperation_Release:
		return is.Release
	case *pb.TxnOperation_Get:
		return is.Get
	case *pb.TxnOperation_List:
		return is.List
	case *pb.TxnOperation_Put:
		return is.Put
	case *pb.TxnOperation_Lock:
		return is.Lock
	case *pb.TxnOperation_Unlock:
		return is.Unlock
	case *pb.TxnOperation_Delete:
		return is.Delete
	}
	return nil
}
