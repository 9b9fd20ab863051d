package watch

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
)

// node is a selector that is in use: by a leg that listens, or by an event of
// the history, whose matching events it chains. All under the hub's mu.
type node struct {
	key         Selector
	id          uint64          // no other node of the hub has or had it
	first, last uint64          // chain of matching events; last stays when they are dropped
	lost        incumbent.Index // of the last matching event that was dropped
	kept        int             // events in the chain
	legs        []*leg          // who listens
	batch       uint64          // the publish that last listed it

	up       *node    // the group of a topic or prefix, the kind of a group
	below    int      // nodes whose up this is
	prefixes prefixes // of a group: the prefixes in use within it
	edge     uint64   // of a prefix: events of the group up to here are not yet in the chain

	drain drain // under the job queue's mutex or owned by the worker that drains
}

// registry finds the nodes. A node of a topic, group or kind exists as long as
// anyone listens, an event of the history matches, or a node below it exists,
// so that its chain is always complete. One of a prefix exists as long as
// anyone listens.
type registry struct {
	nodes map[Selector]*node
	made  uint64 // nodes so far, each has its number
}

func (r *registry) init() { r.nodes = map[Selector]*node{} }

// node returns the node of a selector, which it makes if need be. A new prefix
// node begins with an empty chain and its edge at the group's end.
func (r *registry) node(s Selector) *node {
	if n := r.nodes[s]; n != nil {
		return n
	}
	r.made++
	n := &node{key: s, id: r.made}
	r.nodes[s] = n
	switch s.match {
	case matchKind:
		return n
	case matchScope:
		n.up = r.node(All(s.topic.Kind))
	case matchPrefix:
		n.up = r.node(Scope(s.topic.Kind, s.topic.Scope))
		n.up.prefixes.add(n)
		if n.up.kept > 0 {
			n.edge = n.up.last
		}
	default:
		n.up = r.node(Scope(s.topic.Kind, s.topic.Scope))
	}
	n.up.below++
	return n
}

// forget removes the node if nothing needs it any more.
func (r *registry) forget(n *node) {
	if len(n.legs) > 0 || n.below > 0 {
		return
	}
	if n.key.match == matchPrefix {
		if r.nodes[n.key] != n {
			return // forgotten before, and being unchained
		}
		n.up.prefixes.remove(n)
	} else if n.kept > 0 {
		return
	}
	delete(r.nodes, n.key)
	if n.up != nil {
		n.up.below--
		r.forget(n.up)
	}
}

// listening returns the nodes that somebody listens to.
func (r *registry) listening() []*node {
	var nodes []*node
	for _, n := range r.nodes {
		if len(n.legs) > 0 {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// prefixes are the prefix nodes of a group, found by the lengths in use: a
// name of n bytes costs one look-up for each length up to n.
type prefixes struct {
	byName  map[string]*node
	lengths []int       // sorted
	count   map[int]int // prefixes of each length
}

func (p *prefixes) add(n *node) {
	if p.byName == nil {
		p.byName, p.count = map[string]*node{}, map[int]int{}
	}
	name := n.key.topic.Name
	p.byName[name] = n
	if p.count[len(name)]++; p.count[len(name)] == 1 {
		i, _ := slices.BinarySearch(p.lengths, len(name))
		p.lengths = slices.Insert(p.lengths, i, len(name))
	}
}

func (p *prefixes) remove(n *node) {
	name := n.key.topic.Name
	delete(p.byName, name)
	if p.count[len(name)]--; p.count[len(name)] == 0 {
		delete(p.count, len(name))
		i, _ := slices.BinarySearch(p.lengths, len(name))
		p.lengths = slices.Delete(p.lengths, i, i+1)
	}
}

func (p *prefixes) each(name string, f func(*node)) {
	for _, l := range p.lengths {
		if l > len(name) {
			return
		}
		if n := p.byName[name[:l]]; n != nil {
			f(n)
		}
	}
}

// adopt brings events of the group after position seen into the chain of a
// prefix node, newest first, at most walkSlice of them. It reports whether the
// chain is complete down to seen. Only a reader that resumes before the first
// reader of its prefix came needs it.
func (h *Hub) adopt(n *node, seen uint64) bool {
	if n.key.match != matchPrefix {
		return true
	}
	for range walkSlice {
		if n.edge <= seen || n.edge < h.hist.tail {
			return true
		}
		pos := n.edge
		e := h.hist.at(pos)
		n.edge = e.link(n.up).prev
		if n.key.Picks(e) {
			h.prepend(e, pos, n)
		}
	}
	return false
}

// prepend makes the event the first of the node's chain.
func (h *Hub) prepend(e *Event, pos uint64, n *node) {
	l := link{node: n}
	if n.kept > 0 {
		l.next = n.first
		h.hist.at(n.first).link(n).prev = pos
	} else {
		n.last = max(n.last, pos)
	}
	i, _ := e.findLink(n)
	e.links = slices.Insert(e.links, i, l)
	e.charge(linkBytes)
	n.first = pos
	n.kept++
}

// unchain takes up to walkSlice events out of the chain of a prefix node that
// nobody listens to any more, and reports whether none is left. Without it,
// prefixes that come and go would leave their links behind.
func (h *Hub) unchain(n *node) bool {
	for range walkSlice {
		if n.kept == 0 {
			return true
		}
		e := h.hist.at(n.first)
		i, _ := e.findLink(n)
		next := e.links[i].next
		e.links = slices.Delete(e.links, i, i+1)
		e.charge(-linkBytes)
		n.first = next
		n.kept--
	}
	return n.kept == 0
}
