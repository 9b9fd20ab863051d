package native

import (
	"cmp"
	"time"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// operation is one checked step, whether it came as a call of its own, in a
// batch or on a stream: what it may need permission for, and the command that
// it is. Extensions are not operations: they never touch the log.
type operation struct {
	action  auth.Action
	name    incumbent.Name // of the lease; zero: it is about the session alone
	holder  string
	token   incumbent.Token     // says whose it is where no holder is named
	session incumbent.SessionID // in whose name it is done
	key     *pb.Idempotency
	judged  incumbent.Index // says by which policies it was allowed: see [core.Meta]
	txn     *pb.TxnRequest  // of a transaction on a stream; nil: it is none
	command core.Command
	answer  func(f *former, r core.Result) *pb.OperationResult // of a success
}

// operationOf checks a step of p's and names the field that is wrong. It returns nil
// for an extension.
func operationOf(p auth.Principal, in *pb.Operation) (*operation, error) {
	o, err := stepOf(p, in)
	if o != nil {
		o.action = callOf(in).Action()
	}
	return o, err
}

func stepOf(p auth.Principal, o *pb.Operation) (*operation, error) {
	switch op := o.GetOp().(type) {
	case *pb.Operation_Claim:
		return claimOp(p, op.Claim)
	case *pb.Operation_Release:
		return releaseOp(op.Release)
	case *pb.Operation_Revoke:
		return revokeOp(op.Revoke)
	case *pb.Operation_Transfer:
		return transferOp(p, op.Transfer)
	case *pb.Operation_Pin:
		return pinOp(op.Pin)
	case *pb.Operation_Unpin:
		return unpinOp(op.Unpin)
	case *pb.Operation_LeaveQueue:
		return leaveQueueOp(op.LeaveQueue)
	case *pb.Operation_OpenSession:
		return openSessionOp(op.OpenSession)
	case *pb.Operation_CloseSession:
		return closeSessionOp(op.CloseSession)
	case *pb.Operation_Extend:
		return nil, nil
	}
	return nil, invalid("operation", "is empty or unknown to this member")
}

// setKey checks the idempotency key.
func (o *operation) setKey(k *pb.Idempotency) (*operation, error) {
	if k == nil || len(k.Key) == 0 && k.BaseIndex == 0 {
		return o, nil
	}
	if n := len(k.Key); n == 0 || n > core.MaxKeyBytes {
		return nil, invalid("idempotency.key", "has %d bytes; 1 to %d are allowed", n, core.MaxKeyBytes)
	}
	o.key = k
	return o, nil
}

func claimOp(p auth.Principal, r *pb.ClaimRequest) (*operation, error) {
	name, err := leaseName(r.Name)
	if err != nil {
		return nil, err
	}
	holder := cmp.Or(r.Holder, p.Holder())
	if err := holderOf("holder", holder); err != nil {
		return nil, err
	}
	session, err := sessionOf("session", r.Session)
	if err != nil {
		return nil, err
	}
	ttl, err := claimTTL(r)
	if err != nil {
		return nil, err
	}
	o := &operation{
		name: name, holder: holder, session: session,
		command: leases.ClaimCommand{Name: name, Holder: holder, Session: session, TTL: ttl, Wait: r.Wait, Critical: r.Critical},
		answer: func(f *former, r core.Result) *pb.OperationResult {
			return &pb.OperationResult{Result: &pb.OperationResult_Claim{Claim: f.claimed(r, ttl)}}
		},
	}
	return o.setKey(r.Idempotency)
}

func claimTTL(r *pb.ClaimRequest) (time.Duration, error) {
	switch {
	case r.Session == "" && r.Wait:
		return 0, invalid("wait", "needs a session: open one and name it")
	case r.Session == "":
		return ttlOf("ttl_ms", r.TtlMs)
	case r.TtlMs != 0:
		return 0, invalid("ttl_ms", "is %d, but the lease lives by its session; leave one of the two out", r.TtlMs)
	}
	return 0, nil
}

func releaseOp(r *pb.ReleaseRequest) (*operation, error) {
	name, err := leaseName(r.Name)
	if err != nil {
		return nil, err
	}
	if r.Holder != "" || r.Token == 0 {
		if err := holderOf("holder", r.Holder); err != nil {
			return nil, err
		}
	}
	session, err := sessionOf("session", r.Session)
	if err != nil {
		return nil, err
	}
	o := &operation{
		name: name, holder: r.Holder, token: incumbent.Token(r.Token), session: session,
		command: leases.ReleaseCommand{Name: name, Holder: r.Holder, Session: session, Token: incumbent.Token(r.Token)},
		answer: func(_ *former, r core.Result) *pb.OperationResult {
			done := &pb.ReleaseResponse{Index: uint64(r.Index), Released: leases.AnswerOf(r).Lease != nil && leases.AnswerOf(r).Lease.Modified == r.Index}
			return &pb.OperationResult{Result: &pb.OperationResult_Release{Release: done}}
		},
	}
	return o.setKey(r.Idempotency)
}

func revokeOp(r *pb.RevokeRequest) (*operation, error) {
	name, err := leaseName(r.Name)
	if err != nil {
		return nil, err
	}
	if err := incumbent.ValidateReason("by", r.By, core.MaxReasonBytes); err != nil {
		return nil, err
	}
	o := &operation{
		name:    name,
		command: leases.RevokeCommand{Name: name, Token: incumbent.Token(r.Token), By: r.By, AtDeadline: !r.Force},
		answer: func(f *former, r core.Result) *pb.OperationResult {
			done := &pb.RevokeResponse{Index: uint64(r.Index), Lease: f.lease(leases.AnswerOf(r).Lease)}
			return &pb.OperationResult{Result: &pb.OperationResult_Revoke{Revoke: done}}
		},
	}
	return o.setKey(r.Idempotency)
}

// transferOp lets who has no authority for a holder transfer to that one only where
// it waits, which somebody with authority has seen to.
func transferOp(p auth.Principal, r *pb.TransferRequest) (*operation, error) {
	name, err := leaseName(r.Name)
	if err != nil {
		return nil, err
	}
	if err := holderOf("holder", r.Holder); err != nil {
		return nil, err
	}
	session, err := sessionOf("session", r.Session)
	if err != nil {
		return nil, err
	}
	to, err := neededSession("to_session", r.ToSession)
	if err != nil {
		return nil, err
	}
	if r.ToHolder != "" {
		if err := holderOf("to_holder", r.ToHolder); err != nil {
			return nil, err
		}
	}
	o := &operation{
		name: name, holder: r.Holder, session: session,
		command: leases.TransferCommand{
			Name: name, Holder: r.Holder, Session: session, Token: incumbent.Token(r.Token), ToSession: to, ToHolder: r.ToHolder,
			Waiting: p.Kind != auth.Operator && !p.Is(r.ToHolder),
		},
		answer: func(f *former, r core.Result) *pb.OperationResult {
			done := &pb.TransferResponse{Index: uint64(r.Index), Lease: f.lease(leases.AnswerOf(r).Lease)}
			return &pb.OperationResult{Result: &pb.OperationResult_Transfer{Transfer: done}}
		},
	}
	return o.setKey(r.Idempotency)
}

func pinOp(r *pb.PinRequest) (*operation, error) {
	name, err := pinned(r.Name, r.Entity)
	if err != nil {
		return nil, err
	}
	o := &operation{
		name:    name,
		command: leases.PinCommand{Name: name, Entity: r.Entity},
		answer: func(f *former, r core.Result) *pb.OperationResult {
			done := &pb.PinResponse{Index: uint64(r.Index), Lease: f.lease(leases.AnswerOf(r).Lease)}
			return &pb.OperationResult{Result: &pb.OperationResult_Pin{Pin: done}}
		},
	}
	return o.setKey(r.Idempotency)
}

func unpinOp(r *pb.UnpinRequest) (*operation, error) {
	name, err := pinned(r.Name, r.Entity)
	if err != nil {
		return nil, err
	}
	o := &operation{
		name:    name,
		command: leases.UnpinCommand{Name: name, Entity: r.Entity},
		answer: func(f *former, r core.Result) *pb.OperationResult {
			done := &pb.UnpinResponse{Index: uint64(r.Index), Lease: f.lease(leases.AnswerOf(r).Lease)}
			return &pb.OperationResult{Result: &pb.OperationResult_Unpin{Unpin: done}}
		},
	}
	return o.setKey(r.Idempotency)
}

func pinned(n *pb.LeaseName, entity string) (incumbent.Name, error) {
	name, err := leaseName(n)
	if err != nil {
		return name, err
	}
	if err := incumbent.ValidatePin(entity); err != nil {
		return name, inField("entity", err)
	}
	return name, nil
}

func leaveQueueOp(r *pb.LeaveQueueRequest) (*operation, error) {
	name, err := leaseName(r.Name)
	if err != nil {
		return nil, err
	}
	session, err := neededSession("session", r.Session)
	if err != nil {
		return nil, err
	}
	if r.Holder != "" {
		if err := holderOf("holder", r.Holder); err != nil {
			return nil, err
		}
	}
	o := &operation{
		name: name, holder: r.Holder, session: session,
		command: leases.LeaveQueueCommand{Name: name, Session: session, Holder: r.Holder},
		answer: func(_ *former, r core.Result) *pb.OperationResult {
			done := &pb.LeaveQueueResponse{Index: uint64(r.Index)}
			return &pb.OperationResult{Result: &pb.OperationResult_LeaveQueue{LeaveQueue: done}}
		},
	}
	return o.setKey(r.Idempotency)
}

// openSessionOp lets the server choose the id where the request has none; such
// a request without a key is not safe to repeat.
func openSessionOp(r *pb.OpenSessionRequest) (*operation, error) {
	id, err := sessionOf("id", r.Id)
	if err != nil {
		return nil, err
	}
	if id.IsZero() {
		id = incumbent.NewSessionID()
	}
	var ttl time.Duration
	switch {
	case r.NoTtl && r.TtlMs != 0:
		return nil, invalid("no_ttl", "is set, but ttl_ms is %d; leave one of the two out", r.TtlMs)
	case !r.NoTtl:
		if ttl, err = ttlOf("ttl_ms", r.TtlMs); err != nil {
			return nil, err
		}
	}
	o := &operation{
		session: id,
		command: core.OpenSessionCommand{ID: id, TTL: ttl},
		answer: func(f *former, r core.Result) *pb.OperationResult {
			return &pb.OperationResult{Result: &pb.OperationResult_OpenSession{OpenSession: f.opened(r)}}
		},
	}
	return o.setKey(r.Idempotency)
}

func closeSessionOp(r *pb.CloseSessionRequest) (*operation, error) {
	id, err := neededSession("id", r.Id)
	if err != nil {
		return nil, err
	}
	if err := incumbent.ValidateReason("reason", r.Reason, core.MaxReasonBytes); err != nil {
		return nil, err
	}
	o := &operation{
		session: id,
		command: core.CloseSessionCommand{ID: id, Reason: r.Reason},
		answer: func(_ *former, r core.Result) *pb.OperationResult {
			done := &pb.CloseSessionResponse{Index: uint64(r.Index)}
			return &pb.OperationResult{Result: &pb.OperationResult_CloseSession{CloseSession: done}}
		},
	}
	return o.setKey(r.Idempotency)
}
