package sim

import (
	"bytes"
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// keyChecker knows what was under which key at every index: what the first member
// told that applied it, put together. What is shown anywhere at any time must be one
// of these states.
type keyChecker struct {
	w       *world
	entries map[kv.Key]*kv.Entry
	past    map[kv.Key][]version
	ended   map[incumbent.SessionID]bool // sessions that are over, and were not opened again
	delays  map[kv.Key]delay
	removed map[held]bool // locks that ended because somebody deleted the entry
	bytes   int64         // of all keys and values after the last batch
	terms   *core.Terms   // that held then

	moment  int64               // of what the clients did and heard, in order
	calls   []*keyCall          // by when they were made
	numbers map[uint64]*keyCall // those, by number
	reads   []registerOperation // that were answered
}

// version is what became of a key at an index; nil: it was deleted.
type version struct {
	at    incumbent.Index
	entry *kv.Entry
}

func newKeyChecker(w *world) *keyChecker {
	return &keyChecker{
		w: w, entries: map[kv.Key]*kv.Entry{}, past: map[kv.Key][]version{}, ended: map[incumbent.SessionID]bool{},
		delays: map[kv.Key]delay{}, removed: map[held]bool{}, numbers: map[uint64]*keyCall{},
	}
}

// changed checks a change when the first member applies it: it goes from what was,
// somebody has asked for it, and all that it says is so (G15, G25).
func (c *keyChecker) changed(x *core.Change) {
	switch {
	case x.Session != nil:
		delete(c.ended, x.Session.ID)
	case x.SessionBefore != nil:
		c.ended[x.SessionBefore.ID] = true
	}
	if x.Family == nil || x.Family.Family != kv.Number {
		return
	}
	before, after := entriesOf(x.Family)
	if before == after {
		c.delayEnded(x)
		return
	}
	k := keyOf(before, after)
	if k.Namespace == listsOf || k.Namespace == pairsOf || k.Namespace == floodOf {
		return // their history is checked as a whole
	}
	switch {
	case !sameEntry(before, c.entries[k]):
		c.w.violate("the change of key %s at index %d goes from %+v, there was %+v (G15)", k.Name, x.Index, before, c.entries[k])
	case after != nil && (after.Modified != x.Index || before == nil && after.Created != x.Index || before != nil && after.Created != before.Created):
		c.w.violate("the change of key %s at index %d leaves %+v (G15)", k.Name, x.Index, after)
	}
	if c.entries[k] = after; after == nil {
		delete(c.entries, k)
	}
	c.past[k] = append(c.past[k], version{x.Index, after})
	c.asked(x, k, before, after)
	c.lockChanged(x, k, before, after)
}

// asked checks that a change is what a call of a client asked for, or the end of a
// session.
func (c *keyChecker) asked(x *core.Change, k kv.Key, before, after *kv.Entry) {
	call := c.callOf(x)
	if call == nil {
		if before == nil || !c.ended[before.Session] {
			c.w.violate("nobody has asked for the change of key %s at index %d (G25)", k.Name, x.Index)
		}
		return
	}
	cmd := &call.cmd
	removal := cmd.Verb == kv.Remove || cmd.Verb == kv.RemoveTree
	switch {
	case cmd.Key != k && (cmd.Verb != kv.RemoveTree || !strings.HasPrefix(k.Name, cmd.Key.Name)), removal != (after == nil),
		after != nil && (!bytes.Equal(after.Value, cmd.Value) || after.Flags != cmd.Flags):
		c.w.violate("the change of key %s at index %d leaves %+v, the call was %+v (G25)", k.Name, x.Index, after, cmd)
	case call.effect != 0 && call.effect != x.Index:
		c.w.violate("the call %+v changed something at index %d and again at %d (G25)", cmd, call.effect, x.Index)
	case call.answered() && call.result.Err != nil:
		c.w.violate("the call %+v was answered %v, and changes key %s at index %d (G25)", cmd, call.result.Err, k.Name, x.Index)
	}
	call.effect = x.Index
}

// callOf is the call that a change came from, nil: it is none about keys.
func (c *keyChecker) callOf(x *core.Change) *keyCall {
	if n, ok := markIn([]byte(x.Origin.Address)); ok {
		return c.numbers[n]
	}
	return nil
}

// applied checks the state that the first member has after a batch, at times in
// full.
func (c *keyChecker) applied(p *process, v *core.View, full bool) {
	for _, k := range c.w.keys {
		if e := c.entries[k]; e != nil && c.ended[e.Session] {
			c.w.violate("key %s is locked at index %d by a session that is over (G8)", k.Name, v.Index())
		}
	}
	// What there was before the limit was lowered may stay.
	n, terms := kv.Of(v).Bytes(), v.Terms()
	if n > terms.KeyBytes && n > c.bytes && terms == c.terms {
		c.w.violate("keys and values have %d bytes at index %d, they may have %d", n, v.Index(), terms.KeyBytes)
	}
	c.bytes, c.terms = n, terms
	if full {
		c.shown(p, v)
	}
}

// at is what had become of a key at an index, when it changed last.
func (c *keyChecker) at(k kv.Key, index incumbent.Index) (v version) {
	past := c.past[k]
	i, _ := slices.BinarySearchFunc(past, index, func(v version, index incumbent.Index) int {
		if v.at <= index {
			return -1
		}
		return 1
	})
	if i > 0 {
		v = past[i-1]
	}
	return v
}

// shown checks what a member shows, to whomever: the keys and values that there were
// at its index, and lists that know of every change (G15, G23, G28).
func (c *keyChecker) shown(p *process, v *core.View) {
	view, n := kv.Of(v), 0
	view.Ascend(keyNamed(""), kv.Key{}, func(e *kv.Entry) bool {
		n++
		if want := c.at(e.Key, v.Index()).entry; !sameEntry(e, want) {
			c.w.violate("member %d shows key %s at index %d as %+v, there was %+v (G28)", p.m.at, e.Name, v.Index(), e, want)
		}
		return true
	})
	for k := range c.past {
		if c.at(k, v.Index()).entry != nil {
			n--
		}
	}
	if n != 0 {
		c.w.violate("member %d shows %d keys too many at index %d (G28)", p.m.at, n, v.Index())
	}
	for _, prefix := range []string{"", registerDir, lockDir, treeDir, treeDir + "0/"} {
		c.listed(p, v, keyNamed(prefix))
	}
}

// listed checks the index of a list: that of the newest change of any key below the
// prefix, and a deletion is one.
func (c *keyChecker) listed(p *process, v *core.View, prefix kv.Key) {
	view := kv.Of(v)
	got, want := view.Deleted(prefix, func(kv.Key) bool { return true }, func() bool { return true }), incumbent.Index(0)
	view.Ascend(prefix, kv.Key{}, func(e *kv.Entry) bool {
		got = max(got, e.Modified)
		return true
	})
	for k := range c.past {
		if strings.HasPrefix(k.Name, prefix.Name) {
			want = max(want, c.at(k, v.Index()).at)
		}
	}
	if got != want {
		c.w.violate("member %d lists %q at index %d as changed at %d, it was at %d (G15)", p.m.at, prefix.Name, v.Index(), got, want)
	}
}

// atEnd: all clients have been dead for a while. Nothing may be locked or under a
// delay (G8).
func (c *keyChecker) atEnd(p *process) {
	v := p.group.View()
	c.shown(p, v)
	view := kv.Of(v)
	delays := 0
	view.Delays(func(*kv.Delay) bool { delays++; return true })
	if view.Locks() > 0 || delays > 0 {
		c.w.violate("%d keys are locked and %d under a delay although all clients have been dead for %v (G8)", view.Locks(), delays, quiet)
	}
}

// entriesOf are what a change of a key goes from and to; nil: nothing.
func entriesOf(f *core.FamilyChange) (before, after *kv.Entry) {
	before, _ = f.Before.(*kv.Entry)
	after, _ = f.After.(*kv.Entry)
	return before, after
}

func keyOf(before, after *kv.Entry) kv.Key {
	if after != nil {
		return after.Key
	}
	return before.Key
}

func sameEntry(a, b *kv.Entry) bool {
	return a == b || a != nil && b != nil && bytes.Equal(appendEntry(nil, a), appendEntry(nil, b))
}

// appendEntry appends all that an entry says; nil is nothing.
func appendEntry(b []byte, e *kv.Entry) []byte {
	if e == nil {
		return append(b, 0)
	}
	b = append(b, 1)
	for _, s := range []string{e.Namespace, e.Name, string(e.Value)} {
		b = append(appendUint(b, uint64(len(s))), s...)
	}
	for _, n := range []uint64{e.Flags, uint64(e.Created), uint64(e.Modified), e.LockIndex, uint64(e.OnEnd), uint64(e.Delay)} {
		b = appendUint(b, n)
	}
	return append(b, e.Session[:]...)
}

// appendDeadline appends what a change says of a deadline; nil is nothing.
func appendDeadline(b []byte, d *core.Deadline) []byte {
	if d == nil {
		return append(b, 0)
	}
	b = append(append(b, 1, byte(d.Family)), d.ID...)
	return appendUint(appendUint(b, uint64(d.Generation)), uint64(d.After))
}
