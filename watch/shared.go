package watch

import (
	"cmp"
	"slices"
)

// Shared are topics that many events may have, all of one Publish. What the topics cost, in
// bytes and in work, does not depend on how many events have them: of nodes there are only
// those of topics that somebody has listened to. Who then comes to listen to another, from
// before such an event, does so by a filter.
type Shared struct {
	Topics []Topic // in order; not to be changed

	kept int // events of the history that have them; under the hub's mu
	cost     // of the hub's bytes
	size int // bytes that keeping what the topics were made of costs
}

// NewShared returns such topics. size is what keeping the list that it is given costs
// besides, in bytes. It sorts the list, and keeps it.
func NewShared(topics []Topic, size int) *Shared {
	slices.SortFunc(topics, Topic.compare)
	return &Shared{Topics: topics, size: size}
}

func (t Topic) compare(o Topic) int {
	return cmp.Or(cmp.Compare(t.Kind, o.Kind), cmp.Compare(t.Scope[0], o.Scope[0]), cmp.Compare(t.Scope[1], o.Scope[1]), cmp.Compare(t.Name, o.Name))
}

// some reports whether a selector matches one of the topics; none if there are none.
func (s *Shared) some(sel *Selector) bool {
	if s == nil {
		return false
	}
	from := Topic{Kind: sel.topic.Kind}
	if sel.match != matchKind {
		from.Scope = sel.topic.Scope
	}
	from.Name, _ = sel.bounds()
	i, _ := slices.BinarySearchFunc(s.Topics, from, Topic.compare)
	return i < len(s.Topics) && sel.Matches(s.Topics[i])
}

// end says that an event that has them, if they are any, has left the history.
func (s *Shared) end() {
	if s == nil {
		return
	}
	if s.kept--; s.kept == 0 {
		s.refund()
	}
}

// spread is which nodes shared topics lead to, found once for all events of a publish.
type spread struct {
	of      *Shared
	scopes  []*node
	topics  []*node    // that somebody has listened to
	named   []*node    // filters by name, field or part of a scope or kind that have one of the topics, each once
	filters []*filters // of the scopes and their kinds
}

// spreads finds those of all shared topics of events.
func (h *Hub) spreads(events []*Event) map[*Shared]*spread {
	var all map[*Shared]*spread
	for _, e := range events {
		if e.Shared == nil || all[e.Shared] != nil {
			continue
		}
		if all == nil {
			all = map[*Shared]*spread{}
		}
		all[e.Shared] = h.reg.spread(e.Shared)
	}
	return all
}

func (r *registry) spread(of *Shared) *spread {
	s, known := &spread{of: of}, map[*node]struct{}{}
	take := func(n *node) {
		if _, is := known[n]; !is {
			known[n] = struct{}{}
			s.named = append(s.named, n)
		}
	}
	var scope *node
	for i, t := range of.Topics {
		if i == 0 || t.Kind != of.Topics[i-1].Kind || t.Scope != of.Topics[i-1].Scope {
			scope = r.scope(t.Kind, t.Scope)
			s.scopes = append(s.scopes, scope)
			for _, f := range [...]*filters{scope.more.filters, scope.up.more.filters} {
				if f != nil && !slices.Contains(s.filters, f) {
					s.filters = append(s.filters, f)
				}
			}
		}
		if n := scope.more.topics[t.Name]; n != nil && n.more != nil {
			s.topics = append(s.topics, n)
		}
		for _, f := range [...]*filters{scope.more.filters, scope.up.more.filters} {
			if f != nil {
				f.names.each(t.Name, take)
			}
		}
	}
	return s
}

// size is how many nodes it leads to, but for filters; 0 if there is none.
func (s *spread) size() int {
	if s == nil {
		return 0
	}
	return 2*len(s.scopes) + len(s.topics)
}

// begin says that the event at a position, the head, has the topics.
func (s *spread) begin(h *Hub, pos uint64) {
	if s.of.kept++; s.of.sum == nil {
		s.of.sum = &h.bytes
		s.of.charge(int64(s.of.size + sharedBytes*len(s.of.Topics)))
	}
	for _, n := range s.scopes {
		n.more.shared = pos
	}
}

// each calls f with the nodes that an event with the topics matches for one of them, some
// of them perhaps twice.
func (s *spread) each(x *difference, f func(*node)) {
	for _, n := range s.scopes {
		f(n)
		f(n.up)
	}
	for _, n := range s.topics {
		f(n)
	}
	for _, n := range s.named {
		if x.changing(&n.more.sel) {
			f(n)
		}
	}
	for _, list := range s.filters {
		list.byValue(x, func(n *node) {
			if s.of.some(&n.more.sel) && x.changing(&n.more.sel) {
				f(n)
			}
		})
	}
}

// complete returns a selector that picks what another does, and whose node has, or adopts,
// all such events after a position.
func (r *registry) complete(s Selector, seen uint64) Selector {
	if s.match != matchExact || s.conditional() {
		return s
	}
	if k := r.kinds[s.topic.Kind]; k != nil {
		if scope := k.more.scopes[s.topic.Scope]; scope != nil && scope.more.shared > seen {
			from, to := s.bounds()
			return Range(s.topic.Kind, s.topic.Scope, from, to)
		}
	}
	return s
}
