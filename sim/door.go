package sim

import (
	"time"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
)

// applied is told of each batch that the member applies.
func (p *process) applied(a *engine.Applied) {
	p.w.check.applied(p, a)
	for i := range a.Changes {
		p.tellOffer(&a.Changes[i])
	}
}

// tellOffer sends an offer to the agent whose session it is for, if it is
// connected here.
func (p *process) tellOffer(c *core.Change) {
	if c.What != core.Offered || c.Lease == nil {
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

// lose decides whether a message between an agent and a member is lost.
func (w *world) lose() bool { return !w.healed && w.chance(lostOneIn) }

// lostOneIn is how many messages of agents are lost with their connection.
const lostOneIn = 150

// networkTakes is the way between an agent and a member, at most.
const networkTakes = 20 * time.Millisecond
