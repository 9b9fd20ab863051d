package catalog

import (
	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

var (
	_ core.Undoable   = (*tables)(nil)
	_ core.Transacted = (*View)(nil)
)

// Holds implements [core.Transacted]: the catalog's conditions are those of its
// operations.
func (t *shared) Holds(*core.Reading, []byte) core.Verdict {
	return core.Verdict{Err: refused(incumbent.Invalid, "the catalog has no conditions")}
}

// Idle implements [core.Transacted].
func (t *shared) Idle(r *core.Reading, op []byte, open func(incumbent.SessionID) bool) (core.Result, bool) {
	var c Command
	if err := c.read(op); err != nil {
		return core.Result{Err: err}, true
	}
	switch c.Verb {
	case OpenSession, Lapse:
		return core.Result{Err: errAlone()}, true
	case Get:
		return t.get(r, &c), true
	}
	return t.idle(&c, open)
}

// idle answers a command that changes nothing: it is refused, or finds nothing to do.
func (t *shared) idle(c *Command, open func(incumbent.SessionID) bool) (core.Result, bool) {
	p, r := t.planned(c, open)
	switch {
	case r.Err != nil:
		return r, true
	case !p.idle():
		return core.Result{}, false
	}
	return t.answer(c), true
}

// Idling answers a command that would change nothing in this state, and reports
// whether it is one. It is valid. open reports whether a session is open. What only
// the state knows of, as quotas and whose a session is, it does not see.
func (v *View) Idling(c *Command, open func(incumbent.SessionID) bool) (core.Result, bool) {
	switch c.Verb {
	case OpenSession:
		s := *c.Session
		s.Namespace, s.Node = c.Target.Namespace, c.Target.Node
		if v.session(s.ID) != nil {
			return core.Result{}, false
		}
		r := v.dependable(&s, true)
		return r, r.Err != nil
	case Lapse, Get:
		return core.Result{}, false
	}
	return v.idle(c, open)
}

func (t *shared) get(r *core.Reading, c *Command) core.Result {
	record, _ := t.record(c.Target)
	if record == nil && c.If {
		switch c.Target.Kind {
		case ServiceKind:
			return noService(c.Target.ID)
		case CheckKind:
			return noCheck(c.Target.ID)
		}
		return noNode(c.Target.Node)
	}
	size := 0
	switch o := record.(type) {
	case *Node:
		size = nodeBytes(o)
	case *Service:
		size = serviceBytes(o)
	case *Check:
		size = checkBytes(o)
	}
	if err := r.Record(size); err != nil {
		return core.Result{Err: err}
	}
	return core.Result{Record: record}
}

// marked is how the tables were before the transaction under way.
type marked struct {
	shared
	tenants  *btree.BTreeG[tenancy]
	dead     *btree.BTreeG[mark]
	outdated []nodeName
	charges  []charge // since
}

// Mark implements [core.Undoable]. The trees are copied in constant time.
func (t *tables) Mark() {
	t.marked = &marked{shared: t.copied(), tenants: t.tenants.Copy(), dead: t.dead.Copy(), outdated: t.outdated}
}

// Settle implements [core.Undoable].
func (t *tables) Settle(back bool) {
	m := t.marked
	t.marked = nil
	if !back {
		return
	}
	t.shared, t.tenants, t.dead, t.outdated = m.shared, m.tenants, m.dead, m.outdated
	for _, c := range m.charges { // t.marked is nil
		t.charge(c.owner, c.namespace, -c.records)
	}
}
