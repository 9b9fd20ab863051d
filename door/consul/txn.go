package consul

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
)

// Limits of a transaction, as Consul's clients know them.
const (
	maxTxnOps   = 128       // operations
	maxTxnBytes = 512 << 10 // of its body
)

// txnOp is one operation as it was sent: one of the fields is there.
type txnOp struct {
	KV      *lenient[txnKV]
	Node    *lenient[txnNode]
	Service *lenient[txnService]
	Check   *lenient[txnCheck]
}

// lenient is what may have more fields than are known here: clients send records as they
// have got them.
type lenient[T any] struct{ T T }

// UnmarshalJSON implements [json.Unmarshaler].
func (l *lenient[T]) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &l.T) }

// txnStep is one operation, checked.
type txnStep struct {
	command core.Command
	writes  bool
	frees   bool
	action  auth.Action // of what writes, as records call it
	name    string      // of what it writes
	// result is what the operation answers; nil: nothing.
	result func(core.Result) []txnResult
	// why says of an operation that failed what its client is told.
	why func(core.Result) string
}

// txnResult is what one operation answers: one of the fields is there.
type txnResult struct {
	KV      json.RawMessage `json:",omitempty"`
	Node    any             `json:",omitempty"`
	Service any             `json:",omitempty"`
	Check   any             `json:",omitempty"`
}

// txnError says of one operation why it failed.
type txnError struct {
	OpIndex int
	What    string
}

// txnAnswer is the answer: one of the fields is there.
type txnAnswer struct {
	Results []txnResult
	Errors  []txnError
}

// txnRead is the answer to a transaction that only reads.
type txnRead struct {
	txnAnswer
	Index                 uint64
	LastContact           int64 // nanoseconds
	KnownLeader           bool
	ConsistencyLevel      string
	NotModified           bool
	Backend               int
	ResultsFilteredByACLs bool
}

// txnPut does several things or none.
func txnPut(_ *Door, r *request) {
	if n := len(r.body); n > maxTxnBytes {
		r.fail(http.StatusRequestEntityTooLarge, "Request body(%d bytes) too large, max size: %d bytes", n, maxTxnBytes)
		return
	}
	var ops []txnOp
	if err := decodeStrict(r.body, &ops); err != nil {
		r.fail(http.StatusBadRequest, "Failed to parse body: %v", err)
		return
	}
	if len(ops) > maxTxnOps {
		r.fail(http.StatusRequestEntityTooLarge, "Transaction contains too many operations (%d > %d)", len(ops), maxTxnOps)
		return
	}
	ops = slices.DeleteFunc(ops, func(op txnOp) bool { return op == txnOp{} }) // which say nothing
	play := func() {
		if steps, ok := r.txnSteps(ops); ok {
			r.transact(steps)
		}
	}
	if slices.ContainsFunc(ops, r.locksUnknown) {
		r.confirmed(play)
		return
	}
	play()
}

// txnSteps checks the operations. If they are not to be executed it has been answered.
func (r *request) txnSteps(ops []txnOp) (steps []txnStep, ok bool) {
	var wrong []txnError
	reads := true
	for i := range ops {
		step, err := r.txnStep(&ops[i])
		switch {
		case err == nil:
			steps = append(steps, step)
			reads = reads && !step.writes
		case incumbent.KindOf(err) == incumbent.Denied:
			r.failFor(err)
			return nil, false
		default:
			wrong = append(wrong, txnError{i, textOf(err)})
			reads = reads && ops[i].KV != nil && !changesKeys(ops[i].KV.T.Verb)
		}
	}
	switch {
	case len(wrong) == 0:
	case reads: // it has not been read then
		r.setHeader("X-Consul-Knownleader", "false")
		r.setHeader("X-Consul-Lastcontact", "0")
		r.txnFailed(txnRead{txnAnswer: txnAnswer{Errors: wrong}})
	default:
		r.txnFailed(txnAnswer{Errors: wrong})
	}
	return steps, len(wrong) == 0
}

func (r *request) txnStep(op *txnOp) (txnStep, error) {
	switch {
	case op.KV != nil:
		return r.keyStep(&op.KV.T)
	case op.Node != nil:
		return r.nodeStep(&op.Node.T)
	case op.Service != nil:
		return r.serviceStep(&op.Service.T)
	case op.Check != nil:
		return r.checkStep(&op.Check.T)
	}
	return txnStep{}, incumbent.Errorf(incumbent.Invalid, "unknown operation type")
}

// transact executes a transaction, or answers it from a state of the consistency that was
// asked for if it only reads.
func (r *request) transact(steps []txnStep) {
	c := core.TxnCommand{All: true}
	writes, frees := 0, 0
	for i := range steps {
		c.Then = append(c.Then, steps[i].command)
		if steps[i].writes {
			writes++
		}
		if steps[i].frees {
			frees++
		}
	}
	t := c.Pack()
	if writes == 0 {
		r.fresh(func() {
			res, _ := r.door.view().Try(t)
			r.consistencyHeaders()
			r.txnAnswer(steps, res, true)
		})
		return
	}
	r.execute(func(call engine.Call, done func(core.Result)) {
		call.Reserve = frees == writes
		r.door.writes.Txn(call, t, true, false, done)
	}, func(res *core.Result) { r.settledTxn(steps, res) }, func(res core.Result) { r.txnAnswer(steps, res, false) })
}

// txnAnswer answers what a transaction did.
func (r *request) txnAnswer(steps []txnStep, res core.Result, reads bool) {
	switch {
	case res.Err == nil:
		out := txnAnswer{Results: []txnResult{}}
		for i := range steps {
			if steps[i].result != nil {
				out.Results = append(out.Results, steps[i].result(res.Txn.Results[i])...)
			}
		}
		if reads {
			r.json(http.StatusOK, readTxn(out))
			return
		}
		r.json(http.StatusOK, out)
	case res.Txn == nil || len(res.Txn.Failures) == 0 || res.Err.Kind == incumbent.TooLarge:
		r.failFor(res.Err)
	default:
		out := txnAnswer{Errors: failuresOf(steps, res.Txn.Failures)}
		if reads {
			r.txnFailed(readTxn(out))
			return
		}
		r.txnFailed(out)
	}
}

// txnFailed answers that nothing of a transaction has happened, and why.
func (r *request) txnFailed(v any) {
	b, err := r.encode(v)
	if err != nil {
		r.failFor(incumbent.Errorf(incumbent.Internal, "encode an answer: %w", err))
		return
	}
	r.bytes(http.StatusConflict, "application/json; charset=utf-8", b)
}

// readTxn is the answer to a transaction that only reads: it says of what state it is, as
// its headers do.
func readTxn(a txnAnswer) txnRead { return txnRead{txnAnswer: a, Index: 1, KnownLeader: true} }

// failuresOf says why operations failed. What is under a lock delay is found out before
// anything is tried, and is told alone.
func failuresOf(steps []txnStep, list []core.Failure) (all []txnError) {
	var delayed []txnError
	for _, f := range list {
		e := txnError{f.Operation - 1, steps[f.Operation-1].why(f.Result)}
		all = append(all, e)
		if underDelay(f.Result) {
			delayed = append(delayed, e)
		}
	}
	if len(delayed) > 0 {
		return delayed
	}
	return all
}
