package native

import (
	"context"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/overload"
)

// general serves a frame that is not of the hot path. What it begins is
// answered later, from a goroutine of the door.
func (s *stream) general(w *bench, f *clientFrame, now time.Time) {
	deadline := time.Time{}
	if f.timeoutMS != 0 {
		deadline = now.Add(time.Duration(f.timeoutMS) * time.Millisecond)
	}
	if err := s.begin(w, f.general, deadline); err != nil {
		s.refuseNow(w, f.id, err)
		for _, then := range f.general.GetStart().GetThen() {
			s.refuseNow(w, then.GetId(), err)
		}
	}
}

// begin starts what a frame asks for. An error is the answer; nil says that
// one will come.
func (s *stream) begin(w *bench, f *pb.ClientFrame, deadline time.Time) error {
	switch r := f.Request.(type) {
	case *pb.ClientFrame_Cancel:
		return s.cancel(f.Id, r.Cancel.GetId())
	case *pb.ClientFrame_Unwatch:
		return s.unwatch(f.Id, r.Unwatch.GetId())
	case *pb.ClientFrame_Detach:
		return s.detachFrame(f.Id, r.Detach)
	case *pb.ClientFrame_Start, *pb.ClientFrame_Watch, *pb.ClientFrame_WatchKeys, *pb.ClientFrame_WatchService, *pb.ClientFrame_WatchTables:
		return s.enter(f, deadline)
	case *pb.ClientFrame_WaitReleased:
		return s.waitReleased(f.Id, r.WaitReleased)
	case *pb.ClientFrame_ExtendTokens, *pb.ClientFrame_Beat:
		return s.beginHot(w, f)
	}
	return s.count(func() error { return s.beginCounted(w, f, deadline) })
}

// count begins what has one answer, if not too much is under way.
func (s *stream) count(begin func() error) error {
	if s.underWay.Add(1) > MaxOpsPerStream {
		s.underWay.Add(-1)
		return tooManyUnderWay("requests", MaxOpsPerStream)
	}
	err := begin()
	if err != nil {
		s.underWay.Add(-1)
	}
	return err
}

func tooManyUnderWay(what string, limit int) error {
	return overload.Errorf("%d %s of this stream are under way, the limit", limit, what).
		WithHint("wait for answers before sending more")
}

// beginHot serves a frame of the hot path that came in an unusual form.
func (s *stream) beginHot(w *bench, f *pb.ClientFrame) error {
	hot := clientFrame{id: f.Id, timeoutMS: f.TimeoutMs, kind: beatFrame}
	if r, ok := f.Request.(*pb.ClientFrame_ExtendTokens); ok {
		hot.kind, hot.first, hot.count = tokensFrame, len(w.decoder.tokens), len(r.ExtendTokens.GetTokens())
		w.decoder.tokens = append(w.decoder.tokens, r.ExtendTokens.GetTokens()...)
	}
	s.frame(w, &hot, time.Time{})
	return nil
}

// beginCounted starts what has one answer; whoever gives it counts it off.
func (s *stream) beginCounted(w *bench, f *pb.ClientFrame, deadline time.Time) error {
	switch r := f.Request.(type) {
	case *pb.ClientFrame_Operation:
		return s.operation(w, f.Id, r.Operation, deadline)
	case *pb.ClientFrame_Attach:
		return s.attach(f.Id, r.Attach)
	case *pb.ClientFrame_Get:
		return s.read(f.Id, deadline, calls.GetLease.LaneOfRead(r.Get.GetStale()), r.Get.GetStale(), groupOf(r.Get), func(fm *former) (*pb.ServerFrame, error) {
			out, err := fm.get(s.who, r.Get)
			return &pb.ServerFrame{Id: f.Id, Answer: &pb.ServerFrame_Get{Get: out}}, err
		})
	case *pb.ClientFrame_GetSession:
		return s.read(f.Id, deadline, s.laneOfSession(r.GetSession), r.GetSession.GetStale(), 0, func(fm *former) (*pb.ServerFrame, error) {
			out, err := fm.getSession(s.who, r.GetSession)
			return &pb.ServerFrame{Id: f.Id, Answer: &pb.ServerFrame_GetSession{GetSession: out}}, err
		})
	}
	return s.keys(f, deadline)
}

// laneOfSession is the lane of a read of a session: for the pages that follow the answer to its
// attachment to this stream, that of the attachment, which is of no use without them.
func (s *stream) laneOfSession(r *pb.GetSessionRequest) admit.Lane {
	if id, err := neededSession("id", r.GetId()); err == nil && r.GetAfter() != nil {
		s.mu.Lock()
		_, here := s.counterOf(id)
		s.mu.Unlock()
		if here {
			return calls.Attach.Lane()
		}
	}
	return calls.GetSession.LaneOfRead(r.GetStale())
}

// operation hands an operation on. Extensions of this stream that were read
// before it go first, so that the order is that of sending.
func (s *stream) operation(w *bench, id uint64, in *pb.Operation, deadline time.Time) error {
	if _, ok := in.GetOp().(*pb.Operation_Extend); ok {
		return s.extendOne(w, id, in.GetExtend())
	}
	place, err := s.door.lanes.Enter(s.who.work(groupOfOperation(in)), callOf(in).Lane(), 1)
	if err != nil {
		return err
	}
	o, err := operationOf(s.who.principal, in)
	if err == nil {
		err = s.door.deniedOp(s.who, o, s.door.allow(s.who, o))
	}
	if err != nil {
		place.Drop()
		return err
	}
	s.settle(w)
	way := &streamOp{s: s, id: id, op: o, about: o, place: place}
	s.door.submit(s.door.callBy(deadline, s.who, o), o, way.settled)
	return nil
}

