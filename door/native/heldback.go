package native

import (
	"context"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
)

// HeldBackBytes is how much of requests is kept whose refusals are held back.
func (d *Door) HeldBackBytes() int64 { return d.held.Bytes() }

// holdBack holds the answer to a call back that was refused for the load, of whose request
// so many bytes came (negative: not known), until the call or the door ends: see
// [admit.HeldBack]. It returns the refusal with what is left of its hint. A deadline that
// the door has given the call is none that its caller knows of.
func (d *Door) holdBack(ctx context.Context, c *callControl, size int64, refusal *incumbent.Error) *incumbent.Error {
	callers := time.Duration(-1)
	if deadline, ok := ctx.Deadline(); ok && c.timed {
		callers = max(time.Until(deadline), 0)
	}
	pause, told := admit.HoldBack(refusal, callers)
	if size < 0 {
		size = admit.MaxHeldBackBytes / admit.MaxHeldBack
	}
	if pause == 0 || !d.held.Take(size) {
		return refusal
	}
	defer d.held.Give(size)
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-d.life.Done():
		return refusal
	}
	return told
}
