package client

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Pauses between two attempts to reach a member: each attempt waits up to
// twice as long as the one before, spread out over the whole span.
const (
	minPause = 50 * time.Millisecond
	maxPause = 2 * time.Second
)

// Of members that have more to do than they can.
const (
	maxPatience = 20 * time.Second // one attempt to connect: thousands of others may be served before it
	maxWait     = 30 * time.Second // in line at a member that says so, for the session to begin and for what it follows
	waitSilence = 12 * time.Second // for that member to say so again, as it does every five, or to answer
	busyStay    = 30 * time.Second // at a member that refuses to begin the session, before another is tried
)

// minOutbid is how many counters are left, at the least, to a session that raises its own:
// one for each time that it begins anew.
const minOutbid = 1 << 32

// open creates the session and attaches to it, trying until ctx ends. The id is
// ours, so that opening it twice is the same as once.
func (s *Session) open(ctx context.Context) error {
	for pause, patience := minPause, s.patience(0); ; pause, patience = min(2*pause, maxPause), s.patience(2*patience) {
		err := s.connect(ctx, true, patience)
		if err == nil {
			return nil
		}
		if s.ctx.Err() != nil { // it was opened, and another run has it by now
			return context.Cause(s.ctx)
		}
		if !retryable(err) && !s.outbid(err) || ctx.Err() != nil {
			return err
		}
		s.retry(err)
		if err := sleep(ctx, s.pause(pause, err)); err != nil {
			return err
		}
	}
}

// outbid raises the counter if the session was not attached because a former run's is
// higher: that run's clock was ahead, and no member knows yet that it is over. The error
// has that counter in its text alone, and not always, so this one goes half of the way to
// the highest there is. Only whoever opens does this: a run that merely comes back must not
// take the session from a later one. false: the error is another, or there is no higher
// counter.
func (s *Session) outbid(err error) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	step := (math.MaxUint64 - s.counter) / 2
	if incumbent.KindOf(err) != incumbent.Conflict || step < minOutbid {
		return false
	}
	s.counter += step
	return true
}

// pause is how long to wait after an attempt that failed, by itself up to the given pause.
// If it was refused for the load, it is what the member asks for or, if that is longer,
// a third to half of the time for which the session has been refused by now. The member
// does not know how many wait; who has come back in vain knows that it was too soon, and
// what has lasted for so long will go on for a while. So will what another attempt does not
// change by itself, as that the credential was revoked. It is no longer than from one beat to
// the next, for the session is to live. It is of the goroutine that connects.
func (s *Session) pause(pause time.Duration, err error) time.Duration {
	d, most := jitter(pause, err), s.TTL()/beatsPerTTL
	kind := incumbent.KindOf(err)
	if kind == incumbent.Overloaded || kind != incumbent.Conflict && !retryable(err) {
		if s.refused == 0 {
			s.refused = s.clock()
		}
		d = max(jitter(minPause, err), above((s.clock()-s.refused)/3))
	}
	if d > most {
		d = most/2 + rand.N(most/2)
	}
	return d
}

// patience is how long the next attempt to connect, or the next answer, may take: d, which
// is twice what was too short or half of what was long enough, within its bounds. Where
// there is another member to try, the first are short; but members that are slow, not
// silent, are not given up forever: in a storm each attempt that is given up has cost
// them what serving it would have.
func (s *Session) patience(d time.Duration) time.Duration {
	least := s.c.cfg.SilentTimeout
	if !s.c.members.several() {
		least = dialTimeout
	}
	return min(max(d, least), maxPatience)
}

// connect dials a member, attaches the session there and takes over what the
// server says it holds.
func (s *Session) connect(ctx context.Context, create bool, patience time.Duration) error {
	i, member := s.c.members.current()
	dialing, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	l, err := s.dial(dialing, member)
	if err != nil {
		s.c.members.leave(i)
		return err
	}
	if err := s.attach(ctx, l, create, patience); err != nil {
		l.close()
		s.c.members.leave(i)
		return err
	}
	s.mu.Lock()
	s.member = i
	s.mu.Unlock()
	return nil
}

// leaveMember prefers another member: this one answers, but it cannot reach a
// leader, and perhaps is the only one that cannot; or it takes nothing.
func (s *Session) leaveMember() {
	s.mu.Lock()
	i := s.member
	s.mu.Unlock()
	s.c.members.leave(i)
}