// extendOne extends one thing, named in any of the ways.
func (s *stream) extendOne(w *bench, id uint64, in *pb.Extension) error {
	place, _, err := s.door.lanes.EnterExtensions(1, func(int) bool { return s.door.keepsCritical(s.who, in) })
	if err != nil {
		return err
	}
	e, err := s.door.extensionOf(s.who, in)
	if err != nil {
		place.Drop()
		return s.door.deniedExtension(s.who, &e, err)
	}
	b := &lease.Batch{Items: []lease.Extension{e}}
	s.settle(w)
	b.Done = func(b *lease.Batch) {
		s.door.work.Put(func() {
			place.Leave()
			s.underWay.Add(-1)
			s.answer(id, &pb.OperationResult{Result: &pb.OperationResult_Extend{Extend: s.door.extensionResult(b, 0)}})
		})
	}
	s.door.leases.Extend(b)
	return nil
}

// settle hands gathered extensions on if any are of this stream. What waited for a
// session (w is nil) has no place among them.
func (s *stream) settle(w *bench) {
	if w != nil && s.turn == w.turn && len(w.gather.frames) > 0 {
		s.door.flush(w)
	}
}

// answer answers an operation.
func (s *stream) answer(id uint64, r *pb.OperationResult) {
	if id != 0 {
		s.reply(answerFrame(id, r))
	}
}

// read runs a query on a confirmed view, or on this member's as it is.
func (s *stream) read(id uint64, deadline time.Time, lane admit.Lane, stale bool, group admit.Key, query func(*former) (*pb.ServerFrame, error)) error {
	place, err := s.door.lanes.Enter(s.who.work(group), lane, 1)
	if err != nil {
		return err
	}
	answer := func(out *pb.ServerFrame, err error) {
		place.Leave()
		s.underWay.Add(-1)
		if err != nil {
			s.refuse(id, err)
			return
		}
		s.reply(out)
	}
	run := func() {
		if err := s.door.late(deadline); err != nil {
			answer(nil, err)
			return
		}
		f := s.door.former(s.who)
		out, err := query(f)
		if err != nil || stale { // what only the leader knows would have to be asked for
			answer(out, err)
			return
		}
		f.fill(func(err error) { answer(out, err) })
	}
	if stale {
		s.door.work.Put(run)
		return nil
	}
	s.door.confirm(func(err error) {
		s.door.work.Put(func() {
			if err != nil {
				answer(nil, err)
				return
			}
			run()
		})
	})
	return nil
}

// late is the error of a request whose deadline has passed. Zero: it has none.
func (d *Door) late(deadline time.Time) error {
	if deadline.IsZero() || d.now().Before(deadline) {
		return nil
	}
	return context.DeadlineExceeded
}

// waitReleased begins a wait that the frame's id names.
func (s *stream) waitReleased(id uint64, r *pb.WaitReleasedRequest) error {
	if id == 0 {
		return invalid("id", "is 0; a wait is answered")
	}
	if err := s.roomForWait(id); err != nil {
		return err
	}
	if err := s.door.lanes.Passes(s.who.work(groupOf(r)), calls.WaitReleased.Lane()); err != nil {
		return err
	}
	w, err := s.door.waitReleased(s.who, r, func(released bool, err error) {
		s.door.work.Put(func() { s.waited(id, r, released, err) })
	})
	if err != nil {
		return err
	}
	s.mu.Lock()
	over := s.gone || w.isEnded()
	if !over {
		s.open.waits[id] = w
	}
	s.mu.Unlock()
	if over {
		w.cancel()
	}
	if s.door.allowRead(s.who, calls.WaitReleased.Action(), w.name) != nil {
		s.recheckWaits() // the policies changed before it was there to be looked at
	}
	return nil
}

func (s *stream) waited(id uint64, r *pb.WaitReleasedRequest, released bool, err error) {
	s.mu.Lock()
	if s.open != nil {
		if w := s.open.waits[id]; w != nil && w.isEnded() { // another may have the id by now
			delete(s.open.waits, id)
		}
	}
	s.mu.Unlock()
	f := s.door.former(s.who)
	if err == nil {
		name := inScope(r.Name)
		name.Lease = r.Name.GetName()
		err = s.door.allowRead(s.who, calls.WaitReleased.Action(), name)
	}
	if err != nil {
		s.refuse(id, err)
		return
	}
	s.reply(&pb.ServerFrame{Id: id, Answer: &pb.ServerFrame_WaitReleased{WaitReleased: f.released(r.Name, released)}})
}

// roomForWait checks that there may be one more wait, under this id. Waits begin one after
// the other.
func (s *stream) roomForWait(id uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.others()
	return o.room(id, len(o.waits), MaxWaitsPerStream, "waits")
}

// room checks that id is free and that there may be one more than n. With the stream's mu held.
func (o *opened) room(id uint64, n, limit int, what string) error {
	if o.watches[id] != nil || o.waits[id] != nil {
		return invalid("id", "%d is in use on this stream", id)
	}
	if n >= limit {
		return incumbent.Errorf(incumbent.TooLarge, "a stream carries up to %d %s", limit, what).WithHint("open another stream")
	}
	return nil
}

// cancel withdraws a wait. It succeeds for one that is over: its answer is on
// the way.
func (s *stream) cancel(id, wait uint64) error {
	s.mu.Lock()
	var w *waiting
	if s.open != nil {
		w = s.open.waits[wait]
		delete(s.open.waits, wait)
	}
	s.mu.Unlock()
	if w != nil {
		w.cancel()
	}
	s.done(id)
	return nil
}
