package watch

import (
	"cmp"
	"slices"
)

// history is a ring of events at positions tail … head; position 0 is none.
// Positions count events and never repeat; indexes may (one transaction) or
// skip (a command without events).
type history struct {
	ring       []*Event // a power of two
	tail, head uint64
}

const firstRing = 256 // events

func (s *history) init() {
	s.ring = make([]*Event, firstRing)
	s.tail = 1
}

func (s *history) at(pos uint64) *Event { return s.ring[pos&uint64(len(s.ring)-1)] }

func (s *history) push(e *Event) uint64 {
	if s.head+1-s.tail == uint64(len(s.ring)) {
		s.grow()
	}
	s.head++
	s.ring[s.head&uint64(len(s.ring)-1)] = e
	return s.head
}

func (s *history) grow() {
	bigger := make([]*Event, 2*len(s.ring))
	for p := s.tail; p <= s.head; p++ {
		bigger[p&uint64(len(bigger)-1)] = s.at(p)
	}
	s.ring = bigger
}

// before returns the last position whose event has an index up to i.
func (s *history) before(i uint64) uint64 {
	lo, hi := s.tail, s.head+1 // the answer's successor is in lo … hi
	for lo < hi {
		mid := lo + (hi-lo)/2
		if uint64(s.at(mid).Index) > i {
			hi = mid
		} else {
			lo = mid + 1
		}
	}
	return lo - 1
}

// link is an event's membership in the chain of one node.
type link struct {
	node       *node
	prev, next uint64 // positions; prev may lie before the tail
}

func (l *link) compare(id uint64) int { return cmp.Compare(l.node.id, id) }

// link finds the event's place in the node's chain, which it is in.
func (e *Event) link(n *node) *link {
	i, _ := e.findLink(n)
	return &e.links[i]
}

// findLink searches: an event may have thousands of topics.
func (e *Event) findLink(n *node) (i int, found bool) {
	return slices.BinarySearchFunc(e.links, n.id, func(l link, id uint64) int { return l.compare(id) })
}

// append puts the event at the head of the history and of the chains of all
// nodes it matches. s is that of the topics which it shares; nil: it shares none.
func (h *Hub) append(e *Event, s *spread) {
	pos := h.hist.push(e)
	e.sum = &h.bytes
	if e.links = e.few[:0]; len(e.Topics) > 1 || s != nil {
		e.links = make([]link, 0, 2*len(e.Topics)+1+s.size())
	}
	x := difference{of: h.differences, event: e, list: h.values}
	take := func(n *node) { h.chain(e, pos, n) }
	for _, t := range e.Topics {
		topic := h.reg.topic(t)
		scope := topic.up
		take(topic)
		take(scope)
		take(scope.up)
		scope.more.filters.each(t.Name, &x, take)
		scope.up.more.filters.each(t.Name, &x, take)
	}
	if s != nil {
		s.begin(h, pos)
		s.each(&x, take)
	}
	h.keep(x.list)
	slices.SortFunc(e.links, func(a, b link) int { return a.compare(b.node.id) })
	e.charge(int64(eventBytes + e.Size + topicBytes*len(e.Topics) + linkBytes*len(e.links)))
}

// keep keeps the room that values took for those of the next event, and no value.
func (h *Hub) keep(values []string) {
	clear(values)
	if h.values = values[:0]; cap(values) > keepValues {
		h.values = nil
	}
}

// chain makes the event at the head the last of the node's chain. An event
// whose topics lead to the same node twice is in its chain once. Its links are
// not sorted yet: nobody looks for them before append is done.
func (h *Hub) chain(e *Event, pos uint64, n *node) {
	if n.last == pos && n.kept > 0 {
		return
	}
	l := link{node: n}
	if n.kept > 0 {
		l.prev = n.last
		h.hist.at(n.last).link(n).next = pos
	} else {
		n.first = pos
	}
	e.links = append(e.links, l)
	n.last = pos
	n.kept++
	m := n.more
	if m == nil {
		return
	}
	m.changed = e.Index
	if len(m.legs) > 0 && m.batch != h.batch {
		m.batch = h.batch
		h.touched = append(h.touched, n)
	}
}

// trim drops the oldest events until the history costs no more than it may;
// all of one index together. The newest index always stays, however large.
func (h *Hub) trim() {
	limit := h.limits.Load().HistoryBytes
	s := &h.hist
	for h.bytes.Load() > limit && s.tail <= s.head && s.at(s.tail).Index != s.at(s.head).Index {
		index := s.at(s.tail).Index
		for s.at(s.tail).Index == index {
			h.drop()
		}
		h.floor = index
	}
}

// drop removes the oldest event from the history and from its chains.
func (h *Hub) drop() {
	s := &h.hist
	e := s.at(s.tail)
	for i := range e.links {
		l := &e.links[i]
		n := l.node
		n.first = l.next
		n.kept--
		if n.more != nil {
			n.more.lost = e.Index
		}
		h.reg.forget(n)
	}
	e.refund()
	e.Shared.end()
	e.links, e.few = nil, [3]link{}
	s.ring[s.tail&uint64(len(s.ring)-1)] = nil
	s.tail++
	h.count.dropped.Add(1)
}
