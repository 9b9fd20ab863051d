package lease

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
)

// keptByPin reports whether a pin keeps the lease, and the session that owns it,
// from expiring. What an operator has revoked is not kept: it ends at its deadline.
// An offer is: its holder may have accepted it (see [ExpireCommand]).
func (l *Lease) keptByPin() bool {
	return len(l.Pins) > 0 && !l.Free() && !l.Revoking
}

// pin keeps a lease from expiring. The lease need not be held, nor exist.
func (s *exec) pin(c *command) result {
	name, l, err := s.lookup(c)
	if err != nil {
		return result{Err: err}
	}
	entity := string(c.text)
	if err := incumbent.ValidatePin(entity); err != nil {
		return result{Err: invalid(err)}
	}
	if l == nil || len(l.Pins) == 0 {
		if err := s.checkNewPinned(); err != nil {
			return result{Lease: l, Err: err}
		}
	}
	if l == nil {
		if err := s.checkNewLease(); err != nil {
			return result{Err: err}
		}
		n := l.next()
		n.entry = &entry{Name: name}
		return result{Lease: s.repin(nil, n, []string{entity}, Pinned, entity)}
	}
	i, known := slices.BinarySearch(l.Pins, entity)
	switch {
	case known:
		return result{Lease: l}
	case len(l.Pins) >= incumbent.MaxPins:
		return result{Lease: l, Err: tooLarge("pins of the lease", "MaxPins", incumbent.MaxPins)}
	}
	return result{Lease: s.repin(l, l.next(), slices.Insert(slices.Clone(l.Pins), i, entity), Pinned, entity)}
}

// pinnedSchema is the [core.SchemaVersion] that brought MaxPinned: while a member knows only
// an earlier one nothing is refused for it, as there.
const pinnedSchema = 11

// checkNewPinned bounds the leases with pins, held ones too: no quota counts a free lease,
// none with a pin is forgotten, and a holder who pins a lease and releases it leaves one.
func (s *exec) checkNewPinned() *incumbent.Error {
	if s.pinned >= s.limits.pinned && s.x.ActiveSchema() >= pinnedSchema {
		return tooLarge("leases with pins", "MaxPinned", s.limits.pinned)
	}
	return nil
}

// unpin takes a pin away. The leader then starts the lease's clock anew.
func (s *exec) unpin(c *command) result {
	_, l, err := s.lookup(c)
	if err != nil {
		return result{Err: err}
	}
	entity := string(c.text)
	if err := incumbent.ValidatePin(entity); err != nil {
		return result{Err: invalid(err)}
	}
	if l == nil {
		return result{}
	}
	i, known := slices.BinarySearch(l.Pins, entity)
	if !known {
		return result{Lease: l}
	}
	var pins []string
	if len(l.Pins) > 1 {
		pins = slices.Delete(slices.Clone(l.Pins), i, i+1)
	}
	return result{Lease: s.repin(l, l.next(), pins, Unpinned, entity)}
}

// repin stores a lease with other pins. Expiries proposed before it, of the
// lease and of the session that owns it, become void.
func (s *exec) repin(l, n *Lease, pins []string, what What, entity string) *Lease {
	if !n.Free() {
		n.Renewal++
	}
	s.remember(n, LeaseChange{What: what, Holder: n.Holder, Token: n.Token, By: entity})
	n.Pins = pins
	s.putAlive(what, l, n, n.Session)
	return n
}