// attach begins the session over a link, and what it follows, and has what it holds extended
// until it has begun. A member that refuses the
// session for the load is asked again over the same link, when it says: another link
// would cost it, or its neighbours, several times as much as another refusal.
//
// A run that comes back and is refused with Conflict is asked for once more. There are two
// reasons for that kind: another run has attached the session with a higher counter, or the
// session has ended while it was being attached. In the second case it is over, and the
// next answer is that it is, unless another run has opened it anew. So the second Conflict
// says for certain that another run has it.
func (s *Session) attach(ctx context.Context, l *link, create bool, patience time.Duration) error {
	until := time.Duration(0) // from the first refusal on: what it waited in line before is not counted
	contested := false        // a conflict was answered
	follows := s.toAsk(l)
	keeping, begun := context.WithCancel(ctx)
	defer begun()
	go s.keep(keeping, l)
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		err := s.begin(ctx, l, create, maxWait, patience, follows)
		if err == nil {
			return nil
		}
		if until == 0 {
			until = s.clock() + busyStay
		}
		switch kind := incumbent.KindOf(err); {
		case kind == incumbent.Conflict && !create && contested:
			return errTaken()
		case kind == incumbent.Conflict && !create:
			contested = true
		case kind != incumbent.Overloaded || s.clock() > until:
			return err
		}
		follows = nil
		s.retry(err)
		if sleep(ctx, s.pause(pause, err)) != nil {
			return err
		}
	}
}

// begin is start, and asks again for what was refused beside it.
func (s *Session) begin(ctx context.Context, l *link, create bool, wait, patience time.Duration, follows []*followed) error {
	if err := s.start(ctx, l, create, wait, patience, follows); err != nil {
		return err
	}
	if refused := framesOf(l, s.toAsk(l)); len(refused) > 0 {
		defer l.closeIn(patience)()
		return l.send(refused...)
	}
	return nil
}

// start opens the session, if it is to be, and attaches it, says who is alive by it,
// and follows what it follows: all in one message, or the next ones where that would be too
// large. What fails beside the session
// itself is repeated alone. The member takes that within patience, and answers within it, or says within it that
// others come first, and that it will, if that may take so long as wait; 0: it refuses then.
func (s *Session) start(ctx context.Context, l *link, create bool, wait, patience time.Duration, follows []*followed) error {
	s.mu.Lock()
	s.counter++
	start := &apiv1.Start{Session: s.id.String(), Counter: s.counter}
	s.mu.Unlock()
	s.budget.first(1 + len(follows))
	if create {
		start.TtlMs = uint32(s.ttl.Milliseconds())
	}
	frame := &apiv1.ClientFrame{TimeoutMs: uint32(wait.Milliseconds()), Request: &apiv1.ClientFrame_Start{Start: start}}
	frames := []*apiv1.ClientFrame{frame}
	if !s.present.none() && !s.isClosing() {
		start.Then = append(start.Then, s.announce(l))
	}
	answer, sent := l.expect(frame), s.clock()
	taken := l.closeIn(patience)
	err := l.send(append(frames, framesOf(l, follows)...)...)
	if taken(); err != nil {
		return err
	}
	a, err := l.awaitFor(ctx, patience, frame, answer)
	for until := s.clock() + wait; err == nil && a.GetWaiting() != nil; {
		a, err = l.awaitFor(ctx, min(max(until-s.clock(), 0), waitSilence)+patience, frame, answer)
	}
	if err != nil {
		return err
	}
	s.isAttached(sent)
	l.begun.Store(true)
	attached := a.GetStarted().GetAttached()
	if err := s.complete(ctx, l, attached, patience); err != nil {
		return err
	}
	s.adopt(l, attached)
	s.refused = 0
	s.began(l.stream.Member(), a.GetStarted().GetOpened())
	return nil
}

