package peers

import "github.com/incumbent-dev/incumbent/node"

// Events is told what happens, for metrics. Functions may be nil, are called
// from several goroutines and must not block.
type Events struct {
	Connected    func(member uint64, class node.Class) // also when a new connection replaces one that is up
	Disconnected func(member uint64, class node.Class, err error)
	Dropped      func(member uint64, class node.Class, full bool) // a message that could not be queued; not full: there was no connection
	Refused      func(reason Reason)                              // a connection, by this member
	Crowded      func()                                           // a connection that had proven nothing was closed to make room for another
}

// withDefaults replaces nil functions, so that nobody asks.
func (e Events) withDefaults() Events {
	if e.Connected == nil {
		e.Connected = func(uint64, node.Class) {}
	}
	if e.Disconnected == nil {
		e.Disconnected = func(uint64, node.Class, error) {}
	}
	if e.Dropped == nil {
		e.Dropped = func(uint64, node.Class, bool) {}
	}
	if e.Refused == nil {
		e.Refused = func(Reason) {}
	}
	if e.Crowded == nil {
		e.Crowded = func() {}
	}
	return e
}
