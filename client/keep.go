package client

import (
	"context"
	"slices"
	"time"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// maxApart is for how long leases are extended without the session being attached, from
// when that was known last. Another run may have attached it since and is not seen by an
// extension: what this one believes to hold ends a ttl later at the latest.
const maxApart = maxWait

// keep extends what the session holds over a link at which it has not begun yet, a third
// of the ttl apart, until ctx ends: it may wait for its turn for longer than a lease lasts.
// An extension names leases by their tokens, needs no attachment, and keeps the session too.
// Once the session is attached, and pages of what it has are to come, it beats besides.
func (s *Session) keep(ctx context.Context, l *link) {
	for wait := s.untilDue(); sleep(ctx, wait) == nil && ctx.Err() == nil && !l.over(); {
		wait = s.keepOnce(ctx, l)
	}
}

// untilDue is how long until what the session holds is to be extended again.
func (s *Session) untilDue() time.Duration {
	ttl := s.TTL()
	wait := ttl / beatsPerTTL
	for _, lease := range s.extendable() {
		wait = min(wait, lease.Remaining()-(ttl-ttl/beatsPerTTL))
	}
	return max(0, wait)
}

// keepOnce extends once, and returns when to do so again: soon, where that was refused.
func (s *Session) keepOnce(ctx context.Context, l *link) (wait time.Duration) {
	interval := s.TTL() / beatsPerTTL
	sent := s.clock()
	next := sent + interval
	var frames []*apiv1.ClientFrame
	leases := s.extendable()
	if l.begun.Load() {
		frames = append(frames, beatFrame())
	} else if sent > s.attachedAt()+maxApart {
		return interval
	}
	if len(leases) > 0 {
		frames = append(frames, extendFrame(leases))
	}
	if len(frames) == 0 {
		return interval
	}
	answers, err := l.post(frames...)
	if err != nil {
		return interval
	}
	ctx, cancel := context.WithTimeout(ctx, interval)
	defer cancel()
	for i, f := range frames {
		a, _ := l.await(ctx, f, answers[i])
		switch {
		case a == nil: // it is sent again when it is due, unless the link has ended; without its beat no extension counts
			return max(0, next-s.clock())
		case f.GetBeat() != nil:
			next = s.sooner(next, a.Error)
			if !s.beatAnswered(sent, a) {
				return max(0, next-s.clock()) // another run has it by now, and what is extended is its
			}
		default:
			// No beat may have said what is being revoked. What is not held any more is nobody
			// else's before its deadline; that it is over, the session is told when it begins.
			s.revoking(a.GetTokensExtended().GetNotHeld())
			next = s.extensionAnswered(sent, next, leases, a)
		}
	}
	return max(0, next-s.clock())
}

// extendable are the leases to extend.
func (s *Session) extendable() []*Lease {
	return slices.DeleteFunc(s.held(), (*Lease).beingRevoked)
}

// isAttached notes that a member has answered what was sent then, and that the session was
// attached there by this run.
func (s *Session) isAttached(sent time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.attached = max(s.attached, sent)
}

func (s *Session) attachedAt() time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.attached
}
