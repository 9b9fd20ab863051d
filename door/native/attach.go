package native

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/lease"
)

// attaching is one session on its way onto a stream, and then the one that is
// told when it is lost.
type attaching struct {
	s      *stream
	id     uint64      // of the frame
	place  admit.Place // in its lane, until the answer is filled in; none where it is part of a start
	what   attached
	former attached  // on this stream, with a lower counter; zero: none
	start  *starting // that it is part of; nil: none
	lost   string    // reason; under s.mu
}

// attach asks the lease service to bind a session to the stream.
func (s *stream) attach(id uint64, r *pb.Attach) error {
	session, err := neededSession("attach.session", r.GetSession())
	if err != nil {
		return err
	}
	place, err := s.door.lanes.Enter(s.who.work(0), calls.Attach.Lane(), 1)
	if err != nil {
		return err
	}
	err = s.attachIn(&attaching{s: s, id: id, place: place, what: attached{id: session, counter: r.GetCounter()}})
	if err != nil {
		place.Drop()
	}
	return err
}

// attachIn attaches in a place of its lane, which is given back with the answer. That a session
// is over is not said by a member that may only not have applied yet that it was opened, as
// after a restart: its client would take that for the end.
func (s *stream) attachIn(a *attaching) error {
	d := s.door
	if d.view().Session(a.what.id) != nil {
		return s.bind(a)
	}
	d.confirm(func(err error) {
		d.work.Put(func() {
			if err == nil {
				err = s.bind(a)
			}
			if err != nil {
				a.refuse(err)
			}
		})
	})
	return nil
}

// bind attaches a session, if its client may.
func (s *stream) bind(a *attaching) error {
	session, counter := a.what.id, a.what.counter
	if err := s.door.allowSession(s.who, auth.SessionUse, session); err != nil {
		return s.door.deniedUse(s.who, auth.SessionUse, session, err)
	}
	s.mu.Lock()
	c, here := s.counterOf(session)
	full := !here && s.sessions.len() >= MaxSessionsPerStream // one that is here needs no room
	if !full {
		if here && c < counter {
			a.former = attached{session, c}
		}
		s.sessions.raise(attached{session, counter}) // the one it replaces here is not lost
	}
	s.mu.Unlock()
	if full {
		return incumbent.Errorf(incumbent.TooLarge, "a stream carries up to %d sessions", MaxSessionsPerStream).
			WithHint("open another stream")
	}
	s.door.leases.Attach(lease.Attachment{Session: session, Counter: counter, Lost: a.tellLost}, func(r core.Result) {
		s.door.work.Put(func() { a.finish(r) })
	})
	return nil
}

// finish answers once the session is bound and its extension confirmed. What
// was offered to it before is among its leases; what is offered from now on
// comes as an event.
func (a *attaching) finish(r core.Result) {
	s := a.s
	if r.Err != nil {
		a.undo()
		a.refuse(r.Err)
		return
	}
	s.door.owners.set(a.what, s)
	s.mu.Lock()
	ends := s.gone
	over := ends || a.lost != "" || !s.sessions.has(a.what) && s.sessions.len() >= MaxSessionsPerStream
	if !over {
		s.sessions.set(a.what)
	}
	s.mu.Unlock()
	if over {
		s.door.detach(s, &a.what)
		if ends {
			a.refuse(incumbent.Errorf(incumbent.Unavailable, "the stream ends").WithHint("connect to another member"))
			return
		}
		a.refuse(incumbent.Errorf(incumbent.Conflict, "the session was attached elsewhere or lost meanwhile"))
		return
	}
	a.reply()
}

// undo takes back that a session was raised to a counter with which it was not attached.
// The attachment before it stands, unless it was lost meanwhile: then the stream does not
// own the session any more.
func (a *attaching) undo() {
	s, id := a.s, a.what.id
	if a.former.id.IsZero() {
		return // nothing was raised
	}
	s.mu.Lock()
	counter, here := s.counterOf(id)
	if here && counter == a.what.counter {
		s.sessions.remove(id)
		if s.door.owners.get(id) == s {
			s.sessions.set(a.former)
		}
	}
	s.mu.Unlock()
	if !here { // it was let go of with the counter that is refused
		s.door.leases.Detach(id, a.former.counter)
	}
}

