package ovsdb

import (
	"time"

	"github.com/incumbent-dev/incumbent"
)

// A transaction whose wait did not hold is tried again when a table changes that its
// waits look at, and when its time is over: then it is answered as it ends.

// await has the transaction wait for a change of tables after an index.
func (t *txn) await(after incumbent.Index, tables []int) {
	t.place.leave()
	f := t.feed
	f.do(func() {
		if f.reader == nil { // what has changed until it is followed is not known
			if err := f.follow(); err == nil {
				t.conn.do(t.start)
				return
			}
		}
		f.now(func(contents) {
			if f.lastOf(tables) > after { // it has changed meanwhile
				t.conn.do(t.start)
				return
			}
			f.waits[t] = tables
			t.timer = time.AfterFunc(t.ends.Sub(f.door.now()), func() { f.do(func() { f.retry(t) }) })
		})
	})
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
	var last incumbent.Index
	for _, t := range tables {
		last = max(last, f.touched[t])
	}
	return last
}

// retry has a transaction tried again that waits.
func (f *feed) retry(t *txn) {
	if _, waits := f.waits[t]; waits {
		f.forget(t)
		t.conn.do(t.start)
	}
}

// retryAll has all tried again that wait.
func (f *feed) retryAll() {
	for t := range f.waits {
		f.retry(t)
	}
}
