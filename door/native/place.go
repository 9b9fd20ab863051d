package native

import (
	"context"
	"sync/atomic"

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
// How long a call has it that hands nothing on, since it is misspelt, denied or only waits, says
// nothing of the lane.
type callPlace struct {
	place admit.Place
	users atomic.Int32 // the call, and what it has handed on without an outcome
	works bool         // something is done for the call; of the call, until it leaves
}

// newCallPlace is the place that a call has got.
func newCallPlace(p admit.Place) *callPlace {
	c := &callPlace{place: p}
	c.users.Store(1)
	return c
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
		p.works = true
	}
	return p
}

// doing says whether something is done for the call, where that is not what it hands on. The call
// itself does this.
func (p *callPlace) doing(works bool) {
	if p != nil {
		p.works = works
	}
}

func (p *callPlace) leave() {
	switch {
	case p == nil || p.users.Add(-1) > 0:
	case p.works:
		p.place.Leave()
	default:
		p.place.Drop()
	}
}

// notProposed reports whether an operation ended before anything was done for it: what it asks for
// is none, or denied.
func notProposed(r core.Result) bool {
	kind := incumbent.KindOf(asKind(r.Err))
	return r.Index == 0 && (kind == incumbent.Denied || kind == incumbent.Invalid)
}