// counterOf is the highest counter of a session that is here. s.mu is held.
func (s *stream) counterOf(id incumbent.SessionID) (counter uint64, here bool) {
	s.sessions.each(func(b *attached) {
		if b.id == id {
			counter, here = b.counter, true
		}
	})
	return counter, here
}

// answered gives the place back, with what came of it.
func (a *attaching) answered() {
	a.place.Leave()
	a.s.underWay.Add(-1)
}

func (a *attaching) refuse(err error) {
	if a.start != nil {
		a.start.notAttached(err)
		return
	}
	a.answered()
	a.s.refuse(a.id, err)
}

// reply answers. That deadlines could not be asked for does not undo what is done.
func (a *attaching) reply() {
	s, id, session := a.s, a.id, a.what.id
	if id == 0 {
		a.answered()
		return
	}
	f := s.door.former(s.who)
	found := f.view.Session(session)
	if found == nil {
		a.refuse(incumbent.Errorf(incumbent.Expired, "session %v is not open", session))
		return
	}
	o := f.owned(session, incumbent.Name{}, room{left: DefaultPage, bytes: pageBytes}, func(incumbent.Name) bool { return true })
	out := &pb.Attached{
		HeldMs: ms(found.TTL), Session: f.counted(found, o.held), Index: uint64(f.view.Index()),
		Leases: o.leases, Waits: o.waits, Next: o.next,
	}
	if len(o.waits) == 0 && o.next == nil {
		s.door.owners.cameWithout(a.what, s)
	}
	f.fill(func(error) {
		a.answered()
		if a.start != nil {
			a.start.attached(out)
			return
		}
		s.reply(&pb.ServerFrame{Id: id, Answer: &pb.ServerFrame_Attached{Attached: out}})
	})
}

// tellLost is called on the lease loop. A session that was attached again to
// this very stream, with a higher counter, is not lost; until that is answered the
// stream does not own it, which undo looks at under the same lock.
func (a *attaching) tellLost(reason string) {
	s := a.s
	s.mu.Lock()
	a.lost = reason
	here := s.sessions.has(a.what)
	if here {
		s.sessions.remove(a.what.id)
	} else {
		s.door.owners.unset(a.what, s)
	}
	s.mu.Unlock()
	if !here {
		return
	}
	s.door.work.Put(func() {
		s.door.owners.unset(a.what, s)
		s.reply(&pb.ServerFrame{Answer: &pb.ServerFrame_SessionLost{
			SessionLost: &pb.SessionLost{Session: a.what.id.String(), Reason: reason},
		}})
	})
}

// detachFrame lets a session go at its client's wish.
func (s *stream) detachFrame(id uint64, r *pb.Detach) error {
	session, err := neededSession("detach.session", r.GetSession())
	if err != nil {
		return err
	}
	s.mu.Lock()
	a, ok := s.sessions.remove(session)
	s.mu.Unlock()
	if !ok {
		return incumbent.Errorf(incumbent.NotFound, "session %v is not attached to this stream", session)
	}
	s.door.detach(s, &a)
	s.done(id)
	return nil
}

// owns reports whether a session is attached to this stream, as far as is known.
func (s *stream) owns(id incumbent.SessionID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, here := s.counterOf(id)
	return here
}

// drop forgets a session that is over.
func (s *stream) drop(id incumbent.SessionID) {
	s.mu.Lock()
	a, ok := s.sessions.remove(id)
	s.mu.Unlock()
	if ok {
		s.door.detach(s, &a)
	}
}

// detach ends the binding; the session lives on until its ttl ends.
func (d *Door) detach(s *stream, a *attached) {
	d.owners.unset(*a, s) // first: from then on any counter will do
	d.leases.Detach(a.id, a.counter)
}

// done answers a request that has nothing else to say.
func (s *stream) done(id uint64) {
	if id != 0 {
		s.reply(&pb.ServerFrame{Id: id, Answer: &pb.ServerFrame_Done{Done: &pb.Empty{}}})
	}
}
