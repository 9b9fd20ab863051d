package native

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
)

// Bounds of what is held back.
const (
	MaxHeldBackBytes = 16 << 20 // of requests as they came
	heldBackCalls    = 1024     // at once
)

// HeldBackBytes is how much of requests is kept whose refusals are held back.
func (d *Door) HeldBackBytes() int64 { return d.held.bytes.Load() }

// heldBack are calls that were refused for the load and are not told so yet.
//
// A refusal costs a tenth of a millisecond of processor, most of it for reading the
// request. Who obeys the hint that comes with it comes back once in a while; who asks
// again at once, over however few connections, would take the processors from what was
// let in. So the answer waits for a part of the hint, which is the shorter for it: a
// caller who waits loses nothing, and one who does not asks four times a second on each
// connection. More than are bounded here are answered at once.
type heldBack struct{ calls, bytes atomic.Int64 }

// wait holds the answer to a call back, of whose request so many bytes came (negative:
// not known), until the call or the door ends. It returns the refusal with what is left
// of its hint.
func (h *heldBack) wait(ctx, life context.Context, size int64, refusal *incumbent.Error) *incumbent.Error {
	callers := time.Duration(-1)
	if deadline, ok := ctx.Deadline(); ok {
		callers = max(time.Until(deadline), 0)
	}
	pause, told := admit.HoldBack(refusal, callers)
	if pause == 0 {
		return refusal
	}
	if size < 0 {
		size = MaxHeldBackBytes / heldBackCalls
	}
	defer func() { h.calls.Add(-1); h.bytes.Add(-size) }()
	if calls, bytes := h.calls.Add(1), h.bytes.Add(size); calls > heldBackCalls || bytes > MaxHeldBackBytes {
		return refusal
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-life.Done():
		return refusal
	}
	return told
}
