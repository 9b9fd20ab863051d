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

// Refusal is why the command would do nothing to this state, with the entry as it
// is; nil where it would do something, or where a view cannot tell. It is valid,
// and none that deletes a tree. open: its session is.
func (v *View) Refusal(c *Command, open bool) (*Entry, *incumbent.Error) {
	o := v.entry(c.Key)
	return o, v.refusal(c, o, open)
}

// Since is the index of what last happened to a key, or of a deletion that may
// have been its: it has not changed after it.
func (v *View) Since(k Key) incumbent.Index {
	if o := v.entry(k); o != nil {
		return o.Modified
	}
	if b, ok := v.tombstones.Get(tombstone{key: k}); ok {
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
