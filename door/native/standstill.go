package native

import (
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/lease"
)

// standstillAfter is how long extensions may wait without one being judged until
// a refusal sends clients elsewhere: as long as they wait for a silent member.
const standstillAfter = time.Second

// standstill tells a member that cannot keep up from one where nothing moves.
//
// While nobody confirms anything here, extensions wait until their lane is full,
// and those that come after are refused. Theirs is not the lane's ordinary fate:
// who comes back to a busy member later is served in the end, but nobody is
// where the leader cannot be reached. So such a refusal says Unavailable, at
// which clients try another member, as those do that were given no answer at all.
type standstill struct {
	waiting atomic.Int64 // gathers handed on and not answered
	since   atomic.Int64 // when one was judged last, or when the first began to wait
}

// begin counts a gather that is handed on.
func (s *standstill) begin(now int64) {
	if s.waiting.Load() == 0 {
		s.since.Store(now) // before it counts, so that no old moment does
	}
	s.waiting.Add(1)
}

// end counts its answer.
func (s *standstill) end(now int64, judged bool) {
	if judged {
		s.since.Store(now)
	}
	s.waiting.Add(-1)
}

// lasts reports whether some have waited for too long.
func (s *standstill) lasts(now int64) bool {
	return s.waiting.Load() > 0 && now-s.since.Load() >= int64(standstillAfter)
}

func errStandstill() *incumbent.Error {
	return incumbent.Errorf(incumbent.Unavailable, "no extension has been confirmed here for %v", standstillAfter).
		WithHint("connect to another member")
}

// explain returns what extensions are told that their lane has refused.
func (s *standstill) explain(refusal *incumbent.Error, now int64) *incumbent.Error {
	if refusal.Kind != incumbent.Overloaded || !s.lasts(now) {
		return refusal
	}
	e := errStandstill()
	e.RetryAfter = refusal.RetryAfter
	return e
}

// judged reports whether an extension of the batch was decided by the leader, for or against:
// both take a confirmation.
func judged(b *lease.Batch) bool {
	for i := range b.Items {
		if k := b.Items[i].Kind; !k.Transient() && k != incumbent.Invalid && k != incumbent.Denied {
			return true
		}
	}
	return false
}
