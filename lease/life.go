package lease

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// A claim of a session is a sign of life: whoever is told that it holds a lease
// counts on its session for a whole ttl from when it sent. The leader stores
// that when it reads the claim, before it enters the log. On another member the
// claim travels through the log alone, where nothing keeps an expiry of the
// session from standing right behind it. So an extension of the session goes to
// the leader beside the claim, and the claim is answered when both are.

// startLife sends the extension that goes with a claim.
func (e *Engine) startLife(c *call) {
	m, ok := c.cmd.(core.ClaimCommand)
	if !ok || m.Session.IsZero() || e.leading || !e.courier.on || c.alive != nil {
		return
	}
	b := &Batch{Items: []Extension{{Session: m.Session}}, call: c}
	c.alive = b
	e.Extend(b)
}

// needsLife reports whether a result may be told only once the session is known
// to live. Where this member led when the claim came it has stored that; and
// where it leads again, every session has started anew since.
func (e *Engine) needsLife(c *call, r *core.Result) bool {
	m, ok := c.cmd.(core.ClaimCommand)
	return ok && !m.Session.IsZero() && r.Err == nil && !r.Queued && e.courier.on && !(c.led && e.leading)
}

// finishAlive answers a claim once its session has been extended.
func (e *Engine) finishAlive(c *call, r core.Result) {
	c.result = &r
	a := c.alive
	if a == nil || a.left == 0 && a.Items[0].Kind.Transient() {
		c.alive = &Batch{Items: []Extension{{Session: c.cmd.(core.ClaimCommand).Session}}, call: c}
		e.Extend(c.alive)
		return
	}
	if a.left == 0 {
		e.lifeAnswered(c)
	}
}

// lifeAnswered takes what the leader says of the session of a claim.
func (e *Engine) lifeAnswered(c *call) {
	if c.result == nil {
		return // the claim is still on its way
	}
	r := *c.result
	switch c.alive.Items[0].Kind {
	case incumbent.OK:
	case incumbent.Expired:
		r = core.Result{Index: r.Index, Err: incumbent.Errorf(incumbent.Expired, "the session has ended")}
	default:
		r = core.Result{Err: &incumbent.Error{
			Kind: incumbent.Unknown, Message: "the claim was applied, but the leader has not confirmed that the session lives",
			RetryAfter: unavailableRetry,
		}}
	}
	e.finish(c, r)
}
