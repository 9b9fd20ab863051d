package native

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
)

// txnService serves TransactionService; its method is documented in txn.proto. What
// its messages mean is in txn_plan.go.
type txnService struct{ d *Door }

// Txn does several things or none.
func (s txnService) Txn(ctx context.Context, r *connect.Request[pb.TxnRequest]) (*connect.Response[pb.TxnResponse], error) {
	return unary(s.d.transact(ctx, r.Header(), r.Msg))
}

func (d *Door) transact(ctx context.Context, h http.Header, in *pb.TxnRequest) (*pb.TxnResponse, error) {
	lane, steps := outlineOfTxn(in)
	if err := steps.within(); err != nil {
		return nil, d.callError(err)
	}
	ctx, cancel := d.deadline(ctx)
	defer cancel()
	done, err := d.admit(ctx, lane, steps.cost())
	if err != nil {
		return nil, d.callError(err)
	}
	defer done()
	if err := decode(in); err != nil {
		return nil, err
	}
	p, err := d.planOf(callerOf(ctx), in)
	if err != nil {
		return nil, d.callError(err)
	}
	r, err := d.execute(ctx, h, p, in.Idempotency)
	if err != nil {
		return nil, d.callError(err)
	}
	if r.Err != nil {
		return nil, d.txnError(r)
	}
	who := callerOf(ctx)
	names := changedBy(in, &r)
	who.control.said = said{idle: names.None(), subject: names.String()}
	return d.former(who).txnAnswer(in, r), nil
}

// txnSteps are how many there are in each list of a transaction.
type txnSteps struct{ conditions, then, otherwise int }

// stepsOf are those of a transaction that is decoded.
func stepsOf(in *pb.TxnRequest) txnSteps {
	return txnSteps{len(in.Conditions), len(in.Then), len(in.Else)}
}

// cost is what a lane counts: of the operations one list is executed.
func (s txnSteps) cost() int { return s.conditions + max(s.then, s.otherwise) }

// within refuses more than a transaction may have, before a lane counts them: one that
// costs more than a lane may have under way would shut all lanes before its own for
// everybody, and do nothing.
func (s txnSteps) within() error {
	for _, l := range []struct {
		name string
		n    int
	}{{"conditions", s.conditions}, {"then", s.then}, {"else", s.otherwise}} {
		if l.n > core.MaxTxnSteps {
			return incumbent.Errorf(incumbent.TooLarge, "%s: are %d, limit MaxTxnSteps is %d", l.name, l.n, core.MaxTxnSteps).
				WithHint("split what need not happen together")
		}
	}
	return nil
}

// outlineOfTxn is the lane of a transaction, and what it counts, before it is decoded or
// after.
func outlineOfTxn(in *pb.TxnRequest) (admit.Lane, txnSteps) {
	if len(in.ProtoReflect().GetUnknown()) == 0 {
		return laneOfTxn(in), stepsOf(in)
	}
	var n [fieldElse + 1]int // of what each field has
	lane := admit.NumLanes
	for field, c := range outline(in, callsOfSteps) {
		if field > fieldElse {
			continue // its idempotency
		}
		n[field]++
		if field != fieldConditions {
			lane = laneWithStep(lane, c)
		}
	}
	return laneOfSteps(lane), txnSteps{n[fieldConditions], n[fieldThen], n[fieldElse]}
}

// Fields of a TxnRequest.
const (
	fieldConditions = 1
	fieldThen       = 2
	fieldElse       = 3
)

// laneOfTxn is the lane of a transaction: what claims is refused as claims are, what
// only lets go goes on as releases do.
func laneOfTxn(in *pb.TxnRequest) admit.Lane {
	lane := admit.NumLanes
	for _, ops := range [][]*pb.TxnOperation{in.Then, in.Else} {
		for _, op := range ops {
			lane = laneWithStep(lane, callOfStep(op))
		}
	}
	return laneOfSteps(lane)
}

// laneWithStep is the lane of the operations so far and one more; NumLanes: of none.
func laneWithStep(lane admit.Lane, c calls.Call) admit.Lane {
	switch c {
	case calls.Claim, calls.DeleteKey, calls.Release:
		return min(lane, c.Lane())
	}
	return min(lane, calls.Txn.Lane())
}

// laneOfSteps is that of a transaction, given that of all its operations.
func laneOfSteps(lane admit.Lane) admit.Lane {
	if lane == admit.NumLanes {
		return calls.Txn.Lane() // it only looks
	}
	return lane
}

// callOfStep is the call that an operation of a transaction is.
func callOfStep(op *pb.TxnOperation) calls.Call {
	switch op.GetOp().(type) {
	case *pb.TxnOperation_Claim:
		return calls.Claim
	case *pb.TxnOperation_Release:
		return calls.Release
	case *pb.TxnOperation_Get:
		return calls.GetKey
	case *pb.TxnOperation_List:
		return calls.ListKeys
	case *pb.TxnOperation_Put:
		return calls.PutKey
	case *pb.TxnOperation_Lock:
		return calls.LockKey
	case *pb.TxnOperation_Unlock:
		return calls.UnlockKey
	case *pb.TxnOperation_Delete:
		return calls.DeleteKey
	}
	return calls.Txn // is none, and refused as what it is
}

