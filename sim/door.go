package sim

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
)

// applied is told of each batch that the member applies.
func (p *process) applied(a *engine.Applied) {
	p.w.check.applied(p, a)
	for i := range a.Changes {
		p.tellOffer(&a.Changes[i])
	}
}

// submit hands a call on as a door does. first: none with its key was sent before.
func (p *process) submit(call lease.Call, cmd core.Command, first bool, done func(core.Result)) {
	r := request{whoIs(call.Origin.Principal), callOf(cmd).Lane(), call.Deadline}
	p.admit(r, func(leave func()) {
		p.handOn(call, cmd, first, func(r core.Result) {
			leave()
			done(r)
		})
	}, func(err *incumbent.Error) { done(core.Result{Err: err}) })
}

// handOn does what was let in.
func (p *process) handOn(call lease.Call, cmd core.Command, first bool, done func(core.Result)) {
	call.Judged = policy.JudgedBy(p.group.View())
	switch c := cmd.(type) {
	case kv.Command:
		p.submitKeys(call, c, first, done)
	case core.Txn:
		p.submitTxn(call, c, first, done)
	case catalog.Command:
		p.submitCatalog(call, c, first, done)
	case tableCall:
		p.submitTable(call, c, first, done)
	case *table.Define, *table.Convert:
		p.group.Execute(engine.Call{Meta: call.Meta(), Deadline: call.Deadline}, cmd, done)
	case policy.Command, settings.Command:
		p.group.Execute(engine.Call{Meta: call.Meta(), Deadline: call.Deadline, Reserve: true}, cmd, done)
	default:
		p.leases.Submit(call, cmd, done)
	}
}

// submitKeys refuses what there is no room for, answers what would do nothing from a
// confirmed view, and proposes all else; what was sent before only the log decides.
func (p *process) submitKeys(call lease.Call, c kv.Command, first bool, done func(core.Result)) {
	w, all := p.w, p.group.View()
	v := kv.Of(all)
	o := v.Entry(c.Key)
	frees := c.Verb == kv.Remove || c.Verb == kv.RemoveTree || c.Verb == kv.Release && c.Growth(o) <= 0
	if first && !frees {
		if err := v.Full(all, call.Origin.Principal, &c, o); err != nil {
			done(core.Result{Err: err})
			return
		}
	}
	execute := func() {
		p.group.Execute(engine.Call{Meta: call.Meta(), Deadline: call.Deadline, Reserve: frees}, c, done)
	}
	if _, idle := p.asItIs(&c); !first || !idle {
		execute()
		return
	}
	p.group.Confirm(func(err error) {
		if err != nil {
			done(failed(err))
			return
		}
		if r, idle := p.asItIs(&c); idle {
			w.res.Idle++
			done(r)
			return
		}
		execute()
	})
}

// asItIs answers a command that would do nothing to the state as it is.
func (p *process) asItIs(c *kv.Command) (core.Result, bool) {
	all := p.group.View()
	_, r, idle := kv.Of(all).Idling(c, all.Session(c.Session) != nil)
	r.Index = all.Index()
	return r, idle
}

func failed(err error) core.Result {
	return core.Result{Err: incumbent.Errorf(incumbent.KindOf(err), "%w", err)}
}

// tellOffer sends an offer to the agent whose session it is for, if it is
// connected here.
func (p *process) tellOffer(of *core.Change) {
	c, _ := leases.ChangeOf(of)
	if c.What != leases.Offered || c.Lease == nil {
		return
	}
	for _, a := range p.w.agents {
		if a.at == p.m && a.session == c.Lease.Session && !a.session.IsZero() {
			token, name := c.Lease.Token, c.Lease.Name
			p.reply(func() { a.offered(name, token) })
		}
	}
}

// receive takes a message from an agent into the socket. Closed doors refuse at
// once, a machine without power says nothing.
func (m *member) receive(a *agent, do func(*process), refused func()) {
	if m.w.lose() {
		return
	}
	p := m.proc
	m.w.after(m.w.upTo(networkTakes), func() {
		switch {
		case p == nil || p.gone || !p.ready():
			m.w.after(m.w.upTo(networkTakes), refused)
		default:
			p.arrive(frame{firstAgent + a.id, func() { do(p) }})
		}
	})
}

// firstAgent is the connection of agent 0; those of members come before.
const firstAgent = 1000

// lose decides whether a message between an agent and a member is lost. In a run with a
// flood none is, so that what is served before and after can be compared.
func (w *world) lose() bool { return !w.healed && w.cfg.Flood == nil && w.chance(lostOneIn) }

// lostOneIn is how many messages of agents are lost with their connection.
const lostOneIn = 150

// networkTakes is the way between an agent and a member, at most.
const networkTakes = 20 * time.Millisecond
