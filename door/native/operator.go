package native

import (
	"cmp"
	"context"
	"io"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
)

// Operator is what the composed member tells an operator: it alone knows all
// parts. Errors are the module's.
type Operator interface {
	Status(ctx context.Context) (*pb.StatusResponse, error)
	// Snapshot writes a snapshot now.
	Snapshot(ctx context.Context) (*pb.SnapshotResponse, error)
	// StateHash names an index in the log and answers with the hash there.
	StateHash(ctx context.Context) (*pb.StateHashResponse, error)
	// Backup writes a backup of the state, confirmed after the call, in pieces of at
	// most 128 KiB, and ends with the error of w or of ctx.
	Backup(ctx context.Context, w io.Writer) error
	Settings(ctx context.Context) (*pb.SettingsResponse, error)
	Membership

	// EventsLast returns the position in the timeline from which n events, or
	// as many as are kept, follow.
	EventsLast(n int) (from uint64)
	// EventsAfter returns at most limit events from a position on, the position
	// to go on from, and a channel that is closed when more happen. What is no
	// longer kept is skipped, and so is what is about a lease that sees says no of.
	EventsAfter(from uint64, limit int, sees func(incumbent.Name) bool) (events []*pb.Event, next uint64, more <-chan struct{})

	// Standing names this member and the leader, if known, for errors, with the
	// URL of the leader's native API if that is known.
	Standing() (member, leader, leaderURL string)
	// Ready is nil if the member is caught up, knows a leader and is not
	// draining.
	Ready() error
}

// Membership is what an operator changes about the cluster, and what a member
// that joins asks for. See ClusterService in api/incumbent/v1 for the errors.
type Membership interface {
	Members(ctx context.Context) (*pb.MembersResponse, error)
	// by is the principal that asks.
	CreateToken(ctx context.Context, r *pb.CreateTokenRequest, by string) (*pb.CreateTokenResponse, error)
	// Join judges the token itself: it is the caller's authority. from is the caller's
	// address.
	Join(ctx context.Context, r *pb.JoinRequest, from string) (*pb.JoinResponse, error)
	// Of TrustService; by is the principal that asks.
	Trust(ctx context.Context, r *pb.GetTrustRequest) (*pb.GetTrustResponse, error)
	RotateTrust(ctx context.Context, r *pb.RotateRequest, by string) (*pb.RotateResponse, error)
	RevokeToken(ctx context.Context, r *pb.RevokeTokenRequest, by string) (*pb.RevokeTokenResponse, error)
	RemoveMember(ctx context.Context, r *pb.RemoveMemberRequest) (*pb.RemoveMemberResponse, error)
	PromoteMember(ctx context.Context, r *pb.PromoteMemberRequest) (*pb.PromoteMemberResponse, error)
	TransferLeader(ctx context.Context, r *pb.TransferLeaderRequest) (*pb.TransferLeaderResponse, error)
	Leave(ctx context.Context, r *pb.LeaveRequest) (*pb.LeaveResponse, error)
}

// clusterService serves ClusterService from an Operator.
type clusterService struct{ d *Door }

// Status answers with the member's view of the cluster.
func (s clusterService) Status(ctx context.Context, _ *connect.Request[pb.StatusRequest]) (*connect.Response[pb.StatusResponse], error) {
	return answer(ctx, s.d, s.d.operator.Status)
}

// Snapshot writes a snapshot.
func (s clusterService) Snapshot(ctx context.Context, _ *connect.Request[pb.SnapshotRequest]) (*connect.Response[pb.SnapshotResponse], error) {
	return answer(ctx, s.d, s.d.operator.Snapshot)
}

// StateHash hashes the replicated state at an index that it names in the log.
func (s clusterService) StateHash(ctx context.Context, _ *connect.Request[pb.StateHashRequest]) (*connect.Response[pb.StateHashResponse], error) {
	return answer(ctx, s.d, s.d.operator.StateHash)
}

// Backup sends a backup.
func (s clusterService) Backup(ctx context.Context, _ *connect.Request[pb.BackupRequest], out *connect.ServerStream[pb.BackupResponse]) error {
	ctx, stop := s.d.untilDrained(ctx)
	defer stop()
	to := &backupStream{out: out}
	err := s.d.operator.Backup(ctx, to)
	if to.err != nil {
		return to.err // the caller is gone
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return s.d.callError(err)
	}
	return nil
}

// backupStream sends what is written.
type backupStream struct {
	out *connect.ServerStream[pb.BackupResponse]
	err error
}

// Write implements io.Writer.
func (b *backupStream) Write(p []byte) (int, error) {
	if b.err = b.out.Send(&pb.BackupResponse{Data: p}); b.err != nil {
		return 0, b.err
	}
	return len(p), nil
}

// Settings reads the effective settings.
func (s clusterService) Settings(ctx context.Context, _ *connect.Request[pb.SettingsRequest]) (*connect.Response[pb.SettingsResponse], error) {
	return answer(ctx, s.d, s.d.operator.Settings)
}

