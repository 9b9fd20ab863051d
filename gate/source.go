package gate

import (
	"iter"
	"net"
	"net/netip"
	"slices"
)

// The lists a connection is in at a time: that of its source, by age, and that of
// its stage.
const (
	ofSource = iota
	ofStage
	numLists
)

type link struct{ next, prev *Conn }

// list is connections in the order in which they were added.
type list struct {
	first, last *Conn
	n           int
	which       int
}

func (l *list) add(c *Conn) {
	c.links[l.which] = link{prev: l.last}
	if l.last != nil {
		l.last.links[l.which].next = c
	} else {
		l.first = c
	}
	l.last = c
	l.n++
}

func (l *list) remove(c *Conn) {
	at := &c.links[l.which]
	if at.prev != nil {
		at.prev.links[l.which].next = at.next
	} else {
		l.first = at.next
	}
	if at.next != nil {
		at.next.links[l.which].prev = at.prev
	} else {
		l.last = at.prev
	}
	*at = link{}
	l.n--
}

// source is an address with connections that are not proven.
type source struct {
	address netip.Addr
	all     list // not proven, oldest first
	waiting list
	served  int

	next, prev     *source // in the rank
	behind, before *source // in the turns, while somebody waits
}

// oldestServed is who of a source came first of those that are served; nil: nobody is.
func (s *source) oldestServed() *Conn {
	c := s.all.first
	for c != nil && c.stage != served {
		c = c.links[ofSource].next
	}
	return c
}

// turns is sources in the order in which they are looked at, as a ring: whoever had its
// turn becomes the last, and those that were passed over stay before it, without anything
// being moved.
type turns struct {
	last *source // the first is behind it; nil: there are none
	n    int
}

// add puts a source behind the last.
func (t *turns) add(s *source) {
	if t.last == nil {
		s.behind, s.before = s, s
	} else {
		s.behind, s.before = t.last.behind, t.last
		s.before.behind, s.behind.before = s, s
	}
	t.last = s
	t.n++
}

// cut takes a source out.
func (t *turns) cut(s *source) {
	s.before.behind, s.behind.before = s.behind, s.before
	if t.last == s {
		t.last = s.before
	}
	if t.n--; t.n == 0 {
		t.last = nil
	}
	s.behind, s.before = nil, nil
}

// all is the sources in their order. The one that was got last may be cut meanwhile.
func (t *turns) all() iter.Seq[*source] {
	return func(yield func(*source) bool) {
		if t.n == 0 {
			return
		}
		s := t.last.behind
		for range t.n {
			behind := s.behind
			if !yield(s) {
				return
			}
			s = behind
		}
	}
}

// rank is the sources that have equally many connections, in the order in which
// they came to have so many.
type rank struct{ first, last *source }

func (r *rank) add(s *source) {
	s.prev, s.next = r.last, nil
	if r.last != nil {
		r.last.next = s
	} else {
		r.first = s
	}
	r.last = s
}

func (r *rank) remove(s *source) {
	if s.prev != nil {
		s.prev.next = s.next
	} else {
		r.first = s.next
	}
	if s.next != nil {
		s.next.prev = s.prev
	} else {
		r.last = s.prev
	}
	s.prev, s.next = nil, nil
}

// enter counts a new connection, silent, by where it comes from.
func (g *Gate) enter(c *Conn, from netip.Addr) {
	c.stage, c.since = silent, g.now
	g.silent.add(c)
	g.own(c, from)
}

// own counts a connection by its address.
func (g *Gate) own(c *Conn, from netip.Addr) {
	s := g.sources[from]
	if s == nil {
		s = &source{address: from, waiting: list{which: ofStage}}
		g.sources[from] = s
	}
	c.source = s
	s.all.add(c)
	g.ranked(s, s.all.n-1)
}

// disown is the inverse of own.
func (g *Gate) disown(c *Conn) {
	s := c.source
	s.all.remove(c)
	g.ranked(s, s.all.n+1)
	if s.all.n == 0 {
		delete(g.sources, s.address)
	}
}

// ranked moves a source from the rank it had. Ranks above the highest that is taken
// are cut off, so that the last one is it.
func (g *Gate) ranked(s *source, had int) {
	if had > 0 {
		g.ranks[had].remove(s)
	}
	n := s.all.n
	if n >= len(g.ranks) {
		g.ranks = slices.Grow(g.ranks, n+1-len(g.ranks))[:n+1]
	}
	if n > 0 {
		g.ranks[n].add(s)
	}
	for len(g.ranks) > 1 && g.ranks[len(g.ranks)-1].first == nil {
		g.ranks = g.ranks[:len(g.ranks)-1]
	}
}

// subnetBits are what one customer of a provider has of an IPv6 address: who has
// one address of it has all.
const subnetBits = 64

// addressOf is by what a connection is counted; the zero Addr for a unix socket.
func addressOf(a net.Addr) netip.Addr {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return counted(tcp.AddrPort().Addr())
}

func counted(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if !a.Is6() || a.IsLoopback() {
		return a
	}
	p, err := a.Prefix(subnetBits)
	if err != nil {
		return a
	}
	return p.Addr()
}

func within(list []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(list, func(p netip.Prefix) bool { return p.Contains(a) })
}
