package ovsdb

import "slices"

// session is what a client has on its connection. It belongs to the connection's tasks.
type session struct {
	aware    bool // of what happens to databases: set_db_change_aware
	over     bool // the connection is gone
	monitors monitorNames
	changing bool                // the conditions of one of these change
	behind   []*request          // about monitors, that wait for that
	txns     map[string]*txn     // that are not answered, by their ids
	order    []*txn              // the same, in the order in which they came
	going    bool                // those go on that were held: see next
	putOff   map[string]*request // transactions about the server that wait for a place, by their ids
	locks    locks
}

// monitorNames are a client's monitors by their ids. Most clients have one or two, for
// which a map would cost more than all else that is kept of the client.
type monitorNames []monitorName

type monitorName struct {
	name    string
	monitor *monitor
}

// get returns the monitor of an id, or nil.
func (n monitorNames) get(name string) *monitor {
	for i := range n {
		if n[i].name == name {
			return n[i].monitor
		}
	}
	return nil
}

// set gives an id to a monitor.
func (n *monitorNames) set(name string, m *monitor) {
	for i := range *n {
		if (*n)[i].name == name {
			(*n)[i].monitor = m
			return
		}
	}
	*n = append(*n, monitorName{name, m})
}

// feeds are those of the databases that are monitored.
func (n monitorNames) feeds() (list []*feed) {
	for i := range n {
		if f := n[i].monitor.feed; f.name != serverName && !slices.Contains(list, f) { // that has no indexes
			list = append(list, f)
		}
	}
	return list
}

// drop takes away the ids that are to go.
func (n *monitorNames) drop(gone func(monitorName) bool) { *n = slices.DeleteFunc(*n, gone) }

// end lets go of all that the client had: the last task.
func (c *conn) end() {
	s := &c.session
	s.over = true
	c.settle()
	for _, n := range s.monitors {
		n.monitor.end()
	}
	for _, t := range s.order {
		t.abandon()
	}
	s.monitors, s.behind, s.txns, s.order, s.putOff = nil, nil, nil, nil, nil
	c.endLocks()
}
