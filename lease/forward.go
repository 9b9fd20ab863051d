package lease

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// courier carries what only the leader can answer to another member that leads,
// and the answers back. What waits in a turn goes into one frame. While
// [MaxFlights] frames are under way the rest gathers: the busier the leader, the
// larger the frames.
//
// Each waiter stands in one place at a time: in the queue, in a flight, or among
// the held ones; whoever takes it out answers it.
type courier struct {
	on   bool   // there are other members
	boot uint64 // sets apart the lives of this member
	term uint64 // that the known leader leads in
	seq  uint64

	queue     []waiter
	leaveBy   int64 // when what is in the queue leaves at the latest
	announced []counted
	detached  []counted
	looks     []look
	flights   []*flight
	vouches   bool  // the leader leads in term, as of after the arrival of all that waits
	stale     bool  // an attachment in the queue may be over
	lastSent  int64 // when the last frame left
	heard     int64 // when the leader answered last, or was asked for its pressure
	worked    bool  // something was applied since the last frame left
	notBefore int64 // the leader has refused: it is not ready yet
	sweep     int64 // when held ones are looked at again
	lagging   []lagging
	w         writer
}

// look is one item of an inspection.
type look struct {
	q    *Inspection
	item int
}

// flight is a frame under way to the leader.
type flight struct {
	seq       uint64
	earlier   []uint64 // under which it was sent before with the same items in the same places: an answer may take longer than the time between two attempts
	sent      int64
	partly    bool // some of it has been answered
	unsent    bool // it was not taken
	left      int  // items and looks without an answer
	items     []waiter
	looks     []look
	announced []counted
	detached  []counted
}

// lagging is an extension that the leader has answered from a state that has not been
// applied here yet, and whose answer comes with the state, or from it.
type lagging struct {
	waiter
	kind  incumbent.Kind
	index incumbent.Index
}

// Frame is what another member is to be sent.
type Frame struct {
	To   uint64
	Data []byte
	seq  uint64 // of an ask, else 0
}

// Join says that there are other members. boot sets apart the lives of this one.
func (e *Engine) Join(boot uint64) { e.courier.on, e.courier.boot = true, boot }

// ask brings an extension on its way to an answer.
func (e *Engine) ask(w waiter) {
	it := &w.batch.Items[w.item]
	it.stored, it.alien, it.ref, it.found = false, false, none, 0
	c := &e.courier
	switch {
	case !it.valid():
		e.answer(w.batch, w.item, it.invalid(), 0)
	case e.leading:
		e.store(it)
		e.again = append(e.again, w)
	case e.leader != 0 && !c.on:
		e.answer(w.batch, w.item, incumbent.NotLeader, 0)
	case e.holdBack(w):
	case len(c.queue) >= MaxForwarding:
		e.answer(w.batch, w.item, incumbent.Overloaded, 0)
	default:
		by := w.batch.arrived + int64(e.patience(w))
		if len(c.queue) == 0 || by < c.leaveBy {
			c.leaveBy = by
		}
		c.queue = append(c.queue, w)
	}
}

// patience is how long an extension may wait for company on its way to the leader: for
// what lasts long it matters little when it is asked for, and much how often somebody is
// woken by it.
func (e *Engine) patience(w waiter) time.Duration {
	if w.batch.Patience == 0 {
		return 0
	}
	s := e.view.Session(w.batch.Items[w.item].Session)
	if s == nil {
		return 0
	}
	return min(w.batch.Patience, s.TTL/patientPart)
}

