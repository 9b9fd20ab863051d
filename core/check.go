package core

import (
	"fmt"
	"iter"

	"github.com/incumbent-dev/incumbent"
)

// check verifies every invariant of the state and that all tables agree. It
// reads everything: some microseconds a lease.
func (s *State) check() error {
	var err error
	sum := tally{counts: make(map[incumbent.SessionID]counts)}
	s.scan(incumbent.Name{}, func(l *Lease) bool {
		if err = s.checkLease(l); err == nil {
			err = s.checkTables(l)
		}
		sum.add(l)
		sum.addQueue(s.queue(l.entry))
		return err == nil
	})
	if err != nil {
		return err
	}
	s.sessions.Scan(func(o *Session) bool {
		want := sum.counts[o.ID]
		want.session, want.owner = o, s.usage.principals.byName[o.Owner()]
		if got := s.counts[o.ID]; got != want {
			err = fmt.Errorf("session %v: counts %+v, want %+v", o.ID, got, want)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	if err := s.checkTally(sum); err != nil {
		return err
	}
	if err := s.checkUsage(); err != nil {
		return err
	}
	return s.checkRecords()
}

// checkRecords verifies what is not a matter of one lease, nor of tables that
// agree with one another: those of a state that is just restored have been made
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
	open := func(id incumbent.SessionID) bool { return s.counts[id].session != nil }
	for _, f := range s.families {
		if err := f.tables.Check(open, s.index); err != nil {
			return fmt.Errorf("family %s: %w", f.Name(), err)
		}
	}
	return nil
}

// tally is what the lease records add up to.
type tally struct {
	held, owned, waits, free, pinned int
	counts                           map[incumbent.SessionID]counts
}

func (t *tally) add(l *Lease) {
	t.held += one(l.Token != 0)
	t.free += one(l.forgettable())
	t.pinned += one(len(l.Pins) > 0)
	t.waits += int(l.Waiting)
	if !l.Session.IsZero() {
		t.owned++
		c := t.counts[l.Session]
		c.leases++
		c.pinned += one(l.keptByPin())
		t.counts[l.Session] = c
	}
}

// addQueue counts the places of one queue for their sessions.
func (t *tally) addQueue(queue iter.Seq[Waiter]) {
	for w := range queue {
		c := t.counts[w.Session]
		c.waits++
		t.counts[w.Session] = c
	}
}

func (s *State) checkTally(t tally) error {
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"count of held leases", s.held, t.held},
		{"table of rows", s.rows.len(), s.names.Len()},
		{"directory", s.directory.n, s.names.Len()},
		{"rows in use", int(s.lastRow) - len(s.freeRows), s.names.Len()},
		{"table of tokens", s.tokens.Len(), t.held},
		{"table of owners", s.owned.Len(), t.owned},
		{"table of places", s.places.Len(), t.waits},
		{"table of waiters", s.waits.Len(), t.waits},
		{"table of who waits", len(s.waiting), t.waits},
		{"table of turns", s.turns.Len(), t.waits},
		{"table of free leases", s.free.Len(), t.free},
		{"count of pinned leases", s.pinned, t.pinned},
		{"counts of sessions", len(s.counts), s.sessions.Len()},
		{"table of keys", len(s.keptByID), s.kept.Len()},
	} {
		if c.got != c.want {
			return fmt.Errorf("%s has %d, want %d", c.what, c.got, c.want)
		}
	}
	return nil
}

// checkLease verifies one record by itself and against the sessions.
func (s *State) checkLease(l *Lease) error {
	if err := l.Name.Validate(); err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("lease %v: %s", l.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case l.Modified == 0 || l.Modified > s.index:
		return bad("modified at %d, newest index is %d", l.Modified, s.index)
	case l.LastToken > incumbent.Token(l.Modified):
		return bad("token %d is greater than index %d of its last change", l.LastToken, l.Modified)
	case l.Renewal > maxCounter:
		return bad("renewal %d", l.Renewal)
	case len(l.PreviousHolder) > incumbent.MaxHolderBytes:
		return bad("previous holder has %d bytes", len(l.PreviousHolder))
	}
	check := s.checkHeld
	if l.Token == 0 {
		check = s.checkFree
	}
	for _, err := range []error{check(l), l.checkPins(), l.checkHistory()} {
		if err != nil {
			return bad("%v", err)
		}
	}
	return nil
}

func (s *State) checkFree(l *Lease) error {
	if l.Holder != "" || !l.Session.IsZero() || l.TTL != 0 || l.Offered || l.Critical || l.Revoking || *l.Origin != (Origin{}) {
		return fmt.Errorf("free, yet parts of a holding are left")
	}
	if l.Waiting > 0 {
		return fmt.Errorf("free, yet %d wait for it", l.Waiting)
	}
	return nil
}

func (s *State) checkHeld(l *Lease) error {
	if l.Token != l.LastToken {
		return fmt.Errorf("token %d is not the last one, %d", l.Token, l.LastToken)
	}
	if l.Renewal == 0 {
		return fmt.Errorf("held at renewal 0")
	}
	if err := incumbent.ValidateHolder(l.Holder); err != nil {
		return err
	}
	if l.Session.IsZero() {
		if l.Offered {
			return fmt.Errorf("offered to no session")
		}
		return incumbent.ValidateTTL(l.TTL)
	}
	if l.TTL != 0 {
		return fmt.Errorf("owned by a session, yet with a ttl of its own")
	}
	if _, open := s.counts[l.Session]; !open {
		return fmt.Errorf("its session %v is not open", l.Session)
	}
	return nil
}

