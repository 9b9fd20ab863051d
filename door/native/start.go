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
type starting struct {
	s        *stream
	id       uint64 // of the frame
	session  incumbent.SessionID
	ttlMS    uint32
	counter  uint64
	then     []*pb.ClientFrame
	deadline time.Time
	tried    bool // to open it
	opened   bool // it was not open before
}

// start opens a session unless it is open, attaches it, and begins what waits for that.
func (s *stream) start(id uint64, r *pb.Start, deadline time.Time) error {
	st := &starting{s: s, id: id, ttlMS: r.GetTtlMs(), counter: r.GetCounter(), then: r.GetThen(), deadline: deadline}
	err := st.begin(r)
	if err != nil {
		st.refused(err)
	}
	return err
}

func (st *starting) begin(r *pb.Start) (err error) {
	if st.id == 0 {
		return invalid("id", "is 0; a start is answered")
	}
	if st.session, err = neededSession("start.session", r.GetSession()); err != nil {
		return err
	}
	if err := validateThen(st.then); err != nil {
		return err
	}
	// One that this member knows is attached as it is: that costs no entry of the log.
	if st.ttlMS > 0 && st.s.door.view().Session(st.session) == nil {
		return st.open()
	}
	return st.attach()
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
		OpenSession: &pb.OpenSessionRequest{Id: st.session.String(), TtlMs: st.ttlMS},
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
	err = st.s.attachIn(&attaching{s: st.s, id: st.id, place: place, what: attached{id: st.session, counter: st.counter}, start: st})
	if err == nil {
		return nil
	}
	place.Leave()
	return err
}

// reopens begins anew with a session that has turned out to be over, and reports
// whether it does: an attachment that was refused is then not its end.
func (st *starting) reopens(refused error) bool {
	if st.tried || st.ttlMS == 0 || incumbent.KindOf(refused) != incumbent.Expired {
		return false
	}
	return st.open() == nil
}

// fail is the end of a start that was counted and has no place in a lane.
func (st *starting) fail(err error) {
	st.s.underWay.Add(-1)
	st.s.refuse(st.id, err)
	st.refused(err)
}

// refused refuses what waited for the session. It may be called on nil: none was
// started.
func (st *starting) refused(err error) {
	if st == nil {
		return
	}
	for _, f := range st.then {
		st.s.refuse(f.GetId(), err)
	}
}

// attached answers, and begins what waited.
func (st *starting) attached(a *pb.Attached) {
	st.s.reply(&pb.ServerFrame{Id: st.id, Answer: &pb.ServerFrame_Started{Started: &pb.Started{Attached: a, Opened: st.opened}}})
	for _, f := range st.then {
		deadline := st.deadline
		if f.TimeoutMs != 0 {
			deadline = st.s.door.now().Add(time.Duration(f.TimeoutMs) * time.Millisecond)
		}
		if err := st.s.count(func() error { return st.s.beginCounted(nil, f, deadline) }); err != nil {
			st.s.refuse(f.GetId(), err)
		}
	}
}
