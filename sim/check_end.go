package sim

import (
	"bytes"
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/lease"
)

// settled is called when everything has been well for a while.
func (c *checker) settled() {
	c.settledTerm = c.term
	for _, m := range c.w.members {
		if p := m.proc; p != nil && p.node != nil {
			c.settledTerm = max(c.settledTerm, p.node.Status().Term)
		}
	}
}

// probe asks one member for everything that agents need: claim, extend, read and
// release, each repeated until it succeeds.
type probe struct {
	w    *world
	a    *agent
	m    *member
	name incumbent.Name
	done bool
	at   string // what it waits for
}

// probe begins a probe of every member.
func (w *world) probe() {
	for _, m := range w.members {
		a := &agent{w: w, id: len(w.agents) + m.at, at: m, rate: 1, ttl: maxTTL}
		a.want = incumbent.Name{Namespace: "default", Model: "default", Lease: fmt.Sprintf("probe-%d", m.at)}
		p := &probe{w: w, a: a, m: m, name: a.want}
		w.check.probes = append(w.check.probes, p)
		p.claim()
	}
}

// again repeats a step at the same member.
func (p *probe) again(step func()) {
	p.a.at = p.m
	p.w.after(p.w.upTo(returns), step)
}

func (p *probe) submit(step string, cmd core.Command, retry func(), then func(core.Result)) {
	p.at = step
	p.w.calls++
	s := &submission{number: p.w.calls, cmd: cmd}
	if c, is := cmd.(kv.Command); is {
		p.w.check.keys.numbered(s.number, p.w.check.keys.called(p.a, c))
	}
	p.a.call(func(q *process, reply func(func())) {
		bound := p.w.check.acked
		q.submit(lease.Call{Origin: core.Origin{Address: s.mark()}}, cmd, true, func(r core.Result) {
			p.w.check.answered(q, s, r, bound)
			reply(func() {
				if r.Err != nil {
					p.again(retry)
					return
				}
				then(r)
			})
		})
	}, func() { p.again(retry) })
}

func (p *probe) claim() {
	cmd := leases.ClaimCommand{Name: p.name, Holder: p.a.holder(), TTL: maxTTL}
	p.submit("claim", cmd, p.claim, func(r core.Result) { p.extend(leases.AnswerOf(r).Lease.Token) })
}

func (p *probe) extend(token incumbent.Token) {
	p.at = "extend"
	again := func() { p.again(func() { p.extend(token) }) }
	p.a.extend(lease.Extension{Token: token}, func(x lease.Extension) {
		switch x.Kind {
		case incumbent.OK:
			p.read(token)
		case incumbent.NotLeader: // the probe follows to the leader
			p.w.after(p.w.upTo(returns), func() { p.extend(token) })
		case incumbent.NotHolder:
			p.claim()
		default:
			again()
		}
	}, again)
}

func (p *probe) read(token incumbent.Token) {
	p.at, p.a.at = "read", p.m
	again := func() { p.again(func() { p.read(token) }) }
	p.a.call(func(q *process, reply func(func())) {
		bound := p.w.check.acked
		q.node.Confirm(func(_ uint64, err error) {
			if err == nil {
				p.w.check.read(q, q.group.View(), bound)
			}
			reply(func() {
				if err != nil {
					again()
					return
				}
				p.release(token)
			})
		})
	}, again)
}

func (p *probe) release(token incumbent.Token) {
	cmd := leases.ReleaseCommand{Name: p.name, Holder: p.a.holder(), Token: token}
	p.submit("release", cmd, func() { p.release(token) }, func(core.Result) { p.put() })
}

// put stores a value under a key of the probe's own; if there is no room, it makes
// some.
func (p *probe) put() {
	cmd := kv.Command{Verb: kv.Put, Key: p.key(), Value: p.w.someValue()}
	p.submit("put", cmd, p.makeRoom, func(core.Result) { p.remove() })
}

func (p *probe) key() kv.Key { return keyNamed("probe/" + p.name.Lease) }

