package native

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"path"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/gate"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/overload"
)

// Guard says who calls; see [auth.Authenticator].
type Guard interface {
	Identify(p auth.Peer) (auth.Principal, error)
}

// callOf is the call that an operation is. It follows from what the operation is: no
// more is looked at before its lane has taken it.
func callOf(in *pb.Operation) calls.Call {
	switch in.GetOp().(type) {
	case *pb.Operation_Claim:
		return calls.Claim
	case *pb.Operation_Release:
		return calls.Release
	case *pb.Operation_LeaveQueue:
		return calls.LeaveQueue
	case *pb.Operation_Revoke:
		return calls.Revoke
	case *pb.Operation_Transfer:
		return calls.Transfer
	case *pb.Operation_Pin:
		return calls.Pin
	case *pb.Operation_Unpin:
		return calls.Unpin
	case *pb.Operation_OpenSession:
		return calls.OpenSession
	case *pb.Operation_CloseSession:
		return calls.CloseSession
	case *pb.Operation_Extend:
		return calls.Extend
	}
	return calls.GetLease // is none, and refused as what it is
}

// admit gives a call of this cost a place in its lane; done is to be called, by the call. What the
// call hands on shares the place: see callPlace. It is refused if its deadline has passed. A refusal
// for the load is held back.
func (d *Door) admit(ctx context.Context, l admit.Lane, cost int) (done func(), err error) {
	who := callerOf(ctx)
	done, err = d.admitted(ctx, func() (admit.Place, error) { return d.lanes.Enter(who.work(who.control.group), l, cost) })
	if err != nil {
		if e := asError(err); e.Kind == incumbent.Overloaded {
			err = d.holdBack(ctx, who.control, e)
		}
	}
	return done, err
}

// admitExtensions is admit for n extensions that come in a call of their own: see
// [admit.Controller.EnterExtensions].
func (d *Door) admitExtensions(ctx context.Context, n int, critical func(i int) bool) (done func(), refused []error, err error) {
	done, err = d.admitted(ctx, func() (p admit.Place, err error) {
		p, refused, err = d.lanes.EnterExtensions(n, critical)
		return p, err
	})
	return done, refused, err
}

func (d *Door) admitted(ctx context.Context, enter func() (admit.Place, error)) (done func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	in, err := enter()
	if err != nil {
		return nil, err
	}
	p, c := newCallPlace(in), callerOf(ctx).control
	c.place = p
	return func() {
		c.place = nil
		p.leave()
	}, nil
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
		Forwarded: auth.Forwarded(r.Header) || gate.Proxied(r.Context()),
	}
	peer.Remote, _ = netip.ParseAddrPort(r.RemoteAddr) // of a unix socket: none
	if local, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr); ok {
		peer.Unix = local.Network() == "unix"
		peer.Local, _ = netip.ParseAddrPort(local.String())
	}
	p, err := d.guard.Identify(peer)
	if err != nil {
		gate.VisitOfRequest(r.Context()).Refused(err)
		return nil, err
	}
	if !peer.Unix {
		if err := p.RefusePage(r); err != nil {
			return nil, err
		}
	}
	if p.Kind != auth.Anonymous && !gate.ProveRequest(r.Context(), p.Kind == auth.Operator) {
		err := overload.Errorf("this member has no place for another connection").
			WithHint("connect to another member, or raise --max-connections")
		gate.VisitOfRequest(r.Context()).Refused(err)
		return nil, err
	}
	if c := gate.FromContext(r.Context()); c != nil && p.Kind != auth.Anonymous {
		if err := d.tally.Count(c, p, Listener); err != nil {
			return nil, err
		}
	}
	return &caller{principal: p, address: r.RemoteAddr, now: d.now}, nil
}

// refuses refuses a call before its message is read: one that nobody waits for any more,
// and one whose lane will refuse it whatever the message says. What is not refused here is
// judged once more when its lane is known.
func (d *Door) refuses(ctx context.Context, who *caller, c calls.Call) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.Row().Look && who.principal.Kind == auth.Operator {
		return nil
	}
	err := d.lanes.Refuses(who.work(0), c.Lanes())
	if err == nil {
		return nil
	}
	return d.holdBack(ctx, who.control, asError(err))
}

// gate refuses what a caller may not call at all, and what its lane does not let in,
// before its message is read. What has no row in the table is not served.
func (d *Door) gate(ctx context.Context, spec connect.Spec, _ connect.Peer, _ http.Header) (context.Context, error) {
	c, ok := calls.Of(spec.Procedure)
	if !ok {
		return nil, d.callError(incumbent.Errorf(incumbent.Internal, "%s has no row in the table of calls", spec.Procedure))
	}
	who := callerOf(ctx)
	err := c.Allowed(d.rights(who))
	if err == nil {
		if err = d.refuses(ctx, who, c); err != nil {
			return nil, d.callError(err)
		}
		return ctx, nil
	}
	err = d.denied(who, c.Action(), path.Base(spec.Procedure), err)
	if who.principal.Kind == auth.Anonymous {
		gate.VisitOfRequest(ctx).Failed()
		who.control.header.Set("Connection", "close") // whoever asks again comes through the gate again
		return nil, callError(err, standing{}, nil)   // strangers are not told who is who here
	}
	refusal := d.callError(err)
	d.slow(ctx, who, refusal)
	return nil, refusal
}

