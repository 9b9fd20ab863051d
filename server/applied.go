package server

import (
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/cluster"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// observer counts what the group applies, and notes it for people, on the apply
// goroutine; what it calls never blocks.
type observer struct {
	metrics *metrics
	events  *timeline
}

// count keeps the numbers and the timeline. Losing a lease is a state
// transition worth a line there; a claim is not.
func (o *observer) count(rs []core.Result, changes []core.Change) {
	for i := range rs {
		kind := incumbent.OK
		if rs[i].Err != nil {
			kind = rs[i].Err.Kind
		}
		o.metrics.result(kind)
	}
	for i := range changes {
		c := &changes[i]
		if l, ok := leases.ChangeOf(c); ok {
			o.lease(&l)
			continue
		}
		o.metrics.change(c.What)
		switch c.What {
		case core.MemberPut, core.MemberGone:
			o.events.member(c)
		case core.FamilyChanged:
			o.events.family(c)
		}
	}
}

func (o *observer) lease(c *leases.Change) {
	o.metrics.leaseChange(c.What)
	if c.What == leases.Expired || c.What == leases.Declined {
		o.metrics.lateness.Observe(c.Late().Seconds())
	}
	if what := lossOf(c.What); what != "" && c.LeaseBefore != nil {
		o.events.lost(what, c.Lease.Name, c.LeaseBefore.Holder, uint64(c.Index), c.Late())
	}
}

// lossOf names the ways to lose a lease without giving it up.
func lossOf(what leases.What) string {
	switch what {
	case leases.Expired:
		return "lease expired"
	case leases.Revoked:
		return "lease revoked"
	case leases.Declined:
		return "offer declined"
	}
	return ""
}

// member notes who came and who went. What a member says anew of itself is of no
// interest unless it changes who it is.
func (t *timeline) member(c *core.Change) {
	switch {
	case c.MemberBefore == nil && c.Member != nil:
		detail := cluster.FormatID(c.Member.ID)
		if at := c.Member.PeerAddress; at != "" { // one that runs alone has none
			detail += " at " + at
		}
		t.add(Event{What: "member added", Subject: c.Member.Name, Detail: detail, Index: uint64(c.Index)})
	case c.What == core.MemberGone && c.MemberBefore != nil:
		t.add(Event{What: "member removed", Subject: c.MemberBefore.Name, Detail: cluster.FormatID(c.MemberBefore.ID), Index: uint64(c.Index)})
	}
}

// family notes a change of what rules the cluster: policies and settings.
func (t *timeline) family(c *core.Change) {
	switch c.Family.Family {
	case policy.Number:
		t.policy(c)
	case settings.Number:
		t.setting(c)
	}
}

func (t *timeline) policy(c *core.Change) {
	before, _ := c.Family.Before.(*policy.Policy)
	after, _ := c.Family.After.(*policy.Policy)
	what, name := "policy set", c.Family.Topic.Name
	if after == nil {
		what = "policy deleted"
	}
	detail := "by " + c.Origin.Principal
	if c.Origin.Address != "" {
		detail += " at " + c.Origin.Address
	}
	if after != nil {
		detail += fmt.Sprintf(": %s for %s", plural(int64(len(after.Rules)), "rule", "rules"), plural(int64(len(after.For)), "pattern of principals", "patterns of principals"))
		if before != nil {
			detail += ", had " + plural(int64(len(before.Rules)), "rule", "rules")
		}
	}
	t.add(Event{What: what, Subject: name, Detail: detail, Index: uint64(c.Index)})
}

// lost notes one loss; of very many in one second only their number, so that an
// avalanche does not wash everything else out of the timeline.
func (t *timeline) lost(what string, name incumbent.Name, holder string, index uint64, late time.Duration) {
	second := t.now().Unix()
	if t.loss.second.Swap(second) != second {
		if skipped := t.loss.skipped.Swap(0); skipped > 0 {
			t.add(Event{What: what, Subject: "and others", Detail: plural(skipped, "more loss", "more losses") + " in one second", Index: index})
		}
		t.loss.noted.Store(0)
	}
	if t.loss.noted.Add(1) > lossesNoted {
		t.loss.skipped.Add(1)
		return
	}
	detail := "was held by " + holder
	if late > 0 {
		detail += ", freed " + late.Round(time.Millisecond).String() + " after its deadline"
	}
	t.add(Event{What: what, Subject: name.String(), Detail: detail, Index: index, Lease: name})
}
