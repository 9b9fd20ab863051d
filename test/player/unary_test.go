package player

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// caller makes calls to one member in one of the forms that the native door speaks.
type caller struct {
	m        *member
	form     string
	leases   incumbentv1connect.LeaseServiceClient
	sessions incumbentv1connect.SessionServiceClient
	cluster  incumbentv1connect.ClusterServiceClient
	keys     incumbentv1connect.KeyValueServiceClient
	txns     incumbentv1connect.TransactionServiceClient
	tables   incumbentv1connect.TableServiceClient
}

// callersOf returns a caller for each member and form. They share connections.
func callersOf(c *processes) (out [][]*caller, closeAll func()) {
	var multiplexed http.Protocols
	multiplexed.SetUnencryptedHTTP2(c.tls == nil)
	multiplexed.SetHTTP2(c.tls != nil)
	dial := (&net.Dialer{Timeout: patience}).DialContext
	http1 := &http.Transport{DialContext: dial, TLSClientConfig: c.tls.Clone(), MaxIdleConnsPerHost: 16}
	http2 := &http.Transport{DialContext: dial, TLSClientConfig: c.tls.Clone(), Protocols: &multiplexed}
	forms := []struct {
		name    string
		over    *http.Transport
		options []connect.ClientOption
	}{
		{"connect", http1, nil},
		{"json", http1, []connect.ClientOption{connect.WithProtoJSON()}},
		{"grpcweb", http1, []connect.ClientOption{connect.WithGRPCWeb()}},
		{"grpc", http2, []connect.ClientOption{connect.WithGRPC()}},
	}
	for _, m := range c.Members {
		var all []*caller
		for _, f := range forms {
			over := &http.Client{Transport: f.over}
			all = append(all, &caller{
				m: m, form: f.name,
				leases:   incumbentv1connect.NewLeaseServiceClient(over, m.URL, f.options...),
				sessions: incumbentv1connect.NewSessionServiceClient(over, m.URL, f.options...),
				cluster:  incumbentv1connect.NewClusterServiceClient(over, m.URL, f.options...),
				keys:     incumbentv1connect.NewKeyValueServiceClient(over, m.URL, f.options...),
				txns:     incumbentv1connect.NewTransactionServiceClient(over, m.URL, f.options...),
				tables:   incumbentv1connect.NewTableServiceClient(over, m.URL, f.options...),
			})
		}
		out = append(out, all)
	}
	return out, func() { http1.CloseIdleConnections(); http2.CloseIdleConnections() }
}

// errorOf is the error that a server of ours has written; nil for one of the
// transport.
func errorOf(err error) *pb.Error {
	var call *connect.Error
	if !errors.As(err, &call) {
		return nil
	}
	for _, d := range call.Details() {
		if m, err := d.Value(); err == nil {
			if e, ok := m.(*pb.Error); ok {
				return e
			}
		}
	}
	return nil
}

// do makes one call. ok is false if the transport failed, which a member may do
// that is killed; one that lives has to answer in time.
func do[Q, R any](ctx context.Context, c *call, m *member, f func(context.Context, *connect.Request[Q]) (*connect.Response[R], error), in *Q) (out *R, e *pb.Error, ok bool) {
	life := m.life()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	res, err := f(ctx, connect.NewRequest(in))
	if c.err = err; err == nil {
		return res.Msg, nil, true
	}
	if e := errorOf(err); e != nil {
		return nil, e, true
	}
	if ctx.Err() != nil && time.Since(c.sent) >= patience && m.life() == life {
		c.fail("%s does not answer %T in %v: %v", m.Name, in, patience, err)
	}
	// What no server of ours has written may be a broken connection, or what the
	// library says of a message that is none. Neither is the fault of ours.
	if code := connect.CodeOf(err); code == connect.CodeInternal && m.life() == life {
		c.fail("%s answers %T with %v", m.Name, in, err)
	}
	if connect.CodeOf(err) == connect.CodeInvalidArgument {
		return nil, &pb.Error{Kind: incumbent.Invalid.String(), Message: err.Error()}, true
	}
	return nil, nil, false
}

