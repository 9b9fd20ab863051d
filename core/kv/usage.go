package kv

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

var _ core.Counting = (*tables)(nil)

// CountIn implements [core.Counting].
func (t *tables) CountIn(u *core.Usage, _ func(incumbent.SessionID) *core.Session) { t.usage = u }

// Recount implements [core.Counting].
func (t *tables) Recount(u *core.Usage) {
	t.entries.Scan(func(e *Entry) bool {
		u.Add(e.Owner, e.Namespace, &core.Growth{core.Keys: 1, core.KeyBytes: e.size()})
		return true
	})
	t.delays.Scan(func(d *Delay) bool {
		if e := d.counted(); e != nil {
			u.Add(e.Owner, e.Namespace, &core.Growth{core.Keys: 1, core.KeyBytes: e.size()})
		}
		return true
	})
}

// charge is what was counted for the owner and the namespace of an entry.
type charge struct {
	entry       *Entry
	keys, bytes int64
}

// charge counts n in the place of o; either may be nil.
func (t *tables) charge(o, n *Entry) {
	if t.usage == nil {
		return
	}
	if o != nil && n != nil && o.Owner == n.Owner {
		if by := n.size() - o.size(); by != 0 {
			t.add(charge{n, 0, by})
		}
		return
	}
	if o != nil {
		t.add(charge{o, -1, -o.size()})
	}
	if n != nil {
		t.add(charge{n, 1, n.size()})
	}
}

func (t *tables) add(c charge) {
	t.usage.Add(c.entry.Owner, c.entry.Namespace, &core.Growth{core.Keys: c.keys, core.KeyBytes: c.bytes})
	if t.marked != nil {
		t.marked.charges = append(t.marked.charges, c)
	}
}
