package native

import (
	"context"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
)

// HeldBackBytes is how much of requests is kept whose refusals are held back.
func (d *Door) HeldBackBytes() int64 { return d.held.Bytes() }

// patience is how long the caller waits for an answer at most; negative: it does not say.
func (c *callControl) patience(ctx context.Context) time.Duration {
	if deadline, ok := ctx.Deadline(); ok && c.timed {
		return max(time.Until(deadline), 0)
	}
	return -1
}

// kept is how many bytes of the call's request are kept while its answer is held back: at
// least those that its message takes in protobuf's form, however they were sent.
func (c *callControl) kept() int64 {
	if c.message == nil {
		return 0 // nothing of it was read
	}
	return max(c.size, int64(proto.Size(c.message)))
}

// holdBack holds the answer to a call back that was refused for the load, until the call or
// the door ends: see [admit.HeldBack]. It returns the refusal with what is left of its hint.
// A deadline that the door has given the call is none that its caller knows of.
func (d *Door) holdBack(ctx context.Context, c *callControl, refusal *incumbent.Error) *incumbent.Error {
	Heard(ctx) // nothing of it is handed on
	pause, told := admit.HoldBack(refusal, c.patience(ctx))
	if pause == 0 {
		return refusal
	}
	size := c.kept()
	if !d.held.Take(size) {
		return refusal
	}
	defer d.held.Give(size)
	if !d.pause(ctx, pause) {
		return refusal
	}
	return told
}

// pause waits, or until the call ends; false: until the door does.
func (d *Door) pause(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	case <-d.life.Done():
		return false
	}
	return true
}
