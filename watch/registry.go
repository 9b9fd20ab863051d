package watch

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
)

// node is a selector that is in use: by a leg that listens, or by an event of
// the history, whose matching events it chains. All under the hub's mu.
//
// There is one for each topic in the history, so it is small: what only some have
// is in more.
type node struct {
	id          uint64 // no other node of the hub has or had it
	first, last uint64 // chain of matching events; last stays when they are dropped
	kept        int32  // events in the chain
	below       int32  // nodes whose up this is
	name        string // of a topic
	up          *node  // the scope of a topic, the kind of a scope, either of a filter
	more        *more  // nil: a topic that nobody has listened to
}

// more is what a node has that somebody has listened to, or that has others below it.
type more struct {
	sel     Selector
	legs    []*leg          // who listens
	batch   uint64          // the publish that last listed it
	changed incumbent.Index // of the last matching event, or a later one
	lost    incumbent.Index // of the last matching event that was dropped
	edge    uint64          // of a filter: events of up to here are not yet in the chain
	shared  uint64          // of a scope: the last event that shares a topic of it; 0: none has
	drain   drain           // under the job queue's mutex or owned by the worker that drains

	scopes  map[[2]string]*node // of a kind
	topics  map[string]*node    // of a scope
	filters *filters            // of a kind or scope; nil: it has had none
}

// filter reports whether the node picks some of what its kind or scope has: by name,
// field or value.
func (n *node) filter() bool {
	return n.more != nil && (n.more.sel.match == matchRange || n.more.sel.conditional())
}

// listened reports whether anybody listens.
func (n *node) listened() bool { return n.more != nil && len(n.more.legs) > 0 }

// registry finds the nodes. A node of a topic, scope or kind exists as long as
// anyone listens, an event of the history matches, or a node below it exists,
// so that its chain is always complete: that of a topic but for events that share it,
// of which it has those since somebody first listened. A filter exists as long as anyone
// listens.
type registry struct {
	kinds   map[Kind]*node
	filters map[Selector]*node
	made    uint64 // nodes so far, each has its number
	count   int    // nodes there are
	spare   []*node
}

// maxSpare is how many nodes of forgotten topics are kept for the next ones: where many
// keys are written that nobody watches, as many come with a batch as go with it.
const maxSpare = 4096

func (r *registry) init() { r.kinds, r.filters = map[Kind]*node{}, map[Selector]*node{} }

func (r *registry) add(up *node) *node {
	r.made++
	r.count++
	if up != nil {
		up.below++
	}
	n := r.unused()
	*n = node{id: r.made, up: up}
	return n
}

func (r *registry) unused() *node {
	last := len(r.spare) - 1
	if last < 0 {
		return new(node)
	}
	n := r.spare[last]
	r.spare[last], r.spare = nil, r.spare[:last]
	return n
}

func (r *registry) kind(k Kind) *node {
	n := r.kinds[k]
	if n == nil {
		n = r.add(nil)
		n.more = &more{sel: All(k), scopes: map[[2]string]*node{}}
		r.kinds[k] = n
	}
	return n
}

func (r *registry) scope(k Kind, scope [2]string) *node {
	up := r.kind(k)
	n := up.more.scopes[scope]
	if n == nil {
		n = r.add(up)
		n.more = &more{sel: Scope(k, scope), topics: map[string]*node{}}
		up.more.scopes[scope] = n
	}
	return n
}

func (r *registry) topic(t Topic) *node {
	up := r.scope(t.Kind, t.Scope)
	n := up.more.topics[t.Name]
	if n == nil {
		n = r.add(up)
		n.name = t.Name
		up.more.topics[t.Name] = n
	}
	return n
}

// node returns the node of a selector, which it makes if need be, for somebody to
// listen to.
func (r *registry) node(s Selector) *node {
	switch {
	case s.conditional() || s.match == matchRange:
		return r.filter(s)
	case s.match == matchKind:
		return r.kind(s.topic.Kind)
	case s.match == matchScope:
		return r.scope(s.topic.Kind, s.topic.Scope)
	}
	n := r.topic(s.topic)
	if n.more == nil {
		n.more = &more{sel: s}
		if n.kept > 0 || n.up.more.shared > 0 {
			n.more.changed = n.up.more.changed
		}
	}
	return n
}

