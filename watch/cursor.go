package watch

import (
	"fmt"
	"sync/atomic"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/overload"
)

// listener is told, by a worker and without locks, that there is something for it.
// It reports whether that woke anybody.
type listener interface{ matched() bool }

// follower is a listener with legs.
type follower interface {
	listener
	// pending reports, with mu held, whether one of its nodes may have something for it.
	pending() bool
}

// leg is one selector of a listener: its place in a node, and where in the
// node's chain it is.
type leg struct {
	node  *node
	slot  int // in node.legs
	owner follower
	at    uint64 // chain position last taken; 0: none yet
	next  uint64 // chain position to take next; 0: not known to be any
	walk  uint64 // where the search for the first position after seen goes on
}

// cursor is a place in the history: what a reader and a waiter have in
// common. Its owner moves it; nodes and workers only look at it.
type cursor struct {
	hub   *Hub
	to    follower
	legs  []leg
	one   [1]leg        // backs legs if there is one
	seen  atomic.Uint64 // all matches up to this position were taken
	armed atomic.Bool   // all were taken: set while nothing can be published
	done  incumbent.Index
	from  incumbent.Index // nothing up to here is wanted
}

// CompactedError is the cause of a Compacted error and says where to go on.
type CompactedError struct {
	Delivered incumbent.Index // everything up to here was delivered
	Floor     incumbent.Index // the oldest index one can resume after
}

// Error says what is gone.
func (e *CompactedError) Error() string {
	return fmt.Sprintf("changes after index %d are gone, history begins after %d", e.Delivered, e.Floor)
}

// errCompacted is called with mu held.
func (h *Hub) errCompacted(delivered incumbent.Index) error {
	h.count.cutOff.Add(1)
	return incumbent.Errorf(incumbent.Compacted, "%w", &CompactedError{delivered, h.floor}).
		WithHint("read the current state, then watch from its index; a larger history (--history-bytes) keeps more")
}

// attach registers the cursor for all events after index from.
func (h *Hub) attach(c *cursor, to follower, selectors []Selector, from incumbent.Index) error {
	if len(selectors) == 0 {
		return incumbent.Errorf(incumbent.Invalid, "nothing to watch: no selector")
	}
	for i := range selectors {
		if err := selectors[i].validate(); err != nil {
			return err
		}
	}
	if err := h.admit(); err != nil {
		return err
	}
	c.hub, c.to, c.from, c.done = h, to, from, from
	if c.legs = c.one[:1]; len(selectors) > 1 {
		c.legs = make([]leg, len(selectors))
	}
	for complete := false; !complete; {
		var err error
		if complete, err = h.attachSlice(c, selectors); err != nil {
			h.detach(c)
			return err
		}
	}
	return nil
}

// admit counts one more listener, or refuses it.
func (h *Hub) admit() error {
	limit := int64(h.limits.Load().MaxListeners)
	if h.count.listeners.Add(1) <= limit {
		return nil
	}
	h.count.listeners.Add(-1)
	return overload.Errorf("%d watches are open, the limit", limit).WithHint("end watches that nobody needs, or watch at another member")
}

// attachSlice takes the cursor's places, the first time, and does a slice of
// what its nodes need to know their history after from.
func (h *Hub) attachSlice(c *cursor, selectors []Selector) (complete bool, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		return false, errClosed()
	}
	if c.from < h.floor {
		return false, h.errCompacted(c.from)
	}
	if c.legs[0].node == nil {
		c.seen.Store(h.hist.before(uint64(c.from)))
		for i, s := range selectors {
			c.legs[i].join(c.to, h.reg.node(h.reg.complete(s, c.seen.Load())))
		}
	}
	for i := range c.legs {
		if !h.adopt(c.legs[i].node, c.seen.Load()) {
			return false, nil
		}
	}
	return true, nil
}

func (l *leg) join(f follower, n *node) {
	l.owner, l.node, l.slot = f, n, len(n.more.legs)
	n.more.legs = append(n.more.legs, l)
}

// detach gives the cursor's places up. It may be called once.
func (h *Hub) detach(c *cursor) {
	h.count.listeners.Add(-1)
	h.mu.Lock()
	unused := h.leave(c.legs)
	h.mu.Unlock()
	h.retire(unused)
}

// leave takes legs out of their nodes, and returns the filters that nobody listens to
// any more, to be retired. Called with mu held.
func (h *Hub) leave(legs []leg) (unused []*node) {
	for i := range legs {
		n := legs[i].node
		if n == nil || !legs[i].leave() {
			continue
		}
		h.reg.forget(n)
		if n.filter() {
			unused = append(unused, n)
		}
	}
	return unused
}

