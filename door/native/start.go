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
// Where the leader refuses it for the load, it waits in line once more.
type starting struct {
	s        *stream
	frame    *pb.ClientFrame
	asked    *pb.Start // the frame's
	session  incumbent.SessionID
	deadline time.Time
	tried    bool // to open it
	opened   bool // it was not open before
}

// start opens a session unless it is open, attaches it, and begins what waits for that.
// What waits for it is refused by whoever refuses it.
func (s *stream) start(f *pb.ClientFrame, r *pb.Start, deadline time.Time) (err error) {
	if f.Id == 0 {
		return invalid("id", "is 0; a start is answered")
	}
	st := &starting{s: s, frame: f, asked: r, deadline: deadline}
	if st.session, err = neededSession("start.session", r.GetSession()); err != nil {
		return err
	}
	if err := validateThen(r.GetThen()); err != nil {
		return err
	}
	if s.opens(r) {
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
	place, err := d.lanes.Enter(admit.Who{}, calls.OpenSession.Lane(), 1)
	if err != nil {
		return err
	}
	o, err := operationOf(who.principal, &pb.Operation{Op: &pb.Operation_OpenSession{
		OpenSession: &pb.OpenSessionRequest{Id: st.session.String(), TtlMs: st.asked.GetTtlMs()},
	}})
	if err == nil {
		err = d.deniedOp(who, o, d.allow(who, o))
	}
	if err != nil {
		place.Leave()
		return err
	}
	d.leases.Submit(d.callBy(st.deadline, who, o), o.command, func(r core.Result) {
		d.work.Put(func() {
			place.Leave()
			d.settledOp(who, o, &r)
			st.isOpen(r)
		})
	})
	return nil
}

func (st *starting) isOpen(r core.Result) {
	if r.Err != nil {
		st.fail(r.Err)
		return
	}
	st.opened = r.Session != nil && r.Session.Opened == r.Index
	if err := st.attach(); err != nil {
		st.fail(err)
	}
}

func (st *starting) attach() error {
	place, err := st.s.door.lanes.Enter(admit.Who{}, calls.Attach.Lane(), 1)
	if err != nil {
		return err
	}
	what := attached{id: st.session, counter: st.asked.GetCounter()}
	err = st.s.attachIn(&attaching{s: st.s, id: st.frame.Id, place: place, what: what, start: st})
	if err == nil {
		return nil
	}
	place.Leave()
	return err
}

// notAttached begins anew with a session that has turned out to be over.
func (st *starting) notAttached(err error) {
	if !st.tried && st.asked.GetTtlMs() > 0 && incumbent.KindOf(err) == incumbent.Expired {
		if err = st.open(); err == nil {
			return
		}
	}
	st.fail(err)
}

// fail is the end of a start that was counted and has no place in a lane, unless it may
// wait for another.
func (st *starting) fail(err error) {
	st.s.underWay.Add(-1)
	if !st.s.waitsAfter(err, st.frame, st.deadline) {
		st.s.refuseAll(st.frame, err)
	}
}

// attached answers, and begins what waited.
func (st *starting) attached(a *pb.Attached) {
	st.s.reply(&pb.ServerFrame{Id: st.frame.Id, Answer: &pb.ServerFrame_Started{Started: &pb.Started{Attached: a, Opened: st.opened}}})
	for _, f := range st.asked.GetThen() {
		deadline := st.deadline
		if f.TimeoutMs != 0 {
			deadline = st.s.door.now().Add(time.Duration(f.TimeoutMs) * time.Millisecond)
		}
		if err := st.s.enter(nil, f, deadline); err != nil {
			st.s.refuse(f.GetId(), err)
		}
	}
}
