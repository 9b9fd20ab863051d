package health

import (
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/engine"
)

// Feed hands checks of the catalog, and who is there to run them, to a runner.
type Feed struct {
	Runner    *Runner
	Namespace string // whose checks are run
}

// Begin takes the whole state in. Nothing is applied meanwhile.
func (f Feed) Begin(v *core.View) {
	var all []*Check
	catalog.Of(v).Checks(f.Namespace, func(c *catalog.Check) bool {
		if x := checkOf(c); x != nil {
			all = append(all, x)
		}
		return true
	})
	f.Runner.Replace(all)
	f.Runner.Members(Present(v, f.Namespace))
}

// Applied takes a batch in, on the apply goroutine.
func (f Feed) Applied(a *engine.Applied) {
	members := false
	for i := range a.Changes {
		ch := &a.Changes[i]
		switch l, _ := leases.ChangeOf(ch); {
		case l.Lease != nil:
			members = members || isPresence(l.Lease.Name)
		case ch.Family != nil && ch.Family.Family == catalog.Number:
			f.changed(ch.Family)
		}
	}
	if members {
		f.Runner.Members(Present(a.View, f.Namespace))
	}
}

func (f Feed) changed(ch *core.FamilyChange) {
	before, _ := ch.Before.(*catalog.Check)
	after, _ := ch.After.(*catalog.Check)
	was, is := checkOf(before), checkOf(after)
	switch {
	case is != nil && is.Namespace == f.Namespace:
		if was != nil && was.Key != is.Key { // its id is written otherwise now
			f.Runner.Changed(was.Key, nil)
		}
		f.Runner.Changed(is.Key, is)
	case was != nil && was.Namespace == f.Namespace:
		f.Runner.Changed(was.Key, nil)
	}
}

// checkOf is a check that a member runs; nil: none does.
func checkOf(c *catalog.Check) *Check {
	if c == nil || c.Runner == 0 || len(c.Definition) == 0 {
		return nil
	}
	return &Check{
		Key: Key{c.Namespace, c.Node, c.ID}, Member: c.Runner, Definition: c.Definition,
		Status: statusOf(c.Status), Output: c.Output, record: c,
	}
}

// Turns reports whether what was found of a check is another status than it has in a state.
func Turns(v *core.View, k Key, o Outcome) bool {
	update := updateOf(k, o)
	return catalog.Of(v).Turns(&update)
}

func updateOf(k Key, o Outcome) catalog.Command {
	return catalog.Command{
		Verb: catalog.UpdateCheck, Target: catalog.Target{Kind: catalog.CheckKind, Namespace: k.Namespace, Node: k.Node, ID: k.ID},
		Status: [...]catalog.Status{Critical: catalog.Critical, Warning: catalog.Warning, Passing: catalog.Passing}[o.Status], Output: o.Output,
	}
}

// Update is the command that writes what was found of a check. Another definition of the
// check may come before it in the log, and this member may hear of that too late. So it does
// nothing and answers Conflict unless the check is as it was when that was to be reported:
// what was found of another definition is never written, and the rest is found again. An
// update has no condition of its own; what stands before it is a registration that would
// change nothing.
//
// With conditions it does nothing where one does not hold: a member that was away for longer
// than its presence lasts has left its checks to others, and does not know it yet.
func Update(k Key, o Outcome, only ...core.Condition) core.Command {
	update := updateOf(k, o)
	if o.of == nil {
		return core.TxnCommand{If: only, Then: []core.Command{update}}
	}
	same := *o.of
	same.Owner, same.Created, same.Modified, same.Since = "", 0, 0, 0 // the state's to say
	same.Status, same.Output = catalog.Passing, ""                    // they are kept; by a check that passes no session ends
	return core.TxnCommand{If: only, Then: []core.Command{
		catalog.Command{
			Verb: catalog.Register, Target: catalog.Target{Namespace: k.Namespace, Node: k.Node},
			Checks: []*catalog.Check{&same}, KeepOutput: true, If: true, Index: o.of.Modified,
		},
		update,
	}}
}
