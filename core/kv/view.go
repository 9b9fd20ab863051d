package kv

import (
	"strings"

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
	c := t.shared
	c.entries, c.tombstones, c.delays = t.entries.Copy(), t.tombstones.Copy(), t.delays.Copy()
	return &View{c}
}

// Len is the number of entries.
func (v *View) Len() int { return v.entries.Len() }

// Bytes is what keys and values have together.
func (v *View) Bytes() int64 { return v.bytes }

// Locks is how many entries a session has locked.
func (v *View) Locks() int { return v.locks }

// Entry returns the entry of a key, nil if there is none.
func (v *View) Entry(k Key) *Entry { return v.entry(k) }

// Delayed reports whether the key cannot be locked yet.
func (v *View) Delayed(k Key) bool { return v.delayed(k) }

// Idle says what the command would do to this state, as far as a view can tell:
// how many entries it changes, and why it is refused, with the entry as it is. It
// is valid. open: its session is. Its work is bounded by [MaxDeleted].
func (v *View) Idle(c *Command, open bool) (o *Entry, changes int, refusal *incumbent.Error) {
	if c.Verb == RemoveTree {
		v.ascend(c.Key, Key{}, func(*Entry) bool {
			changes++
			return changes <= MaxDeleted
		})
		if changes > MaxDeleted {
			return nil, changes, errTooManyDeleted(MaxDeleted)
		}
		return nil, changes, nil
	}
	o = v.entry(c.Key)
	if refusal = v.refusal(c, o, open); refusal == nil && (c.Verb != Remove || o != nil) {
		changes = 1
	}
	return o, changes, refusal
}

// Since is the index of what last happened to what a command names, or of a
// deletion that may have been there: nothing has changed after it.
func (v *View) Since(c *Command) incumbent.Index {
	if c.Verb == RemoveTree {
		return ^incumbent.Index(0) // nobody knows of a tree
	}
	if o := v.entry(c.Key); o != nil {
		return o.Modified
	}
	if b, ok := v.tombstones.Get(tombstone{key: c.Key}); ok {
		return b.at
	}
	return v.floor
}

// Ascend calls fn with the entries whose key begins with that of prefix and comes
// behind after, in their order, until it returns false.
func (v *View) Ascend(prefix, after Key, fn func(*Entry) bool) { v.ascend(prefix, after, fn) }

// Delays calls fn with all delays, by key, until it returns false.
func (v *View) Delays(fn func(*Delay) bool) { v.delays.Scan(fn) }

// Deleted is the index of the newest deletion below a prefix, or of one that may
// have been: a list of that prefix changed no later than at the greatest of it and
// its entries' Modified.
func (v *View) Deleted(prefix Key) incumbent.Index {
	at := v.floor
	v.tombstones.Ascend(tombstone{key: prefix}, func(b tombstone) bool {
		if b.key.Namespace != prefix.Namespace || !strings.HasPrefix(b.key.Name, prefix.Name) {
			return false
		}
		at = max(at, b.at)
		return true
	})
	return at
}
