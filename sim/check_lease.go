package sim

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// granted checks that nobody else believes to hold the lease now (G1, G2), and
// that the token rose (G3). A grant that was heard too late to count on says
// nothing.
func (c *checker) granted(a *agent) {
	a.revoked = c.forced[a.token]
	if !a.holds() {
		return
	}
	for _, o := range c.w.agents {
		if o != a && o.want == a.want && o.holds() {
			c.w.violate("agents %d (token %d) and %d (token %d) both hold %s (G2)", o.id, o.token, a.id, a.token, a.want.Lease)
		}
	}
	if last := c.tokens[a.want]; a.token < last {
		c.w.violate("%s was granted with token %d after %d (G3)", a.want.Lease, a.token, last)
	}
	c.tokens[a.want] = a.token
	if c.ended[a.token] {
		c.w.violate("agent %d holds %s with token %d, which is over (G4)", a.id, a.want.Lease, a.token)
	}
	if _, known := c.told[a.token]; !known {
		c.told[a.token] = tellings{acked: c.acked}
	}
}

// extended checks that what was extended is not over (G4). An answer that was
// heard too late to count on says nothing, one to an extension by name nothing of
// the token: a claim of the same holder that was long under way may have brought
// a newer one.
func (c *checker) extended(a *agent, token incumbent.Token) {
	if !a.holds() {
		return
	}
	if c.ended[token] && !a.byName() {
		c.w.violate("token %d of %s was extended although it is over (G4)", token, a.want.Lease)
	}
	for _, o := range c.w.agents {
		if o != a && o.want == a.want && o.holds() && (o.token > token || a.byName()) {
			c.w.violate("token %d of %s was extended while agent %d holds token %d (G4)", token, a.want.Lease, o.id, o.token)
		}
	}
}

// notHolder checks that nobody is told so who may still count on the lease (G4),
// unless it is being revoked: then it is not extended any more, and still held.
func (c *checker) notHolder(a *agent, token incumbent.Token) {
	if a.holds() && !c.revoking[token] && !(a.byName() && c.fading[a.want] > token) {
		c.w.violate("agent %d, token %d of %s, was told that it does not hold for another %v (G4)", a.id, token, a.want.Lease, a.until-a.clock())
	}
}

// released: the agent no longer counts on what it held.
func (c *checker) released(a *agent) {
	if a.token != 0 {
		c.w.note("agent %d releases %s, token %d", a.id, a.want.Lease, a.token)
	}
}

// changed checks a change when the first member applies it.
func (c *checker) changed(of *core.Change) {
	x, _ := leases.ChangeOf(of)
	if x.Lease == nil {
		return
	}
	switch x.What {
	case leases.Revoking:
		c.revoking[x.Lease.Token] = true
		c.fading[x.Lease.Name] = x.Lease.Token
	case leases.Offered:
		c.offered[x.Lease.Token] = c.w.now
	case leases.Unpinned:
		if len(x.Lease.Pins) == 0 {
			c.unpinned[x.Lease.Token] = c.w.now
		}
	}
	if b := x.LeaseBefore; b != nil && b.Token != 0 && x.Lease.Token != b.Token {
		c.over(x.What, b)
	}
	if x.Lease.Token == 0 {
		return
	}
	b := x.LeaseBefore
	if (b == nil || b.Token != x.Lease.Token) && x.Lease.Token <= c.log[x.Lease.Name] {
		c.w.violate("%s was granted with token %d after %d (G3)", x.Lease.Name.Lease, x.Lease.Token, c.log[x.Lease.Name])
	}
	c.log[x.Lease.Name] = max(c.log[x.Lease.Name], x.Lease.Token)
}

// over checks the end of a holding: that it ends while its holder may count on
// it is the worst that can happen (G2, G4, G6, G7).
func (c *checker) over(what leases.What, b *leases.Lease) {
	switch what {
	case leases.Expired:
		c.w.res.Expiries++
		c.unkept(b)
	case leases.Declined:
		if c.accepted[b.Token] {
			c.w.violate("%s, token %d, was declined after an agent was told that it holds it (G4, G8)", b.Name.Lease, b.Token)
		}
	case leases.Revoked:
		c.w.res.Revocations++
		c.forced[b.Token] = true
	}
	for _, a := range c.w.agents {
		mine := a.token == b.Token || a.byName() && b.Holder == a.holder() && b.Session.IsZero()
		switch {
		case a.want != b.Name || !mine:
		case c.forced[b.Token]: // the one exception
			a.revoked = true
		case a.holds():
			c.w.violate("%s, token %d, %v while agent %d holds it for another %v (G2, G6, G7)", b.Name.Lease, b.Token, what, a.id, a.until-a.clock())
		}
	}
	c.load.over(what, b)
	c.ended[b.Token] = true
}

// unkept checks that what expires is not pinned, unless it is being revoked, and
// that it had its ttl since its last pin went (G13).
func (c *checker) unkept(b *leases.Lease) {
	if len(b.Pins) > 0 && !b.Revoking {
		c.w.violate("%s, token %d, expired although %v pin it (G13)", b.Name.Lease, b.Token, b.Pins)
	}
	at, was := c.unpinned[b.Token]
	if had := c.w.now - at; was && !b.Revoking && had < time.Duration(float64(b.TTL)*(1-2*drift)) {
		c.w.violate("%s, token %d, expired %v after its last pin went, its ttl is %v (G13)", b.Name.Lease, b.Token, had, b.TTL)
	}
}