// operate makes an operation a call of its own.
func (k *caller) operate(ctx context.Context, c *call, op *pb.Operation) (*pb.OperationResult, bool) {
	r := &pb.OperationResult{}
	var ok bool
	switch o := op.Op.(type) {
	case *pb.Operation_Claim:
		var out *pb.ClaimResponse
		out, r.Error, ok = do(ctx, c, k.m, k.leases.Claim, o.Claim)
		r.Result = &pb.OperationResult_Claim{Claim: out}
	case *pb.Operation_Release:
		var out *pb.ReleaseResponse
		out, r.Error, ok = do(ctx, c, k.m, k.leases.Release, o.Release)
		r.Result = &pb.OperationResult_Release{Release: out}
	case *pb.Operation_Revoke:
		var out *pb.RevokeResponse
		out, r.Error, ok = do(ctx, c, k.m, k.leases.Revoke, o.Revoke)
		r.Result = &pb.OperationResult_Revoke{Revoke: out}
	case *pb.Operation_Transfer:
		var out *pb.TransferResponse
		out, r.Error, ok = do(ctx, c, k.m, k.leases.Transfer, o.Transfer)
		r.Result = &pb.OperationResult_Transfer{Transfer: out}
	case *pb.Operation_Pin:
		var out *pb.PinResponse
		out, r.Error, ok = do(ctx, c, k.m, k.leases.Pin, o.Pin)
		r.Result = &pb.OperationResult_Pin{Pin: out}
	case *pb.Operation_Unpin:
		var out *pb.UnpinResponse
		out, r.Error, ok = do(ctx, c, k.m, k.leases.Unpin, o.Unpin)
		r.Result = &pb.OperationResult_Unpin{Unpin: out}
	case *pb.Operation_LeaveQueue:
		var out *pb.LeaveQueueResponse
		out, r.Error, ok = do(ctx, c, k.m, k.leases.LeaveQueue, o.LeaveQueue)
		r.Result = &pb.OperationResult_LeaveQueue{LeaveQueue: out}
	case *pb.Operation_OpenSession:
		var out *pb.OpenSessionResponse
		out, r.Error, ok = do(ctx, c, k.m, k.sessions.OpenSession, o.OpenSession)
		r.Result = &pb.OperationResult_OpenSession{OpenSession: out}
	case *pb.Operation_CloseSession:
		var out *pb.CloseSessionResponse
		out, r.Error, ok = do(ctx, c, k.m, k.sessions.CloseSession, o.CloseSession)
		r.Result = &pb.OperationResult_CloseSession{CloseSession: out}
	case *pb.Operation_Extend:
		var out *pb.ExtendResponse
		out, r.Error, ok = do(ctx, c, k.m, k.leases.Extend, &pb.ExtendRequest{Extensions: []*pb.Extension{o.Extend}})
		if ok && r.Error == nil {
			if len(out.Results) != 1 {
				c.fail("%d results for one extension", len(out.Results))
				return nil, false
			}
			r.Result = &pb.OperationResult_Extend{Extend: out.Results[0]}
		}
	default: // an operation that names none comes in a batch alone
		return nil, false
	}
	return r, ok
}

// players of calls, each answered before the next.
type unaryPlayer struct {
	*play
	number int
}

func (p *unaryPlayer) run(ctx context.Context) {
	for step := 0; ctx.Err() == nil; step++ {
		d := p.table.dice(p.number, step)
		k := pick(d, pick(d, p.callers))
		c := p.book.begin(fmt.Sprintf("player %d, step %d, %s over %s", p.number, step, k.m.Name, k.form))
		p.step(ctx, d, k, c)
		p.rest(ctx, d)
	}
}

func (p *unaryPlayer) step(ctx context.Context, d dice, k *caller, c *call) {
	switch n := d.IntN(140); {
	case n >= 100:
		p.keys(ctx, d, k, c)
	case n < 48:
		op := d.operation()
		r := p.one(ctx, k, c, op, valid)
		if l := r.GetClaim().GetLease(); r.GetClaim().GetGranted() && d.oneIn(3) {
			p.elsewhere(ctx, d, l.GetToken())
		}
	case n < 56:
		p.one(ctx, k, c, d.invalid(), mustFail)
	case n < 58:
		p.one(ctx, k, c, d.odd(), oddEnough)
	case n < 61:
		p.twice(ctx, d, k, c)
	case n < 70:
		p.batch(ctx, k, c, d.operations())
	case n < 75:
		p.extend(ctx, d, k, c)
	case n < 83:
		p.get(ctx, d, k, c)
	case n < 86:
		p.list(ctx, d, k, c)
	case n < 91:
		p.session(ctx, d, k, c)
	case n < 94:
		p.wait(ctx, d, k, c)
	case n < 97:
		p.watch(ctx, d, k, c)
	default:
		p.operator(ctx, d, k, c)
	}
}

