package native

import (
	"context"
	"net"
	"net/http"
	"net/netip"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/lease"
)

// Guard says who calls; see [auth.Authenticator].
type Guard interface {
	Identify(p auth.Peer) (auth.Principal, error)
}

// laneOf is the lane that a step goes by. It follows from what the step is: no
// more is looked at before its lane has taken it.
func laneOf(in *pb.Operation) admit.Lane {
	switch in.GetOp().(type) {
	case *pb.Operation_Extend:
		return admit.Extensions
	case *pb.Operation_Release, *pb.Operation_LeaveQueue, *pb.Operation_Revoke, *pb.Operation_CloseSession:
		return admit.Releases
	case *pb.Operation_Claim, *pb.Operation_OpenSession:
		return admit.Claims
	}
	return admit.Small
}

// laneOfRead is the lane of a read of one thing: one that has the leader look up
// deadlines goes by that of the expensive ones.
func laneOfRead(stale bool) admit.Lane {
	if stale {
		return admit.Small
	}
	return admit.Reads
}

// place is admitted work's place in its lane.
type place struct{ ticket admit.Ticket }

// enter gives work of this cost a place in its lane, or refuses it. It neither
// blocks nor waits.
func (d *Door) enter(l admit.Lane, cost int) (place, error) {
	if d.admission == nil {
		return place{}, nil
	}
	t, err := d.admission.Enter(l, cost, d.monotonic())
	return place{t}, err
}

// leave gives a place back, once the work has been answered.
func (d *Door) leave(p place) {
	if d.admission != nil {
		p.ticket.Done(d.monotonic())
	}
}

// admit is enter for a call; done is to be called. It is refused if its
// deadline has passed.
func (d *Door) admit(ctx context.Context, l admit.Lane, cost int) (done func(), err error) {
	return d.admitted(ctx, func() (place, error) { return d.enter(l, cost) })
}

// admitExtensions is enterExtensions for a call.
func (d *Door) admitExtensions(ctx context.Context, cost int, critical func() bool) (done func(), err error) {
	return d.admitted(ctx, func() (place, error) { return d.enterExtensions(cost, critical) })
}

func (d *Door) admitted(ctx context.Context, enter func() (place, error)) (done func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	p, err := enter()
	if err != nil {
		return nil, err
	}
	return func() { d.leave(p) }, nil
}

// identify says who sends a request.
func (d *Door) identify(r *http.Request) (*caller, error) {
	bearer, ok := auth.Bearer(r.Header.Get("Authorization"))
	if !ok {
		return nil, incumbent.Errorf(incumbent.Denied, "the Authorization header is not a bearer credential").
			WithHint("Authorization: Bearer CREDENTIAL")
	}
	peer := auth.Peer{
		TLS: r.TLS, Bearer: bearer,
		Forwarded: auth.Forwarded(r.Header),
	}
	peer.Remote, _ = netip.ParseAddrPort(r.RemoteAddr) // of a unix socket: none
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		peer.Unix = local.Network() == "unix"
		peer.Local, _ = netip.ParseAddrPort(local.String())
	}
	p, err := d.guard.Identify(peer)
	if err != nil {
		return nil, err
	}
	if !peer.Unix {
		if err := p.RefusePage(r); err != nil {
			return nil, err
		}
	}
	return &caller{principal: p, address: r.RemoteAddr, now: d.now}, nil
}

// gate refuses what a caller may not call at all, before its message is read.
func (d *Door) gate(ctx context.Context, spec connect.Spec, _ connect.Peer, _ http.Header) (context.Context, error) {
	action, ok := gated(spec.Procedure)
	if !ok {
		return ctx, nil
	}
	if err := auth.Authorize(callerOf(ctx).principal, action, auth.Resource{}); err != nil {
		return nil, d.callError(err)
	}
	return ctx, nil
}

