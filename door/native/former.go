package native

import (
	"context"
	"time"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
)

// former writes records of one view in the protocol's form. What only the
// leader's memory knows is noted while writing, and asked for in one go when
// all is written: see fill.
type former struct {
	d        *Door
	view     *core.View
	sight    sight
	asked    []lease.Inspected
	leases   []*pb.Lease   // beside asked, where it is of a lease
	sessions []*pb.Session // beside asked, where it is of a session
}

// former is one that writes for a caller; nil is somebody who is shown no session.
func (d *Door) former(who *caller) *former { return d.formerFor(d.sightOf(who)) }

func (d *Door) formerFor(s sight) *former { return &former{d: d, view: d.view(), sight: s} }

// forget makes ready for the next answer that asks nothing.
func (f *former) forget() {
	clear(f.leases)
	clear(f.sessions)
	f.asked, f.leases, f.sessions = f.asked[:0], f.leases[:0], f.sessions[:0]
}

// lease writes a lease without its history; nil gives nil.
func (f *former) lease(l *leases.Lease) *pb.Lease {
	if l == nil {
		return nil
	}
	p := leasePB(l, f.ttl(l), false)
	p.Session = f.sessionID(l.Session)
	return p
}

// kept writes a lease that fill will complete.
func (f *former) kept(l *leases.Lease, full bool) *pb.Lease {
	p := leasePB(l, f.ttl(l), full)
	p.Session = f.sessionID(l.Session)
	if full {
		p.Queue = f.queue(leases.Of(f.view).Queue(l.Name))
	}
	if !l.Free() {
		f.ask(lease.Inspected{Token: l.Token}, p, nil)
	}
	return p
}

func (f *former) ask(i lease.Inspected, l *pb.Lease, s *pb.Session) {
	f.asked = append(f.asked, i)
	f.leases = append(f.leases, l)
	f.sessions = append(f.sessions, s)
}

// fill completes what was written, and calls done on a goroutine of the door,
// or at once if there is nothing to ask. With an error (Overloaded, Unavailable)
// nothing was asked, and what only the leader knows is left unknown. Whoever fills
// has a place in a lane until done was called.
func (f *former) fill(done func(error)) {
	if len(f.asked) == 0 {
		done(nil)
		return
	}
	f.d.leases.Inspect(&lease.Inspection{Items: f.asked, Done: func(q *lease.Inspection) {
		f.d.work.Put(func() {
			f.complete(q.Items)
			if q.Err != nil {
				done(q.Err)
				return
			}
			done(nil)
		})
	}})
}

func (f *former) complete(items []lease.Inspected) {
	for i := range items {
		it := &items[i]
		if l := f.leases[i]; l != nil {
			l.ExpiresInMs, l.Extends, l.LastExtendMsAgo = ms(it.ExpiresIn), it.Extends, -1
			if it.LastExtend >= 0 {
				l.LastExtendMsAgo = it.LastExtend.Milliseconds()
			}
			continue
		}
		f.sessions[i].ExpiresInMs, f.sessions[i].Attached = ms(it.ExpiresIn), it.Attached
	}
}

// filled is fill for a caller who waits.
func (f *former) filled(ctx context.Context) error {
	place := placeOf(ctx).keep()
	done := make(chan error, 1)
	f.fill(func(err error) {
		place.leave()
		done <- err
	})
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// ttl is what the lease lives by: its own, or its session's.
func (f *former) ttl(l *leases.Lease) time.Duration {
	if l.Session.IsZero() {
		return l.TTL
	}
	if s := f.view.Session(l.Session); s != nil {
		return s.TTL
	}
	return 0
}

// claimed answers a claim that asked for ttl; more than that is not promised,
// though the lease may be logged for longer. A repeated request says no time,
// for its first attempt may be long ago; neither does a lease that lives by its
// session (ttl 0), whose own extensions tell.
func (f *former) claimed(r core.Result, ttl time.Duration) *pb.ClaimResponse {
	c := &pb.ClaimResponse{
		Lease:    f.lease(leases.AnswerOf(r).Lease),
		Granted:  leases.AnswerOf(r).Granted,
		Queued:   leases.AnswerOf(r).Queued,
		Position: uint32(max(leases.AnswerOf(r).Position, 0)),
		Index:    uint64(r.Index),
	}
	if !leases.AnswerOf(r).Queued && !r.Replayed {
		c.HeldMs = ms(ttl)
	}
	return c
}

// opened answers the opening of a session. One that was open before is not
// extended by that.
func (f *former) opened(r core.Result) *pb.OpenSessionResponse {
	o := &pb.OpenSessionResponse{Index: uint64(r.Index)}
	if r.Session == nil {
		return o
	}
	o.Session = f.session(r.Session)
	if !r.Replayed && r.Session.Opened == r.Index {
		o.HeldMs = ms(r.Session.TTL)
	}
	return o
}

// session writes a session; its leases are counted up to what one may own.
func (f *former) session(s *core.Session) *pb.Session {
	n := 0
	leases.Of(f.view).OfSession(s.ID, func(*leases.Lease) bool { n++; return true })
	return f.counted(s, n)
}

// counted writes a session with so many leases.
func (f *former) counted(s *core.Session, leases int) *pb.Session {
	p := sessionPB(s, leases)
	f.ask(lease.Inspected{Session: s.ID}, nil, p)
	return p
}

// result answers one operation.
func (f *former) result(o *operation, r core.Result) *pb.OperationResult {
	if r.Err != nil {
		return &pb.OperationResult{Error: errorPB(r.Err, f.d.standing(), f.lease(leases.AnswerOf(r).Lease))}
	}
	return o.answer(f, r)
}

// failed answers an operation that was refused before it was tried.
func (d *Door) failed(err error) *pb.OperationResult {
	return &pb.OperationResult{Error: errorPB(err, d.standing(), nil)}
}