// leave takes the leg out of its node and reports whether it was the last.
func (l *leg) leave() bool {
	m := l.node.more
	last := m.legs[len(m.legs)-1]
	m.legs[l.slot] = last
	last.slot = l.slot
	m.legs[len(m.legs)-1] = nil
	m.legs = m.legs[:len(m.legs)-1]
	l.node = nil
	if len(m.legs) > 0 {
		return false
	}
	m.legs = nil
	return true
}

// retire takes what filters without listeners have chained out of the history,
// in slices. They are out of the registry, so nothing is added meanwhile.
func (h *Hub) retire(unused []*node) {
	for _, n := range unused {
		for gone := false; !gone; {
			h.mu.Lock()
			gone = h.unchain(n)
			h.mu.Unlock()
		}
	}
}

// take appends what is next for the cursor to out: one event if there is any,
// and more up to limit events or bytes of their sizes. more is false if
// everything published so far has been taken.
func (c *cursor) take(out []*Event, limit, bytes int) (events []*Event, more bool, err error) {
	h := c.hub
	for {
		h.mu.RLock()
		ready, err := c.resolve()
		if err == nil && ready {
			out, more = c.collect(out, limit, bytes)
		}
		h.mu.RUnlock()
		if err != nil || ready {
			return out, more, err
		}
	}
}

// resolve finds, for each leg, what is next for it. It reports false if the
// slice was used up before that. Called with mu held.
func (c *cursor) resolve() (ready bool, err error) {
	h := c.hub
	if h.closed {
		return false, errClosed()
	}
	seen := c.seen.Load()
	for i := range c.legs {
		l := &c.legs[i]
		if l.node.more.lost > c.done {
			return false, h.errCompacted(c.done)
		}
		if l.next < h.hist.tail {
			l.next = 0 // none, or dropped before a reader from the future wanted it
		}
		if l.next == 0 && l.node.last > seen && !l.find(&h.hist, seen) {
			return false, nil
		}
	}
	return true, nil
}

// find sets next to the first position of the chain after seen, at most one
// slice of work at a time.
func (l *leg) find(s *history, seen uint64) (found bool) {
	n := l.node
	switch {
	case n.kept == 0:
		return true
	case l.at >= s.tail && l.at > 0:
		l.next = s.at(l.at).link(n).next
		return true
	case n.first > seen:
		l.next = n.first
		return true
	}
	// A reader that resumes: usually not far behind, so from the newest back.
	if l.walk < s.tail {
		l.walk = n.last
	}
	for range walkSlice {
		prev := s.at(l.walk).link(n).prev
		if prev <= seen || prev < s.tail {
			l.next, l.walk = l.walk, 0
			return true
		}
		l.walk = prev
	}
	return false
}

// collect takes events in order from all legs. Called with mu held, once
// every leg knows what is next. What is left of an index that does not fit is
// for the next call; until then done stays before it.
func (c *cursor) collect(out []*Event, limit, bytes int) (events []*Event, more bool) {
	s := &c.hub.hist
	last, first := c.done, len(out)
	for {
		pos := c.next()
		if pos == 0 {
			c.seen.Store(s.head)
			c.done = max(c.done, c.hub.index)
			c.armed.Store(true)
			return out, false
		}
		e := s.at(pos)
		if e.Index != last {
			c.done = max(c.done, last) // all of it was taken
		}
		if taken := len(out) - first; taken > 0 && (taken >= limit || e.Size > bytes) {
			c.seen.Store(pos - 1)
			return out, true
		}
		c.advance(s, pos)
		if e.Index > c.from {
			out = append(out, e)
			bytes -= e.Size
			last = e.Index
		}
	}
}

// next returns the lowest next position of the legs, or 0.
func (c *cursor) next() uint64 {
	var pos uint64
	for i := range c.legs {
		if p := c.legs[i].next; p != 0 && (pos == 0 || p < pos) {
			pos = p
		}
	}
	return pos
}

func (c *cursor) advance(s *history, pos uint64) {
	for i := range c.legs {
		if l := &c.legs[i]; l.next == pos {
			l.at, l.next = pos, s.at(pos).link(l.node).next
		}
	}
}

// behind is pending for who does not hold mu.
func (h *Hub) behind(c *cursor) bool {
	h.mu.RLock()
	defer h.mu.RUnlock()
	return c.pending()
}

// pending reports whether a leg may have something to take. Called with mu
// held.
func (c *cursor) pending() bool {
	if c.hub.closed {
		return true
	}
	seen := c.seen.Load()
	for i := range c.legs {
		if n := c.legs[i].node; n != nil && n.last > seen {
			return true
		}
	}
	return false
}
