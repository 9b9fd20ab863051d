package client

import (
	"math/rand/v2"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// Following is what a session can follow: a [KeyCache], a [ServiceCache], a [TableCache].
// One session at a time follows it; what it has it keeps from one to the next, so that a
// session that is opened in the place of another reads nothing again that has not changed.
type Following interface {
	// begin has it followed anew, unless it is not due, from the index that it has: what is
	// taken and what fails is then that of this turn, and nothing of an earlier one.
	begin(due func() bool) (after, turn uint64, ok bool)
	request(after uint64) *apiv1.ClientFrame
	take(turn uint64, f *apiv1.ServerFrame)
	fail(turn uint64, err error) // it is followed no more
}

// Follow has the session follow something from now on, as if it had been in its
// configuration: over its stream, and over each that comes after it, for as long as the
// session lasts. What is wrong with it is said by it alone.
func (s *Session) Follow(what Following) {
	f := s.followedOf(what)
	s.mu.Lock()
	s.follows = append(s.follows, f)
	l := s.link
	f.asked = l
	s.mu.Unlock()
	if l != nil { // else with the session
		s.budget.first(1)
		f.send(l)
	}
}

func (s *Session) followedOf(what Following) *followed {
	return &followed{s: s, of: what, pause: minPause}
}

// followed is one thing that a session follows.
type followed struct {
	s  *Session
	of Following

	pause time.Duration // before it is repeated, above 0; guarded by s.mu, as asked is
	asked *link         // over which it is asked for; not if that was refused before the session had begun there
}

// frame is what asks for it over a link; nil: see ask.
func (f *followed) frame(l *link) *apiv1.ClientFrame {
	f.s.mu.Lock()
	f.pause = minPause
	f.s.mu.Unlock()
	return f.ask(l)
}

// ask is what asks for it, and hears the answers. nil: it is asked for over another link by
// now, the session is over, or what it asks for cannot be sent: it fits into no message, or has
// a text that is not UTF-8. A link that was given up may have frames to handle still:
// what the new one begins from is what the cache had then, so they come too late for it.
func (f *followed) ask(l *link) *apiv1.ClientFrame {
	after, turn, ok := f.of.begin(func() bool { return f.due(l) })
	if !ok {
		return nil
	}
	frame := f.of.request(after)
	frame.TimeoutMs = uint32(maxWait.Milliseconds())
	if _, err := messagesOf([]*apiv1.ClientFrame{frame}); err != nil {
		f.of.fail(turn, err) // alone, and anew with each link
		return nil
	}
	l.listen(frame, func(a *apiv1.ServerFrame) { f.told(l, turn, a) })
	return frame
}

// due reports whether it is to be asked for over a link.
func (f *followed) due(l *link) bool {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	return f.asked == l && f.s.ctx.Err() == nil
}

// send asks for it alone. Without an answer the link ends, and the next one asks.
func (f *followed) send(l *link) {
	if frame := f.ask(l); frame != nil {
		_ = l.send(frame)
	}
}

// framesOf are what asks for all of them over a link.
func framesOf(l *link, all []*followed) (frames []*apiv1.ClientFrame) {
	for _, f := range all {
		if frame := f.frame(l); frame != nil {
			frames = append(frames, frame)
		}
	}
	return frames
}

// told takes an answer. What was refused for now is repeated: alone, or once the session has
// begun, where that was refused as well. Thousands that come back would ask as many times
// as they follow things else.
func (f *followed) told(l *link, turn uint64, a *apiv1.ServerFrame) {
	err := DetailError(a.Error)
	switch {
	case err == nil:
		f.s.mu.Lock()
		f.pause = minPause
		f.s.mu.Unlock()
		f.s.c.saw(indexOf(a))
		f.of.take(turn, a)
	case retryable(err):
		if pause, begun := f.refuse(l, err); begun {
			f.s.repeatAlone(l, pause, f.send)
		}
	default:
		f.of.fail(turn, err)
	}
}

// refuse returns when it is to be repeated, if the session has begun over the link.
func (f *followed) refuse(l *link, err error) (pause time.Duration, begun bool) {
	f.s.mu.Lock()
	defer f.s.mu.Unlock()
	if begun = f.s.link == l; !begun && f.asked == l {
		f.asked = nil
	}
	pause = jitter(f.pause, err)
	f.pause = min(2*f.pause, maxPause)
	return pause, begun
}

// toAsk returns what is not asked for over a link, and is now.
func (s *Session) toAsk(l *link) (all []*followed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.follows {
		if f.asked != l {
			f.asked = l
			all = append(all, f)
		}
	}
	return all
}

// repeatAlone has one frame that was refused for now sent again, over the same link: the
// next one begins with it anyway. If the session has repeated too much, it waits on.
func (s *Session) repeatAlone(l *link, after time.Duration, send func(l *link)) {
	time.AfterFunc(after, func() {
		switch {
		case l.over():
		case s.budget.repeat(s.clock()):
			send(l)
		default:
			s.repeatAlone(l, jitter(maxPause, nil), send)
		}
	})
}

// maxUnlisted is how long a session that lives waits, or half as long again, before it says
// again who is present, where its ttl is longer.
const maxUnlisted = time.Minute

// announce is the frame that says under which name somebody lives by the session. The newest
// is the one that counts: each attempt to begin brings one, and what became of those before it
// is of no interest.
func (s *Session) announce(l *link) *apiv1.ClientFrame {
	f := &apiv1.ClientFrame{TimeoutMs: uint32(maxWait.Milliseconds()), Request: &apiv1.ClientFrame_Lock{Lock: &apiv1.LockRequest{
		Namespace: s.present.Namespace, Key: s.present.key(), Value: s.present.Info, Session: s.id.String(), Lazy: true,
	}}}
	s.announcing.Store(f)
	l.listen(f, func(a *apiv1.ServerFrame) { s.announced(l, f, a) })
	return f
}

// announced hears that others are told, or why not. A name that another session has is
// that of a former run, which ends when its ttl has passed, or of somebody who lives. What
// was refused otherwise, as by a policy or a quota, is said again about once a ttl: somebody
// may change that, and until then the session lives without being listed.
func (s *Session) announced(l *link, f *apiv1.ClientFrame, a *apiv1.ServerFrame) {
	l.forget(a.Id)
	err := DetailError(a.Error)
	var again func(l *link)
	again = func(l *link) { // alone, once the session has begun; another attempt to begin brings another frame
		switch {
		case s.announcing.Load() != f || l.over() || s.isClosing():
		case s.current() == l:
			_ = l.send(s.announce(l))
		default:
			time.AfterFunc(jitter(maxPause, nil), func() { again(l) })
		}
	}
	switch {
	case err == nil, s.announcing.Load() != f:
	case incumbent.KindOf(err) == incumbent.Held:
		s.retry(err)
		s.repeatAlone(l, s.TTL()/beatsPerTTL+rand.N(time.Second), again)
	case retryable(err):
		s.repeatAlone(l, jitter(maxPause, err), again)
	case gone(err): // the session's own end says so
	default:
		s.retry(err)
		s.repeatAlone(l, above(min(s.TTL(), maxUnlisted)), again)
	}
}
