package sim

import (
	"io"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// historyKept is how many changes a member keeps for watchers.
const historyKept = 300

// machine is the replicated state as the member's node drives it.
type machine struct {
	p     *process // nil while a first disk is being made
	state *core.State

	history []core.Change   // the newest changes, for watchers
	floor   incumbent.Index // history begins after it
}

// Apply implements node.Machine.
func (x *machine) Apply(cmds [][]byte, results []any) {
	rs := make([]core.Result, len(cmds))
	before := x.state.Index()
	changes := x.state.Apply(cmds, rs)
	view := x.state.View()
	x.p.w.check.applied(x.p, before, cmds, changes, view)
	x.remember(changes)
	for i := range changes {
		x.p.tellOffer(&changes[i])
	}
	x.p.leases.Applied(view, changes)
	for i := range rs {
		results[i] = &rs[i]
	}
}

// remember keeps the newest changes, whole indexes at a time.
func (x *machine) remember(changes []core.Change) {
	x.history = append(x.history, changes...)
	if len(x.history) < 2*historyKept {
		return
	}
	n := len(x.history) - historyKept
	for n < len(x.history) && x.history[n].Index == x.history[n-1].Index {
		n++
	}
	x.floor = x.history[n-1].Index
	x.history = append(x.history[:0:0], x.history[n:]...)
}

// since returns the changes after an index, or false if they are gone.
func (x *machine) since(index incumbent.Index) ([]core.Change, bool) {
	if index < x.floor {
		return nil, false
	}
	n := len(x.history)
	for n > 0 && x.history[n-1].Index > index {
		n--
	}
	return x.history[n:len(x.history):len(x.history)], true
}

// Snapshot implements node.Machine.
func (x *machine) Snapshot() func(io.Writer) error { return x.state.View().WriteSnapshot }

// Restore implements node.Machine.
func (x *machine) Restore(r io.Reader) error {
	s, err := core.Restore(r)
	if err != nil {
		return err
	}
	x.state = s
	x.history, x.floor = nil, s.Index()
	if x.p != nil {
		x.p.w.check.restored(x.p, s)
		x.p.leases.Restored(s.View())
	}
	return nil
}

// Lead implements node.Machine.
func (x *machine) Lead(term uint64) {
	if x.p != nil {
		x.p.leases.Lead(term)
		x.p.w.aimLead(x.p)
	}
}

// Follow implements node.Machine.
func (x *machine) Follow(leader, term uint64) {
	if x.p != nil {
		x.p.leases.Follow(leader, term)
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
