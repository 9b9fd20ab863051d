package admit

import (
	"time"

	"github.com/incumbent-dev/incumbent"
)

// HeldBackFor is how long the answer to a refused request waits, at most.
const HeldBackFor = 250 * time.Millisecond

// HoldBack says how long the answer to a refused request waits before it is told, and
// what is told then: the wait is a part of the hint, which is the shorter for it. So a
// caller who obeys loses nothing, and one that asks again at once does so four times a
// second. left is how long the caller waits for an answer at most (past that, what was
// certainly not done would look as if it might have been); negative: for ever.
func HoldBack(refusal *incumbent.Error, left time.Duration) (pause time.Duration, told *incumbent.Error) {
	pause = min(refusal.RetryAfter, HeldBackFor)
	if left >= 0 {
		pause = min(pause, left/2)
	}
	if pause <= 0 {
		return 0, refusal
	}
	rest := *refusal
	rest.RetryAfter = max(refusal.RetryAfter-pause, time.Millisecond) // none would be no hint
	return pause, &rest
}
