package core

import (
	"fmt"

	"github.com/incumbent-dev/incumbent"
)

// check verifies every invariant of the state and that all tables agree. It
// reads everything: some microseconds a record.
func (s *State) check() error {
	var err error
	s.sessions.Scan(func(o *Session) bool {
		want := opened{o, s.usage.principals.byName[o.Owner()]}
		if got := s.open[o.ID]; got != want {
			err = fmt.Errorf("session %v: %+v, want %+v", o.ID, got, want)
		}
		return err == nil
	})
	switch {
	case err != nil:
		return err
	case len(s.open) != s.sessions.Len():
		return fmt.Errorf("table of open sessions has %d, want %d", len(s.open), s.sessions.Len())
	case len(s.keptByID) != s.kept.Len():
		return fmt.Errorf("table of keys has %d, want %d", len(s.keptByID), s.kept.Len())
	}
	for _, f := range s.families {
		if t, ok := f.tables.(Agreeing); ok {
			if err := t.Agree(); err != nil {
				return fmt.Errorf("family %s: %w", f.Name(), err)
			}
		}
	}
	if err := s.checkUsage(); err != nil {
		return err
	}
	return s.checkRecords()
}

// checkRecords verifies what is not a matter of tables that agree with one another: those of a state that is just restored have been made
// from its records.
func (s *State) checkRecords() error {
	if s.index > maxCounter {
		return fmt.Errorf("index %d", s.index)
	}
	var err error
	s.sessions.Scan(func(o *Session) bool {
		err = s.checkOpen(o)
		return err == nil
	})
	if err != nil {
		return err
	}
	if err := s.checkKept(); err != nil {
		return err
	}
	if err := s.checkMembers(); err != nil {
		return err
	}
	open := func(id incumbent.SessionID) bool { return s.sessionOf(id) != nil }
	for _, f := range s.families {
		if err := f.tables.Check(open, s.index); err != nil {
			return fmt.Errorf("family %s: %w", f.Name(), err)
		}
	}
	return nil
}

func (s *State) checkOpen(o *Session) error {
	switch {
	case o.ID.IsZero():
		return fmt.Errorf("session with the zero id")
	case o.TTL != 0 && incumbent.ValidateTTL(o.TTL) != nil:
		return fmt.Errorf("session %v: ttl %v", o.ID, o.TTL)
	case o.Renewal == 0 || o.Renewal > uint64(s.index):
		// A later session with this id begins at an index beyond it.
		return fmt.Errorf("session %v: renewal %d, newest index is %d", o.ID, o.Renewal, s.index)
	case o.Opened == 0 || o.Opened > s.index:
		return fmt.Errorf("session %v: opened at %d, newest index is %d", o.ID, o.Opened, s.index)
	}
	return nil
}

func (s *State) checkKept() error {
	var err error
	if s.keysFloor > s.index {
		return fmt.Errorf("floor of keys %d is ahead of index %d", s.keysFloor, s.index)
	}
	if s.kept.Len() > MaxKeptResults {
		return fmt.Errorf("%d results kept", s.kept.Len())
	}
	s.kept.Scan(func(k kept) bool {
		switch id, i := k.id(), k.at; {
		case id == "" || len(id) > MaxKeyBytes:
			err = fmt.Errorf("key of %d bytes", len(id))
		case i < s.keysFloor || i == 0 || i > s.index:
			err = fmt.Errorf("result of key %x has index %d, floor is %d, newest is %d", id, i, s.keysFloor, s.index)
		case s.keptByID[id] != i:
			err = fmt.Errorf("result of key %x is not in the table of keys", id)
		}
		return err == nil
	})
	return err
}

// Check verifies the invariants that the package comment lists, and that all
// tables agree: for tests and simulation.
func (s *State) Check() error { return s.check() }