// Members lists the members.
func (s clusterService) Members(ctx context.Context, _ *connect.Request[pb.MembersRequest]) (*connect.Response[pb.MembersResponse], error) {
	return answer(ctx, s.d, s.d.operator.Members)
}

// CreateToken makes a token to join with.
func (s clusterService) CreateToken(ctx context.Context, r *connect.Request[pb.CreateTokenRequest]) (*connect.Response[pb.CreateTokenResponse], error) {
	return answerBy(ctx, s.d, r, s.d.operator.CreateToken)
}

// Join makes the caller a member.
func (s clusterService) Join(ctx context.Context, r *connect.Request[pb.JoinRequest]) (*connect.Response[pb.JoinResponse], error) {
	return answer(ctx, s.d, func(ctx context.Context) (*pb.JoinResponse, error) {
		return s.d.operator.Join(ctx, r.Msg, callerOf(ctx).address)
	})
}

// RemoveMember takes a member out.
func (s clusterService) RemoveMember(ctx context.Context, r *connect.Request[pb.RemoveMemberRequest]) (*connect.Response[pb.RemoveMemberResponse], error) {
	return answerTo(ctx, s.d, r, s.d.operator.RemoveMember)
}

// PromoteMember makes a learner a voter.
func (s clusterService) PromoteMember(ctx context.Context, r *connect.Request[pb.PromoteMemberRequest]) (*connect.Response[pb.PromoteMemberResponse], error) {
	return answerTo(ctx, s.d, r, s.d.operator.PromoteMember)
}

// TransferLeader hands leadership over.
func (s clusterService) TransferLeader(ctx context.Context, r *connect.Request[pb.TransferLeaderRequest]) (*connect.Response[pb.TransferLeaderResponse], error) {
	return answerTo(ctx, s.d, r, s.d.operator.TransferLeader)
}

// Leave takes this member out and ends it.
func (s clusterService) Leave(ctx context.Context, r *connect.Request[pb.LeaveRequest]) (*connect.Response[pb.LeaveResponse], error) {
	return answerTo(ctx, s.d, r, s.d.operator.Leave)
}

// Events sends the timeline: what is kept, then what happens. Who follows it hears something every
// ProgressEvery, and at once when all that is kept is told, if only that it is nothing: clients take
// a member that says nothing for longer for one that stands still.
func (s clusterService) Events(ctx context.Context, req *connect.Request[pb.EventsRequest], out *connect.ServerStream[pb.EventsResponse]) error {
	limit := cmp.Or(int(req.Msg.Limit), DefaultEvents)
	if limit > MaxEventsKept {
		return s.d.callError(invalid("limit", "%d is over %d", limit, MaxEventsKept))
	}
	ctx, stop := s.d.untilDrained(ctx)
	defer stop()
	tick := time.NewTicker(s.d.progressEvery)
	defer tick.Stop()
	due := req.Msg.Follow // something is to be said
	at := s.d.operator.EventsLast(limit)
	for {
		changed, g := s.d.rulesChanged(), s.d.rights(callerOf(ctx))
		if err := calls.Events.Allowed(g); err != nil {
			return s.d.callError(err)
		}
		events, next, more := s.d.operator.EventsAfter(at, pullEvents, g.Sight(auth.Read).Sees)
		going := next > at // nothing to show if what is there is not for this caller
		at = next
		if len(events) > 0 || due && !going {
			if err := out.Send(&pb.EventsResponse{Events: events}); err != nil {
				return err
			}
			tick.Reset(s.d.progressEvery)
			due = false
		}
		if going {
			continue
		}
		if !req.Msg.Follow {
			return nil
		}
		select {
		case <-more:
		case <-changed:
		case <-tick.C:
			due = true
		case <-ctx.Done():
			return s.d.callError(context.Cause(ctx))
		}
	}
}

// answerTo runs a call with its request.
func answerTo[Q, T any](ctx context.Context, d *Door, r *connect.Request[Q], f func(context.Context, *Q) (*T, error)) (*connect.Response[T], error) {
	return answer(ctx, d, func(ctx context.Context) (*T, error) { return f(ctx, r.Msg) })
}

// answerBy is answerTo for what is noted with who asked for it.
func answerBy[Q, T any](ctx context.Context, d *Door, r *connect.Request[Q], f func(context.Context, *Q, string) (*T, error)) (*connect.Response[T], error) {
	by := callerOf(ctx).principal.String()
	return answer(ctx, d, func(ctx context.Context) (*T, error) { return f(ctx, r.Msg, by) })
}

// answer runs a call without a request.
func answer[T any](ctx context.Context, d *Door, f func(context.Context) (*T, error)) (*connect.Response[T], error) {
	m, err := f(ctx)
	if err != nil {
		return nil, d.callError(err)
	}
	return connect.NewResponse(m), nil
}
