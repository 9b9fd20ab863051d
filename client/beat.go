package client

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// maxReleasesPerBeat bounds the frames of a beat: a member takes 1,024.
const maxReleasesPerBeat = 500

// beatsPerTTL is how often a session beats: two beats may be lost.
const beatsPerTTL = 3

// run keeps the session until it ends.
func (s *Session) run() {
	defer close(s.ended)
	defer s.drop() // what a last attempt to connect brought
	pause, patience := minPause, s.patience(0)
	for s.stop.Err() == nil && s.ctx.Err() == nil {
		// The ttl is the server's: of a session that was resumed it may be shorter than asked.
		// Another member is tried between the answers and the next beat, and delays none.
		if next, ok := s.beat(s.TTL()/beatsPerTTL, patience); ok && s.tend() && s.rest(s.current(), next-s.clock()) {
			pause, patience = minPause, s.patience(patience/2)
			continue
		}
		s.drop()
		if err := s.connect(s.stop, false, patience); err != nil {
			switch {
			case s.stop.Err() != nil:
				return
			case gone(err):
				s.finish(err)
				return
			case !retryable(err) && s.clock() >= s.attachedAt()+s.TTL():
				s.finish(incumbent.Errorf(incumbent.Expired, "no member let the session go on before its ttl had passed: %w", err))
				return
			}
			s.retry(err)
			_ = sleep(s.stop, s.pause(pause, err))
			pause = min(2*pause, maxPause)
		}
		patience = s.patience(2 * patience)
	}
}

// beat extends the session and what it holds, and waits for the answers, for as long as silence
// says at most. A member that does not even take what is sent within that time is left. It returns
// when the next one is due: soon, where this one was refused.
// False: the link is of no more use.
func (s *Session) beat(interval, patience time.Duration) (next time.Duration, ok bool) {
	l := s.current()
	if l == nil {
		return 0, false
	}
	sent := s.clock()
	next = sent + interval
	leases := s.extendable()
	frames := []*apiv1.ClientFrame{beatFrame()}
	if len(leases) > 0 {
		frames = append(frames, extendFrame(leases))
	}
	back := s.unsettled()
	for _, b := range back {
		frames = append(frames, operation(s.releaseOp(b.name, b.token)))
	}
	silence := s.silence(interval, patience)
	silent := time.NewTimer(silence)
	defer silent.Stop()
	taken := l.closeIn(silence)
	answers, err := l.post(frames...)
	if inTime := taken(); err != nil {
		if !inTime {
			s.leaveMember()
		}
		return 0, false
	}
	releases := len(frames) - len(back)
	ours := true // the session, as far as is known
	for i, ch := range answers {
		select {
		case a := <-ch:
			switch {
			case i == 0 && cutOff(a.Error) && s.c.members.several():
				s.leaveMember()
				return 0, false
			case i == 0:
				next, ours = s.sooner(next, a.Error), s.beatAnswered(sent, a)
			case i >= releases: // the next beat tells again what was refused
				if a.Error == nil && a.GetOperation().GetError() == nil {
					s.settled(back[i-releases].token)
				}
			case ours || a.Error != nil: // else another run has it, and counts on what this one was told before
				next = s.extensionAnswered(sent, next, leases, a)
			}
		case <-l.done:
			return 0, false
		case <-silent.C:
			return 0, false
		case <-s.stop.Done():
			return next, true
		}
	}
	return next, true
}

// beatAnswered hears the answer to a beat that was sent then. It reports whether extensions
// by token count that were sent with it: the session is this run's, as far as is known.
func (s *Session) beatAnswered(sent time.Duration, a *apiv1.ServerFrame) bool {
	if a.Error != nil {
		return s.mayExtend(sent, a.Error)
	}
	return s.beaten(sent, a.GetBeaten())
}

// extensionAnswered hears the answer to an extension that was sent then and counts. It
// returns when the next beat follows, which was to follow at next: soon, where this one or
// a part of it was refused.
func (s *Session) extensionAnswered(sent, next time.Duration, leases []*Lease, a *apiv1.ServerFrame) time.Duration {
	if a.Error != nil {
		return s.sooner(next, a.Error)
	}
	ext := a.GetTokensExtended()
	s.extended(sent, leases, ext)
	if len(ext.GetUnavailable()) > 0 {
		next = min(next, s.clock()+refusedPause(&apiv1.Error{RetryAfterMs: ext.GetRetryAfterMs()}))
	}
	return next
}

// rest waits for the next beat. False: the link has ended.
func (s *Session) rest(l *link, d time.Duration) bool {
	if l == nil {
		return false
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-l.done:
		return false
	case <-s.stop.Done():
	case <-s.ctx.Done():
	}
	return true
}

// sooner is when the next beat follows after one that was refused, which was to follow at next:
// sooner, if it may fare better. What was denied may be allowed again before the session ends,
// but no sooner for being asked for often.
func (s *Session) sooner(next time.Duration, e *apiv1.Error) time.Duration {
	if !retryable(DetailError(e)) {
		return next
	}
	return min(next, s.clock()+refusedPause(e))
}

