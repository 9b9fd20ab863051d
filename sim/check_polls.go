package sim

import (
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/watch"
)

// pollsWithin is how long before the end of a run a change is that all pollers have
// heard of by then.
const pollsWithin = pollsFor + 2*pollsAgain

// pollChecker checks what blocking questions are answered.
type pollChecker struct {
	w     *world
	until incumbent.Index // what was there so long before the end of the run
}

// says is the answer to a question at an index, from what the log has told.
func (c *pollChecker) says(q question, index incumbent.Index) string {
	cat := c.w.check.catalog
	ids := cat.idsAt(index)
	var b strings.Builder
	each := func(picks func(id recordID, r any) bool) {
		for _, id := range ids {
			if r := cat.at(id, index); picks(id, r) {
				say(&b, r)
			}
		}
	}
	switch q.what {
	case ofService:
		for _, id := range ids {
			s, is := cat.at(id, index).(*catalog.Service)
			if !is || s.Name != q.name {
				continue
			}
			say(&b, cat.at(recordID{catalog.Nodes, s.Node, ""}, index))
			say(&b, s)
			for _, of := range []string{"", s.ID} {
				each(func(_ recordID, r any) bool {
					k, is := r.(*catalog.Check)
					return is && k.Node == s.Node && k.ServiceID == of
				})
			}
		}
	case ofNode:
		for _, table := range []catalog.Table{catalog.Nodes, catalog.Services, catalog.Checks, catalog.Sessions} {
			each(func(id recordID, r any) bool {
				s, is := r.(*catalog.Session)
				return id.table == table && (id.node == q.name || is && s.Node == q.name)
			})
		}
	case ofServices:
		var list []*catalog.Service
		for _, id := range ids {
			if s, is := cat.at(id, index).(*catalog.Service); is {
				list = append(list, s)
			}
		}
		slices.SortStableFunc(list, func(a, b *catalog.Service) int { return strings.Compare(a.Name, b.Name) })
		for _, s := range list {
			say(&b, s)
		}
	default:
		each(func(id recordID, _ any) bool { return string(id.table) == q.what })
	}
	return b.String()
}

// answered checks an answer at the moment a member gives it: it is what there was at the
// index at which it is said to be right (G15), and that is no older than what anybody was told
// before the question arrived, unless it may be (G22, G23).
func (c *pollChecker) answered(at *process, p *poll, t *watch.Told) {
	if want := c.says(p.question, t.Read); t.Answer.Value != want {
		c.w.violate("member %d answers %v at index %d with\n%s, there was\n%s (G15)", at.m.at, p.question, t.Read, t.Answer.Value, want)
	}
	if !p.stale && t.Read < p.bound {
		c.w.violate("member %d answers %v from index %d, %d had been acknowledged before (G22)", at.m.at, p.question, t.Read, p.bound)
	}
	if !p.stale {
		c.w.check.acked = max(c.w.check.acked, t.Read)
	}
}

// heard checks an answer against the one before. The index does not go back, save where
// who asks has said that an older state will do; it goes on exactly if the answer is
// another (G14, G16); and nobody is woken for whom nothing has changed (G19).
func (c *pollChecker) heard(k *poller, at *process, p *poll, index incumbent.Index, t *watch.Told, early bool) {
	if !k.known {
		return
	}
	same := t.Answer.Value == k.said
	switch {
	case !p.stale && index < k.index:
		c.w.violate("member %d answers %v with index %d after %d (G14)", at.m.at, p.question, index, k.index)
	case t.Read >= k.read && !same && index <= k.index && p.want.After != 0:
		c.w.violate("member %d answers %v with another list and index %d after %d (G16)", at.m.at, p.question, index, k.index)
	case early && same && p.want.After != 0 && p.want.After == k.index && !c.moved(p.question, k.index, t.Read):
		c.w.violate("member %d wakes who asks for %v after index %d with the list it knows, and index %d (G19)", at.m.at, p.question, p.want.After, index)
	case early && t.Answer.Hash == p.want.Not:
		c.w.violate("member %d wakes who asks for %v with the hash it knows (G19)", at.m.at, p.question)
	case early:
		c.w.res.Woken++
	}
}

// moved reports whether anything that concerns a question changed after one index and up
// to another. What came and went again does.
func (c *pollChecker) moved(q question, from, to incumbent.Index) bool {
	id := markID{tableMark, q.what}
	if q.name != "" {
		id = markID{q.what, q.name}
	}
	past := c.w.check.catalog.marks[id]
	i, _ := slices.BinarySearch(past, from+1)
	return i < len(past) && past[i] <= to
}

// ending takes note of what there is shortly before the end.
func (c *pollChecker) ending() {
	c.w.after(quiet-pollsWithin, func() { c.until = c.w.check.index })
}

// atEnd checks that whoever polls has what there was, and missed nothing (G16).
func (c *pollChecker) atEnd() {
	for _, k := range c.w.pollers {
		if k.known && k.read < c.until && k.said != c.says(k.question, c.until) {
			c.w.violate("poller %d knows %v as of index %d, it changed before index %d, %v ago (G16)", k.a.id, k.question, k.read, c.until, pollsWithin)
		}
	}
}
