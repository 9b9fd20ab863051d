package player

import (
	"fmt"
	"math"
	"slices"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// The changes that a lease's own history leaves out.
var notInHistory = []string{"extended", "queued", "dequeued", "present"}

// sawLease has a lease that was read at an index compared with what the watch told.
func (c *call) sawLease(l *pb.Lease, index uint64, full bool) {
	c.later(func(w window) string {
		p := placeOf(l.Name)
		now, ok := w.at(p, index)
		if !ok {
			return ""
		}
		if diff := differ(now, l); diff != "" {
			return fmt.Sprintf("read of %v at index %d: %s\nread: %v\ntold: %v", p, index, diff, l, now)
		}
		if full {
			return w.history(p, l, index)
		}
		return ""
	})
}

// differ says in what two views of one lease at one index differ.
func differ(told, read *pb.Lease) string {
	switch {
	case told.ModifiedIndex != read.ModifiedIndex:
		return "another change was the last"
	case told.Token != read.Token || told.Holder != read.Holder || told.Session != read.Session:
		return "another holds it"
	case told.Offered != read.Offered || told.Revoking != read.Revoking || told.Critical != read.Critical:
		return "it stands otherwise"
	case told.LastToken != read.LastToken || told.PreviousHolder != read.PreviousHolder || told.Reason != read.Reason:
		return "it came about otherwise"
	case !slices.Equal(told.Pins, read.Pins):
		return "it has other pins"
	}
	return ""
}

// history compares a lease's own history, which explain shows, with the last
// changes that the watch told of.
func (w window) history(p place, l *pb.Lease, index uint64) string {
	t := w.lines[p.scope]
	told := slices.DeleteFunc(t.between(p.name, 0, index), func(m moment) bool { return slices.Contains(notInHistory, m.what) })
	n := min(len(told), len(l.History))
	told, own := told[len(told)-n:], l.History[len(l.History)-n:]
	for i := range n {
		if told[i].index != own[i].Index || told[i].what != own[i].What {
			return fmt.Sprintf("history of %v: %s at %d, the watch told of %s at %d", p, own[i].What, own[i].Index, told[i].what, told[i].index)
		}
	}
	seen := map[string]bool{}
	for i, q := range l.Queue {
		if place := q.Session + "\x00" + q.Holder; seen[place] || q.Session == "" || q.Holder == "" || i > 0 && q.SinceIndex <= l.Queue[i-1].SinceIndex {
			return fmt.Sprintf("queue of %v: place %d is %v after %v", p, i+1, q, l.Queue[max(0, i-1)])
		}
		seen[q.Session+"\x00"+q.Holder] = true
	}
	return ""
}

// sawNothing has it checked that a lease could be unknown.
func (c *call) sawNothing(p place) {
	c.truly(fmt.Sprintf("read of %v: not found", p), p, func(l *pb.Lease) bool { return l.ModifiedIndex == 0 })
}

// page is a page of what a session owns: everything behind one name, up to another.
type page struct {
	after, next *pb.LeaseName // nil: from the beginning; to the end
	held        uint32        // leases of all pages
	leases      []*pb.Lease
	index       uint64
}

// has reports whether a lease belongs on the page.
func (g *page) has(p place) bool {
	return (g.after == nil || p.compare(verbatim(g.after)) > 0) && (g.next == nil || p.compare(verbatim(g.next)) <= 0)
}

// verbatim is a name as it stands: an empty namespace is before all others.
func verbatim(n *pb.LeaseName) place { return place{scope{n.Namespace, n.Model}, n.Name} }

func (p place) compare(o place) int {
	return slices.Compare([]string{p.namespace, p.model, p.name}, []string{o.namespace, o.model, o.name})
}

// sawSession has what a session owns compared.
func (c *call) sawSession(id string, g *page) {
	c.later(func(w window) string {
		owned, ok := w.owned(id, g.index)
		if !ok {
			return ""
		}
		if len(owned) != int(g.held) {
			return fmt.Sprintf("session %s at index %d holds %d leases, the watch says %d", id, g.index, g.held, len(owned))
		}
		for _, l := range g.leases {
			p := placeOf(l.Name)
			if told := owned[p]; told.GetToken() != l.Token || !g.has(p) {
				return fmt.Sprintf("session %s at index %d has %v under token %d on the page from %v to %v, the watch told of %d", id, g.index, p, l.Token, g.after, g.next, told.GetToken())
			}
			delete(owned, p)
		}
		for p, l := range owned {
			if g.has(p) {
				return fmt.Sprintf("session %s at index %d lacks %v, which it holds under token %d, on the page from %v to %v", id, g.index, p, l.Token, g.after, g.next)
			}
		}
		return ""
	})
}

// sawEvents has what a short watch told compared with the long one: exactly what
// happened behind one index, up to another.
func (c *call) sawEvents(s scope, after, upTo uint64, events []*pb.LeaseEvent) {
	c.later(func(w window) string {
		t := w.lines[s]
		if _, _, ok := t.at("", after); !ok {
			return ""
		}
		type change struct {
			index uint64
			name  string
			what  string
			token uint64
		}
		var told, read []change
		for _, name := range t.names() {
			for _, m := range t.between(name, after, upTo) {
				told = append(told, change{m.index, name, m.what, m.lease.Token})
			}
		}
		for i, e := range events {
			if i > 0 && e.Index < events[i-1].Index {
				return fmt.Sprintf("watch of %v after %d: index %d after %d", s, after, e.Index, events[i-1].Index)
			}
			read = append(read, change{e.Index, e.Lease.GetName().GetName(), e.What, e.Lease.GetToken()})
		}
		byNameWithinIndex := func(a, b change) int {
			if a.index != b.index {
				return int(min(max(int64(a.index)-int64(b.index), math.MinInt32), math.MaxInt32))
			}
			return slices.Compare([]string{a.name}, []string{b.name})
		}
		slices.SortStableFunc(told, byNameWithinIndex)
		slices.SortStableFunc(read, byNameWithinIndex)
		if !slices.Equal(told, read) {
			return fmt.Sprintf("watch of %v after %d up to %d told of %v, another of %v", s, after, upTo, read, told)
		}
		return ""
	})
}