// holdBack lets an extension wait for commands of this member that may end what
// it names, or that its own client has sent before: the leader does not know
// them yet.
func (e *Engine) holdBack(w waiter) bool {
	it := &w.batch.Items[w.item]
	if n := it.Named; n != nil && e.names[n.Name].has(client{n.Holder, it.Session}, nil) {
		e.holdNamed(n.Name, w)
		return true
	}
	if len(e.marks) == 0 {
		return false
	}
	k := key{token: it.Token}
	switch {
	case it.Token != 0:
	case it.Named != nil:
		if l := leases.Of(e.view).Lease(it.Named.Name); !l.Free() {
			k.token = l.Token
		}
	default:
		k.session = it.Session
	}
	if e.marks[k] == 0 && k.token != 0 {
		if l := leases.Of(e.view).ByToken(k.token); l != nil {
			k = key{session: l.Session}
		}
	}
	if e.marks[k] == 0 {
		return false
	}
	e.hold(k, w)
	return true
}

// forward sends what waits for the leader.
func (e *Engine) forward() {
	if e.leading {
		return
	}
	c := &e.courier
	e.giveUp()
	if e.leader == 0 || !c.on {
		return
	}
	for _, f := range slices.Clone(c.flights) {
		e.resend(f)
	}
	if len(c.queue) > 0 && e.now >= c.notBefore {
		if gap := c.lastSent + int64(e.cfg.RoundGap) - e.now; gap > 0 {
			e.out.Wake = time.Duration(gap)
			return
		}
	}
	if len(c.queue) > 0 && len(c.looks)+len(c.announced)+len(c.detached) == 0 && e.now < c.leaveBy {
		return // each tick looks again
	}
	for e.now >= c.notBefore {
		var f *flight
		if len(c.flights) < MaxFlights {
			f = e.load()
		} else if e.asksPressure() {
			f = &flight{}
			c.w.start(e.header(askFrame, 0))
		}
		if f == nil {
			return
		}
		e.fly(f, 0)
	}
}

// load takes as much as fits into a frame, or returns nil if nothing waits.
func (e *Engine) load() *flight {
	c := &e.courier
	e.dropDetached()
	if len(c.queue)+len(c.looks)+len(c.announced)+len(c.detached) == 0 && !e.asksPressure() {
		return nil
	}
	f := &flight{}
	c.w.start(e.header(askFrame, 0))
	f.announced = fill(c, &c.announced, func(a counted) { c.w.counted(announceRecord, a) })
	f.items = fill(c, &c.queue, c.item)
	f.detached = fill(c, &c.detached, func(d counted) { c.w.counted(detachRecord, d) })
	looks := c.looks[:min(len(c.looks), MaxFrameLooks)]
	rest := c.looks[len(looks):]
	f.looks = fill(c, &looks, c.look)
	c.looks = append(looks, rest...)
	f.left = len(f.items) + len(f.looks)
	return f
}

// maxEarlier is how many of its numbers a flight remembers: as many as it has in forwardFor.
const maxEarlier = int(forwardFor/resendAfter) + 1

// resendRoom is by how much a frame may be longer when it is sent again: its number, and that
// under which it was sent before, are written in as few bytes as they take.
const resendRoom = 2 * binary.MaxVarintLen64

// fill writes records until the frame is full and takes what it wrote out of
// the list.
func fill[T any](c *courier, list *[]T, write func(T)) []T {
	n := 0
	for _, x := range *list {
		before := c.w
		write(x)
		if len(c.w.b) > MaxFrameBytes-resendRoom {
			c.w.back(before)
			break
		}
		n++
	}
	taken := slices.Clone((*list)[:n])
	*list = slices.Delete(*list, 0, n)
	return taken
}

func (c *courier) item(w waiter) {
	var counter uint64
	a := w.batch.attach
	if a != nil {
		counter = a.Counter
	}
	c.w.item(&w.batch.Items[w.item], a != nil, counter)
}

func (c *courier) look(l look) { c.w.look(&l.q.Items[l.item]) }

// dropDetached answers attachments that are over before they were sent: sent
// now, they would stay at the leader for ever.
func (e *Engine) dropDetached() {
	if c := &e.courier; c.stale {
		c.stale = false
		c.queue = slices.DeleteFunc(c.queue, e.isOver)
	}
}

