package lease

import (
	"cmp"
	"slices"

	"github.com/incumbent-dev/incumbent"
)

// served is a frame of another member that this one answers as the leader. Its
// extensions are a batch like any other, but for its answer: as soon as a round
// is over, whatever it has decided is sent; what is held follows.
type served struct {
	*frame
	from  uint64
	batch Batch
	ready []int32 // answered and not yet sent
	looks bool    // their answers are not yet sent
	sent  bool    // something has been
	due   bool    // stands in the list of those with something to send
	over  bool    // nobody waits for it any more
}

// servedKey names a frame under way.
type servedKey struct{ from, boot, seq uint64 }

func (k servedKey) compare(o servedKey) int {
	return cmp.Or(cmp.Compare(k.from, o.from), cmp.Compare(k.boot, o.boot), cmp.Compare(k.seq, o.seq))
}

func (s *served) key() servedKey { return servedKey{s.from, s.boot, s.seq} }

// asked takes a frame for the leader of a term. It may come before this member
// knows that it leads.
func (e *Engine) asked(from uint64, f *frame) {
	switch {
	case e.leading && f.term == e.term:
		e.serve(from, f)
	case e.mayLead(f.term) && len(e.early) < MaxEarlyFrames:
		e.early = append(e.early, received{from, f})
	default:
		e.turnAway(servedKey{from, f.boot, f.seq}, f.term)
		e.frameDone(f)
	}
}

// frameDone makes room of a frame that nothing waits in, or nothing any more.
func (e *Engine) frameDone(f *frame) { e.out.ended = e.out.ended.add(f.load(), 1) }

// mayLead reports whether this member may come to lead a term. Of its own
// candidacy it hears as of a term in which nobody leads yet.
func (e *Engine) mayLead(term uint64) bool {
	known := e.courier.term
	return term > e.term && (term > known || term == known && e.leader == 0)
}

// turnAway says that this member does not lead in that term.
func (e *Engine) turnAway(k servedKey, term uint64) {
	w := &e.courier.w
	w.start(header{refuseFrame, k.boot, term, k.seq, e.leader})
	e.out.Frames = append(e.out.Frames, Frame{To: k.from, Data: slices.Clone(w.b)})
}

// sortEarly serves or turns away what came early.
func (e *Engine) sortEarly() {
	early := e.early
	e.early = nil
	for _, x := range early {
		e.asked(x.from, x.frame)
	}
}

func (e *Engine) serve(from uint64, f *frame) {
	s := &served{frame: f, from: from}
	if e.serving[s.key()] != nil || e.goesOn(s) {
		e.frameDone(f) // a copy
		return
	}
	e.serving[s.key()] = s
	e.serves = e.serves.add(f.load(), 1)
	e.stats.FramesServed++
	for _, a := range f.announced {
		e.bind(from, a)
	}
	e.serveItems(s)
	for _, d := range f.detached {
		e.unbind(from, d)
	}
	for i := range f.looks {
		e.inspect(&f.looks[i])
	}
	s.looks = len(f.looks) > 0
	if s.looks || len(f.items) == 0 {
		e.toSend(s)
	}
}

// pressure is what the members that ask are told of how much this one refuses.
func (e *Engine) pressure() uint8 {
	if e.cfg.Pressure == nil {
		return 0
	}
	return min(e.cfg.Pressure(), maxPressure)
}

// goesOn finds the frame that a member sends again, having heard nothing: if
// nothing was answered it goes on under the new number. Else what was answered
// got lost, and the rest comes again as a frame of its own.
func (e *Engine) goesOn(s *served) bool {
	old := e.serving[servedKey{s.from, s.boot, s.extra}]
	if s.extra == 0 || old == nil {
		return false
	}
	delete(e.serving, old.key())
	if old.sent || old.due || len(old.items) != len(s.items) {
		e.supersede(old)
		return false
	}
	old.seq = s.seq
	e.serving[old.key()] = old
	return true
}

// supersede ends a frame that nobody waits for any more. What of it still waits for
// an answer takes memory until it has one.
func (e *Engine) supersede(s *served) {
	s.over = true
	if s.batch.left == 0 {
		e.unserve(s)
	}
}

// unserve makes room of a frame whose items all have their answers. Those of a term
// that is over made room with it.
func (e *Engine) unserve(s *served) {
	if !e.leading || s.term != e.term {
		return
	}
	e.serves = e.serves.add(s.load(), -1)
	e.frameDone(s.frame)
}

// serveItems takes the extensions of a frame in, as Extend does a batch.
func (e *Engine) serveItems(s *served) {
	b := &s.batch
	*b = Batch{Items: s.items, served: s, left: len(s.items), arrived: e.now}
	if len(b.Items) == 0 {
		return
	}
	for _, x := range s.bindings {
		e.bind(s.from, counted{b.Items[x.item].Session, x.counter})
	}
	// A member whose session is attached elsewhere was told once, and that may have been lost: a
	// beat by way of it says that it does not know. Here any extension of a session looks like
	// one; the member that asked knows better: see waiter.apart.
	for i := range b.Items {
		if id := b.Items[i].Session; b.Items[i].ofSession() && e.elsewhere(s.from, id) {
			e.tellLost(s.from, counted{id, e.attachments[id].Counter - 1})
		}
	}
	e.extend(b)
}

