package consul

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
)

// HeldBackBytes is how much of requests is kept whose refusals are held back.
func (d *Door) HeldBackBytes() int64 { return d.held.Bytes() }

// heldBack is a refusal that is told later. It is let go of once.
type heldBack struct {
	told  *incumbent.Error
	timer *time.Timer
}

// refuse answers a request that a lane has refused: after a while, see [admit.HeldBack],
// in which nothing is kept of it but its line. Extensions are told at once, for there are
// other members.
func (r *request) refuse(lane admit.Lane, err error) {
	d := r.door
	pause, told := time.Duration(0), (*incumbent.Error)(nil)
	if e, ours := err.(*incumbent.Error); ours && lane != admit.Extensions { //nolint:errorlint // what admission returns
		pause, told = admit.HoldBack(e, -1)
	}
	if pause == 0 || !d.held.Take(int64(r.size)) {
		r.failFor(err)
		return
	}
	r.header, r.query, r.body = nil, nil, nil
	if !r.conn.owes(r) {
		d.held.Give(int64(r.size))
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.over {
		d.held.Give(int64(r.size))
		return
	}
	if r.leaving.Load() { // leave has found no refusal, and does not look again
		pause = 0
	}
	r.refused = &heldBack{told, time.AfterFunc(pause, func() { r.later(r.tell) })}
}

// tell answers with the refusal that was held back.
func (r *request) tell() {
	if told := r.letGo(); told != nil {
		r.failFor(told)
	}
}

// letGo returns the refusal that is held back, which is not any more; nil: none is.
func (r *request) letGo() *incumbent.Error {
	r.mu.Lock()
	held := r.refused
	r.refused = nil
	r.mu.Unlock()
	if held == nil {
		return nil
	}
	held.timer.Stop()
	r.door.held.Give(int64(r.size))
	return held.told
}
