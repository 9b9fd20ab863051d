package lease

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

var _ core.Counting = (*tables)(nil)

// CountIn implements [core.Counting].
func (t *tables) CountIn(u *core.Usage, session func(incumbent.SessionID) *core.Session) {
	t.usage, t.session = u, session
}

// Recount implements [core.Counting].
func (t *tables) Recount(u *core.Usage) {
	t.scan(func(l *Lease) bool {
		n := u.Count(core.ScopeNamespace, l.Name.Namespace)
		if !l.Free() {
			u.Count(core.ScopePrincipal, t.principalOf(l)).Add(core.Leases, 1)
			n.Add(core.Leases, 1)
		}
		for w := range t.queue(l.entry) {
			o := u.Count(core.ScopePrincipal, t.ownerOf(w.Session))
			o.Add(core.Leases, 1)
			o.Add(core.Places, 1)
			n.Add(core.Places, 1)
		}
		return true
	})
}

// ownerOf is the principal that owns a session; "": it is not open.
func (t *tables) ownerOf(id incumbent.SessionID) string {
	if t.session != nil {
		if o := t.session(id); o != nil {
			return o.Owner()
		}
	}
	return ""
}

// principalOf is the principal that a holding counts for.
func (t *tables) principalOf(l *Lease) string {
	if l.Session.IsZero() {
		return l.Origin.Principal
	}
	return t.ownerOf(l.Session)
}

// chargeSpace counts for the namespace of a lease.
func (t *tables) chargeSpace(e *entry, k core.Counted, by int) {
	if t.usage != nil {
		t.charge(core.ScopeNamespace, t.usage.Count(core.ScopeNamespace, e.Name.Namespace), k, by)
	}
}

// chargeClaimer counts a holding that no session owns for who claimed it.
func (t *tables) chargeClaimer(l *Lease, by int) {
	if !l.Free() && l.Session.IsZero() && t.usage != nil {
		t.charge(core.ScopePrincipal, t.usage.Count(core.ScopePrincipal, l.Origin.Principal), core.Leases, by)
	}
}

// charge counts more or less of a kind.
func (t *tables) charge(s core.Scope, on *core.Count, k core.Counted, by int) {
	on.Add(k, int64(by))
	if t.marked != nil {
		t.marked.charges = append(t.marked.charges, charge{s, on.Name(), k, by})
	}
}

// of is what a session has, for changes: it is there from when the session has something
// until it ends.
func (t *tables) of(id incumbent.SessionID) *counts {
	c := t.counts[id]
	if c == nil {
		c = new(counts)
		if t.usage != nil && t.session(id) != nil {
			c.owner = t.usage.Count(core.ScopePrincipal, t.ownerOf(id))
		}
		t.counts[id] = c
	}
	if t.marked != nil {
		t.marked.count(id, c)
	}
	return c
}

func (t *tables) count(id incumbent.SessionID, leases, pinned, waits int) {
	c := t.of(id)
	c.leases += leases
	c.pinned += pinned
	c.waits += waits
	if c.owner == nil {
		return
	}
	if by := leases + waits; by != 0 {
		t.charge(core.ScopePrincipal, c.owner, core.Leases, by)
	}
	if waits != 0 {
		t.charge(core.ScopePrincipal, c.owner, core.Places, waits)
	}
}

// uncount forgets the counts of a session that ends, and has nothing any more.
func (t *tables) uncount(id incumbent.SessionID) { delete(t.counts, id) }

// has is what a session has.
func (t *tables) has(id incumbent.SessionID) counts {
	if c := t.counts[id]; c != nil {
		return *c
	}
	return counts{}
}

var _ core.Asking = ClaimCommand{}

// Asks implements [core.Asking].
func (c ClaimCommand) Asks(v *core.View, principal string) *incumbent.Error {
	t := Of(v)
	owner := principal
	if !c.Session.IsZero() {
		o := v.Session(c.Session)
		if o == nil {
			return nil
		}
		owner = o.Owner()
	}
	owners, namespaces := core.Growth{core.Leases: 1}, core.Growth{core.Leases: 1}
	if l := t.named(c.Name); !l.Free() {
		if l.Holder == c.Holder && l.Session == c.Session || !c.Wait || t.waitsIn(c.Session, l.entry) {
			return nil
		}
		owners[core.Places], namespaces = 1, core.Growth{core.Places: 1}
	}
	return v.OverQuotaIn(principal, owner, c.Name.Namespace, owners, namespaces)
}

// waitsIn reports whether a session stands in the queue of a lease.
func (t *shared) waitsIn(id incumbent.SessionID, e *entry) (stands bool) {
	t.waits.Ascend(byWaiter{session: id, entry: e}, func(w byWaiter) bool {
		stands = w.session == id && w.entry == e
		return false
	})
	return stands
}