// filter returns the node of a filter. A new one begins with an empty chain and its
// edge at the end of the node above.
func (r *registry) filter(s Selector) *node {
	if n := r.filters[s]; n != nil {
		return n
	}
	up := r.kind(s.topic.Kind)
	if s.match != matchKind {
		up = r.scope(s.topic.Kind, s.topic.Scope)
	}
	n := r.add(up)
	n.more = &more{sel: s, changed: up.more.changed}
	if up.kept > 0 {
		n.more.edge = up.last
	}
	r.filters[s] = n
	if up.more.filters == nil {
		up.more.filters = &filters{values: map[fieldValue][]*node{}}
	}
	up.more.filters.add(n)
	return n
}

// forget removes the node if nothing needs it any more.
func (r *registry) forget(n *node) {
	if n.listened() || n.below > 0 {
		return
	}
	switch {
	case n.filter():
		if r.filters[n.more.sel] != n {
			return // forgotten before, and being unchained
		}
		delete(r.filters, n.more.sel)
		n.up.more.filters.remove(n)
	case n.kept > 0:
		return
	case n.up == nil:
		delete(r.kinds, n.more.sel.topic.Kind)
	case n.up.up == nil:
		delete(n.up.more.scopes, n.more.sel.topic.Scope)
	default:
		delete(n.up.more.topics, n.name)
	}
	r.count--
	up := n.up
	if n.more == nil && len(r.spare) < maxSpare { // nobody has listened to it: nobody else has it
		*n = node{}
		r.spare = append(r.spare, n)
	}
	if up != nil {
		up.below--
		r.forget(up)
	}
}

// each calls f with all nodes.
func (r *registry) each(f func(*node)) {
	for _, k := range r.kinds {
		f(k)
		for _, s := range k.more.scopes {
			f(s)
			for _, t := range s.more.topics {
				f(t)
			}
		}
	}
	for _, n := range r.filters {
		f(n)
	}
}

// listening returns the nodes that somebody listens to.
func (r *registry) listening() []*node {
	var nodes []*node
	r.each(func(n *node) {
		if n.listened() {
			nodes = append(nodes, n)
		}
	})
	return nodes
}

// filters are those of one kind or scope. Who selects by value is found by the value,
// the others by the name.
type filters struct {
	names  intervals
	values map[fieldValue][]*node
	fields [MaxField + 1]int32 // filters by value of each field
	valued int                 // filters by value of all fields
}

type fieldValue struct {
	field Field
	value string
}

func (s *filters) add(n *node) {
	if !n.more.sel.where {
		s.names.add(n)
		return
	}
	v := fieldValue{n.more.sel.field, n.more.sel.value}
	s.values[v] = append(s.values[v], n)
	s.fields[v.field]++
	s.valued++
}

func (s *filters) remove(n *node) {
	if !n.more.sel.where {
		s.names.remove(n)
		return
	}
	v := fieldValue{n.more.sel.field, n.more.sel.value}
	i := slices.Index(s.values[v], n)
	if s.values[v] = slices.Delete(s.values[v], i, i+1); len(s.values[v]) == 0 {
		delete(s.values, v)
	}
	s.fields[v.field]--
	s.valued--
}

// each calls f with the filters that pick an event about a name, some of them perhaps
// twice.
func (s *filters) each(name string, x *difference, f func(*node)) {
	if s == nil {
		return
	}
	s.names.each(name, func(n *node) {
		if x.changing(&n.more.sel) {
			f(n)
		}
	})
	s.byValue(x, func(n *node) {
		if n.more.sel.has(name) && x.changing(&n.more.sel) {
			f(n)
		}
	})
}

// byValue calls f with the filters by a value that a field of an event was or is, whatever
// topics they pick.
func (s *filters) byValue(x *difference, f func(*node)) {
	if s.valued == 0 {
		return
	}
	for field, used := range s.fields {
		if used == 0 {
			continue
		}
		for _, v := range x.values(Field(field)) {
			for _, n := range s.values[fieldValue{Field(field), v}] {
				f(n)
			}
		}
	}
}

// adopt brings events of the node above after position seen into the chain of a
// filter, newest first, at most walkSlice of them and about walkBytes. It reports
// whether the chain is complete down to seen. Only a reader that resumes before the
// first reader of its filter came needs it.
func (h *Hub) adopt(n *node, seen uint64) bool {
	if !n.filter() {
		return true
	}
	for events, bytes := 0, 0; events < walkSlice && bytes < walkBytes; events++ {
		if n.more.edge <= seen || n.more.edge < h.hist.tail {
			return true
		}
		pos := n.more.edge
		e := h.hist.at(pos)
		bytes += e.Size
		n.more.edge = e.link(n.up).prev
		if n.more.sel.Picks(h.differences, e) {
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

// unchain takes up to walkSlice events out of the chain of a filter that
// nobody listens to any more, and reports whether none is left. Without it,
// filters that come and go would leave their links behind.
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
