package lease

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// A command that was answered Unknown may be applied later: its entry waits for
// a disk or a quorum, or is on its way to a leader. Its caller is told at once,
// but it stays in its guard and its mark stays: else the next claim or extension
// of the same client would be acknowledged from memory in front of a release.
//
// It is decided once a command that this member has proposed after that answer
// was applied here. For the node hands out a member's commands in order, and one
// is never applied behind a later one: in one term the leader appends entries of
// one member in order (what it has not appended when a later one comes, it
// ignores for ever), and after the first entry of a later term none of an earlier
// term is applied. So by then the command was applied here too, or lies in a
// snapshot that this member's state was taken from, or never will be applied. If
// nobody sends such a command, we do: one that does nothing, a probe. Its own
// outcome may be Unknown, and it may be refused: then another follows.
//
// A role does not matter for that: what is undecided is marked anew in each, as
// is all that is on its way through the log.

// undecided are the calls that were answered Unknown and may still be applied.
type undecided struct {
	calls     []*call // in the order of those answers
	behind    int     // the first so many are decided with the probe under way; 0: none is
	notBefore int64   // the last probe was not applied
}

// undecide answers a call whose outcome is unknown.
func (e *Engine) undecide(c *call, err error) {
	e.finish(c, core.Result{Err: errorOf(err)})
	c.done = nil // and what it holds
	e.stats.Unknown++
	e.undecided.calls = append(e.undecided.calls, c)
}

// probe proposes a command that does nothing behind what is undecided. It may
// use the reserve: releases wait for it.
func (e *Engine) probe() {
	u := &e.undecided
	if len(u.calls) == 0 || u.behind > 0 || e.now < u.notBefore {
		return
	}
	u.behind = len(u.calls)
	e.out.Proposals = append(e.out.Proposals, Proposal{
		Command: core.TrimKeysCommand{}.Encode(core.Meta{}), Reserve: true, Ticket: Ticket{probe: true},
	})
}

// probed takes the outcome of a probe.
func (e *Engine) probed(err error) {
	u := &e.undecided
	n := u.behind
	u.behind = 0
	if err != nil {
		u.notBefore = e.now + int64(retryRoundAfter)
		return
	}
	list := u.calls[:n]
	u.calls = slices.Clone(u.calls[n:])
	e.decide(list)
}

// decide lets go of calls that have been applied or never will be. All leave
// their guards before anybody who waited for one is looked at again.
func (e *Engine) decide(list []*call) {
	for _, c := range list {
		c.decided = true
	}
	isDecided := func(c *call) bool { return c.decided }
	e.unnamed = slices.DeleteFunc(e.unnamed, isDecided)
	for _, c := range list {
		if g := e.names[c.name]; c.named && g != nil {
			g.logged = slices.DeleteFunc(g.logged, isDecided)
			e.unguard(c.name, g)
		}
	}
	for _, c := range list {
		e.untouch(c)
		if c.named {
			e.releaseNamed(c.name)
		}
	}
}

// tooManyUndecided refuses a call that would go through the log, if it must not.
func (e *Engine) tooManyUndecided(c *call) bool {
	if len(e.undecided.calls) < MaxUndecided {
		return false
	}
	e.finish(c, core.Result{Err: &incumbent.Error{
		Kind: incumbent.Overloaded, Message: "too many commands of this member have an unknown outcome", RetryAfter: overloadRetry,
	}})
	return true
}

// remark marks what has just begun for the commands on its lease that may end
// it: they were sent before it was known here.
func (e *Engine) remark(name incumbent.Name) {
	g := e.names[name]
	if g == nil {
		return
	}
	l := leases.Of(e.view).Lease(name)
	for _, c := range g.logged {
		old := c.mark
		e.unmark(c)
		e.touch(c, l)
		if old != c.mark && old != (key{}) {
			e.release(old)
		}
	}
}
