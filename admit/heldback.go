package admit

import (
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// How long the answer to a refused request waits, at most.
const (
	HeldBackFor  = 250 * time.Millisecond // of a caller who does not say how long that may be
	HeldBackMost = time.Second            // of one who does
)

// Bounds of what is held back at one door.
const (
	MaxHeldBack      = 1024     // requests at once
	MaxHeldBackBytes = 16 << 20 // of them that are kept meanwhile
)

// HoldBack says how long the answer to a refused request waits before it is told, and
// what is told then: the wait is a part of the hint, which is the shorter for it. So a
// caller who obeys loses nothing, and one that asks again at once does so four times a
// second, or once if it has said that it has the time. left is how long the caller waits
// for an answer at most (past that, what was certainly not done would look as if it might
// have been); negative: it does not say.
func HoldBack(refusal *incumbent.Error, left time.Duration) (pause time.Duration, told *incumbent.Error) {
	pause = HeldBackWithin(refusal.RetryAfter, left)
	if pause <= 0 {
		return 0, refusal
	}
	rest := *refusal
	rest.RetryAfter = max(refusal.RetryAfter-pause, time.Millisecond) // none would be no hint
	return pause, &rest
}

// HeldBackWithin is for how much of a pause an answer may be held back: see [HoldBack].
func HeldBackWithin(pause, left time.Duration) time.Duration {
	if left >= 0 {
		return min(pause, HeldBackMost, left/2)
	}
	return min(pause, HeldBackFor)
}

// HeldBack counts the requests of a door that were refused for the load and are not told
// so yet. The zero value has none. All methods may be called from any goroutine.
//
// A refusal costs a tenth of a millisecond of processor, most of it for reading the
// request. Who obeys the hint that comes with it comes back once in a while; who asks
// again at once, over however few connections, would take the processors from what was
// let in. So the answer waits: see [HoldBack]. More than are bounded here are answered at
// once.
type HeldBack struct{ requests, bytes atomic.Int64 }

// Take counts one more request, of which so many bytes are kept, and reports whether it
// may be held back: then Give is to be called with the same.
func (h *HeldBack) Take(bytes int64) bool {
	requests, all := h.requests.Add(1), h.bytes.Add(bytes)
	if requests > MaxHeldBack || all > MaxHeldBackBytes {
		h.Give(bytes)
		return false
	}
	return true
}

// Give says that a request is not held back any more.
func (h *HeldBack) Give(bytes int64) {
	h.requests.Add(-1)
	h.bytes.Add(-bytes)
}

// Len is how many requests are held back.
func (h *HeldBack) Len() int { return int(h.requests.Load()) }

// Bytes is how much of them is kept.
func (h *HeldBack) Bytes() int64 { return h.bytes.Load() }
