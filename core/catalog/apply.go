package catalog

import (
	"errors"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Apply implements [core.Tables]. Its Record is a *Refusal where a command is refused
// for what it finds; else of Register the *Node, *Service or *Check that the command
// had, the last of several, as it is now; of UpdateCheck the *Check; of OpenSession the
// *Session; of Get the record, nil: it is not there.
//
// It answers Invalid and TooLarge for what cannot be, and TooLarge for what is more than
// there may be, or than a quota allows; NotFound where the node, the service or the
// check is not registered that something belongs to or depends on; Conflict where the
// condition does not hold, a session is to depend on a critical check, or another node
// has the name; Expired where the session of a service is not open; Denied where it is
// another's.
func (t *tables) Apply(x *core.Exec, b []byte) core.Result {
	var c Command
	if err := c.read(b); err != nil {
		return core.Result{Err: err}
	}
	if err := c.tooNew(x.ActiveSchema()); err != nil {
		return core.Result{Err: err}
	}
	switch alone := x.Reading() == nil; {
	case alone && c.Verb == Get:
		return core.Result{Err: refused(incumbent.Invalid, "only a transaction reads")}
	case !alone && (c.Verb == OpenSession || c.Verb == Lapse):
		return core.Result{Err: errAlone()}
	case c.Verb == OpenSession:
		return t.openSession(x, c.Session)
	case c.Verb == Lapse:
		return t.lapse(x, &c)
	case c.Verb == Get:
		return t.get(x.Reading(), &c)
	}
	if c.Service != nil {
		if err := x.CheckOwner(c.Service.Session); err != nil {
			return core.Result{Err: err}
		}
	}
	p, r := t.planned(&c, func(id incumbent.SessionID) bool { return x.Session(id) != nil })
	if r.Err != nil {
		return r
	}
	p.own(x)
	if err := p.overQuota(x, c.Target.Namespace); err != nil {
		return core.Result{Err: err}
	}
	t.perform(x, p)
	return t.answer(&c)
}

// tooNew is the error of what a member may not know yet.
func (c *Command) tooNew(active uint32) *incumbent.Error {
	for _, k := range c.Checks {
		if err := k.tooNew(active); err != nil {
			return err
		}
	}
	if c.Session != nil && c.Session.Leads && active < FollowSchema {
		return refused(incumbent.Invalid, "no check follows a session until all members know of that")
	}
	return c.Service.tooNew(active)
}

// own makes what is registered that of who asks, and says as how many it counts.
func (p *plan) own(x *core.Exec) {
	if !p.registers {
		return
	}
	counts := x.ActiveSchema() >= core.CountSchema
	own := func(owner *string, n *uint64, full uint64) {
		if *owner, *n = x.Principal(), 0; counts {
			*n = full
		}
	}
	if n := p.newNode; n != nil {
		own(&n.Owner, &n.Further, n.full())
	}
	if s := p.newOne; s != nil {
		own(&s.Owner, &s.Further, s.full())
	}
	for _, c := range p.newOnes {
		own(&c.Owner, &c.Further, c.full())
	}
}

// perform does what was planned.
func (t *tables) perform(x *core.Exec, p *plan) {
	if p.renamed != nil {
		t.removeNode(x, p.renamed)
	}
	if p.newNode != nil {
		t.putNode(x, p.node, p.newNode)
	}
	if p.newOne != nil {
		t.putService(x, p.service, p.newOne)
	}
	for _, n := range p.newOnes {
		// Its service may have changed its name since it was planned, and the check with it.
		if o := t.check(n.Namespace, n.Node, n.ID); o == nil || !n.same(o) {
			t.putCheck(x, o, n)
		}
	}
	if p.removes != nil {
		t.remove(x, p.removes)
	}
}

func (t *tables) remove(x *core.Exec, target *Target) {
	switch target.Kind {
	case NodeKind:
		t.removeNode(x, t.host(target.Namespace, target.Node))
	case ServiceKind:
		t.removeService(x, t.service(target.Namespace, target.Node, target.ID))
	default:
		t.removeCheck(x, t.check(target.Namespace, target.Node, target.ID))
	}
}

// answer is that of a command that has been executed, or that changes nothing.
func (t *shared) answer(c *Command) core.Result {
	target := c.Target
	switch {
	case c.Verb == Deregister:
		return core.Result{}
	case c.Verb == UpdateCheck:
	case len(c.Checks) > 0:
		target.Kind, target.ID = CheckKind, c.Checks[len(c.Checks)-1].ID
	case c.Service != nil:
		target.Kind, target.ID = ServiceKind, c.Service.ID
	default:
		target.Kind = NodeKind
	}
	record, _ := t.record(target)
	return core.Result{Record: record}
}

func refused(k incumbent.Kind, message string) *incumbent.Error {
	return &incumbent.Error{Kind: k, Message: message}
}

// errAlone refuses what is no part of a transaction.
func errAlone() *incumbent.Error {
	return refused(incumbent.Invalid, "neither the opening of a session nor the end of a deadline is part of a transaction")
}

// typed is an error of Validate.
func typed(err error) *incumbent.Error {
	var e *incumbent.Error
	if !errors.As(err, &e) {
		e = &incumbent.Error{Kind: incumbent.Invalid, Message: err.Error()}
	}
	return e
}
