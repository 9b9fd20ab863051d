package core

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
func (s *State) pin(c *command) Result {
	name, l, err := s.lookup(c)
	if err != nil {
		return Result{Err: err}
	}
	entity := string(c.text)
	if err := incumbent.ValidatePin(entity); err != nil {
		return Result{Err: invalid(err)}
	}
	if l == nil {
		if err := s.checkNewLease(); err != nil {
			return Result{Err: err}
		}
		n := l.next()
		n.entry = &entry{Name: name}
		return Result{Lease: s.repin(nil, n, []string{entity}, Pinned, entity)}
	}
	i, known := slices.BinarySearch(l.Pins, entity)
	switch {
	case known:
		return Result{Lease: l}
	case len(l.Pins) >= incumbent.MaxPins:
		return Result{Lease: l, Err: tooLarge("pins of the lease", "MaxPins", incumbent.MaxPins)}
	}
	return Result{Lease: s.repin(l, l.next(), slices.Insert(slices.Clone(l.Pins), i, entity), Pinned, entity)}
}

// unpin takes a pin away. The leader then starts the lease's clock anew.
func (s *State) unpin(c *command) Result {
	_, l, err := s.lookup(c)
	if err != nil {
		return Result{Err: err}
	}
	entity := string(c.text)
	if err := incumbent.ValidatePin(entity); err != nil {
		return Result{Err: invalid(err)}
	}
	if l == nil {
		return Result{}
	}
	i, known := slices.BinarySearch(l.Pins, entity)
	if !known {
		return Result{Lease: l}
	}
	var pins []string
	if len(l.Pins) > 1 {
		pins = slices.Delete(slices.Clone(l.Pins), i, i+1)
	}
	return Result{Lease: s.repin(l, l.next(), pins, Unpinned, entity)}
}

// repin stores a lease with other pins. Expiries proposed before it, of the
// lease and of the session that owns it, become void.
func (s *State) repin(l, n *Lease, pins []string, what What, entity string) *Lease {
	ch := Change{What: what, By: entity, LeaseBefore: l, Lease: n}
	if !n.Free() {
		n.Renewal++
	}
	s.renew(&ch, n.Session)
	s.remember(n, LeaseChange{What: what, Holder: n.Holder, Token: n.Token, By: entity})
	n.Pins = pins
	s.put(ch)
	return n
}
