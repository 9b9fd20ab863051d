package native

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
)

// starting is a session on its way onto a stream that is opened first, if need be, and
// what waits for it:
//
//	start ─▶ open, unless it is ─▶ attach ─▶ answer ─▶ each frame of then, answered alone
//	                 ▲ it is over ──┘
//
// It has one place for all of that, and for the first lock of then: who has had its turn is
// not sent to the end of the line again.
type starting struct {
	s        *stream
	place    admit.Place
	frame    *pb.ClientFrame
	asked    *pb.Start // the frame's
	session  incumbent.SessionID
	deadline time.Time
	tried    bool // to open it
	opened   bool // it was not open before
}

// start opens a session, if its place is in the lane of that, attaches it, and begins what
// waits for that. What waits for it is refused by whoever refuses it, who gives the place back then.
func (s *stream) start(l admit.Lane, place admit.Place, f *pb.ClientFrame, r *pb.Start, deadline time.Time) (err error) {
	st := &starting{s: s, place: place, frame: f, asked: r, deadline: deadline}
	if st.session, err = neededSession("start.session", r.GetSession()); err != nil {
		return err
	}
	if l == calls.OpenSession.Lane() {
		return st.open()
	}
	return st.attach()
}

// opens reports whether a session has to be opened first. One that this member knows is
// attached as it is: that costs no entry of the log.
func (s *stream) opens(r *pb.Start) bool {
	if r.GetTtlMs() == 0 {
		return false
	}
	id, err := neededSession("start.session", r.GetSession())
	return err == nil && s.door.view().Session(id) == nil
}

// validateStart refuses a start for what can be seen in it.
func validateStart(id uint64, r *pb.Start) error {
	if id == 0 {
		return invalid("id", "is 0; a start is answered")
	}
	if _, err := neededSession("start.session", r.GetSession()); err != nil {
		return err
	}
	return validateThen(r.GetThen())
}

// validateThen refuses what cannot wait for a session.
func validateThen(then []*pb.ClientFrame) error {
	if len(then) > MaxThen {
		return invalid("start.then", "are %d, limit is %d", len(then), MaxThen)
	}
	for i, f := range then {
		switch r := f.GetRequest().(type) {
		case *pb.ClientFrame_Operation:
			if r.Operation.GetExtend() == nil {
				continue
			}
		case *pb.ClientFrame_Put, *pb.ClientFrame_Delete, *pb.ClientFrame_Lock, *pb.ClientFrame_Unlock,
			*pb.ClientFrame_GetKey, *pb.ClientFrame_ListKeys, *pb.ClientFrame_Txn:
			continue
		}
		return invalid("start.then", "%d cannot wait for a session: send it as a frame of its own", i)
	}
	return nil
}

// open opens the session. One that is open meanwhile is the same.
func (st *starting) open() error {
	d, who := st.s.door, st.s.who
	st.tried = true
	o, err := operationOf(who.principal, &pb.Operation{Op: &pb.Operation_OpenSession{
		OpenSession: &pb.OpenSessionRequest{Id: st.session.String(), TtlMs: st.asked.GetTtlMs()},
	}})
	if err == nil {
		err = d.deniedOp(who, o, d.allow(who, o))
	}
	if err != nil {
		return err
	}
	d.leases.Submit(d.callBy(st.deadline, who, o), o.command, func(r core.Result) {
		d.work.Put(func() {
			d.settledOp(who, o, &r)
			st.isOpen(r)
		})
	})
	return nil
}

// isOpen goes on with a session that is open. One that exists with another ttl is so, too:
// this member had not applied yet that it is when it looked, and with what it knows now it
// would have attached it as it is.
func (st *starting) isOpen(r core.Result) {
	if r.Err != nil && incumbent.KindOf(r.Err) != incumbent.Exists {
		st.fail(r.Err)
		return
	}
	st.opened = r.Err == nil && r.Session != nil && r.Session.Opened == r.Index
	if err := st.attach(); err != nil {
		st.fail(err)
	}
}

func (st *starting) attach() error {
	what := attached{id: st.session, counter: st.asked.GetCounter()}
	return st.s.attachIn(&attaching{s: st.s, id: st.frame.Id, what: what, start: st})
}

// notAttached begins anew with a session that has turned out to be over, in the lane of that.
func (st *starting) notAttached(err error) {
	if !st.tried && st.asked.GetTtlMs() > 0 && incumbent.KindOf(err) == incumbent.Expired {
		st.place.Leave()
		if st.place, err = st.s.door.lanes.Enter(admit.Who{}, calls.OpenSession.Lane(), 1); err == nil {
			err = st.open()
		}
		if err == nil {
			return
		}
	}
	st.fail(err)
}

// fail is the end of a start that was counted.
func (st *starting) fail(err error) {
	st.place.Leave()
	st.s.underWay.Add(-1)
	st.s.refuseAll(st.frame, err)
}

// attached begins what waited, and answers: whatever the client asks for once it has the
// answer comes behind what it asked for with the start.
func (st *starting) attached(a *pb.Attached) {
	refused := make([]error, len(st.asked.GetThen()))
	for i, f := range st.asked.GetThen() {
		deadline := st.deadline
		if f.TimeoutMs != 0 {
			deadline = st.s.door.now().Add(time.Duration(f.TimeoutMs) * time.Millisecond)
		}
		refused[i] = st.goOn(f, deadline)
	}
	st.s.reply(&pb.ServerFrame{Id: st.frame.Id, Answer: &pb.ServerFrame_Started{Started: &pb.Started{Attached: a, Opened: st.opened}}})
	for i, f := range st.asked.GetThen() {
		if refused[i] != nil {
			st.s.refuse(f.GetId(), refused[i])
		}
	}
	st.place.Leave()
}

// goOn begins what waited: the first lock in the start's own place.
func (st *starting) goOn(f *pb.ClientFrame, deadline time.Time) error {
	if r, ok := f.Request.(*pb.ClientFrame_Lock); ok {
		return st.s.count(func() error { return st.s.lock(&st.place, f.Id, r.Lock, deadline) })
	}
	return st.s.begin(nil, f, deadline)
}
