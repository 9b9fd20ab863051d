package admit

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// What is held back is taken off the hint, and never more than half of what the caller
// waits; who does not say how long that is gets a shorter one.
func TestG41_WhoSaysHowLongHeWaits(t *testing.T) {
	t.Parallel()
	const ever = -1
	for _, c := range []struct {
		hint, left, pause, told time.Duration
	}{
		{2 * time.Second, ever, HeldBackFor, 2*time.Second - HeldBackFor},
		{2 * time.Second, time.Minute, HeldBackMost, 2*time.Second - HeldBackMost},
		{2 * time.Second, time.Second, 500 * time.Millisecond, 1500 * time.Millisecond},
		{100 * time.Millisecond, ever, 100 * time.Millisecond, time.Millisecond},
		{100 * time.Millisecond, time.Minute, 100 * time.Millisecond, time.Millisecond},
		{100 * time.Millisecond, 0, 0, 100 * time.Millisecond},
		{0, time.Minute, 0, 0},
	} {
		pause, told := HoldBack(&incumbent.Error{Kind: incumbent.Overloaded, RetryAfter: c.hint}, c.left)
		if pause != c.pause || told.RetryAfter != c.told {
			t.Errorf("hint %v, the caller waits for %v: held back for %v and told %v, want %v and %v", c.hint, c.left, pause, told.RetryAfter, c.pause, c.told)
		}
	}
}
