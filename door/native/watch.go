package native

import (
	"context"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// present is the word for what a snapshot shows.
const present = "present"

// selection is what a watch is about.
type selection struct {
	name     incumbent.Name // of the lease, or its prefix
	prefix   bool
	after    incumbent.Index // 0: begin with a snapshot
	selector watch.Selector
}

// selectionOf checks what a caller wants to watch.
func (d *Door) selectionOf(who *caller, r *pb.WatchRequest) (selection, error) {
	if r.GetName() == nil {
		return selection{}, invalid("name", "is missing")
	}
	s := selection{name: inScope(r.Name), prefix: r.Prefix, after: incumbent.Index(r.AfterIndex)}
	s.name.Lease = r.Name.Name
	check := s.name
	if s.prefix && check.Lease == "" {
		check.Lease = "any" // the prefix may be empty, namespace and model may not be wrong
	}
	if err := check.Validate(); err != nil {
		return s, inField("name", err)
	}
	if err := d.allowRead(who, auth.Watch, s.name); err != nil {
		return s, err
	}
	t := engine.LeaseTopic(s.name)
	if s.selector = watch.Exact(t); s.prefix {
		s.selector = watch.Prefix(t.Kind, t.Scope, t.Name)
	}
	return s, nil
}

// snapshot takes a piece of the leases that match and are held, behind after,
// and reports whether there may be more.
func (s *selection) snapshot(f *former, after incumbent.Name) (out []*pb.LeaseEvent, last incumbent.Name, more bool) {
	room := room{left: pullEvents, bytes: pullBytes}
	take := func(l *core.Lease) {
		e := &pb.LeaseEvent{Index: uint64(l.Modified), What: present, Lease: f.lease(l), PreviousHolder: l.PreviousHolder}
		room.use(e)
		out = append(out, e)
	}
	if !s.prefix {
		if l := f.view.Lease(s.name); !l.Free() {
			take(l)
		}
		return out, s.name, false
	}
	looked := 0
	f.view.Leases(s.name.Namespace, s.name.Model, s.name.Lease, after, func(l *core.Lease) bool {
		if room.full() || looked == ScanSlice {
			more = true
			return false
		}
		looked++
		last = l.Name
		if !l.Free() {
			take(l)
		}
		return true
	})
	return out, last, more
}

// eventOf writes a change of a lease; nil for one that says nothing to a
// watcher: that the record of a free lease was dropped.
func (f *former) eventOf(e *watch.Event) *pb.LeaseEvent {
	c := changeOf(e)
	if c.Lease == nil {
		return nil
	}
	out := &pb.LeaseEvent{Index: uint64(c.Index), What: c.What.String(), Lease: f.lease(c.Lease)}
	if b := c.LeaseBefore; b != nil {
		out.PreviousHolder, out.PreviousToken = b.Holder, uint64(b.Token)
	}
	return out
}

// Watch sends a snapshot or resumes, then sends changes until the caller goes.
func (s leaseService) Watch(ctx context.Context, r *connect.Request[pb.WatchRequest], out *connect.ServerStream[pb.WatchResponse]) error {
	if err := s.watch(ctx, r.Msg, out); err != nil {
		return s.d.callError(err)
	}
	return nil
}

func (s leaseService) watch(ctx context.Context, r *pb.WatchRequest, out *connect.ServerStream[pb.WatchResponse]) error {
	who := callerOf(ctx)
	sel, err := s.d.selectionOf(who, r)
	if err != nil {
		return err
	}
	ctx, stop := s.d.untilDrained(ctx)
	defer stop()
	admitted, err := s.d.admit(ctx, admit.Watches, 1)
	if err != nil {
		return err
	}
	admitted()
	from := sel.after
	if from == 0 {
		from, err = s.d.sendSnapshot(ctx, &sel, out.Send)
	} else {
		err = s.d.awaitIndex(ctx, from)
	}
	if err != nil {
		return err
	}
	return s.d.follow(ctx, &sel, from, out.Conn().Send)
}

// sendSnapshot sends what matches in a confirmed state, and returns its index.
func (d *Door) sendSnapshot(ctx context.Context, sel *selection, send func(*pb.WatchResponse) error) (incumbent.Index, error) {
	if err := d.confirmed(ctx); err != nil {
		return 0, err
	}
	f := d.former()
	var at incumbent.Name
	for more := true; more; {
		var events []*pb.LeaseEvent
		events, at, more = sel.snapshot(f, at)
		m := &pb.WatchResponse{Events: events, Snapshot: true, More: more}
		if !more {
			m.ProgressIndex = uint64(f.view.Index())
		}
		if err := send(m); err != nil {
			return 0, err
		}
	}
	return f.view.Index(), nil
}

// awaitIndex returns at once for an index this member has published. For a later
// one it asks what the cluster has: of what exists there this member has heard by
// the time of the answer.
func (d *Door) awaitIndex(ctx context.Context, i incumbent.Index) error {
	if i <= d.hub.Index() {
		return nil
	}
	if err := d.confirmed(ctx); err != nil {
		return err
	}
	return exists(i, d.view())
}

// exists returns Compacted, the kind that has clients start over, for an index
// that a confirmed view has not come to: waiting would be in vain, or until
// indexes of another history reach it.
func exists(i incumbent.Index, confirmed *core.View) error {
	if at := confirmed.Index(); i > at {
		return incumbent.Errorf(incumbent.Compacted, "index %d does not exist yet, the cluster is at %d", i, at).
			WithHint("the index is of another cluster or of a state that was lost: read the current state, then watch from its index")
	}
	return nil
}

// follow sends what happens after an index, and where nothing does, how far
// that is certain.
func (d *Door) follow(ctx context.Context, sel *selection, from incumbent.Index, send func(any) error) error {
	woken := make(chan struct{}, 1)
	reader, err := d.hub.Subscribe(from, func() {
		select {
		case woken <- struct{}{}:
		default:
		}
	}, sel.selector)
	if err != nil {
		return err
	}
	defer reader.Close()
	tick := time.NewTicker(d.progressEvery)
	defer tick.Stop()
	var buf []*watch.Event
	for said := from; ; {
		batch, err := reader.Pull(buf[:0], pullEvents, pullBytes)
		if err != nil {
			return err
		}
		buf = batch.Events
		if len(batch.Events) > 0 {
			said = batch.Progress
			if err := send(d.piece(batch)); err != nil {
				return err
			}
			clear(buf) // history may be done with them
		}
		if batch.More {
			continue
		}
		select {
		case <-woken:
		case <-tick.C:
			if p := reader.Progress(); p > said {
				said = p
				if err := send(&pb.WatchResponse{ProgressIndex: uint64(p)}); err != nil {
					return err
				}
			}
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