// one makes an operation a call of its own. It returns nil if nothing was answered.
func (p *unaryPlayer) one(ctx context.Context, k *caller, c *call, op *pb.Operation, want expectation) *pb.OperationResult {
	r, ok := k.operate(ctx, c, op)
	if !ok {
		return nil
	}
	c.operation(p.table, op, r, want)
	p.lost(op, r)
	return r
}

// elsewhere extends what was granted a moment ago at any member, which may not have
// applied the grant yet.
func (p *unaryPlayer) elsewhere(ctx context.Context, d dice, token uint64) {
	k := pick(d, pick(d, p.callers))
	c := p.book.begin(fmt.Sprintf("player %d, at once at %s over %s", p.number, k.m.Name, k.form))
	p.one(ctx, k, c, &pb.Operation{Op: &pb.Operation_Extend{Extend: &pb.Extension{Token: token}}}, valid)
}

// lost puts another session in the place of one that was closed or had ended.
func (p *play) lost(op *pb.Operation, r *pb.OperationResult) {
	if op.GetCloseSession() == nil && r.GetError().GetKind() != incumbent.Expired.String() {
		return
	}
	id := op.GetCloseSession().GetId() + op.GetClaim().GetSession()
	for slot, present := range p.table.all() {
		if present == id && slot%2 == 0 { // the others are opened again under the same id
			p.table.renew(slot)
		}
	}
}

// twice repeats a claim under one key: both answers must be the same.
func (p *unaryPlayer) twice(ctx context.Context, d dice, k *caller, c *call) {
	in := d.claim()
	in.Idempotency = &pb.Idempotency{Key: []byte(fmt.Sprintf("%d/%s", d.Uint64(), c.who)[:40]), BaseIndex: max(c.floor, 1)}
	first, e, ok := do(ctx, c, k.m, k.leases.Claim, in)
	if !ok {
		return
	}
	op := claimed(in)
	result := &pb.OperationResult{Error: e, Result: &pb.OperationResult_Claim{Claim: first}}
	c.operation(p.table, op, result, valid)
	again := p.book.begin(c.who + ", again")
	other := pick(d, pick(d, p.callers))
	second, e2, ok := do(ctx, again, other.m, other.leases.Claim, in)
	switch {
	case !ok || e != nil && (e.Kind == incumbent.Unknown.String() || isPassing(e)):
	case e2 != nil:
		again.refused(fmt.Sprintf("%v", in), e2, valid, mayBe(op)...)
		if e == nil && !isPassing(e2) {
			again.fail("%v: the first attempt was answered %v, the second %v", in, first, e2)
		}
	case e != nil:
		again.fail("%v: the first attempt was refused, %v, the second answered %v", in, e, second)
	case second.Granted != first.Granted || second.Index != first.Index || second.Lease.GetToken() != first.Lease.GetToken():
		again.fail("%v: two answers: %v and %v", in, first, second)
	}
}

func isPassing(e *pb.Error) bool {
	for _, k := range passing {
		if e.Kind == k.String() {
			return true
		}
	}
	return false
}

func (p *unaryPlayer) batch(ctx context.Context, k *caller, c *call, ops []*pb.Operation) {
	out, e, ok := do(ctx, c, k.m, k.leases.Batch, &pb.BatchRequest{Operations: ops})
	switch {
	case !ok:
		return
	case e != nil:
		c.refused("batch", e, valid)
		return
	case len(out.Results) != len(ops):
		c.fail("%d results for %d operations", len(out.Results), len(ops))
		return
	}
	for i, op := range ops {
		c.operation(p.table, op, out.Results[i], valid)
		p.lost(op, out.Results[i])
	}
}

// extend sends several extensions, at times the same many times.
func (p *unaryPlayer) extend(ctx context.Context, d dice, k *caller, c *call) {
	var list []*pb.Extension
	n := 1 + d.IntN(8)
	if d.oneIn(10) {
		x := d.extension()
		for range 200 {
			list = append(list, x)
		}
	}
	for range n {
		list = append(list, d.extension())
	}
	out, e, ok := do(ctx, c, k.m, k.leases.Extend, &pb.ExtendRequest{Extensions: list})
	switch {
	case !ok:
		return
	case e != nil:
		c.refused("extend", e, valid)
		return
	case len(out.Results) != len(list):
		c.fail("%d results for %d extensions", len(out.Results), len(list))
		return
	}
	for i, x := range list {
		c.operation(p.table, &pb.Operation{Op: &pb.Operation_Extend{Extend: x}}, &pb.OperationResult{Result: &pb.OperationResult_Extend{Extend: out.Results[i]}}, valid)
	}
}