func (l *Lease) checkPins() error {
	if len(l.Pins) > incumbent.MaxPins {
		return fmt.Errorf("%d pins", len(l.Pins))
	}
	for i, p := range l.Pins {
		if err := incumbent.ValidatePin(p); err != nil {
			return err
		}
		if i > 0 && l.Pins[i-1] >= p {
			return fmt.Errorf("pins %q, %q are out of order", l.Pins[i-1], p)
		}
	}
	return nil
}

// checkWaiter verifies one place by itself, and against the one before.
func (s *State) checkWaiter(l *Lease, w, last *Waiter) error {
	if err := incumbent.ValidateHolder(w.Holder); err != nil {
		return err
	}
	if _, open := s.counts[w.Session]; !open {
		return fmt.Errorf("session %v of waiter %q is not open", w.Session, w.Holder)
	}
	if w.Session == l.Session && w.Holder == l.Holder {
		return fmt.Errorf("its holder stands in its queue")
	}
	if !last.before(w) || w.Since > l.Modified || w.Turn >= uint64(w.Since) {
		return fmt.Errorf("waiter %q in turn %d since %d, the one before in turn %d since %d", w.Holder, w.Turn, w.Since, last.Turn, last.Since)
	}
	return nil
}

// checkQueue verifies the places of one lease, and that every table has them.
func (s *State) checkQueue(l *Lease) error {
	e, n, last := l.entry, 0, Waiter{}
	for w := range s.queue(e) {
		if err := s.checkWaiter(l, &w, &last); err != nil {
			return fmt.Errorf("lease %v: %w", l.Name, err)
		}
		_, listed := s.waits.Get(byWaiter{w.Session, e, w.spot()})
		_, turned := s.turns.Get(byTurn{e.row, s.counts[w.Session].session.Owner(), w.Turn, w.Since})
		if got, ok := s.placeOf(e, w.Session, w.Holder); !listed || !turned || !ok || got != w {
			return fmt.Errorf("lease %v: waiter %q is not in the table of waiters", l.Name, w.Holder)
		}
		n, last = n+1, w
	}
	if n != int(l.Waiting) || n > MaxQueue {
		return fmt.Errorf("lease %v: %d places, its record says %d", l.Name, n, l.Waiting)
	}
	return nil
}

func (l *Lease) checkHistory() error {
	last, n, size := incumbent.Index(0), countPacked(l.past), len(l.past)
	for b := l.past; len(b) > 0; {
		var c packed
		c, b = nextPacked(b)
		if c.index < last || c.index > l.Modified || c.what == 0 || c.what >= numWhats {
			return fmt.Errorf("history: change %d has index %d after %d", c.what, c.index, last)
		}
		last = c.index
	}
	if l.granted != 0 {
		if l.Free() || l.granted < last || l.granted > l.Modified {
			return fmt.Errorf("history: the grant has index %d after %d", l.granted, last)
		}
		n, size = n+1, size+l.grantBytes()
	}
	if n > MaxHistory || size > MaxHistoryBytes {
		return fmt.Errorf("history of %d changes has %d bytes", n, size)
	}
	return nil
}

// checkTables verifies that every table has this very record.
func (s *State) checkTables(l *Lease) error {
	e := l.entry
	if named, _ := s.names.Get(&entry{Name: l.Name}); named != e || s.lease(e) != l {
		return fmt.Errorf("lease %v: not in the table of names", l.Name)
	}
	if s.find([]byte(l.Name.Namespace), []byte(l.Name.Model), []byte(l.Name.Lease)) != l {
		return fmt.Errorf("lease %v: not in the directory", l.Name)
	}
	if l.Token != 0 && s.leaseByToken(l.Token) != l {
		return fmt.Errorf("lease %v: not in the table of tokens", l.Name)
	}
	if !l.Session.IsZero() {
		if _, ok := s.owned.Get(ownerOf(e, l)); !ok {
			return fmt.Errorf("lease %v: not in the table of owners", l.Name)
		}
	}
	if l.forgettable() {
		if item, _ := s.free.Get(byAge{l.Modified, e}); item.entry != e {
			return fmt.Errorf("lease %v: not in the table of free leases", l.Name)
		}
	}
	return s.checkQueue(l)
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
	if c := s.counts[o.ID]; c.leases+c.waits > MaxLeasesPerSession || c.waits > MaxWaitsPerSession {
		return fmt.Errorf("session %v: counts %+v exceed the limits", o.ID, c)
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
	s.kept.Scan(func(k *kept) bool {
		switch i := k.result.Index; {
		case k.id == "" || len(k.id) > MaxKeyBytes:
			err = fmt.Errorf("key of %d bytes", len(k.id))
		case i < s.keysFloor || i == 0 || i > s.index:
			err = fmt.Errorf("result of key %x has index %d, floor is %d, newest is %d", k.id, i, s.keysFloor, s.index)
		case s.keptByID[k.id] != k:
			err = fmt.Errorf("result of key %x is not in the table of keys", k.id)
		}
		return err == nil
	})
	return err
}

// Check verifies the invariants that the package comment lists, and that all
// tables agree: for tests and simulation.
func (s *State) Check() error { return s.check() }
