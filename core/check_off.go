//go:build !race && !invariants

package core

func (s *State) assertInvariants() {}
