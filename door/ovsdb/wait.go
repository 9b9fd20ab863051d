package ovsdb

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// A transaction whose wait did not hold is tried again when a table changes that its
// waits look at, and when its time is over: then it is answered as it ends. To wait is of
// the lane of monitors, both to begin it and to look again: one that finds no place there
// asks for it again after a while.

// laneOfWaits is the lane of transactions that wait.
var laneOfWaits = calls.OvsdbMonitor.Lane()

// wakeWaits has transactions tried again that have waited, a few at a time: the next ones
// once those have had their turn, so that what thousands wait for does not go before what
// others have asked for meanwhile.
func (d *Door) wakeWaits() {
	var got []*txn
	had := make(chan struct{}, wokenAtOnce)
	for {
		if got = d.woken.Take(got, wokenAtOnce); len(got) == 0 {
			return
		}
		turns := 0
		for _, t := range got {
			if t.conn.do(func() { t.look(); had <- struct{}{} }) {
				turns++
			}
		}
		for range turns {
			select {
			case <-had:
			case <-d.closing:
				return
			}
		}
	}
}

// forever is as long as a connection may live.
const forever = 10 * 365 * 24 * time.Hour

// await has the transaction wait for a change of tables after an index, as one of its
// operations asks for, or refuses it if its principal has too much open; false: the wait has
// no time left.
func (t *txn) await(o *ovs.Operation, after incumbent.Index, tables []int) bool {
	limit := forever
	if o.HasTimeout {
		limit = min(limit, o.Timeout)
	}
	left := t.came.Add(limit).Sub(t.conn.door.now())
	if left <= 0 {
		return false
	}
	t.place.Leave()
	t.until = t.came.Add(limit)
	first := !t.waited
	t.waited = true
	if first {
		open, err := t.conn.door.cfg.Tally.Take(settings.OpenWatches, t.conn.who.principal, "")
		if err != nil {
			t.fail(failed, err)
			return true
		}
		t.counted = open
		if t.conn.door.lanes.Passes(t.conn.who.work(t.db), laneOfWaits) != nil {
			t.again((*txn).look)
			return true
		}
	}
	t.feed.do(func() { t.feed.await(t, left, after, tables) })
	return true
}

// await has a transaction tried again when one of the tables changes after an index, or
// after a while.
func (f *feed) await(t *txn, left time.Duration, after incumbent.Index, tables []int) {
	if f.reader == nil { // what has changed until it is followed is not known
		if err := f.follow(); err == nil {
			t.conn.do(t.look)
			return
		}
	}
	f.now(func(contents) {
		switch {
		case t.left:
		case f.lastOf(tables) > after || t.rules != rulesIn(f.door.view()): // changed meanwhile
			t.conn.do(t.look)
		default:
			f.waits[t] = tables
			t.timer = time.AfterFunc(left, func() { f.do(func() { f.retry(t) }) })
		}
	})
}

// drop lets go of a transaction that has been answered or that nobody wants to know of.
func (f *feed) drop(t *txn) {
	t.left = true
	f.forget(t)
}

// forget lets go of a transaction that waits no more.
func (f *feed) forget(t *txn) {
	if _, waits := f.waits[t]; waits {
		t.timer.Stop()
		delete(f.waits, t)
	}
}

// noteChange remembers when tables were last changed, and has those tried again who wait
// for that.
func (f *feed) noteChange(at incumbent.Index, c *change) {
	for i := range c.rows {
		f.touched[c.rows[i].table] = at
	}
	for t, tables := range f.waits {
		if f.lastOf(tables) == at {
			f.retry(t)
		}
	}
}

// lastOf is when one of the tables was last changed, as far as is known.
func (f *feed) lastOf(tables []int) incumbent.Index {
	last := f.remade
	for _, t := range tables {
		last = max(last, f.touched[t])
	}
	return last
}

// retry has a transaction tried again that waits.
func (f *feed) retry(t *txn) {
	if _, waits := f.waits[t]; waits {
		f.forget(t)
		f.door.woken.Put(t)
	}
}

// retryAll has all tried again that wait.
func (f *feed) retryAll() {
	for t := range f.waits {
		f.retry(t)
	}
}
