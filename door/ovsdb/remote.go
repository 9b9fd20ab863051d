package ovsdb

import (
	"sync/atomic"
	"time"
)

// Remote is what the connections of one listener have in common.
type Remote struct {
	Secure bool // they have TLS, if the door has

	options atomic.Pointer[Options]
	open    atomic.Int64 // connections that are parked
	gone    atomic.Bool  // its listener has been closed, and nobody is to stay
}

// Options are what a remote's connections obey, also those that are open.
type Options struct {
	// Role restricts what clients may change: see [table.Transact]. "": nothing does.
	Role     string
	ReadOnly bool          // nobody may change anything, ask for a lock or give one up
	Probe    time.Duration // as in [Limits]; 0: what is said there
}

// Set gives the remote other options.
func (r *Remote) Set(o Options) { r.options.Store(&o) }

func (r *Remote) get() Options {
	if o := r.options.Load(); o != nil {
		return *o
	}
	return Options{}
}

// leave ends the connections of a remote that is gone; who is on the way to being parked
// sees that then.
func (d *Door) leave(r *Remote) {
	for _, c := range d.conns.All() {
		if c.who.remote == r {
			c.goAway()
		}
	}
}