// execute runs a checked transaction for a caller who waits.
func (d *Door) execute(ctx context.Context, h http.Header, p *plan, key *pb.Idempotency) (core.Result, error) {
	who := callerOf(ctx)
	o := &operation{action: auth.KeyWrite, command: p.txn}
	if err := d.setKey(o, key, h); err != nil {
		return core.Result{}, err
	}
	call := d.callOf(ctx, who, o)
	r, err := outcomeOf(ctx, "keys and leases", func(done func(core.Result)) { d.commit(call, o, p, done) })
	if err != nil && p.reads() {
		err = context.Cause(ctx)
	}
	return r, err
}

// commit runs a checked transaction: on a confirmed view if it changes nothing, once
// the one at hand says so, else by the log. done is as of [Door.writeKey].
func (d *Door) commit(call lease.Call, o *operation, p *plan, done func(core.Result)) {
	call.Judged = p.judged
	d.writes.Txn(familyCall(call, p.frees()), p.txn, o.first(), p.reads(), done)
}

// txnError is the error of a transaction of which nothing has happened.
func (d *Door) txnError(r core.Result) *connect.Error {
	ce := d.callError(r.Err)
	if r.Txn == nil || r.Txn.Failed == 0 {
		return ce
	}
	if detail, err := connect.NewErrorDetail(&pb.TxnFailure{Unmet: uint32(r.Txn.Unmet), Operation: uint32(r.Txn.Failed)}); err == nil {
		ce.AddDetail(detail)
	}
	return ce
}

// txnAnswer puts in a message what a transaction did.
func (f *former) txnAnswer(in *pb.TxnRequest, r core.Result) *pb.TxnResponse {
	out := &pb.TxnResponse{Index: uint64(r.Index), Repeated: r.Replayed}
	if r.Txn == nil {
		return out
	}
	out.Succeeded, out.Unmet = r.Txn.Unmet == 0, uint32(r.Txn.Unmet)
	ops := in.Then
	if !out.Succeeded {
		ops = in.Else
	}
	out.Results = make([]*pb.TxnResult, len(r.Txn.Results))
	for i := range r.Txn.Results {
		of := &r.Txn.Results[i]
		of.Index = r.Index
		out.Results[i] = f.txnResult(ops[i], of)
	}
	return out
}

// putDone is what every put of a transaction answers: its index is the transaction's.
var putDone = &pb.TxnResult{Result: &pb.TxnResult_Put{Put: &pb.PutResponse{}}}

// txnResult is what one operation answers. Entries that an operation stored come
// without their values, which the caller has.
func (f *former) txnResult(op *pb.TxnOperation, r *core.Result) *pb.TxnResult {
	e, _ := r.Record.(*kv.Entry)
	n, _ := r.Record.(int)
	switch in := op.GetOp().(type) {
	case *pb.TxnOperation_Get:
		return &pb.TxnResult{Result: &pb.TxnResult_Get{Get: &pb.GetKeyResponse{Entry: f.entry(e, false)}}}
	case *pb.TxnOperation_List:
		return &pb.TxnResult{Result: &pb.TxnResult_List{List: f.listed(in.List, r)}}
	case *pb.TxnOperation_Put:
		return putDone
	case *pb.TxnOperation_Delete:
		return &pb.TxnResult{Result: &pb.TxnResult_Delete{Delete: &pb.DeleteResponse{Deleted: uint32(n)}}}
	case *pb.TxnOperation_Lock:
		return &pb.TxnResult{Result: &pb.TxnResult_Lock{Lock: &pb.LockResponse{Entry: f.entry(e, true)}}}
	case *pb.TxnOperation_Unlock:
		return &pb.TxnResult{Result: &pb.TxnResult_Unlock{Unlock: &pb.UnlockResponse{Entry: f.entry(e, true)}}}
	case *pb.TxnOperation_Release:
		done := leases.AnswerOf(*r).Lease != nil && leases.AnswerOf(*r).Lease.Modified == r.Index
		return &pb.TxnResult{Result: &pb.TxnResult_Release{Release: &pb.ReleaseResponse{Released: done}}}
	case *pb.TxnOperation_Claim:
		c := f.claimed(*r, 0)
		if c.Index = 0; leases.AnswerOf(*r).Lease.Session.IsZero() {
			c.HeldMs = in.Claim.TtlMs
		}
		return &pb.TxnResult{Result: &pb.TxnResult_Claim{Claim: c}}
	}
	return &pb.TxnResult{}
}

func (f *former) listed(in *pb.ListKeysRequest, r *core.Result) *pb.ListKeysResponse {
	l, _ := r.Record.(*kv.Listing)
	if l == nil {
		return &pb.ListKeysResponse{}
	}
	out := &pb.ListKeysResponse{Entries: make([]*pb.KeyValue, len(l.Entries))}
	for i, e := range l.Entries {
		out.Entries[i] = f.entry(e, in.KeysOnly)
	}
	if l.More {
		out.Next = l.Entries[len(l.Entries)-1].Name
	}
	return out
}
