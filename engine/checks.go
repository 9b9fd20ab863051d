package engine

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/lease"
)

// Extend has a deadline of a family begin anew, without the log, if that lets it be
// extended ([core.Deadline]): the whole time passes, from when this was called, before
// it ends. It never blocks; neither must done, which is called once: with NotFound if
// the deadline is over or has begun again, which a command has done; else with an error
// after which it may be extended or not.
func (e *Engine) Extend(d *core.Deadline, done func(error)) {
	l := lease.Lasting{Family: d.Family, ID: d.ID, Generation: d.Generation}
	e.leases.Extend(&lease.Batch{
		Items: []lease.Extension{{Lasting: &l}},
		Done: func(b *lease.Batch) {
			if err := b.Err(); err != nil {
				done(err)
				return
			}
			done(nil)
		},
	})
}

// passesAgain bounds how often the pass of a check is tried again that others change
// at the same time.
const passesAgain = 4

// Pass says that a check is so as cmd, a [catalog.UpdateCheck] with StatusOnly or
// without, says. As long as nothing else changes it is an extension of the check's ttl,
// and no entry of the log, of which the result is Idle. The Record of the result is the
// check, or a *[catalog.Refusal].
// It never blocks; neither must done, which is called once.
//
// Another status is written out of what is kept back ([Call.Reserve]), an output alone is
// not. One that is refused before it is in the log, as Overloaded or Unavailable, is no reason
// for a check to become critical: its ttl is extended all the same, and the check comes with
// the refusal.
func (e *Engine) Pass(c Call, cmd catalog.Command, done func(core.Result)) {
	p := &pass{e: e, call: c, cmd: cmd, done: done}
	r, idle := p.idling()
	switch {
	case !idle:
		p.log(false)
	case !p.extend(r):
		e.Confirm(p.confirmed) // this member may not know yet that it is another
	}
}

// pass is one under way.
type pass struct {
	e     *Engine
	call  Call
	cmd   catalog.Command
	done  func(core.Result)
	tried int
}

// idling is what the command answers if it would change nothing.
func (p *pass) idling() (core.Result, bool) {
	view := p.e.View()
	r, idle := catalog.Of(view).Idling(&p.cmd, func(id incumbent.SessionID) bool { return view.Session(id) != nil })
	r.Index, r.Idle = view.Index(), true
	return r, idle && p.call.KeyID == nil
}

// confirmed answers from a view that is not older than the call.
func (p *pass) confirmed(err error) {
	if err != nil {
		p.done(resultOf(nil, err))
		return
	}
	r, idle := p.idling()
	switch {
	case !idle:
		p.log(false)
	case !p.extend(r):
		p.done(r)
	}
}

// log makes it a command. Where that finds the status as it is to be, no ttl began with
// it, and the one there is is extended. over: the ttl ended, and the status with it, though
// this member may not know yet.
func (p *pass) log(over bool) {
	p.tried++
	call := p.call
	call.Reserve = over || catalog.Of(p.e.View()).Turns(&p.cmd)
	p.e.Execute(call, p.cmd, func(r core.Result) {
		if r.Index == 0 && r.Err != nil && (r.Err.Kind == incumbent.Overloaded || r.Err.Kind == incumbent.Unavailable) {
			p.without(r)
			return
		}
		c, ok := r.Record.(*catalog.Check)
		if r.Err != nil || !ok || c.Since == r.Index || !p.extend(r) {
			p.done(r)
		}
	})
}

// without answers that the command was refused before it was in the log, once the ttl of the
// check is extended if that is as it is to be but for its output.
func (p *pass) without(refused core.Result) {
	t := &p.cmd.Target
	c := catalog.Of(p.e.View()).Check(t.Namespace, t.Node, t.ID)
	if c != nil && c.Status == p.cmd.Status {
		if d := c.Deadline(); d != nil && d.Extended {
			p.e.Extend(d, func(err error) {
				if err == nil {
					refused.Record = c
				}
				p.done(refused)
			})
			return
		}
	}
	p.done(refused)
}

// extend extends the ttl of the check that a result has, if it has one. What it names
// may be over by now: then the log says what is.
func (p *pass) extend(r core.Result) bool {
	c, ok := r.Record.(*catalog.Check)
	if !ok {
		return false
	}
	d := c.Deadline()
	if d == nil || !d.Extended {
		return false
	}
	p.e.Extend(d, func(err error) {
		switch kind := incumbent.KindOf(err); {
		case err == nil:
			p.done(r)
		case kind == incumbent.NotFound && p.tried < passesAgain:
			p.log(true)
		default:
			p.done(resultOf(nil, err))
		}
	})
	return true
}
