package sim

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// checker watches over all agents in the one true time.
type checker struct {
	w      *world
	tokens map[incumbent.Name]incumbent.Token // greatest that was granted and heard of
	log    map[incumbent.Name]incumbent.Token // greatest that was applied
	index  incumbent.Index
	acked  map[incumbent.Token]bool // grants that an agent was told of
	ended  map[incumbent.Token]bool // holdings that were applied as over
}

func newChecker(w *world) *checker {
	return &checker{
		w: w, tokens: map[incumbent.Name]incumbent.Token{}, log: map[incumbent.Name]incumbent.Token{},
		acked: map[incumbent.Token]bool{}, ended: map[incumbent.Token]bool{},
	}
}

// granted checks that nobody else believes to hold the lease now (G1, G2), and
// that the token rose (G3). A grant that was heard too late to count on says
// nothing.
func (c *checker) granted(a *agent) {
	if !a.holds() {
		return
	}
	for _, o := range c.w.agents {
		if o != a && o.want == a.want && o.holds() {
			c.w.violate("agents %d (token %d) and %d (token %d) both hold %s", o.id, o.token, a.id, a.token, a.want.Lease)
		}
	}
	if last := c.tokens[a.want]; a.token < last {
		c.w.violate("%s was granted with token %d after %d", a.want.Lease, a.token, last)
	}
	c.tokens[a.want] = a.token
	c.acked[a.token] = true
}

// extended checks that what was extended is not over (G4). An answer that was
// heard too late to count on says nothing.
func (c *checker) extended(a *agent, token incumbent.Token) {
	if !a.holds() {
		return
	}
	for _, o := range c.w.agents {
		if o != a && o.want == a.want && o.holds() && o.token > token {
			c.w.violate("token %d of %s was extended while agent %d holds token %d", token, a.want.Lease, o.id, o.token)
		}
	}
}

// notHolder checks that nobody is told so whose extension was sent in time (G4).
func (c *checker) notHolder(a *agent, token incumbent.Token, sent time.Duration) {
	if sent < a.until {
		c.w.violate("agent %d, token %d of %s, was told that it does not hold although it asked in time", a.id, token, a.want.Lease)
	}
}

// released: the agent no longer counts on what it held.
func (c *checker) released(a *agent) {
	if a.token != 0 {
		c.w.note("agent %d releases %s, token %d", a.id, a.want.Lease, a.token)
	}
}

// applied: the member has applied everything up to index.
func (c *checker) applied(index incumbent.Index) { c.index = max(c.index, index) }

// changed checks each applied change. While a log is replayed after a crash the
// same changes come again, and must be the same.
func (c *checker) changed(x *core.Change) {
	if x.Lease == nil {
		return
	}
	if b := x.LeaseBefore; b != nil && b.Token != 0 && (x.Lease.Token != b.Token) {
		c.over(x, b)
	}
	if x.Lease.Token != 0 {
		c.log[x.Lease.Name] = max(c.log[x.Lease.Name], x.Lease.Token)
	}
}

// over checks the end of a holding: an expiry while its holder may count on it
// is the worst that can happen (G2, G7).
func (c *checker) over(x *core.Change, b *core.Lease) {
	if x.What == core.Expired && !c.ended[b.Token] {
		c.w.res.Expiries++
		for _, a := range c.w.agents {
			if a.want == b.Name && a.token == b.Token && a.holds() {
				c.w.violate("%s, token %d, expired while agent %d holds it for another %v", b.Name.Lease, b.Token, a.id, a.until-a.clock())
			}
		}
	}
	c.ended[b.Token] = true
}

// recovered checks the state that a process finds after a crash, once it has
// read its snapshot; what follows from the log comes as changes (G5, G26).
func (c *checker) recovered(s *core.State) {
	if v := s.View(); v.Index() > c.index {
		c.w.violate("index %d after a crash, which was never applied before (%d)", v.Index(), c.index)
	}
	if err := s.Check(); err != nil {
		c.w.violate("after a crash: %v", err)
	}
}

// ready is called when the doors open after a start: whatever was acknowledged
// before is there again (G5).
func (c *checker) ready(v *core.View) {
	for token := range c.acked {
		if !c.ended[token] && v.LeaseByToken(token) == nil {
			c.w.violate("token %d was acknowledged and is gone after a crash", token)
		}
	}
}

// atEnd: all agents have been dead for a while; nothing may be held
// any more that can expire (G8), and the state must be whole.
func (c *checker) atEnd() {
	m := c.w.member
	if !m.ready() {
		c.w.violate("the member does not serve at the end")
		return
	}
	v := m.machine.state.View()
	if n := v.HeldCount(); n > 0 {
		c.w.violate("%d leases are held although all agents have been dead for %v", n, quiet)
	}
	if err := m.machine.state.Check(); err != nil {
		c.w.violate("at the end: %v", err)
	}
	c.ready(v)
}
