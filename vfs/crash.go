package vfs

import (
	"maps"
	"math/rand/v2"
	"slices"
)

// CrashClone returns what a machine might find after losing power now: every
// byte and name that was synced, and of the others any, in units of one sector
// and one name. The same rng gives the same outcome. The original goes on
// unharmed; locks are free in the clone and its files are closed.
//
// Of what was not synced a clone keeps, in equal parts, nothing, everything,
// what came first, or a random subset: the four shapes that disks leave.
func (m *Mem) CrashClone(rng *rand.Rand) *Mem {
	return m.clone(&crash{rng: rng})
}

// Clone returns what a new process finds after this one was killed: all that
// was written, synced or not. What was not synced stays so and may still be
// lost by a CrashClone of the clone.
func (m *Mem) Clone() *Mem { return m.clone(nil) }

// Writeback makes durable some of what was written, as a system may at any time
// without being asked. What a file held in between writes can so come back
// after a crash.
func (m *Mem) Writeback(rng *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.root.writeback(&crash{rng: rng})
}

func (n *node) writeback(c *crash) {
	if n.dir == nil {
		c.writeback(n.content)
		return
	}
	for _, name := range slices.Sorted(maps.Keys(n.dir.now)) {
		n.dir.now[name].writeback(c)
	}
}

// writeback copies surviving sectors. They stay listed: they may change again.
func (c *crash) writeback(f *content) {
	keep := c.survivors(len(f.dirty))
	for i, s := range f.dirty {
		var b [SectorBytes]byte
		off := s * SectorBytes
		if keep(i) {
			f.synced.writeAt(b[:f.now.readAt(b[:], off)], off)
		}
	}
}

func (m *Mem) clone(c *crash) *Mem {
	m.mu.Lock()
	defer m.mu.Unlock()
	cp := copier{crash: c, done: map[*node]*node{}}
	clone := NewMem()
	clone.capacity = m.capacity
	clone.root = cp.node(m.root)
	for _, n := range cp.done {
		if n.dir == nil {
			clone.used += n.now.size
		}
	}
	return clone
}

// crash decides what survives.
type crash struct{ rng *rand.Rand }

// survivors returns which of n unsynced things are kept.
func (c *crash) survivors(n int) func(i int) bool {
	switch c.rng.IntN(4) {
	case 0:
		return func(int) bool { return false }
	case 1:
		return func(int) bool { return true }
	case 2:
		first := c.rng.IntN(n + 1)
		return func(i int) bool { return i < first }
	default:
		return func(int) bool { return c.rng.IntN(2) == 0 }
	}
}

// copier copies a tree, each node once however many names it has.
type copier struct {
	crash *crash
	done  map[*node]*node
}

func (cp *copier) node(n *node) *node {
	if c := cp.done[n]; c != nil {
		return c
	}
	c := &node{}
	cp.done[n] = c
	switch {
	case n.dir != nil:
		c.dir = cp.folder(n.dir)
	case cp.crash != nil:
		c.content = cp.crash.content(n.content)
	default:
		c.content = n.content.clone()
	}
	return c
}

func (cp *copier) folder(d *folder) *folder {
	c := &folder{}
	if cp.crash == nil {
		c.now, c.synced = cp.names(d.now), cp.names(d.synced)
		for _, ch := range d.changes {
			c.changes = append(c.changes, cp.change(ch))
		}
		return c
	}
	left := maps.Clone(d.synced)
	keep := cp.crash.survivors(len(d.changes))
	for i, ch := range d.changes {
		if !keep(i) {
			continue
		}
		for _, e := range ch {
			assign(left, e)
		}
	}
	c.now = cp.names(left)
	c.synced = maps.Clone(c.now)
	return c
}

// names copies in the order of the names: the rng must meet the files in the
// same order in every run.
func (cp *copier) names(names map[string]*node) map[string]*node {
	c := make(map[string]*node, len(names))
	for _, name := range slices.Sorted(maps.Keys(names)) {
		c[name] = cp.node(names[name])
	}
	return c
}

func (cp *copier) change(ch change) change {
	c := slices.Clone(ch)
	for i, e := range c {
		if e.to != nil {
			c[i].to = cp.node(e.to)
		}
	}
	return c
}

// content returns the synced bytes with the surviving sectors over them. A
// file that grew without a sync has its old length, or the new one, or ends
// with a sector that survived.
func (c *crash) content(old *content) *content {
	left := old.synced.share()
	if c.rng.IntN(2) == 0 {
		left.size = old.now.size
	}
	keep := c.survivors(len(old.dirty))
	for i, s := range old.dirty {
		off := s * SectorBytes
		if !keep(i) || off >= old.now.size {
			continue
		}
		var b [SectorBytes]byte
		left.writeAt(b[:old.now.readAt(b[:], off)], off)
	}
	n := newContent()
	n.now = left
	n.synced = left.share()
	return n
}

func (c *content) clone() *content {
	n := &content{now: c.now.share(), synced: c.synced.share(), dirty: slices.Clone(c.dirty), listed: maps.Clone(c.listed)}
	return n
}
