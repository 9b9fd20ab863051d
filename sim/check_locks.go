package sim

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// delay keeps a key from being locked.
type delay struct {
	since time.Duration // of the one true time
	lasts time.Duration
}

// held is a lock.
type held struct {
	key     kv.Key
	session incumbent.SessionID
}

// lockChanged checks what a change does to the lock of a key: one session at a time
// has it, each beginning raises its index by one, and its end is the holder's word or
// that of its session, or somebody has deleted the entry.
func (c *keyChecker) lockChanged(x *core.Change, k kv.Key, before, after *kv.Entry) {
	was, is := lockOf(before), lockOf(after)
	if was == is {
		if before != nil && after != nil && before.LockIndex != after.LockIndex {
			c.w.violate("the lock index of key %s goes from %d to %d at index %d without a lock (G3)", k.Name, before.LockIndex, after.LockIndex, x.Index)
		}
		return
	}
	if !was.IsZero() {
		c.unlocked(x, held{k, was}, before, after)
	}
	if !is.IsZero() {
		c.locked(x, held{k, is}, before, after)
	}
}

func lockOf(e *kv.Entry) (s incumbent.SessionID) {
	if e != nil {
		s = e.Session
	}
	return s
}

// locked checks the beginning of a lock (G2, G3).
func (c *keyChecker) locked(x *core.Change, l held, before, after *kv.Entry) {
	if !lockOf(before).IsZero() {
		c.w.violate("key %s goes from session %v to session %v at index %d (G1)", l.key.Name, before.Session, l.session, x.Index)
	}
	want := uint64(1)
	if before != nil {
		want = before.LockIndex + 1
	}
	if after.LockIndex != want {
		c.w.violate("key %s is locked at index %d with lock index %d, want %d (G3)", l.key.Name, x.Index, after.LockIndex, want)
	}
	if d, lasts := c.delays[l.key]; lasts {
		c.w.violate("key %s is locked at index %d %v after its last lock ended, under a delay of %v (G2)", l.key.Name, x.Index, c.w.now-d.since, d.lasts)
	}
}

// unlocked checks the end of a lock: that it ends while its holder may count on it is
// the worst that can happen (G2, G6, G7).
func (c *keyChecker) unlocked(x *core.Change, l held, before, after *kv.Entry) {
	call := c.callOf(x)
	switch {
	case c.ended[l.session]:
		c.endedWith(x, l, before, after)
	case call == nil, call.cmd.Verb == kv.Release && call.cmd.Session != l.session, call.cmd.Verb == kv.Put, call.cmd.Verb == kv.Acquire:
		c.w.violate("the lock of key %s ends at index %d, and nobody has asked for it (G4)", l.key.Name, x.Index)
	case call.cmd.Verb != kv.Release:
		c.removed[l] = true
	}
	for _, o := range c.w.lockers {
		switch {
		case o.key != l.key || o.a.session != l.session:
		case c.removed[l]: // the one exception
			o.removed = true
		case o.holds():
			c.w.violate("the lock of key %s ends at index %d while locker %d counts on it for another %v (G2, G6, G7)", l.key.Name, x.Index, o.a.id, o.until-o.a.clock())
		}
	}
}

// endedWith checks the end of a lock by that of its session: the entry goes or stays
// as the lock said, and the delay begins.
func (c *keyChecker) endedWith(x *core.Change, l held, before, after *kv.Entry) {
	if before.Delay > 0 {
		c.delays[l.key] = delay{c.w.now, before.Delay}
		c.w.res.Delays++
	}
	var want *kv.Entry
	if before.OnEnd == kv.Keep {
		n := *before
		n.Session, n.OnEnd, n.Delay, n.Modified = incumbent.SessionID{}, kv.Keep, 0, x.Index
		want = &n
	}
	if !sameEntry(after, want) {
		c.w.violate("key %s is %+v after the end of the session that had locked it at index %d, want %+v (G8)", l.key.Name, after, x.Index, want)
	}
}

// delayEnded checks that a delay has lasted, whoever led meanwhile (G6, G7).
func (c *keyChecker) delayEnded(x *core.Change) {
	k := kv.Key{Namespace: x.Family.Topic.Scope[0], Name: x.Family.Topic.Name}
	d, lasts := c.delays[k]
	if had := c.w.now - d.since; !lasts || had < d.lasts {
		c.w.violate("the delay of key %s ends at index %d after %v, it was to last for %v (G7)", k.Name, x.Index, had, d.lasts)
	}
	delete(c.delays, k)
}

// granted checks that nobody else counts on the lock (G1, G2), and that it is not over
// already.
func (c *keyChecker) granted(l *locker) {
	h := held{l.key, l.a.session}
	l.removed = c.removed[h]
	if !l.holds() {
		return
	}
	if lockOf(c.entries[l.key]) != h.session {
		c.w.violate("locker %d is told that it has locked %s, which it has not (G4)", l.a.id, l.key.Name)
	}
	for _, o := range c.w.lockers {
		if o != l && o.key == l.key && o.holds() {
			c.w.violate("lockers %d and %d both count on the lock of %s (G2)", o.a.id, l.a.id, l.key.Name)
		}
	}
}

// sessionLost checks that nobody is told that a session is over that may count on it
// (G4).
func (c *keyChecker) sessionLost(l *locker) {
	if l.locked && l.a.clock() < l.until {
		c.w.violate("locker %d was told that its session is over, %v before (G4)", l.a.id, l.until-l.a.clock())
	}
}
