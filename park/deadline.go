package park

import "time"

// ticks converts a duration to ticks, rounded up, with one more because the
// tick under way has partly passed: a deadline is never early. 0 stays 0.
func ticks(d time.Duration) uint32 {
	if d <= 0 {
		return 0
	}
	return uint32(min((d+TickInterval-1)/TickInterval, 1<<31-2)) + 1
}

// look notes when the connection's deadlines must be looked at next.
func (w *worker) look(c *Conn) {
	if c.slot >= 0 && w.slots[c.slot].conn == c {
		w.slots[c.slot].due, _ = w.deadline(c)
	}
}

// deadline returns the first tick at which the connection is to be cut off if
// nothing happens, and for what; 0 is never.
func (w *worker) deadline(c *Conn) (due uint32, reason Reason) {
	l := w.set.limits.Load()
	first := func(since uint32, span uint32, r Reason) {
		if at := since + span; span > 0 && (due == 0 || at < due) {
			due, reason = at, r
		}
	}
	if !w.keepsEnough(c) {
		first(c.heard, c.idleTicks.Load(), Idle)
	}
	if len(c.partial) > 0 && !c.held {
		first(c.partialSince, ticks(l.PartialTimeout), PartialTimeout)
	}
	if !c.backlog.Load() && c.state.Load() != finishing {
		return due, reason
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.out != nil {
		first(c.out.waitingSince(), ticks(l.WriteTimeout), WriteTimedOut)
	}
	if c.state.Load() == finishing {
		first(c.ended, ticks(l.WriteTimeout), LocalClosed)
	}
	return due, reason
}

// scan looks at the connections that are due, a bounded number in one turn.
// It reports whether the scan is finished.
func (w *worker) scan() bool {
	cuts := 0
	end := min(len(w.slots), w.cursor+scanSlots)
	for ; w.cursor < end && cuts < scanCuts; w.cursor++ {
		s := &w.slots[w.cursor]
		// Under Portable nobody notes that a queue began, so all are looked at.
		if s.conn == nil || !w.set.cfg.Portable && (s.due == 0 || s.due > w.now) {
			continue
		}
		if w.judge(s.conn) {
			cuts++
		}
	}
	if w.cursor < len(w.slots) {
		return false
	}
	w.cursor = -1
	if w.rescan {
		w.beginScan()
	}
	return w.cursor < 0
}

// beginScan has all connections looked at, by one scan that is under way already and another:
// what is behind its bounded turns would not be reached if each tick began anew.
func (w *worker) beginScan() {
	if w.rescan = w.cursor >= 0; !w.rescan {
		w.cursor = 0
	}
}

// judge cuts off a connection whose deadline has passed. Bytes that wait in
// its socket are heard first: they may have waited for us.
func (w *worker) judge(c *Conn) bool {
	due, reason := w.deadline(c)
	if due != 0 && due <= w.now && reason != WriteTimedOut {
		if !w.hear(c) {
			return false
		}
		due, reason = w.deadline(c)
	}
	w.slots[c.slot].due = due
	if due == 0 || due > w.now {
		if c.port != nil {
			c.port.proof.Store(unsuspected)
		}
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if reason == LocalClosed {
		c.failLocked(LocalClosed, c.err)
	} else {
		_ = c.limitLocked(reason)
	}
	return true
}

// hear reads what waits in the socket. It returns false if that takes until a
// later tick.
func (w *worker) hear(c *Conn) bool {
	if c.port != nil {
		return c.port.suspect()
	}
	c.drained = false
	w.turn(c)
	return true
}
