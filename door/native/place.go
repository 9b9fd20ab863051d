package native

import (
	"context"
	"sync/atomic"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/core"
)

// callPlace is a call's place in its lane, which the call shares with all that it hands on
// to the engine and the lease service. Whoever calls may go at any moment, as by a reset of
// a stream of HTTP/2, and then the call returns; what it has handed on stays in their queues.
// Were its place free by then, who calls and goes, and calls again, would fill these queues
// whatever the lane's limit is. So the last one who is done gives the place back: the call,
// or who takes the outcome of what nobody waits for any more. Engine and lease service
// promise each outcome; only a door that has been closed may miss one, and lets nobody in.
type callPlace struct {
	place admit.Place
	users atomic.Int32 // the call, and what it has handed on without an outcome
	idle  bool         // nothing is done for the call; of the call, until it leaves
}

// placeOf is the place that a call has now; nil: it has none, which keep and leave accept.
func placeOf(ctx context.Context) *callPlace {
	if c := callerOf(ctx).control; c != nil {
		return c.place
	}
	return nil
}

// keep keeps the place for what is about to be handed on. The call itself does this, which
// has the place; with the outcome leave is called, once, from anywhere.
func (p *callPlace) keep() *callPlace {
	if p != nil {
		p.users.Add(1)
	}
	return p
}

func (p *callPlace) leave() {
	switch {
	case p == nil || p.users.Add(-1) > 0:
	case p.idle:
		p.place.Drop()
	default:
		p.place.Leave()
	}
}

// idles says that nothing is done for a call in its place: how long it has that says nothing of
// the lane.
func idles(ctx context.Context) {
	if p := placeOf(ctx); p != nil {
		p.idle = true
	}
}

// notProposed reports whether an operation ended before anything was done for it: what it asks for
// is none, or denied.
func notProposed(r core.Result) bool {
	kind := incumbent.KindOf(asKind(r.Err))
	return r.Index == 0 && (kind == incumbent.Denied || kind == incumbent.Invalid)
}

// notBegun is callError for a call for which nothing was done.
func (d *Door) notBegun(ctx context.Context, err error) *connect.Error {
	idles(ctx)
	return d.callError(err)
}