// complete adds to the answer what did not fit into it. Pages are younger than the
// answer: what the session had then, and still has, is among them. A page that is refused
// for the load is asked for again, alone: to begin anew would cost the member the pages that
// it has answered. Each answer may take patience.
func (s *Session) complete(ctx context.Context, l *link, a *apiv1.Attached, patience time.Duration) error {
	pause, until := minPause, time.Duration(0)
	for next := a.GetNext(); next != nil; {
		f, err := l.callFor(ctx, patience, s.lookup(next, 0))
		if f != nil && incumbent.KindOf(err) == incumbent.Overloaded {
			if until == 0 {
				until = s.clock() + busyStay
			}
			if s.clock() > until { // nothing that is asked of the session goes through until it has begun
				return incumbent.Errorf(incumbent.Unavailable, "the member does not say what the session has: %w", err)
			}
			s.retry(err)
			if sleep(ctx, s.pause(pause, err)) != nil {
				return ctx.Err()
			}
			pause = min(2*pause, maxPause)
			continue
		}
		if err != nil {
			return err
		}
		pause, until = minPause, 0
		page := f.GetGetSession()
		a.Leases, a.Waits = append(a.Leases, page.GetLeases()...), append(a.Waits, page.GetWaits()...)
		next = page.GetNext()
	}
	return nil
}

// adopt makes l the session's link. Offers that came while there was none are
// among the leases the server lists. One that was over before then took the place in
// line with it, and nobody will say so: who has neither claims again.
func (s *Session) adopt(l *link, a *apiv1.Attached) {
	s.c.saw(a.GetIndex())
	listed := make(map[incumbent.Token]bool)
	for _, held := range a.GetLeases() {
		listed[incumbent.Token(held.Token)] = true
	}
	s.resumed(a, listed)
	for _, held := range a.GetLeases() {
		s.offered(nameOf(held.GetName()), incumbent.Token(held.Token))
	}
	waits := make(map[incumbent.Name]bool)
	for _, name := range a.GetWaits() {
		waits[nameOf(name)] = true
	}
	s.mu.Lock()
	for name, e := range s.offers {
		if e.asked && !waits[name] {
			e.tell(0)
		}
	}
	s.link = l
	close(s.changed)
	s.changed = make(chan struct{})
	var lost []*Lease
	for token, lease := range s.leases {
		if !listed[token] && uint64(token) <= a.GetIndex() {
			lost = append(lost, lease)
		}
	}
	s.mu.Unlock()
	for _, lease := range lost {
		lease.end(incumbent.Errorf(incumbent.NotHolder, "%s is no longer held by this session", lease.name.Lease))
	}
}

// event takes what the server says unasked.
func (s *Session) event(l *link, f *apiv1.ServerFrame) {
	switch e := f.Answer.(type) {
	case *apiv1.ServerFrame_Offer:
		s.offered(nameOf(e.Offer.GetLease().GetName()), incumbent.Token(e.Offer.GetLease().GetToken()))
	case *apiv1.ServerFrame_SessionLost:
		if e.SessionLost.Session == s.id.String() && !s.left(l) {
			s.finish(lostFor(e.SessionLost.Reason))
		}
	case *apiv1.ServerFrame_GoAway:
		l.close()
	}
}

// offered tells a claim that waits for name which token it was granted.
func (s *Session) offered(name incumbent.Name, token incumbent.Token) {
	s.mu.Lock()
	e, taken := s.offers[name], s.isFormer(name, token)
	s.mu.Unlock()
	if e != nil && !taken {
		e.tell(token)
	}
}

// expected is a claim under way.
type expected struct {
	offer chan incumbent.Token // has room for one

	// Its request was handed to a link, for whom. Written by the claim alone, under the session's mu.
	asked  bool
	holder string
}

// tell tells the claim which token it was granted, or 0: that it is to claim again, of which
// the answer has an offer that there is by then.
func (e *expected) tell(token incumbent.Token) {
	select {
	case e.offer <- token:
	default: // the same offer, heard twice, or one that the next answer has
	}
}

// left reports whether a link was given up for another.
func (s *Session) left(l *link) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.old == l
}

func (s *Session) current() *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.link
}

// drop lets the link go, if there is one.
func (s *Session) drop() {
	s.mu.Lock()
	l := s.link
	s.link = nil
	if l != nil {
		s.old = l
	}
	s.mu.Unlock()
	if l != nil {
		l.close()
	}
}

// gone reports whether the session is certainly over.
func gone(err error) bool {
	k := incumbent.KindOf(err)
	return k == incumbent.Expired || k == incumbent.NotFound
}

// retryable reports whether another attempt may fare better.
func retryable(err error) bool {
	k := incumbent.KindOf(err)
	return k.Transient() || k == incumbent.Unknown || k == incumbent.DeadlineExceeded || errors.Is(err, context.DeadlineExceeded)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
