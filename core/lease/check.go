package lease

import (
	"fmt"
	"iter"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

var _ core.Agreeing = (*tables)(nil)

// Check implements [core.Tables]: it verifies what is not a matter of one record by
// itself, which ReadRecord has asked for.
func (t *tables) Check(open func(incumbent.SessionID) bool, index incumbent.Index) (err error) {
	t.scan(func(l *Lease) bool {
		switch {
		case l.Modified > index:
			err = fmt.Errorf("lease %v: modified at %d, newest index is %d", l.Name, l.Modified, index)
		case !l.Session.IsZero() && !open(l.Session):
			err = fmt.Errorf("lease %v: its session %v is not open", l.Name, l.Session)
		}
		return err == nil
	})
	if err != nil {
		return err
	}
	for id, c := range t.counts {
		switch {
		case !open(id):
			return fmt.Errorf("session %v has %+v, and is not open", id, *c)
		case c.leases+c.waits > MaxLeasesPerSession || c.waits > MaxWaitsPerSession:
			return fmt.Errorf("session %v has %+v: that exceeds the limits", id, *c)
		}
	}
	return nil
}

// Indexed implements [core.Agreeing]: places in queues.
func (t *tables) Indexed() int { return t.places.Len() }

// Agree implements [core.Agreeing]. It reads everything: some microseconds a lease.
func (t *tables) Agree() error {
	var err error
	sum := tally{counts: make(map[incumbent.SessionID]counts)}
	t.scan(func(l *Lease) bool {
		if err = l.check(); err == nil {
			err = t.checkTables(l)
		}
		sum.add(l)
		sum.addQueue(t.queue(l.entry))
		return err == nil
	})
	if err != nil {
		return err
	}
	for id, c := range t.counts {
		want := sum.counts[id]
		if c.leases != want.leases || c.pinned != want.pinned || c.waits != want.waits {
			return fmt.Errorf("session %v: counts %+v, want %+v", id, *c, want)
		}
		if c.owner == nil || c.owner.Name() != t.ownerOf(id) {
			return fmt.Errorf("session %v is counted for another than %q", id, t.ownerOf(id))
		}
		delete(sum.counts, id)
	}
	if len(sum.counts) > 0 {
		return fmt.Errorf("%d sessions have leases or places, and no counts", len(sum.counts))
	}
	return t.checkTally(sum)
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

func (t *tables) checkTally(sum tally) error {
	for _, c := range []struct {
		what      string
		got, want int
	}{
		{"count of held leases", t.held, sum.held},
		{"table of rows", t.rows.len(), t.names.Len()},
		{"directory", t.directory.n, t.names.Len()},
		{"rows in use", int(t.lastRow) - t.freeRows.len(), t.names.Len()},
		{"table of tokens", t.tokens.Len(), sum.held},
		{"table of owners", t.owned.Len(), sum.owned},
		{"table of places", t.places.Len(), sum.waits},
		{"table of waiters", t.waits.Len(), sum.waits},
		{"table of who waits", len(t.waiting.now), sum.waits},
		{"table of turns", t.turns.Len(), sum.waits},
		{"table of free leases", t.free.Len(), sum.free},
		{"count of pinned leases", t.pinned, sum.pinned},
	} {
		if c.got != c.want {
			return fmt.Errorf("%s has %d, want %d", c.what, c.got, c.want)
		}
	}
	return nil
}

// check verifies one record by itself.
func (l *Lease) check() error {
	if err := l.Name.Validate(); err != nil {
		return err
	}
	bad := func(format string, args ...any) error {
		return fmt.Errorf("lease %v: %s", l.Name, fmt.Sprintf(format, args...))
	}
	switch {
	case l.Modified == 0:
		return bad("modified at 0")
	case l.LastToken > incumbent.Token(l.Modified):
		return bad("token %d is greater than index %d of its last change", l.LastToken, l.Modified)
	case l.Renewal > maxCounter:
		return bad("renewal %d", l.Renewal)
	case len(l.PreviousHolder) > incumbent.MaxHolderBytes:
		return bad("previous holder has %d bytes", len(l.PreviousHolder))
	}
	check := l.checkHeld
	if l.Token == 0 {
		check = l.checkFree
	}
	for _, err := range []error{check(), l.checkPins(), l.checkHistory()} {
		if err != nil {
			return bad("%v", err)
		}
	}
	return nil
}

func (l *Lease) checkFree() error {
	if l.Holder != "" || !l.Session.IsZero() || l.TTL != 0 || l.Offered || l.Critical || l.Revoking || *l.Origin != (core.Origin{}) {
		return fmt.Errorf("free, yet parts of a holding are left")
	}
	if l.Waiting > 0 {
		return fmt.Errorf("free, yet %d wait for it", l.Waiting)
	}
	return nil
}

func (l *Lease) checkHeld() error {
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
func (l *Lease) checkWaiter(w, last *Waiter) error {
	if err := incumbent.ValidateHolder(w.Holder); err != nil {
		return err
	}
	if w.Session.IsZero() {
		return fmt.Errorf("waiter %q has no session", w.Holder)
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
func (t *tables) checkQueue(l *Lease) error {
	e, n, last := l.entry, 0, Waiter{}
	for w := range t.queue(e) {
		if err := l.checkWaiter(&w, &last); err != nil {
			return fmt.Errorf("lease %v: %w", l.Name, err)
		}
		_, listed := t.waits.Get(byWaiter{w.Session, e, w.spot()})
		_, turned := t.turns.Get(byTurn{e.row, t.ownerOf(w.Session), w.Turn, w.Since})
		if got, ok := t.placeOf(e, w.Session, w.Holder); !listed || !turned || !ok || got != w {
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
	last, n := incumbent.Index(0), 0
	for b := l.past; len(b) > 0; n++ {
		var message []byte
		message, b = nextChange(b)
		c := readChange(message)
		if c.index < last || c.index > l.Modified || c.what == 0 || c.what >= numWhats {
			return fmt.Errorf("history: change %d has index %d after %d", c.what, c.index, last)
		}
		last = c.index
	}
	if n != int(l.changes) {
		return fmt.Errorf("history: it has %d changes, its record says %d", n, l.changes)
	}
	grant := 0
	if l.granted != 0 {
		if l.Free() || l.granted < last || l.granted > l.Modified {
			return fmt.Errorf("history: the grant has index %d after %d", l.granted, last)
		}
		n, grant = n+1, l.grantBytes()
	}
	if n > MaxHistory || !withinBytes(l.past, grant) {
		return fmt.Errorf("history of %d changes counts %d bytes", n, countPast(l.past)+grant)
	}
	return nil
}

// checkTables verifies that every table has this very record.
func (t *tables) checkTables(l *Lease) error {
	e := l.entry
	if named, _ := t.names.Get(&entry{Name: l.Name}); named != e || t.lease(e) != l {
		return fmt.Errorf("lease %v: not in the table of names", l.Name)
	}
	if t.find([]byte(l.Name.Namespace), []byte(l.Name.Model), []byte(l.Name.Lease)) != l {
		return fmt.Errorf("lease %v: not in the directory", l.Name)
	}
	if l.Token != 0 && t.leaseByToken(l.Token) != l {
		return fmt.Errorf("lease %v: not in the table of tokens", l.Name)
	}
	if !l.Session.IsZero() {
		if _, ok := t.owned.Get(ownerOf(e, l)); !ok {
			return fmt.Errorf("lease %v: not in the table of owners", l.Name)
		}
	}
	if l.forgettable() {
		if item, _ := t.free.Get(byAge{l.Modified, e}); item.entry != e {
			return fmt.Errorf("lease %v: not in the table of free leases", l.Name)
		}
	}
	return t.checkQueue(l)
}

func (f *freeRow) len() (n int) {
	for ; f != nil; f = f.next {
		n++
	}
	return n
}
