package kv

import (
	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

var (
	_ core.Undoable   = (*tables)(nil)
	_ core.Transacted = (*View)(nil)
)

// Listing is the Record of a List.
type Listing struct {
	Entries []*Entry
	More    bool // there are more behind the limit
}

// idle answers a command that changes nothing: one that reads, is refused, or finds
// nothing to do. open: its session is. A part of a transaction says with r what it
// looks at.
func (t *shared) idle(r *core.Reading, c *Command, open bool) (core.Result, bool) {
	switch c.Verb {
	case List:
		return t.list(r, c), true
	case RemoveTree:
		return t.idleTree(r, c)
	}
	return t.idleAt(r, c, t.entry(c.Key), open)
}

// idleAt does so for a command about one key, whose entry is o.
func (t *shared) idleAt(r *core.Reading, c *Command, o *Entry, open bool) (core.Result, bool) {
	if err := t.refusal(c, o, open); err != nil {
		return core.Result{Record: o, Err: err}, true
	}
	switch {
	case c.Verb == Get:
		return t.get(r, c, o), true
	case c.said(o):
		return core.Result{Record: o}, true
	}
	return core.Result{Record: 0}, c.Verb == Remove && o == nil
}

func (t *shared) get(r *core.Reading, c *Command, e *Entry) core.Result {
	size := 0
	if e != nil {
		size = e.read(c)
	}
	if err := r.Record(size); err != nil {
		return core.Result{Err: err}
	}
	return core.Result{Record: e}
}

// read is how much of an entry a reading command answers.
func (e *Entry) read(c *Command) int {
	if c.KeysOnly {
		return len(e.Name)
	}
	return len(e.Name) + len(e.Value)
}

func (t *shared) list(r *core.Reading, c *Command) core.Result {
	l := &Listing{}
	var err *incumbent.Error
	t.ascend(c.Key, Key{}, func(e *Entry) bool {
		if l.More = c.Limit > 0 && uint64(len(l.Entries)) == c.Limit; l.More {
			return false
		}
		if err = r.Record(e.read(c)); err != nil {
			return false
		}
		l.Entries = append(l.Entries, e)
		return true
	})
	if err != nil {
		return core.Result{Err: err}
	}
	return core.Result{Record: l}
}

// idleTree looks at what a RemoveTree would delete.
func (t *shared) idleTree(r *core.Reading, c *Command) (core.Result, bool) {
	n := 0
	var err *incumbent.Error
	t.ascend(c.Key, Key{}, func(*Entry) bool {
		if n++; n > t.limits.deleted {
			err = errTooManyDeleted(t.limits.deleted)
		} else {
			err = r.Record(0)
		}
		return err == nil
	})
	if err != nil {
		return core.Result{Err: err}, true
	}
	return core.Result{Record: 0}, n == 0
}

// Idle implements [core.Transacted].
func (t *shared) Idle(r *core.Reading, op []byte, open func(incumbent.SessionID) bool) (core.Result, bool) {
	var c Command
	if err := c.read(op); err != nil {
		return core.Result{Err: err}, true
	}
	if c.Verb == EndDelay {
		return core.Result{Err: errAlone()}, true
	}
	return t.idle(r, &c, open(c.Session))
}

// errAlone refuses what is no part of a transaction.
func errAlone() *incumbent.Error {
	return refused(incumbent.Invalid, "the end of a delay is no part of a transaction")
}

// marked is how the tables were before the transaction under way.
type marked struct {
	shared
	owned   *btree.BTreeG[lock]
	counts  map[incumbent.SessionID]int // those that have changed since
	charges []charge                    // since
}

// Mark implements [core.Undoable]. The trees are copied in constant time.
func (t *tables) Mark() {
	t.marked = &marked{shared: t.copied(), owned: t.owned.Copy(), counts: map[incumbent.SessionID]int{}}
}

// Settle implements [core.Undoable].
func (t *tables) Settle(back bool) {
	m := t.marked
	t.marked = nil
	if !back {
		return
	}
	t.shared, t.owned = m.shared, m.owned
	for _, c := range m.charges { // t.marked is nil
		t.add(charge{c.entry, -c.keys, -c.bytes})
	}
	for id, n := range m.counts { // in any order: each by itself
		if t.counts[id] = n; n == 0 {
			delete(t.counts, id)
		}
	}
}

// count counts the locks of a session.
func (t *tables) count(id incumbent.SessionID, by int) {
	was := t.counts[id]
	if t.marked != nil {
		if _, kept := t.marked.counts[id]; !kept {
			t.marked.counts[id] = was
		}
	}
	if t.counts[id] = was + by; was+by == 0 {
		delete(t.counts, id)
	}
}