func (p *probe) makeRoom() {
	if p.w.cfg.Quota == 0 {
		p.put()
		return
	}
	p.submit("delete all", kv.Command{Verb: kv.RemoveTree, Key: keyNamed("")}, p.makeRoom, func(core.Result) { p.put() })
}

func (p *probe) remove() {
	cmd := kv.Command{Verb: kv.Remove, Key: p.key()}
	p.submit("delete", cmd, p.remove, func(core.Result) { p.done, p.at = true, "nothing" })
}

// probed checks that every member has served, and that nobody has called an
// election since all was well (G33, G35).
func (c *checker) probed() {
	for _, p := range c.probes {
		if !p.done {
			c.w.violate("member %d does not serve %v after the healing: its probe waits for %q (G35)", p.m.at, settles+probing, p.at)
		}
	}
	if m := c.w.putBack; m != nil {
		c.w.violate("member %d runs on an earlier copy of its disk, and nobody has noticed (G34)", m.at)
	}
	if op := c.w.operation; op != nil {
		c.w.violate("the operation on member %d is not done %v after the healing (G33, G35)", op.m.at, settles+probing)
	}
	c.calm()
	c.logged()
}

// loggedWithin is how long after its beginning an offer is accepted or over, and the
// log is told so.
const loggedWithin = 10 * time.Second

// logged checks that the log has been told of what was accepted.
func (c *checker) logged() {
	p := c.w.leading()
	if p == nil {
		return
	}
	leases.Of(p.group.View()).All(func(l *leases.Lease) bool {
		if since := c.w.now - c.offered[l.Token]; l.Offered && !l.Revoking && since > loggedWithin {
			c.w.violate("%s, token %d, has been an offer for %v", l.Name.Lease, l.Token, since)
		}
		return true
	})
}

// calm checks that the term is the one that it was.
func (c *checker) calm() {
	for _, m := range c.w.members {
		p := m.proc
		if p == nil || p.node == nil {
			c.w.violate("member %d does not run (G35)", m.at)
			continue
		}
		if st := p.node.Status(); st.Term != c.settledTerm {
			c.w.violate("member %d is in term %d, all was well in term %d (G33)", m.at, st.Term, c.settledTerm)
		}
	}
}

// atEnd: all agents have been dead for a while. Nothing may be held (G8), and
// all members have the state that the log gives (G27, G28, G29).
func (c *checker) atEnd() {
	c.calm()
	c.registered()
	want := c.replayed()
	for _, m := range c.w.members {
		if !m.ready() {
			c.w.violate("member %d does not serve at the end", m.at)
			continue
		}
		v := m.proc.group.View()
		if n := leases.Of(v).HeldCount(); n > 0 {
			c.w.violate("%d leases are held although all agents have been dead for %v (G8)", n, quiet)
		}
		if err := m.proc.group.Check(); err != nil {
			c.w.violate("member %d at the end: %v", m.at, err)
		}
		if v.Index() != c.index {
			c.w.violate("member %d is at index %d at the end, the log at %d", m.at, v.Index(), c.index)
			continue
		}
		if v.Hash() != want.View().Hash() {
			c.w.violate("member %d at the end has another state than a replay of the log (G28, G29)", m.at)
		}
		c.kept(m.proc, v, c.index)
		c.keys.atEnd(m.proc)
		c.catalog.atEnd(m.proc)
		c.tables.atEnd(m.proc)
	}
	c.polls.atEnd()
	c.keys.explain()
	c.lists.explain(want.View())
	c.tables.explain(want.View())
}

// replayed applies the whole log to an empty state, and takes it through a
// snapshot.
func (c *checker) replayed() *core.State {
	s := engine.NewState()
	for i := range c.canon {
		s.Apply(c.canon[i].cmds, make([]core.Result, len(c.canon[i].cmds)))
	}
	var b bytes.Buffer
	c.w.must(s.View().WriteSnapshot(&b))
	again, err := engine.RestoreState(&b)
	c.w.must(err)
	if again != nil && again.View().Hash() != s.View().Hash() {
		c.w.violate("a state is another after its snapshot (G29)")
	}
	return s
}
