package native

import (
	"context"
	"time"

	"connectrpc.com/connect"
	"github.com/gobwas/ws"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
	"github.com/incumbent-dev/incumbent/websocket"
)

// eventEncoding is this door's number among the encodings of an event: a
// LeaseEvent as an element of WatchResponse.events, tag and length included.
const eventEncoding watch.Encoding = 'n'

// present is the word for what a snapshot shows.
const present = "present"

// Field numbers of lease.proto that are written by hand.
const (
	fieldEvents   = 1 // WatchResponse
	fieldProgress = 2 // WatchResponse
	fieldSnapshot = 3 // WatchResponse
	fieldWatch    = 7 // ServerFrame
)

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

// snapshot takes at most limit leases that match and are held, behind after,
// and reports whether there may be more.
func (s *selection) snapshot(f *former, after incumbent.Name, limit int) (out []*pb.LeaseEvent, last incumbent.Name, more bool) {
	take := func(l *core.Lease) {
		out = append(out, &pb.LeaseEvent{Index: uint64(l.Modified), What: present, Lease: f.lease(l), PreviousHolder: l.PreviousHolder})
	}
	if !s.prefix {
		if l := f.view.Lease(s.name); !l.Free() {
			take(l)
		}
		return out, s.name, false
	}
	looked := 0
	f.view.Leases(s.name.Namespace, s.name.Model, s.name.Lease, after, func(l *core.Lease) bool {
		if len(out) == limit || looked == ScanSlice {
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

// encodedEvent is eventOf in bytes, made once for all streams.
func (d *Door) encodedEvent(e *watch.Event) []byte {
	return e.Encode(eventEncoding, func(e *watch.Event) []byte {
		m := d.former().eventOf(e)
		if m == nil {
			return nil
		}
		return appendEvent(nil, m)
	})
}

// appendEvent appends a LeaseEvent as an element of WatchResponse.events.
func appendEvent(b []byte, m *pb.LeaseEvent) []byte {
	opts := proto.MarshalOptions{UseCachedSize: true}
	b = appendBytesHead(b, fieldEvents, proto.Size(m))
	b, err := opts.MarshalAppend(b, m)
	if err != nil {
		panic(incumbent.Errorf(incumbent.Internal, "encode an event of lease %v: %w", m.Lease, err))
	}
	return b
}

// watchFrame is the beginning of a WebSocket message that answers watch id
// with events of size bytes, which follow it.
func watchFrame(id uint64, size int, progress incumbent.Index, snapshot bool) []byte {
	body := size + sizeVarintField(uint64(progress))
	if snapshot {
		body += 2
	}
	frame := sizeVarintField(id) + 1 + protowire.SizeBytes(body)
	message := 1 + protowire.SizeBytes(frame)
	b := make([]byte, 0, websocket.MaxHeader+32)
	b = websocket.AppendHead(b, ws.OpBinary, message)
	b = appendBytesHead(b, fieldFrames, frame)
	b = appendVarintField(b, fieldID, id)
	b = appendBytesHead(b, fieldWatch, body)
	b = appendVarintField(b, fieldProgress, uint64(progress))
	if snapshot {
		b = appendVarintField(b, fieldSnapshot, 1)
	}
	return b
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
	send := func(m *pb.WatchResponse) error {
		return out.Send(m)
	}
	from := sel.after
	if from == 0 {
		if from, err = s.d.sendSnapshot(ctx, &sel, send); err != nil {
			return err
		}
	}
	return s.d.follow(ctx, &sel, from, send)
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
		events, at, more = sel.snapshot(f, at, pullEvents)
		m := &pb.WatchResponse{Events: events, Snapshot: true}
		if !more {
			m.ProgressIndex = uint64(f.view.Index())
		}
		if err := send(m); err != nil {
			return 0, err
		}
	}
	return f.view.Index(), nil
}

// follow sends what happens after an index, and where nothing does, how far
// that is certain.
func (d *Door) follow(ctx context.Context, sel *selection, from incumbent.Index, send func(*pb.WatchResponse) error) error {
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
		batch, err := reader.Pull(buf[:0], pullEvents)
		if err != nil {
			return err
		}
		buf = batch.Events
		if len(batch.Events) > 0 {
			said = batch.Progress
			if err := send(d.former().response(batch)); err != nil {
				return err
			}
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

func (f *former) response(b watch.Batch) *pb.WatchResponse {
	m := &pb.WatchResponse{ProgressIndex: uint64(b.Progress)}
	for _, e := range b.Events {
		if out := f.eventOf(e); out != nil {
			m.Events = append(m.Events, out)
		}
	}
	return m
}
