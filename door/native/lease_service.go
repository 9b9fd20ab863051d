package native

import (
	"context"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
)

// leaseService serves LeaseService; its methods are documented in lease.proto.
type leaseService struct{ d *Door }

// Claim grants, extends or queues.
func (s leaseService) Claim(ctx context.Context, r *connect.Request[pb.ClaimRequest]) (*connect.Response[pb.ClaimResponse], error) {
	o, err := s.d.perform(ctx, r.Header(), &pb.Operation{Op: &pb.Operation_Claim{Claim: r.Msg}})
	return unary(o.GetClaim(), err)
}

// Release frees.
func (s leaseService) Release(ctx context.Context, r *connect.Request[pb.ReleaseRequest]) (*connect.Response[pb.ReleaseResponse], error) {
	o, err := s.d.perform(ctx, r.Header(), &pb.Operation{Op: &pb.Operation_Release{Release: r.Msg}})
	return unary(o.GetRelease(), err)
}

// Revoke takes away.
func (s leaseService) Revoke(ctx context.Context, r *connect.Request[pb.RevokeRequest]) (*connect.Response[pb.RevokeResponse], error) {
	o, err := s.d.perform(ctx, r.Header(), &pb.Operation{Op: &pb.Operation_Revoke{Revoke: r.Msg}})
	return unary(o.GetRevoke(), err)
}

// Transfer hands over.
func (s leaseService) Transfer(ctx context.Context, r *connect.Request[pb.TransferRequest]) (*connect.Response[pb.TransferResponse], error) {
	o, err := s.d.perform(ctx, r.Header(), &pb.Operation{Op: &pb.Operation_Transfer{Transfer: r.Msg}})
	return unary(o.GetTransfer(), err)
}

// Pin stops expiry.
func (s leaseService) Pin(ctx context.Context, r *connect.Request[pb.PinRequest]) (*connect.Response[pb.PinResponse], error) {
	o, err := s.d.perform(ctx, r.Header(), &pb.Operation{Op: &pb.Operation_Pin{Pin: r.Msg}})
	return unary(o.GetPin(), err)
}

// Unpin lets it run again.
func (s leaseService) Unpin(ctx context.Context, r *connect.Request[pb.UnpinRequest]) (*connect.Response[pb.UnpinResponse], error) {
	o, err := s.d.perform(ctx, r.Header(), &pb.Operation{Op: &pb.Operation_Unpin{Unpin: r.Msg}})
	return unary(o.GetUnpin(), err)
}

// LeaveQueue gives up a place.
func (s leaseService) LeaveQueue(ctx context.Context, r *connect.Request[pb.LeaveQueueRequest]) (*connect.Response[pb.LeaveQueueResponse], error) {
	o, err := s.d.perform(ctx, r.Header(), &pb.Operation{Op: &pb.Operation_LeaveQueue{LeaveQueue: r.Msg}})
	return unary(o.GetLeaveQueue(), err)
}

// Batch does many in one round trip.
func (s leaseService) Batch(ctx context.Context, r *connect.Request[pb.BatchRequest]) (*connect.Response[pb.BatchResponse], error) {
	return unary(s.d.batch(ctx, r.Msg))
}

// Extend keeps leases and sessions.
func (s leaseService) Extend(ctx context.Context, r *connect.Request[pb.ExtendRequest]) (*connect.Response[pb.ExtendResponse], error) {
	if n := len(r.Msg.Extensions); n > MaxOperations {
		return nil, s.d.callError(invalid("extensions", "are %d, limit is %d", n, MaxOperations))
	}
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	who := callerOf(ctx)
	done, refused, err := s.d.admitExtensions(ctx, len(r.Msg.Extensions), func(i int) bool { return s.d.keepsCritical(who, r.Msg.Extensions[i]) })
	if err != nil {
		return nil, s.d.callError(err)
	}
	defer done()
	out := &pb.ExtendResponse{Results: make([]*pb.ExtensionResult, len(r.Msg.Extensions))}
	b := &lease.Batch{Items: make([]lease.Extension, 0, len(r.Msg.Extensions))}
	for i, err := range refused {
		if err != nil {
			out.Results[i] = &pb.ExtensionResult{Error: errorPB(err, s.d.standing(), nil)}
		}
	}
	for i, in := range r.Msg.Extensions {
		if out.Results[i] != nil {
			continue
		}
		e, err := s.d.extensionOf(who, in)
		if err != nil {
			_ = s.d.deniedExtension(who, &e, err)
			out.Results[i] = &pb.ExtensionResult{Error: errorPB(err, s.d.standing(), nil)}
			continue
		}
		b.Items = append(b.Items, e)
	}
	if err := s.d.runExtensions(ctx, b); err != nil {
		return nil, s.d.callError(err)
	}
	k := 0
	for i := range out.Results {
		if out.Results[i] == nil {
			out.Results[i] = s.d.extensionResult(b, k)
			k++
		}
	}
	return connect.NewResponse(out), nil
}

// Get reads one lease.
func (s leaseService) Get(ctx context.Context, r *connect.Request[pb.GetRequest]) (*connect.Response[pb.GetResponse], error) {
	return reading(ctx, s.d, laneOfLook(ctx, calls.GetLease, r.Msg.Stale), r.Msg.Stale, func(f *former) (*pb.GetResponse, error) {
		return f.get(callerOf(ctx), r.Msg)
	})
}

// List reads a page of leases.
func (s leaseService) List(ctx context.Context, r *connect.Request[pb.ListRequest]) (*connect.Response[pb.ListResponse], error) {
	return reading(ctx, s.d, calls.ListLeases.LaneOfRead(r.Msg.Stale), r.Msg.Stale, func(f *former) (*pb.ListResponse, error) {
		return f.list(ctx, callerOf(ctx), r.Msg)
	})
}

// get reads one lease from the view. A lease that was never claimed is not
// found; one that is free is there.
func (f *former) get(who *caller, r *pb.GetRequest) (*pb.GetResponse, error) {
	name, err := leaseName(r.Name)
	if err != nil {
		return nil, err
	}
	if err := f.d.allowRead(who, auth.Read, name); err != nil {
		return nil, err
	}
	l := leases.Of(f.view).Lease(name)
	if l == nil {
		return nil, incumbent.Errorf(incumbent.NotFound, "nobody has claimed lease %q in namespace %q, model %q", name.Lease, name.Namespace, name.Model)
	}
	out := &pb.GetResponse{Lease: f.kept(l, true), Index: uint64(f.view.Index())}
	if r.Stale {
		out.AgeMs = ms(f.d.age())
	}
	return out, nil
}

// list reads a page, or counts.
func (f *former) list(ctx context.Context, who *caller, r *pb.ListRequest) (*pb.ListResponse, error) {
	page, err := newPage(r.Limit)
	if err != nil {
		return nil, err
	}
	after := verbatim(r.After)
	out := &pb.ListResponse{Index: uint64(f.view.Index())}
	seen, sight := 0, f.d.rights(who).Sight(auth.Read)
	var stopped error
	leases.Of(f.view).Below(r.Namespace, r.Model, r.Prefix, after, func(l *leases.Lease) bool {
		if seen++; seen%ScanSlice == 0 && ctx.Err() != nil {
			stopped = context.Cause(ctx)
			return false
		}
		switch {
		case l.Free() && !r.Free, !sight.Sees(l.Name):
			return true
		case r.CountOnly:
			out.Count++
			return true
		case page.full():
			out.More = true
			return false
		}
		p := f.kept(l, false)
		page.use(p)
		out.Leases = append(out.Leases, p)
		return true
	})
	return out, stopped
}