func (e *Engine) isOver(w waiter) bool {
	a := w.batch.attach
	if a == nil || e.attachments[a.Session] == a {
		return false
	}
	e.answer(w.batch, w.item, incumbent.Conflict, 0)
	return true
}

func (e *Engine) header(kind byte, extra uint64) header {
	e.courier.seq++
	if e.courier.vouches {
		kind |= vouching
	}
	return header{kind, e.courier.boot, e.courier.term, e.courier.seq, extra}
}

// fly sends the frame that has been written.
func (e *Engine) fly(f *flight, old uint64) {
	c := &e.courier
	if slices.ContainsFunc(f.items, func(w waiter) bool { return w.batch.shows() }) {
		c.w.show()
	}
	if f.bare() {
		c.heard = e.now
	}
	f.seq, f.sent, f.partly, f.unsent = c.seq, e.now, false, false
	if old == 0 {
		c.flights = append(c.flights, f)
		e.stats.Forwarded += uint64(len(f.items))
	} else {
		e.stats.Resent++
	}
	e.stats.FramesSent++
	e.out.Frames = append(e.out.Frames, Frame{e.leader, slices.Clone(c.w.b), f.seq})
	c.lastSent, c.worked = e.now, false
}

// asksPressure reports whether the leader is asked for nothing but its pressure, which
// comes with any answer: it is if work is done for which nobody asks it, as claims
// that travel through the log, by members whose clients extend seldom; and if what was
// asked before has no answer yet. Where nothing happens nothing is asked, and how often
// does not grow with what happens. While the leader's disk stalls, which is when it refuses
// most, nothing is applied, and frames may wait for what is not: then it is asked by those
// that have work under way, beside these frames.
func (e *Engine) asksPressure() bool {
	c := &e.courier
	if e.cfg.Press == nil || e.now-c.heard < int64(pressureEvery) || slices.ContainsFunc(c.flights, (*flight).bare) {
		return false
	}
	return c.worked || len(c.flights) > 0 || e.cfg.Busy != nil && e.cfg.Busy()
}

// bare reports whether a frame asks for nothing but the pressure.
func (f *flight) bare() bool { return f.left+len(f.announced)+len(f.detached) == 0 }

// Unsent says that a frame was not taken: it is sent again soon.
func (e *Engine) Unsent(f Frame) {
	for _, x := range e.courier.flights {
		if f.seq != 0 && x.seq == f.seq {
			x.unsent = true
		}
	}
}

// resend sends what is left of a flight again if its answer is overdue. Both
// extensions and attachments may be asked for twice.
func (e *Engine) resend(f *flight) {
	after := resendAfter
	switch {
	case f.unsent:
		after = resendUnsent
	case f.partly:
		after = resendRestAfter
	}
	if e.now-f.sent < int64(after) {
		return
	}
	c := &e.courier
	places := len(f.items) + len(f.looks)
	f.items = slices.DeleteFunc(f.items, func(w waiter) bool { return w.batch == nil || e.tooOld(w) || e.isOver(w) })
	f.looks = slices.DeleteFunc(f.looks, func(l look) bool { return l.q == nil || e.lookTooOld(l) })
	f.left = len(f.items) + len(f.looks)
	if f.left+len(f.announced)+len(f.detached) == 0 {
		c.flights = remove(c.flights, f)
		return
	}
	switch {
	case f.left != places: // an answer to what was sent would be taken for one to something else
		f.earlier = nil
	case len(f.earlier) == maxEarlier:
		f.earlier = append(slices.Delete(f.earlier, 0, 1), f.seq)
	default:
		f.earlier = append(f.earlier, f.seq)
	}
	old := f.seq
	c.w.start(e.header(askFrame, old))
	for _, a := range f.announced {
		c.w.counted(announceRecord, a)
	}
	for _, w := range f.items {
		c.item(w)
	}
	for _, d := range f.detached {
		c.w.counted(detachRecord, d)
	}
	for _, l := range f.looks {
		c.look(l)
	}
	e.fly(f, old)
}