// refusedPause is how long after a beat that was refused the next one follows:
// when the member asked for, or up to half as long again. To wait until a beat is
// due anyway would cost a third of the ttl.
func refusedPause(e *apiv1.Error) time.Duration {
	return max(above(time.Duration(e.GetRetryAfterMs())*time.Millisecond), minPause+rand.N(minPause))
}

// cutOff reports whether a member says that it cannot confirm anything now.
func cutOff(e *apiv1.Error) bool {
	kind, ok := incumbent.ParseKind(e.GetKind())
	return e != nil && ok && (kind == incumbent.Unavailable || kind == incumbent.NotLeader)
}

// beaten hears which attached sessions are over, and which leases no beat keeps
// any longer. It reports whether the beat, which was sent then, has extended the session.
func (s *Session) beaten(sent time.Duration, b *apiv1.Beaten) bool {
	ours := keeps(b)
	if ours {
		s.isAttached(sent)
	}
	s.revoking(b.GetRevoking())
	if slices.Contains(b.GetLost(), s.id.String()) {
		s.finish(incumbent.Errorf(incumbent.Expired, "the session ended at the server"))
	}
	return ours
}

// revoking hears which leases are extended no more.
func (s *Session) revoking(tokens []uint64) {
	for _, token := range tokens {
		s.mu.Lock()
		l := s.leases[incumbent.Token(token)]
		s.mu.Unlock()
		if l != nil {
			l.revoke()
		}
	}
}

// mayExtend reports whether extensions count that were sent then, with a beat that was refused:
// not if another run has the session, nor if it may by now.
func (s *Session) mayExtend(sent time.Duration, refused *apiv1.Error) bool {
	return incumbent.KindOf(DetailError(refused)) != incumbent.Conflict && sent <= s.attachedAt()+maxApart
}

// keeps reports whether a beat has extended a session: over a stream that has lost the one it
// had it extends none, and says so before the loss itself may be told.
func keeps(b *apiv1.Beaten) bool { return b.GetHeldMs() > 0 || len(b.GetRevoking()) > 0 }

// holding is a lease's name with the token of one holding.
type holding struct {
	name  incumbent.Name
	token incumbent.Token
}

// unsettled are the holdings to release.
func (s *Session) unsettled() []holding {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.outliveFormers()
	out := make([]holding, 0, len(s.back))
	for token, name := range s.back {
		if len(out) == maxReleasesPerBeat {
			break // the rest with the next beats: a message has a limit of frames
		}
		out = append(out, holding{name, token})
	}
	return out
}

// silence is how long a member may leave a beat unanswered: where there is no
// other to go to, until the next beat is due. Else it is for as long as an attempt to
// connect may take now, which is longer each time that it was in vain: whoever has
// just connected in a storm, and leaves a second later for another member, keeps the storm going.
func (s *Session) silence(interval, patience time.Duration) time.Duration {
	if !s.c.members.several() {
		return interval
	}
	return min(max(s.c.cfg.SilentTimeout, patience, time.Millisecond), interval)
}

func beatFrame() *apiv1.ClientFrame {
	return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_Beat{Beat: &apiv1.Beat{}}}
}

func extendFrame(leases []*Lease) *apiv1.ClientFrame {
	tokens := make([]uint64, len(leases))
	for i, l := range leases {
		tokens[i] = uint64(l.token)
	}
	return tokensFrame(tokens...)
}

func tokensFrame(tokens ...uint64) *apiv1.ClientFrame {
	return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_ExtendTokens{ExtendTokens: &apiv1.ExtendTokens{Tokens: tokens}}}
}

// margin is how much of an acknowledged time counts here: less the drift.
func (s *Session) margin(heldMs uint32) time.Duration {
	return time.Duration(float64(heldMs) * (1 - s.c.cfg.Drift) * float64(time.Millisecond))
}

// extended judges each lease by the server's answer.
func (s *Session) extended(sent time.Duration, leases []*Lease, a *apiv1.TokensExtended) {
	over, unsure := tokenSet(a.GetNotHeld()), tokenSet(a.GetUnavailable())
	for i, l := range leases {
		switch {
		case l.beingRevoked(): // the answer to the beat of the same message said so
		case over[l.token]:
			l.end(incumbent.Errorf(incumbent.NotHolder, "%s is held by another or free", l.name.Lease))
		case unsure[l.token]: // the next beat asks again; the deadline stands
		default:
			held := a.GetHeldMs()
			if held == 0 && i < len(a.GetHeldEachMs()) {
				held = a.GetHeldEachMs()[i]
			}
			if !l.extend(sent + s.margin(held)) {
				l.Held() // one whose deadline has passed lapses
			}
		}
	}
}

func tokenSet(tokens []uint64) map[incumbent.Token]bool {
	set := make(map[incumbent.Token]bool, len(tokens))
	for _, t := range tokens {
		set[incumbent.Token(t)] = true
	}
	return set
}
