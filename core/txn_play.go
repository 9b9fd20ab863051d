package core

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Transacted is what the tables and the view of a family have alike if it takes
// part in transactions, so that a transaction means the same on either.
type Transacted interface {
	// Holds judges a condition.
	Holds(r *Reading, condition []byte) Verdict
	// Idle returns what an operation answers if it changes nothing, and whether that is
	// so. open reports whether a session is open. It refuses what may be no part of a
	// transaction.
	Idle(r *Reading, op []byte, open func(incumbent.SessionID) bool) (Result, bool)
}

// Undoable are the tables of a family that takes part in transactions.
type Undoable interface {
	Transacted
	// Mark begins to remember how the tables are. It costs no more than a look.
	Mark()
	// Settle ends that: with everything as it is, or (back) as it was at Mark.
	Settle(back bool)
}

// Granting are such tables of which operations may begin holdings.
type Granting interface {
	Undoable
	// Grants is how many an operation begins at most: see [Exec.Token].
	Grants(op []byte) int
}

// Verdict is what became of a condition.
type Verdict struct {
	Holds bool
	Err   *incumbent.Error // it cannot be judged
}

// Reading bounds what one transaction reads.
type Reading struct{ records, bytes int }

// Record counts a record that is looked at, and the bytes of it that are part of the
// answer. The error is TooLarge.
func (r *Reading) Record(bytes int) *incumbent.Error {
	if r == nil {
		return nil
	}
	r.records++
	r.bytes += bytes
	switch {
	case r.records > MaxTxnRecords:
		return tooLarge("records that the transaction looks at", "MaxTxnRecords", MaxTxnRecords)
	case r.bytes > MaxTxnReadBytes:
		return tooLarge("bytes that the transaction reads", "MaxTxnReadBytes", MaxTxnReadBytes)
	}
	return nil
}

// stage is what a transaction is played on: the state, or a view of it.
type stage interface {
	// transacted returns a family, nil if it is not there or takes no part.
	transacted(n wire.Number) Transacted
	open(id incumbent.SessionID) bool
	// begin is told what will be executed, before the first operation.
	begin(ops *steps)
	// operate executes an operation; last: none follows. false: the stage is to look
	// at, and the operation would change it.
	operate(r *Reading, num wire.Number, op []byte, last bool) (Result, bool)
}

// play executes a transaction. false: it would change what is only to look at.
func (t *txn) play(on stage, r *Reading) (res Result, done bool) {
	out := &TxnResult{}
	ops := t.then
	for q, n := t.conditions, 1; ; n++ {
		num, says, more := q.next()
		if !more {
			break
		}
		v := judge(on, r, num, says)
		if v.Err != nil {
			return Result{Err: at("condition", n, v.Err)}, true
		}
		if !v.Holds {
			out.Unmet, ops = n, t.otherwise
			break
		}
	}
	on.begin(&ops)
	out.Results = make([]Result, 0, ops.count)
	for n := 1; n <= ops.count; n++ {
		num, op, _ := ops.next()
		r, ok := on.operate(r, num, op, n == ops.count && !t.all)
		switch {
		case !ok:
			return Result{}, false
		case r.Err == nil:
			out.Results = append(out.Results, r)
		default:
			out.Failures = append(out.Failures, Failure{n, r})
		}
		if r.Err != nil && !t.all {
			break
		}
	}
	if len(out.Failures) == 0 {
		return Result{Txn: out}, true
	}
	first := out.Failures[0]
	if out.Failed, out.Results = first.Operation, nil; !t.all {
		out.Failures = nil
	}
	return Result{Err: at("operation", first.Operation, first.Result.Err), Txn: out}, true
}

// at says which step an error is of.
func at(what string, n int, err *incumbent.Error) *incumbent.Error {
	e := incumbent.Errorf(err.Kind, "%s %d: %s", what, n, err.Message)
	e.Hint = err.Hint
	return e
}

func judge(on stage, r *Reading, num wire.Number, says []byte) Verdict {
	if err := r.Record(0); err != nil {
		return Verdict{Err: err}
	}
	if num == condSession {
		return judgeSession(on, says)
	}
	f := on.transacted(num)
	if f == nil {
		return Verdict{Err: fail(incumbent.Invalid, "of a kind that is not kept here")}
	}
	return f.Holds(r, says)
}

func judgeSession(on stage, says []byte) Verdict {
	var id incumbent.SessionID
	r := wire.Read(says)
	f, ok := r.Next()
	if _, more := r.Next(); !ok || more || r.Bad() || f.Num != 1 || !f.Session(&id) {
		return Verdict{Err: fail(incumbent.Invalid, "malformed")}
	}
	return Verdict{Holds: on.open(id)}
}

// Try plays a transaction on the view, as it would be played on the state. done
// reports whether that changes nothing, so that res is the answer as far as this
// view can tell; what claims or releases leases never is.
func (v *View) Try(b Txn) (res Result, done bool) {
	t, err := decodeTxn(b)
	if err != nil {
		return Result{Index: v.Index(), Err: err}, true
	}
	if len(v.members) > 0 && b.schema() > uint64(v.activeSchema()) {
		return Result{}, false // the state refuses it: a member does not know its schema
	}
	res, done = t.play(viewStage{v, b.schema()}, new(Reading))
	res.Index = v.Index()
	return res, done
}

type viewStage struct {
	v      *View
	schema uint64 // that the transaction names
}

func (s viewStage) open(id incumbent.SessionID) bool { return s.v.session(id) != nil }
func (viewStage) begin(*steps)                       {}

func (s viewStage) transacted(n wire.Number) Transacted {
	t, _ := s.v.known(n, s.schema).(Transacted)
	return t
}

func (s viewStage) operate(r *Reading, num wire.Number, op []byte, _ bool) (Result, bool) {
	f := s.transacted(num)
	if f == nil {
		return Result{Err: fail(incumbent.Invalid, "of a kind that is not kept here, or no part of a transaction")}, true
	}
	return f.Idle(r, op, s.open)
}