// bind notes that a session is attached to another member: the highest counter
// wins, and who has lost is told.
func (e *Engine) bind(from uint64, c counted) {
	old := e.attachments[c.session]
	if old != nil && old.Counter >= c.counter {
		if old.member != from {
			e.tellLost(from, c)
		}
		return
	}
	if old != nil && old.member != from {
		e.lose(old, LostElsewhere)
	}
	e.attachments[c.session] = &attach{Attachment: Attachment{Session: c.session, Counter: c.counter}, member: from}
}

// bound reports whether a session is attached to a member with a counter.
func (e *Engine) bound(from uint64, c counted) bool {
	a := e.attachments[c.session]
	return a != nil && a.member == from && a.Counter == c.counter
}

// elsewhere reports whether a session is attached to another member than this one.
func (e *Engine) elsewhere(from uint64, id incumbent.SessionID) bool {
	a := e.attachments[id]
	return a != nil && a.member != from
}

func (e *Engine) unbind(from uint64, c counted) {
	if e.bound(from, c) {
		delete(e.attachments, c.session)
	}
}

// tellLost tells a member that a session of its, of no higher counter, is attached elsewhere.
func (e *Engine) tellLost(to uint64, c counted) {
	w := &e.courier.w
	w.start(header{lostFrame, 0, e.term, 0, 0})
	w.session(c)
	e.out.Frames = append(e.out.Frames, Frame{To: to, Data: slices.Clone(w.b)})
}

// judged takes the answer to an item of a frame.
func (e *Engine) judged(s *served, i int) {
	if s.over {
		if s.batch.left == 0 {
			e.unserve(s)
		}
		return
	}
	it := &s.batch.Items[i]
	if n, ok := slices.BinarySearchFunc(s.bindings, int32(i), func(b binding, i int32) int { return int(b.item - i) }); ok {
		c := counted{it.Session, s.bindings[n].counter}
		switch {
		case !e.bound(s.from, c):
			it.Kind, it.Held = incumbent.Conflict, 0
		case it.Kind != incumbent.OK:
			e.unbind(s.from, c)
		}
	} else if it.Kind == incumbent.OK && it.ofSession() && e.elsewhere(s.from, it.Session) {
		// Whoever has it now counts on this: that no beat of another is told from here on that it lives.
		it.Kind, it.Held = incumbent.Conflict, 0
	}
	s.ready = append(s.ready, int32(i))
	e.toSend(s)
}

func (e *Engine) toSend(s *served) {
	if !s.due {
		s.due = true
		e.answering = append(e.answering, s)
	}
}

// sendAnswers sends what the turn has decided.
func (e *Engine) sendAnswers() {
	for _, s := range e.answering {
		s.due = false
		if !s.over {
			e.sendAnswer(s)
		}
	}
	clear(e.answering)
	e.answering = e.answering[:0]
}

func (e *Engine) sendAnswer(s *served) {
	w := &e.courier.w
	begin := func() {
		w.start(header{answerFrame | e.pressure()<<pressureShift, s.boot, s.term, s.seq, uint64(e.view.Index())})
	}
	send := func() {
		e.stats.FramesSent++
		e.out.Frames = append(e.out.Frames, Frame{To: s.from, Data: slices.Clone(w.b)})
	}
	begin()
	if s.looks {
		for i := range s.frame.looks {
			w.looked(i, &s.frame.looks[i])
		}
	}
	slices.Sort(s.ready)
	for _, i := range s.ready {
		before := *w
		w.answer(i, &s.batch.Items[i])
		if len(w.b) > MaxFrameBytes {
			w.back(before)
			send()
			begin()
			w.answer(i, &s.batch.Items[i])
		}
	}
	send()
	s.ready, s.looks, s.sent = s.ready[:0], false, true
	if s.batch.left == 0 {
		delete(e.serving, s.key())
		e.served = append(e.served, s.frame)
		e.unserve(s)
	}
}

// turnAwayAll ends the service of a term: who asked asks the next leader.
func (e *Engine) turnAwayAll() {
	keys := make([]servedKey, 0, len(e.serving))
	for k := range e.serving {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, servedKey.compare)
	for _, k := range keys {
		e.serving[k].over = true
		e.turnAway(k, e.serving[k].term)
	}
	clear(e.serving)
	e.out.ended, e.serves = e.out.ended.add(e.serves, 1), load{}
	for id, a := range e.attachments {
		if a.member != 0 {
			delete(e.attachments, id)
		}
	}
}

// used returns the frames that the engine is done with.
func (e *Engine) used() []*frame {
	fs := e.served
	e.served = nil
	return fs
}
