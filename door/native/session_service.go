package native

import (
	"context"
	"strconv"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
)

// sessionService serves SessionService.
type sessionService struct{ d *Door }

// OpenSession opens.
func (s sessionService) OpenSession(ctx context.Context, r *connect.Request[pb.OpenSessionRequest]) (*connect.Response[pb.OpenSessionResponse], error) {
	o, err := s.d.perform(ctx, r.Header(), &pb.Operation{Op: &pb.Operation_OpenSession{OpenSession: r.Msg}})
	return unary(o.GetOpenSession(), err)
}

// CloseSession closes, and frees what the session owns.
func (s sessionService) CloseSession(ctx context.Context, r *connect.Request[pb.CloseSessionRequest]) (*connect.Response[pb.CloseSessionResponse], error) {
	o, err := s.d.perform(ctx, r.Header(), &pb.Operation{Op: &pb.Operation_CloseSession{CloseSession: r.Msg}})
	return unary(o.GetCloseSession(), err)
}

// GetSession reads a session with a page of what it holds and waits for.
func (s sessionService) GetSession(ctx context.Context, r *connect.Request[pb.GetSessionRequest]) (*connect.Response[pb.GetSessionResponse], error) {
	return reading(ctx, s.d, laneOfLook(ctx, calls.GetSession, r.Msg.Stale), r.Msg.Stale, func(f *former) (*pb.GetSessionResponse, error) {
		return f.getSession(callerOf(ctx), r.Msg)
	})
}

// ListSessions reads a page of sessions, by id.
func (s sessionService) ListSessions(ctx context.Context, r *connect.Request[pb.ListSessionsRequest]) (*connect.Response[pb.ListSessionsResponse], error) {
	return reading(ctx, s.d, calls.ListSessions.LaneOfRead(r.Msg.Stale), r.Msg.Stale, func(f *former) (*pb.ListSessionsResponse, error) {
		return f.listSessions(ctx, r.Msg)
	})
}

func (f *former) getSession(who *caller, r *pb.GetSessionRequest) (*pb.GetSessionResponse, error) {
	id, err := neededSession("id", r.Id)
	if err != nil {
		return nil, err
	}
	s := f.view.Session(id)
	if s == nil || !f.sight.sees(s) { // whose it is, or that it is, is not said to others
		return nil, incumbent.Errorf(incumbent.NotFound, "session %v is not open", id)
	}
	page, err := newPage(r.Limit)
	if err != nil {
		return nil, err
	}
	names := f.d.rights(who).Sight(auth.Read)
	sees := func(n incumbent.Name) bool { return s.Origin.Principal == who.name() || names.Sees(n) }
	o := f.owned(id, verbatim(r.After), page, sees)
	return &pb.GetSessionResponse{
		Session: f.counted(s, o.held), Leases: o.leases, Waits: o.waits, Index: uint64(f.view.Index()), Next: o.next,
	}, nil
}

func (f *former) listSessions(ctx context.Context, r *pb.ListSessionsRequest) (*pb.ListSessionsResponse, error) {
	page, err := newPage(r.Limit)
	if err != nil {
		return nil, err
	}
	after, err := sessionOf("after", r.After)
	if err != nil {
		return nil, err
	}
	out := &pb.ListSessionsResponse{Index: uint64(f.view.Index())}
	seen := 0
	var stopped error
	f.view.Sessions(after, func(s *core.Session) bool {
		if seen++; seen%ScanSlice == 0 && ctx.Err() != nil {
			stopped = context.Cause(ctx)
			return false
		}
		switch {
		case !f.sight.sees(s):
			return true
		case page.full():
			out.More = true
			return false
		}
		p := f.session(s)
		page.use(p)
		out.Sessions = append(out.Sessions, p)
		return true
	})
	return out, stopped
}

// reading runs a query on a view: by default one that was current after the
// request came, on request whatever this member has.
func reading[T any](ctx context.Context, d *Door, l admit.Lane, stale bool, query func(*former) (*T, error)) (*connect.Response[T], error) {
	ctx, cancel := d.deadline(ctx)
	defer cancel()
	done, err := d.admit(ctx, l, 1)
	if err != nil {
		return nil, d.callError(err)
	}
	defer done()
	placeOf(ctx).doing(true)
	if !stale {
		if err := d.confirmed(ctx); err != nil {
			return nil, d.callError(err)
		}
	}
	f := d.former(callerOf(ctx))
	out, err := query(f)
	if err == nil && !stale { // what only the leader knows would have to be asked for
		err = f.filled(ctx)
	}
	if err != nil {
		ce := d.callError(err)
		ce.Meta().Set(headerIndex, strconv.FormatUint(uint64(f.view.Index()), 10))
		return nil, ce
	}
	return connect.NewResponse(out), nil
}

// laneOfLook is the lane of a read of one thing. An operator who looks what is the matter
// has to be answered in an overload, too.
func laneOfLook(ctx context.Context, c calls.Call, stale bool) admit.Lane {
	if c.Row().Look && callerOf(ctx).principal.Kind == auth.Operator {
		return admit.Critical
	}
	return c.LaneOfRead(stale)
}

// confirmed returns when this member has applied everything that was committed
// when the call began.
func (d *Door) confirmed(ctx context.Context) error {
	place := placeOf(ctx).keep()
	got := make(chan error, 1)
	d.confirm(func(err error) {
		place.leave()
		got <- err
	})
	select {
	case err := <-got:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