// gated are the calls whose permission does not depend on their message.
// Health, reflection and Join, which brings a token, are for everybody.
func gated(procedure string) (auth.Action, bool) {
	switch procedure {
	case incumbentv1connect.ClusterServiceStatusProcedure, incumbentv1connect.ClusterServiceEventsProcedure,
		incumbentv1connect.ClusterServiceMembersProcedure:
		return auth.Status, true
	case incumbentv1connect.ClusterServiceSnapshotProcedure, incumbentv1connect.ClusterServiceStateHashProcedure,
		incumbentv1connect.ClusterServiceBackupProcedure,
		incumbentv1connect.ClusterServiceSettingsProcedure, incumbentv1connect.ClusterServiceCreateTokenProcedure,
		incumbentv1connect.ClusterServiceRemoveMemberProcedure, incumbentv1connect.ClusterServicePromoteMemberProcedure,
		incumbentv1connect.ClusterServiceTransferLeaderProcedure, incumbentv1connect.ClusterServiceLeaveProcedure:
		return auth.Admin, true
	case incumbentv1connect.LeaseServiceListProcedure, incumbentv1connect.SessionServiceListSessionsProcedure,
		incumbentv1connect.SessionServiceGetSessionProcedure, incumbentv1connect.TransactionServiceTxnProcedure:
		return auth.Read, true
	case incumbentv1connect.KeyValueServiceGetProcedure, incumbentv1connect.KeyValueServiceListProcedure,
		incumbentv1connect.KeyValueServiceWatchProcedure:
		return auth.KeyRead, true
	case incumbentv1connect.KeyValueServicePutProcedure, incumbentv1connect.KeyValueServiceDeleteProcedure,
		incumbentv1connect.KeyValueServiceLockProcedure, incumbentv1connect.KeyValueServiceUnlockProcedure:
		return auth.KeyWrite, true
	}
	return 0, false
}

// allow checks an operation of a caller. An operator may do everything, so
// nothing needs to be looked up.
func (d *Door) allow(who *caller, o *operation) error {
	p := who.principal
	switch {
	case p.Kind == auth.Operator:
		return nil
	case o.action == auth.SessionOpen:
		return auth.Authorize(p, o.action, auth.Resource{})
	case o.action == auth.SessionClose:
		return d.allowSession(who, o.action, o.session)
	}
	holder := o.holder
	if holder == "" && o.token != 0 {
		l, err := d.heldUnder(o.token)
		if err != nil || l == nil {
			return err // what is over does not matter
		}
		holder = l.Holder
	}
	if holder != "" || o.session.IsZero() {
		if err := auth.Authorize(p, o.action, auth.Resource{Name: o.name, Holder: holder}); err != nil {
			return err
		}
	}
	if o.session.IsZero() {
		return nil
	}
	return d.allowSession(who, auth.SessionUse, o.session)
}

// heldUnder returns the lease held under a token; nil if that holding is over.
// Of a token that this member has not applied yet nobody's authority is known.
func (d *Door) heldUnder(t incumbent.Token) (*core.Lease, error) {
	view := d.view()
	if uint64(t) > uint64(view.Index()) {
		return nil, incumbent.Errorf(incumbent.Unavailable, "this member has not applied the grant of token %v", t)
	}
	return view.LeaseByToken(t), nil
}

// allowSession checks that the caller opened the session.
func (d *Door) allowSession(who *caller, a auth.Action, id incumbent.SessionID) error {
	if who.principal.Kind == auth.Operator {
		return nil
	}
	s := d.view().Session(id)
	if s == nil {
		return incumbent.Errorf(incumbent.Expired, "session %v is not open", id)
	}
	return auth.Authorize(who.principal, a, auth.Resource{Owner: s.Origin.Principal})
}

// allowRead checks that the caller may see a lease, or (watch) follow it.
func (d *Door) allowRead(who *caller, a auth.Action, name incumbent.Name) error {
	return auth.Authorize(who.principal, a, auth.Resource{Name: name})
}

// allowExtension checks one extension. What it names need not exist.
func (d *Door) allowExtension(who *caller, e *lease.Extension) error {
	if who.principal.Kind == auth.Operator {
		return nil
	}
	if e.Named != nil {
		if err := auth.Authorize(who.principal, auth.Extend, auth.Resource{Name: e.Named.Name, Holder: e.Named.Holder}); err != nil {
			return err
		}
	}
	if e.Token != 0 {
		if err := d.allowToken(who, e.Token); err != nil {
			return err
		}
	}
	if e.Session.IsZero() {
		return nil
	}
	return d.allowSession(who, auth.SessionUse, e.Session)
}

func (d *Door) allowToken(who *caller, t incumbent.Token) error {
	l, err := d.heldUnder(t)
	if err != nil || l == nil {
		return err
	}
	return auth.Authorize(who.principal, auth.Extend, auth.Resource{Name: l.Name, Holder: l.Holder})
}

// allowTokens checks the hot path's tokens; for an operator it costs nothing.
func (d *Door) allowTokens(who *caller, tokens []uint64) error {
	if who.principal.Kind == auth.Operator {
		return nil
	}
	for _, t := range tokens {
		if err := d.allowToken(who, incumbent.Token(t)); err != nil {
			return err
		}
	}
	return nil
}
