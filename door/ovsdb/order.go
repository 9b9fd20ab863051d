package ovsdb

import "slices"

// Transactions of one connection are executed in the order in which they came, as far as
// that can be told: those behind one that is still to be executed are held.

// stage says how far a transaction is, for those of the same client that come behind it.
type stage uint8

const (
	past       stage = iota // it is executed, or waits for a change: others need not wait for it
	confirming              // it changes nothing if that is confirmed
	flying                  // it is on its way through the log, where others come behind it
	due                     // it is still to be executed
)

// before is the latest stage of the transactions of the same client that came before, and
// are to be executed before this one. Of two that only look either may go first.
func (t *txn) before() (s stage) {
	for _, o := range t.conn.session.order {
		if o == t || s == due || s == flying && t.looks { // it is held anyway
			break
		}
		if !t.looks || !o.looks {
			s = max(s, o.stage)
		}
	}
	return s
}

// letFollow has those behind the transaction go on, as far as they need not wait for it.
func (t *txn) letFollow() {
	if order := t.conn.session.order; len(order) > 0 && order[len(order)-1] != t {
		t.conn.next()
	}
}

// hold has the transaction wait for those that came before: see next.
func (t *txn) hold() {
	t.held = true
	t.postpone()
}

// postpone says that the transaction is executed later. Others wait for it, unless it waits
// for a change.
func (t *txn) postpone() {
	if t.stage = due; t.waited {
		t.stage = past
	}
}

// next has those go on that have waited for one that came before, up to the first that
// cannot: others wait for that.
func (c *conn) next() {
	s := &c.session
	if s.going {
		return // what it has go on comes to this: all behind that have their turn
	}
	s.going = true
	defer func() { s.going = false }()
	for _, t := range slices.Clone(s.order) {
		if t.held && !t.over {
			t.resume()
		}
		if t.stage == due && !t.over {
			return
		}
	}
}

// resume has a transaction go on that was held.
func (t *txn) resume() {
	t.held = false
	if t.admitted {
		t.start()
		return
	}
	t.admit()
}
