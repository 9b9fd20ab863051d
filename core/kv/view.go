package kv

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// View is the family after one batch of commands. It never changes and any number
// of goroutines may read it.
type View struct{ shared }

// Of is the family's view of a state that has it.
func Of(v *core.View) *View {
	f, _ := v.Family(Number).(*View)
	return f
}

// View implements [core.Tables].
func (t *tables) View() core.FamilyView {
	return &View{t.copied()}
}

// Len is the number of entries.
func (v *View) Len() int { return v.entries.Len() }

// Bytes is what all entries cost: their texts, their values, and [EntryBytes] each.
func (v *View) Bytes() int64 { return v.bytes }

// Locks is how many entries a session has locked.
func (v *View) Locks() int { return v.locks }

// Entry returns the entry of a key, nil if there is none.
func (v *View) Entry(k Key) *Entry { return v.entry(k) }

// Delayed reports whether the key cannot be locked yet.
func (v *View) Delayed(k Key) bool { return v.delayed(k) }

// Idling answers a command that would change nothing in this state, and reports
// whether it is one; what only the tables know of, as limits on locks, it does not
// see. It is valid. open: its session is. Its work is bounded by [MaxDeleted]. The
// entry is that of its key, as it is; none of RemoveTree.
func (v *View) Idling(c *Command, open bool) (*Entry, core.Result, bool) {
	if c.Verb == RemoveTree {
		r, idle := v.idle(nil, c, open)
		return nil, r, idle
	}
	o := v.entry(c.Key)
	r, idle := v.idleAt(nil, c, o, open)
	return o, r, idle
}

// Full is why a command that stores, and is not proposed yet, is refused for what it
// makes larger, as far as this view can tell; nil: it is not. all is the view of the
// state, asks the principal that sends it, o the entry as it is.
func (v *View) Full(all *core.View, asks string, c *Command, o *Entry) *incumbent.Error {
	if err := v.noRoom(all.Terms(), c, o); err != nil {
		return err
	}
	owner := c.owner(o, asks)
	owners, namespaces := c.growths(o, owner)
	return all.OverQuotaIn(asks, owner, c.Key.Namespace, owners, namespaces)
}

// Ascend calls fn with the entries whose key begins with that of prefix and comes
// behind after, in their order, until it returns false.
func (v *View) Ascend(prefix, after Key, fn func(*Entry) bool) { v.ascend(prefix, after, fn) }

// Delays calls fn with all delays, by key, until it returns false.
func (v *View) Delays(fn func(*Delay) bool) { v.delays.Scan(fn) }

// maxUnseen is how many deletions a caller is judged for that may not see them: a judgement
// costs a hundred times as much as a look.
const maxUnseen = 4096

// Deleted is the index of the newest deletion below a prefix of a key that sees accepts,
// or of one that may have been: a list of those keys changed no later than at the greatest
// of it and its entries' Modified. It looks at all tombstones below the prefix, up to
// [MaxTombstones], until goOn, which it asks at each, returns false: then it means
// nothing. sees is asked a few thousand times at most; what it is not asked of may have
// been.
func (v *View) Deleted(prefix Key, sees func(Key) bool, goOn func() bool) incumbent.Index {
	at, unseen := v.floor, 0
	v.deletedFrom(prefix, func(b tombstone) bool {
		switch {
		case b.at <= at:
		case unseen == maxUnseen || sees(b.key):
			at = b.at
		default:
			unseen++
		}
		return goOn()
	})
	return at
}

// DeletedAfter reports whether a key below a prefix has been deleted after an index, or may
// have been. It looks at no more than most deletions, of those after the index wherever
// they were: whether one below the prefix is among further ones it does not know.
func (v *View) DeletedAfter(prefix Key, after incumbent.Index, most int) bool {
	if v.floor > after {
		return true
	}
	looked, deleted := 0, false
	v.byAge.Ascend(tombstone{at: after + 1}, func(b tombstone) bool {
		looked++
		deleted = looked > most || b.key.below(prefix)
		return !deleted
	})
	return deleted
}

// Gone is the index of the deletion of a key that is not there, or of one that may
// have been: 0 if it has never been there, as far as anybody remembers.
func (v *View) Gone(k Key) incumbent.Index {
	if b, ok := v.tombstones.Get(tombstone{key: k}); ok {
		return b.at
	}
	return v.floor
}

// Namespace implements [core.Namespaced]. What deletions any list may have missed is
// said of this one too.
func (v *View) Namespace(namespace string, session func(incumbent.SessionID)) core.FamilyView {
	t := newTables()
	t.floor = v.floor
	first := Key{Namespace: namespace}
	v.entries.Ascend(&Entry{Key: first}, func(e *Entry) bool {
		if e.Namespace != namespace {
			return false
		}
		t.put(0, nil, e)
		if !e.Session.IsZero() {
			session(e.Session)
		}
		return true
	})
	v.tombstones.Ascend(tombstone{key: first}, func(b tombstone) bool {
		if b.key.Namespace != namespace {
			return false
		}
		t.bury(b)
		return true
	})
	v.delays.Ascend(&Delay{Key: first}, func(d *Delay) bool {
		if d.Namespace != namespace {
			return false
		}
		t.delays.Set(d)
		return true
	})
	return &View{t.shared}
}
