package native

import (
	"context"
	"sync"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/gate"
)

// callPace is the pace of a connection of calls, several of which may be under way.
type callPace struct {
	mu   sync.Mutex
	pace admit.Pace
}

// slow holds the answer to a call back that was refused for what it asks, if too many such come over
// its connection: see [admit.Pace]. Where too many wait already it does not, and the connection ends
// with the answer: whoever asks again comes through the gate again.
func (d *Door) slow(ctx context.Context, who *caller, refusal error) {
	c := gate.FromContext(ctx)
	switch code := connect.CodeOf(refusal); {
	case code != connect.CodePermissionDenied && code != connect.CodeInvalidArgument, c == nil:
		return
	}
	p := c.Kept(func() any { return new(callPace) }).(*callPace) //nolint:forcetypeassert // it is kept by nobody else
	size := max(who.control.size, 0)
	p.mu.Lock()
	pause := d.lanes.Slow(&p.pace, int(size)+2*admit.MessageBytes)
	p.mu.Unlock()
	if pause == 0 {
		return
	}
	Heard(ctx) // nothing of it is handed on
	if !d.slowed.Take(0) {
		who.control.header.Set("Connection", "close")
		return
	}
	defer d.slowed.Give(0)
	d.pause(ctx, admit.HeldBackWithin(pause, who.control.patience(ctx)))
}
