package sim

import (
	"fmt"
	"maps"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/policy"
)

// policyNames is how many policies the administrator changes.
const policyNames = 3

// policy sets or deletes a policy, half of the time only if it is as it was when the
// administrator last heard of it.
func (d *administrator) policy() {
	w := d.w
	c := policy.Command{Verb: policy.Remove, Policy: auth.Policy{Name: fmt.Sprintf("policy-%d", w.rng.IntN(policyNames))}}
	if !w.chance(3) {
		c.Verb, c.Policy.For = policy.Set, []string{fmt.Sprintf("agent:agent-%d*", w.rng.IntN(3))}
		for range w.rng.IntN(4) {
			c.Policy.Rules = append(c.Policy.Rules, auth.Rule{
				State: auth.Leases, Namespace: incumbent.DefaultNamespace, Prefix: fmt.Sprintf("lease-%d", w.rng.IntN(w.cfg.Leases)), Verbs: auth.Verbs(1 + w.rng.IntN(int(auth.AllVerbs))),
			})
		}
	}
	if c.IfIndex = w.chance(2); c.IfIndex {
		c.Index = d.heard[c.Policy.Name]
	}
	w.note("administrator: %T %+v", c, c)
	d.a.submit(c, func(r core.Result) {
		if p, _ := r.Record.(*policy.Policy); p != nil {
			d.heard[c.Policy.Name] = p.Modified
		} else if r.Err == nil || r.Err.Kind == incumbent.Conflict {
			delete(d.heard, c.Policy.Name)
		}
	}, func() {})
}

// policyChecker knows the policies as the log has changed them.
type policyChecker struct {
	w       *world
	are     map[string]*policy.Policy
	changed incumbent.Index
	// compared is the newest change that the rules were compared at.
	compared incumbent.Index
}

// applied takes what a batch that nobody has applied before has changed, and checks
// that the view has just that, and rules of just that.
func (c *policyChecker) applied(changes []core.Change, v *core.View) {
	for i := range changes {
		f := changes[i].Family
		if f == nil || f.Family != policy.Number {
			continue
		}
		before, _ := f.Before.(*policy.Policy)
		after, _ := f.After.(*policy.Policy)
		was := c.are[f.Topic.Name] // on another member, perhaps
		if (before == nil) != (was == nil) || before != nil && before.Modified != was.Modified {
			c.w.violate("policy %s was another one before index %d (G12)", f.Topic.Name, changes[i].Index)
		}
		if after == nil {
			delete(c.are, f.Topic.Name)
		} else {
			c.are[f.Topic.Name] = after
		}
		c.changed = changes[i].Index
		c.w.res.Policies++
	}
	view := policy.Of(v)
	if view.Changed() != c.changed || view.Len() != len(c.are) {
		c.w.violate("%d policies that changed at %d are shown, the log has %d of %d (G12)", view.Len(), view.Changed(), len(c.are), c.changed)
		return
	}
	if c.changed <= c.compared {
		return
	}
	c.compared = c.changed
	c.compare(view)
}

// compare checks that the rules of a view decide as the policies do that the log has.
func (c *policyChecker) compare(view *policy.View) {
	var list []*auth.Policy
	for _, name := range slices.Sorted(maps.Keys(c.are)) {
		list = append(list, &c.are[name].Policy)
	}
	plain, rules := auth.Compile(list, c.changed), view.Rules()
	for i := range 4 {
		p := auth.Principal{Name: fmt.Sprintf("agent-%d", i), Kind: auth.Agent, Via: auth.Credential}
		for j := range c.w.cfg.Leases {
			n := leaseName(j)
			_, want := plain.Explain(p, auth.Leases, auth.Write, n, false)
			got := auth.Authorize(rules.Of(p), auth.Claim, auth.Resource{Name: n, Holder: p.Name}) == nil
			if got != (want || len(list) == 0) {
				c.w.violate("%v may claim %v: %v, by the policies of index %d %v (G12)", p, n, got, c.changed, want)
			}
		}
	}
}
