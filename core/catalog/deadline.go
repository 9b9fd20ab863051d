package catalog

import (
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Expired is the output of a check whose ttl is over.
const Expired = "TTL expired"

var _ core.Timed = (*View)(nil)

// Deadline is the one that a check has: within its ttl it is to be told again that it is
// well, which is an extension and no command; when it has been critical for so long its
// service goes. nil: it has none.
func (c *Check) Deadline() *core.Deadline {
	d := &core.Deadline{Family: Number, ID: c.deadlineID(), Generation: c.Since}
	switch {
	case c.Status != Critical && c.TTL > 0:
		d.After, d.Extended = c.TTL, true
	case c.Status == Critical && c.DeregisterAfter > 0 && c.ServiceID != "":
		d.After = c.DeregisterAfter
	default:
		return nil
	}
	return d
}

// deadlineID names the deadline of a check, however its names are written: none has a
// control character.
func (c *Check) deadlineID() string {
	return c.Namespace + "\x00" + incumbent.Fold(c.Node) + "\x00" + incumbent.Fold(c.ID)
}

// tellDeadline tells the leader's clock of the deadline that a check has now, if that
// is another. Either may be nil.
func (t *tables) tellDeadline(x *core.Exec, o, n *Check) {
	var before, after *core.Deadline
	if o != nil {
		before = o.Deadline()
	}
	if n != nil {
		after = n.Deadline()
	}
	switch {
	case before == nil && after == nil, before != nil && after != nil && *before == *after:
		return
	case after == nil:
		after = &core.Deadline{Family: Number, ID: before.ID}
	}
	x.Tell(Family{}, core.FamilyChange{Deadline: after})
}

// Deadlines implements [core.Timed].
func (v *View) Deadlines(fn func(*core.Deadline) bool) {
	v.checks.Scan(func(c *Check) bool {
		d := c.Deadline()
		return d == nil || fn(d)
	})
}

// EndDeadline implements [core.Timed].
func (v *View) EndDeadline(d *core.Deadline) core.Command {
	part := strings.SplitN(d.ID, "\x00", 3)
	return Command{Verb: Lapse, Target: Target{Kind: CheckKind, Namespace: part[0], Node: part[1], ID: part[2]}, Index: d.Generation}
}

// lapse is void if the deadline is over or another one.
func (t *tables) lapse(x *core.Exec, c *Command) core.Result {
	o := t.check(c.Target.Namespace, c.Target.Node, c.Target.ID)
	if o == nil || o.Since != c.Index || o.Deadline() == nil {
		return core.Result{Err: refused(incumbent.Conflict, "the end of the deadline is void")}
	}
	if o.Status == Critical {
		t.removeService(x, t.service(o.Namespace, o.Node, o.ServiceID))
		return core.Result{}
	}
	n := *o
	n.Status, n.Output = Critical, Expired
	t.putCheck(x, o, &n)
	return core.Result{Record: &n}
}
