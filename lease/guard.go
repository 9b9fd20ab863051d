package lease

import (
	"cmp"
	"slices"

	"github.com/incumbent-dev/incumbent"
)

// guard keeps the order of what one client wants of one lease: no answer from
// memory overtakes a command of the same client, and no command overtakes a
// claim that still waits to be answered from memory.
type guard struct {
	logged []*call          // commands on their way through the log
	reads  map[client]chain // claims that wait for a confirmation
}

// chain is the claims of one client, in their order.
type chain struct{ first, last *call }

func (l chain) has(sequence *Sequence) bool {
	for c := l.first; c != nil; c = c.next {
		if c.Sequence == sequence {
			return true
		}
	}
	return false
}

// maxGuarded is how many commands of one lease are compared. Beyond, any claim
// takes the way through the log: that is always right.
const maxGuarded = 64

// maxSpareGuards bounds the guards kept for the next lease.
const maxSpareGuards = 256

// has reports whether a command is under way that an answer from memory to the
// client, or to a call of the sequence, would overtake.
func (g *guard) has(c client, sequence *Sequence) bool {
	return g != nil && (len(g.logged) > maxGuarded ||
		slices.ContainsFunc(g.logged, func(o *call) bool { return o.client.sameAs(c) || sequence != nil && o.Sequence == sequence }))
}

func (g *guard) addRead(c *call) {
	l, ok := g.reads[c.client]
	if ok {
		l.last.next = c
	} else {
		l.first = c
	}
	l.last = c
	g.reads[c.client] = l
}

// dropRead takes out a claim that mostly stands in front.
func (g *guard) dropRead(c *call) {
	l := g.reads[c.client]
	next := c.next
	c.next = nil
	if l.first == c && next == nil {
		delete(g.reads, c.client)
		return
	}
	if l.first == c {
		l.first = next
	} else {
		before := l.first
		for before.next != c {
			before = before.next
		}
		if before.next = next; next == nil {
			l.last = before
		}
	}
	g.reads[c.client] = l
}

// takeReads takes out the claims that go before c: of all that may be the same
// client, and of its sequence.
func (g *guard) takeReads(c *call) []*call {
	if g == nil || len(g.reads) == 0 {
		return nil
	}
	var list []*call
	take := func(who client) {
		for x := g.reads[who].first; x != nil; x = x.next {
			list = append(list, x)
		}
		delete(g.reads, who)
	}
	take(c.client)
	if anybody := c.client == (client{}); anybody || c.Sequence != nil {
		for who, l := range g.reads {
			if anybody || l.has(c.Sequence) {
				take(who)
			}
		}
		slices.SortFunc(list, func(a, b *call) int { return cmp.Compare(a.order, b.order) })
	}
	for _, x := range list {
		x.next, x.read = nil, false
	}
	return list
}

func (e *Engine) guard(name incumbent.Name) *guard {
	g := e.names[name]
	if g != nil {
		return g
	}
	if n := len(e.freeGuards); n > 0 {
		g = e.freeGuards[n-1]
		e.freeGuards = e.freeGuards[:n-1]
	} else {
		g = &guard{reads: make(map[client]chain)}
	}
	e.names[name] = g
	return g
}

func (e *Engine) unguard(name incumbent.Name, g *guard) {
	if len(g.logged) > 0 || len(g.reads) > 0 {
		return
	}
	delete(e.names, name)
	if len(e.freeGuards) < maxSpareGuards && cap(g.logged) <= maxGuarded {
		e.freeGuards = append(e.freeGuards, g)
	}
}
