package native

import (
	"slices"
	"sync/atomic"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/lease"
	"github.com/incumbent-dev/incumbent/overload"
)

// What waits in line at a member.
const (
	MaxWaitingBytes     = 64 << 20                                   // of frames that wait, with what each takes beside
	MaxWaitingPerStream = MaxSessionsPerStream + MaxWatchesPerStream // frames of one stream
	waitingBytes        = 256                                        // that one takes beside what came
	linePause           = 5 * time.Millisecond
	waitingAgain        = 5 * time.Second        // after which a start that waits is told so once more
	beatsPerTTL         = 3                      // its session is extended so often
	beatAgain           = 300 * time.Millisecond // after which that is tried again
)

// waitingFrame is a start or a watch for which there was no room when it came:
//
//	frame ─▶ enter: a place in its lane, if nobody waits ─▶ beginIn ─▶ answer
//	           │                                               ▲
//	           └─▶ line of the lane ── its turn: a place ──────┘
//
// Thousands come in the same second when a member has ended, or all have. If each were
// refused and came back, both sides would do little else; so each waits for its turn for as
// long as it says it can. It is kept as it came: decoded, it may be many times as large.
type waitingFrame struct {
	s        *stream
	id       uint64
	encoded  []byte
	decoded  *pb.ClientFrame     // of who is first; of the goroutine that looks, as told is
	told     time.Time           // when its client was told last that a start waits
	session  incumbent.SessionID // of a start; zero: it is a watch
	beats    atomic.Int64        // when that is extended next, in ns of the wall clock; 0: at once
	deadline time.Time           // when it waits no longer, and is refused
	who      admit.Who           // of whose room it takes
	givenUp  atomic.Bool         // by its client, before its turn
}

func (w *waitingFrame) bytes() int64 { return int64(len(w.encoded)) + waitingBytes }

// laneOf is the lane in which a start or a watch begins.
func (s *stream) laneOf(f *pb.ClientFrame) admit.Lane {
	r := f.GetStart()
	switch {
	case r == nil:
		return calls.WatchLeases.Lane()
	case s.opens(r):
		return calls.OpenSession.Lane()
	}
	return calls.Attach.Lane()
}

// enter begins a start or a watch, or has it wait for its turn.
func (s *stream) enter(f *pb.ClientFrame, deadline time.Time) error {
	who := s.who.work(groupOfFrame(f))
	if r := f.GetStart(); r != nil {
		if err := validateStart(f.Id, r); err != nil {
			return err
		}
		who = admit.Who{}
	}
	l, d := s.laneOf(f), s.door
	if d.lines[l].Len() > 0 && s.waits(l, f, deadline) {
		return nil
	}
	place, err := d.lanes.Enter(who, l, 1)
	if err != nil {
		if s.waits(l, f, deadline) {
			return nil
		}
		return err
	}
	return s.beginIn(l, place, f, deadline)
}

// beginIn begins a start or a watch that has its place in its lane.
func (s *stream) beginIn(l admit.Lane, place admit.Place, f *pb.ClientFrame, deadline time.Time) (err error) {
	switch r := f.Request.(type) {
	case *pb.ClientFrame_Start:
		err = s.count(func() error { return s.start(l, place, f, r.Start, deadline) })
	case *pb.ClientFrame_Watch:
		sel, refusal := s.door.selectLeases(s.who, r.Watch.GetWatch())
		err = s.watch(place, f.Id, sel, refusal)
	case *pb.ClientFrame_WatchKeys:
		sel, refusal := s.door.selectKeys(s.who, r.WatchKeys)
		err = s.watch(place, f.Id, sel, refusal)
	case *pb.ClientFrame_WatchService:
		sel, refusal := s.door.selectService(s.who, r.WatchService)
		err = s.watch(place, f.Id, sel, refusal)
	case *pb.ClientFrame_WatchTables:
		err = s.watchTables(place, f.Id, r.WatchTables)
	}
	if err != nil {
		place.Drop()
	}
	return err
}

// waits has a frame wait in a lane's line, and says so to who starts: who watches has
// nothing to decide meanwhile. false: it does not say for how long it can, memory does not
// allow it, or nothing moves here and its client had better go to another member.
func (s *stream) waits(l admit.Lane, f *pb.ClientFrame, deadline time.Time) bool {
	d := s.door
	if deadline.IsZero() || d.still.lasts(d.monotonic()) || d.lanes.Holds(l) != nil {
		return false
	}
	encoded, err := proto.Marshal(f)
	if err != nil {
		return false // it has been decoded just now
	}
	w := &waitingFrame{s: s, id: f.Id, encoded: encoded, deadline: deadline, who: s.who.work(groupOfFrame(f)), told: d.now()}
	if r := f.GetStart(); r != nil {
		if w.session, err = neededSession("start.session", r.GetSession()); err != nil {
			return false // it has been looked at
		}
	}
	if !w.keep() {
		return false
	}
	if w.starts() {
		w.tell(d.lines[l].Len())
	}
	d.lines[l].Join(w)
	return true
}

// starts reports whether it is a start.
func (w *waitingFrame) starts() bool { return !w.session.IsZero() }

