package native

import (
	"math/rand/v2"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/calls"
)

// What waits in line at a member.
const (
	MaxWaitingBytes = 64 << 20 // of frames that wait, as they are in memory
	waitingBytes    = 512      // that one takes beside what came: decoded, and with its place
	linePause       = 5 * time.Millisecond
)

// waitingFrame is how a client begins, or goes on, and found no room for it at this member:
//
//	frame ─▶ begin, if nobody waits in its lane's line ─▶ answer
//	  │                        ▲
//	  └─▶ line ── its turn ────┘
//
// Thousands come in the same second when a member has ended, or all have. If each were
// refused and came back, both sides would do little else; so each waits for its turn for as
// long as it says it can.
type waitingFrame struct {
	s        *stream
	f        *pb.ClientFrame
	deadline time.Time // when it waits no longer, and is refused
	who      admit.Who // of whose room it takes
	bytes    int64
}

// laneOf is the lane by which a frame begins. NumLanes: it is not one that waits in line.
func (s *stream) laneOf(f *pb.ClientFrame) admit.Lane {
	switch r := f.Request.(type) {
	case *pb.ClientFrame_Start:
		if s.opens(r.Start) {
			return calls.OpenSession.Lane()
		}
		return calls.Attach.Lane()
	case *pb.ClientFrame_Lock:
		return calls.LockKey.Lane()
	case *pb.ClientFrame_Watch, *pb.ClientFrame_WatchKeys, *pb.ClientFrame_WatchService:
		return calls.WatchLeases.Lane()
	}
	return admit.NumLanes
}

// enter begins what a frame asks for, unless it has to wait in line. w is nil where it is
// not the worker who calls. An error is the answer, to what hangs on the frame as well.
func (s *stream) enter(w *bench, f *pb.ClientFrame, deadline time.Time) error {
	if !deadline.IsZero() {
		if l := s.laneOf(f); l < admit.NumLanes && s.door.lines[l].Len() > 0 && s.waits(l, f, deadline) {
			return nil
		}
	}
	err := s.begin(w, f, deadline)
	if s.waitsAfter(err, f, deadline) {
		return nil
	}
	return err
}

// waitsAfter has a frame wait that was refused for the load, and reports whether it does.
func (s *stream) waitsAfter(err error, f *pb.ClientFrame, deadline time.Time) bool {
	if deadline.IsZero() || incumbent.KindOf(err) != incumbent.Overloaded || s.underWay.Load() >= MaxOpsPerStream {
		return false
	}
	l := s.laneOf(f)
	return l < admit.NumLanes && s.waits(l, f, deadline)
}

// waits has a frame wait in a lane's line, if memory allows, and says so to who starts: who
// watches has nothing to decide meanwhile.
func (s *stream) waits(l admit.Lane, f *pb.ClientFrame, deadline time.Time) bool {
	d := s.door
	w := &waitingFrame{s: s, f: f, deadline: deadline, who: s.who.work(""), bytes: int64(proto.Size(f)) + waitingBytes}
	if d.lanes.Holds(l) != nil || !d.waiting.Take(w.who, w.bytes, MaxWaitingBytes) {
		return false
	}
	if f.GetStart() != nil {
		s.reply(&pb.ServerFrame{Id: f.Id, Answer: &pb.ServerFrame_Waiting{Waiting: &pb.Waiting{Ahead: uint32(d.lines[l].Len())}}})
	}
	d.lines[l].Join(w)
	return true
}

// WaitingBytes is how much of frames is kept that wait in line.
func (d *Door) WaitingBytes() int64 { return d.waiting.Taken() }

// initLines makes the lines.
func (d *Door) initLines() {
	for l := range d.lines {
		line := &d.lines[l]
		line.Pause, line.Run, line.Over = linePause, d.work.Put, d.over
		line.Enter = func(w *waitingFrame) bool { return d.letIn(admit.Lane(l), w) }
	}
}

// letIn begins with a frame whose turn it is in a lane's line. false: there is no room yet.
func (d *Door) letIn(l admit.Lane, w *waitingFrame) bool {
	if now := w.s.laneOf(w.f); now != l { // its session has been opened meanwhile, or ended
		d.lines[now].Join(w)
		return true
	}
	err := w.s.begin(nil, w.f, w.deadline)
	if incumbent.KindOf(err) == incumbent.Overloaded {
		return false
	}
	d.waiting.Give(w.who, w.bytes)
	if err != nil {
		w.s.refuseAll(w.f, err)
	}
	return true
}

// over reports whether a frame waits no longer: its stream has ended, or its time.
func (d *Door) over(w *waitingFrame) bool {
	gone := w.s.isGone()
	if !gone && d.now().Before(w.deadline) {
		return false
	}
	d.waiting.Give(w.who, w.bytes)
	if !gone {
		err := incumbent.Errorf(incumbent.Overloaded, "others came before, and this member did not get round to it in the time that was given")
		err.RetryAfter = admit.DefaultRetry + rand.N(admit.DefaultRetry)
		w.s.refuseAll(w.f, err.WithHint("come back after the given time, or give it more"))
	}
	return true
}

// refuseAll refuses a frame, and what waits for it.
func (s *stream) refuseAll(f *pb.ClientFrame, err error) {
	s.refuse(f.GetId(), err)
	for _, then := range f.GetStart().GetThen() {
		s.refuse(then.GetId(), err)
	}
}

func (s *stream) isGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}