// rights are what a caller may do by the policies of now. Those of a stream are made
// once for each change of a policy.
func (d *Door) rights(who *caller) *auth.Rights {
	rules := policy.Of(d.engine.View()).Rules()
	if g := who.rights.Load(); g != nil && g.Under(rules) {
		return g
	}
	g := rules.Of(who.principal)
	who.rights.Store(g)
	return g
}

// judged is what goes with a command whose caller is about to be judged, so that it
// does nothing if a policy changes before it is executed. 0: no policy binds him.
func (d *Door) judged(who *caller) incumbent.Index {
	if who.principal.Kind == auth.Operator {
		return 0
	}
	return policy.JudgedBy(d.engine.View())
}

// authorize returns nil if a caller may do an action to a resource, else Denied.
func (d *Door) authorize(who *caller, a auth.Action, r auth.Resource) error {
	return auth.Authorize(d.rights(who), a, r)
}

// allow checks an operation of a caller. An operator may do everything, so
// nothing needs to be looked up.
func (d *Door) allow(who *caller, o *operation) error {
	o.judged = d.judged(who)
	switch {
	case who.principal.Kind == auth.Operator:
		return nil
	case o.action == auth.SessionOpen:
		return d.authorize(who, o.action, auth.Resource{Owner: who.name()})
	case o.action == auth.SessionClose:
		return d.allowClose(who, o)
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
		if err := d.authorize(who, o.action, auth.Resource{Name: o.name, Holder: holder}); err != nil {
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
func (d *Door) heldUnder(t incumbent.Token) (*leases.Lease, error) {
	view := d.view()
	if uint64(t) > uint64(view.Index()) {
		return nil, incumbent.Errorf(incumbent.Unavailable, "this member has not applied the grant of token %v", t)
	}
	return leases.Of(view).ByToken(t), nil
}

// allowSession checks that the caller opened the session, or may end others'.
func (d *Door) allowSession(who *caller, a auth.Action, id incumbent.SessionID) error {
	if who.principal.Kind == auth.Operator {
		return nil
	}
	s := d.view().Session(id)
	if s == nil {
		return incumbent.Errorf(incumbent.Expired, "session %v is not open", id)
	}
	return d.authorize(who, a, auth.Resource{Owner: s.Origin.Principal})
}

// allowClose checks that the caller may close a session. Apply lets nobody close
// another's unless it is told that a policy lets him.
func (d *Door) allowClose(who *caller, o *operation) error {
	if err := d.allowSession(who, o.action, o.session); err != nil {
		return err
	}
	if s := d.view().Session(o.session); s != nil && !s.UsableBy(who.name()) {
		c, _ := o.command.(core.CloseSessionCommand)
		c.Others = true
		o.command = c
	}
	return nil
}

// allowRead checks that the caller may see a lease, or (watch) follow it.
func (d *Door) allowRead(who *caller, a auth.Action, name incumbent.Name) error {
	return d.authorize(who, a, auth.Resource{Name: name})
}

// allowKey checks what a caller does to a key; whole: to all that begin with it.
func (d *Door) allowKey(who *caller, a auth.Action, k kv.Key, whole bool) error {
	return d.authorize(who, a, auth.Resource{Name: nameOfKey(k), Whole: whole})
}

// allowChange checks a change of keys, and what its condition would tell the caller of the
// value that is there.
func (d *Door) allowChange(who *caller, a auth.Action, c *kv.Command) error {
	if err := d.allowKey(who, a, c.Key, c.Verb == kv.RemoveTree || c.Verb == kv.List); err != nil || c.If != kv.IfValue {
		return err
	}
	return d.allowKey(who, auth.KeyRead, c.Key, false)
}

// nameOfKey is the name of a key for policies.
func nameOfKey(k kv.Key) incumbent.Name { return incumbent.Name{Namespace: k.Namespace, Lease: k.Name} }

// allowExtension checks one extension. What it names need not exist.
func (d *Door) allowExtension(who *caller, e *lease.Extension) error {
	if who.principal.Kind == auth.Operator {
		return nil
	}
	if e.Named != nil {
		if err := d.authorize(who, auth.Extend, auth.Resource{Name: e.Named.Name, Holder: e.Named.Holder}); err != nil {
			return err
		}
	}
	if e.Token != 0 {
		if err := d.allowToken(d.rights(who), e.Token); err != nil {
			return err
		}
	}
	if e.Session.IsZero() {
		return nil
	}
	return d.allowSession(who, auth.SessionUse, e.Session)
}

func (d *Door) allowToken(g *auth.Rights, t incumbent.Token) error {
	l, err := d.heldUnder(t)
	if err != nil || l == nil {
		return err
	}
	return auth.Authorize(g, auth.Extend, auth.Resource{Name: l.Name, Holder: l.Holder})
}

// allowBeat checks that the caller may still use sessions of its own: those of a
// stream are.
func (d *Door) allowBeat(who *caller) error {
	if who.principal.Kind == auth.Operator {
		return nil
	}
	return d.authorize(who, auth.SessionUse, auth.Resource{Owner: who.name()})
}