// tooOld answers what has waited long enough.
func (e *Engine) tooOld(w waiter) bool {
	if e.now-w.batch.arrived <= int64(forwardFor) {
		return false
	}
	e.answer(w.batch, w.item, incumbent.Unavailable, 0)
	return true
}

func (e *Engine) lookTooOld(l look) bool {
	if e.now-l.q.arrived <= int64(forwardFor) {
		return false
	}
	e.lookedAt(l)
	return true
}

// giveUp answers what has waited long enough outside of flights. The queue is
// in order of arrival.
func (e *Engine) giveUp() {
	c := &e.courier
	n := 0
	for n < len(c.queue) && e.tooOld(c.queue[n]) {
		n++
	}
	c.queue = slices.Delete(c.queue, 0, n)
	for n = 0; n < len(c.looks) && e.lookTooOld(c.looks[n]); {
		n++
	}
	c.looks = slices.Delete(c.looks, 0, n)
	if e.now < c.sweep {
		return
	}
	c.sweep = e.now + int64(Bucket)
	e.giveUpHeld()
	c.lagging = slices.DeleteFunc(c.lagging, func(l lagging) bool {
		if e.now-l.batch.arrived <= int64(forwardFor) {
			return false
		}
		e.answer(l.batch, l.item, incumbent.Unavailable, 0)
		return true
	})
}

// Received takes a frame of another member.
func (e *Engine) Received(from uint64, f *frame) {
	switch f.kind {
	case askFrame:
		e.asked(from, f)
		return
	case answerFrame:
		e.answeredBy(from, f)
	case refuseFrame:
		e.refusedBy(from, f)
	case lostFrame:
		e.lostBy(from, f)
	}
	e.frameDone(f)
}

// flightOf finds what a frame answers, if it still matters.
func (e *Engine) flightOf(from uint64, f *frame) *flight {
	c := &e.courier
	if e.leading || from != e.leader || f.term != c.term || f.boot != c.boot {
		return nil
	}
	i := slices.IndexFunc(c.flights, func(x *flight) bool { return x.seq == f.seq || slices.Contains(x.earlier, f.seq) })
	if i < 0 {
		return nil
	}
	return c.flights[i]
}

// answeredBy takes answers of the leader. The first one says that it has read
// the whole frame.
func (e *Engine) answeredBy(from uint64, f *frame) {
	x := e.flightOf(from, f)
	if x == nil {
		return
	}
	e.courier.heard = e.now
	if f.pressure > 0 && e.cfg.Press != nil {
		e.cfg.Press(f.pressure)
	}
	x.announced, x.detached = nil, nil
	x.partly, x.unsent, x.sent = true, false, e.now
	for i := range f.answers {
		a := &f.answers[i]
		if int(a.item) >= len(x.items) || x.items[a.item].batch == nil {
			continue
		}
		w := x.items[a.item]
		x.items[a.item] = waiter{}
		x.left--
		e.learn(w, a, incumbent.Index(f.extra))
	}
	for i, n := range f.looked {
		if int(n) >= len(x.looks) || x.looks[n].q == nil {
			continue
		}
		l := x.looks[n]
		x.looks[n] = look{}
		x.left--
		it := &l.q.Items[l.item]
		token, session := it.Token, it.Session
		*it = f.looks[i]
		it.Token, it.Session = token, session
		e.lookedAt(l)
	}
	if x.left == 0 {
		e.courier.flights = remove(e.courier.flights, x)
	}
}

