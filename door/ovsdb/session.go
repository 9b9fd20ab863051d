package ovsdb

// session is what a client has on its connection. It belongs to the connection's tasks.
type session struct {
	aware    bool // of what happens to databases: set_db_change_aware
	over     bool // the connection is gone
	monitors map[string]*monitor
	txns     map[string]*txn // that are not answered, by their ids
	order    []*txn          // the same, in the order in which they came
	locks    locks
}

// end lets go of all that the client had: the last task.
func (c *conn) end() {
	s := &c.session
	s.over = true
	for _, m := range s.monitors {
		m.end()
	}
	for _, t := range s.order {
		t.abandon()
	}
	s.monitors, s.txns, s.order = nil, nil, nil
	c.endLocks()
}