// beat keeps the session of a start that waits: nobody else does, and the wait may be longer
// than it lives. It takes no place: thousands that wait for one would fill the lane of
// extensions at the same moment, which would shut theirs.
func (w *waitingFrame) beat(now time.Time) {
	if !w.starts() || now.UnixNano() < w.beats.Load() {
		return
	}
	d := w.s.door
	found := d.view().Session(w.session)
	if found == nil || d.allowSession(w.s.who, auth.SessionUse, w.session) != nil {
		w.beats.Store(now.Add(beatAgain).UnixNano()) // it may not be applied yet; else it is told when its turn has come
		return
	}
	w.beats.Store(now.Add(found.TTL / beatsPerTTL).UnixNano())
	d.leases.Extend(&lease.Batch{
		Items: []lease.Extension{{Session: w.session}}, Patience: beatPatience,
		Done: func(b *lease.Batch) {
			if b.Items[0].Kind.Transient() {
				w.beats.Store(min(w.beats.Load(), d.now().Add(max(beatAgain, b.RetryAfter)).UnixNano()))
			}
		},
	})
}

// tell tells who starts that it waits.
func (w *waitingFrame) tell(ahead int) {
	w.s.reply(&pb.ServerFrame{Id: w.id, Answer: &pb.ServerFrame_Waiting{Waiting: &pb.Waiting{Ahead: uint32(ahead)}}})
}

// keep notes a frame that waits, if there is room for it at the door, and its stream may have
// one more.
func (w *waitingFrame) keep() bool {
	s := w.s
	if !s.door.waiting.Take(w.who, w.bytes(), s.door.lanes.Bound(MaxWaitingBytes)) {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone || len(s.others().inLine) == MaxWaitingPerStream {
		s.door.waiting.Give(w.who, w.bytes())
		return false
	}
	s.open.inLine = append(s.open.inLine, w)
	return true
}

// forget gives back what a frame took that waits no longer.
func (w *waitingFrame) forget() {
	s := w.s
	s.door.waiting.Give(w.who, w.bytes())
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		return // it has ended
	}
	if all := slices.DeleteFunc(s.open.inLine, func(o *waitingFrame) bool { return o == w }); len(all) > 0 {
		s.open.inLine = all
	} else {
		s.open.inLine = nil
	}
}

func (s *stream) isGone() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

// WaitingBytes is how much of frames is kept that wait in line.
func (d *Door) WaitingBytes() int64 { return d.waiting.Taken() }

// initLines makes the lines.
func (d *Door) initLines() {
	for l := range d.lines {
		line := &d.lines[l]
		line.Pause, line.Run = linePause, d.work.Put
		line.Over = func(w *waitingFrame) bool { return d.over(admit.Lane(l), w) }
		line.Enter = func(w *waitingFrame) admit.Turn {
			if d.letIn(admit.Lane(l), w) {
				return admit.Begun
			}
			return admit.NoRoom
		}
	}
}

// letIn begins with a frame whose turn it is in a lane's line. false: there is no room yet.
func (d *Door) letIn(l admit.Lane, w *waitingFrame) bool {
	if d.over(l, w) {
		return true
	}
	f := w.frame()
	if now := w.s.laneOf(f); now != l { // its session has been opened meanwhile, or has ended
		d.lines[now].Join(w)
		return true
	}
	place, why := d.lanes.EnterNext(admit.Who{}, l, 1)
	if why != admit.NumReasons {
		return false
	}
	err := w.s.beginIn(l, place, f, w.deadline)
	if w.begun(err) {
		w.s.refuseAll(f, err)
	}
	return true
}

// begun takes a frame out of line that has begun, or was refused with err: whoever ends a watch
// finds it in line or open, or both. It reports whether err is to be told: who gave the watch
// up meanwhile was answered, and its id may be that of another one by now.
func (w *waitingFrame) begun(err error) (tell bool) {
	w.forget()
	givenUp := w.givenUp.Load()
	if givenUp && err == nil {
		w.s.endWatch(w.id)
	}
	return err != nil && !givenUp
}

// frame is what came.
func (w *waitingFrame) frame() *pb.ClientFrame {
	if w.decoded == nil {
		w.decoded = &pb.ClientFrame{}
		if err := proto.Unmarshal(w.encoded, w.decoded); err != nil {
			panic(err) // the door has encoded it
		}
	}
	return w.decoded
}

// over reports whether a frame waits in a lane's line no longer: its stream has ended, its client
// does not want it, its time is over, nothing moves here any more, or memory has become short for
// the lane: it would refuse who comes now, and what waits takes memory as well. Who starts and
// waits on is told so again now and then: a member that says nothing might have ended.
func (d *Door) over(l admit.Lane, w *waitingFrame) bool {
	now, done := d.now(), w.givenUp.Load() || w.s.isGone()
	var err error
	switch {
	case done:
	case !now.Before(w.deadline):
		err = errNotInTime()
	case w.starts() && d.still.lasts(d.monotonic()):
		err = errStandstill()
	default:
		if err = d.lanes.Holds(l); err != nil {
			break
		}
		w.beat(now)
		if w.starts() && now.Sub(w.told) >= waitingAgain {
			w.told = now
			w.tell(0)
		}
		return false
	}
	w.forget()
	if err != nil {
		w.s.refuseAll(w.frame(), err)
	}
	return true
}

// errNotInTime is what a frame is refused with whose time is over before its turn.
func errNotInTime() error {
	return overload.Errorf("others came before, and this member did not get round to it in the time that was given").
		WithHint("come back after the given time, or give it more")
}

// refuseAll refuses a frame, and what waits for it.
func (s *stream) refuseAll(f *pb.ClientFrame, err error) {
	s.refuse(f.GetId(), err)
	for _, then := range f.GetStart().GetThen() {
		s.refuse(then.GetId(), err)
	}
}