// learn passes on what the leader says of one extension. That it is extended
// holds whatever this member has applied; what is shown with an attachment or a
// claim must not be older than what the leader saw.
func (e *Engine) learn(w waiter, a *answered, index incumbent.Index) {
	it := &w.batch.Items[w.item]
	it.Revoking, it.RevokingTokens = a.revoking != nil, a.revoking
	if (w.batch.shows() && a.kind == incumbent.OK || w.apart(a.kind)) && e.view.Index() < index {
		it.Held = a.held
		e.courier.lagging = append(e.courier.lagging, lagging{w, a.kind, index})
		return
	}
	if a.kind == incumbent.NotLeader && e.patient(w.batch) {
		e.courier.notBefore = e.now + int64(resendUnsent) // it is stepping down
		e.ask(w)
		return
	}
	e.conclude(w, a.kind, a.held)
}

// apart reports whether an answer of the leader is about an attachment that the extension has
// nothing to do with: the leader takes all extensions of a session for beats.
func (w waiter) apart(kind incumbent.Kind) bool {
	it := &w.batch.Items[w.item]
	return kind == incumbent.Conflict && it.ofSession() && !it.Beat && w.batch.attach == nil
}

// conclude answers with what the leader has said. A session that is attached elsewhere was
// extended all the same; for how long, and what of it is being revoked, says the state.
func (e *Engine) conclude(w waiter, kind incumbent.Kind, held time.Duration) {
	if w.apart(kind) {
		it := &w.batch.Items[w.item]
		s := e.view.Session(it.Session)
		if s == nil {
			e.answer(w.batch, w.item, incumbent.Expired, 0)
			return
		}
		kind, held = incumbent.OK, acknowledged(it.TTL, millis(s.TTL))
		if e.tellRevoking(it, s.ID) {
			held = 0 // as in judgeSession
		}
	}
	e.answer(w.batch, w.item, kind, held)
}

// shows reports whether the answer comes with the state of the member that was asked, and
// its index: that state must not be older than what anybody was told before, not even
// by commands that commute with an extension.
func (b *Batch) shows() bool {
	return b.attach != nil || b.call != nil || b.served != nil && b.served.shows
}

// catchUp answers those whose state has been applied.
func (e *Engine) catchUp() {
	c := &e.courier
	if len(c.lagging) == 0 {
		return
	}
	c.lagging = slices.DeleteFunc(c.lagging, func(l lagging) bool {
		if e.view.Index() < l.index {
			return false
		}
		e.conclude(l.waiter, l.kind, l.batch.Items[l.item].Held)
		return true
	})
}

// refusedBy takes back what a member did not take that does not lead, or does
// not yet. Who leads is learnt from the node.
func (e *Engine) refusedBy(from uint64, f *frame) {
	x := e.flightOf(from, f)
	if x == nil {
		return
	}
	c := &e.courier
	c.flights = remove(c.flights, x)
	e.unload(x)
	c.notBefore = e.now + int64(resendUnsent)
	e.stats.FramesRefused++
}

// unload puts what is left of a flight back in front of what waits.
func (e *Engine) unload(x *flight) {
	c := &e.courier
	items := slices.DeleteFunc(x.items, func(w waiter) bool { return w.batch == nil })
	looks := slices.DeleteFunc(x.looks, func(l look) bool { return l.q == nil })
	c.queue = append(items, c.queue...)
	c.looks = append(looks, c.looks...)
	c.detached = append(x.detached, c.detached...)
	c.announced = append(x.announced, c.announced...)
}

// lostBy closes connections whose sessions are attached elsewhere.
func (e *Engine) lostBy(from uint64, f *frame) {
	if e.leading || from != e.leader || f.term != e.courier.term {
		return
	}
	for _, l := range f.lost {
		if a := e.attachments[l.session]; a != nil && a.Counter <= l.counter {
			e.lose(a, LostElsewhere)
		}
	}
}

// announce tells a new leader of all attachments, which no other member knows.
func (e *Engine) announce() {
	c := &e.courier
	c.announced = c.announced[:0]
	for _, id := range e.attachedIDs() {
		c.announced = append(c.announced, counted{id, e.attachments[id].Counter})
	}
	// What detached meanwhile is not announced.
	c.detached = c.detached[:0]
}
