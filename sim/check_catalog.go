package sim

import (
	"bytes"
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// lapsesWithin is how long after its ttl and the leader's grace a check is critical
// that nobody passes, once all is well: a look at the clock, a commit on a disk that
// takes its time, and what was under way.
const lapsesWithin = 3 * time.Second

// recordID names a record of the catalog.
type recordID struct {
	table    catalog.Table
	node, id string // a session has no node
}

func (r recordID) compare(o recordID) int {
	return cmp.Or(strings.Compare(string(r.table), string(o.table)), strings.Compare(r.node, o.node), strings.Compare(r.id, o.id))
}

// catalogChecker knows what was in the catalog at every index: what the first member
// told that applied it, put together. What is shown anywhere, read or polled at any time
// must be one of these states, and the index of each name is that of the last change
// that concerns it.
type catalogChecker struct {
	w       *world
	records map[recordID]any
	past    map[recordID][]recordVersion
	marks   map[markID][]incumbent.Index // where what a name stands for changed
	calls   map[uint64]catalog.Command
	txns    map[uint64]bool
	since   map[recordID]time.Duration // when checks became critical
	last    incumbent.Index            // of the newest change of anything
}

// recordVersion is what became of a record at an index; nil: it went.
type recordVersion struct {
	at incumbent.Index
	is any
}

// markID is a name whose last change has an index: of a table, a node or a service.
type markID struct{ of, name string }

// The kinds of names.
const (
	tableMark   = "table"
	nodeMark    = "node"
	serviceMark = "service"
)

func newCatalogChecker(w *world) *catalogChecker {
	return &catalogChecker{
		w: w, records: map[recordID]any{}, past: map[recordID][]recordVersion{}, marks: map[markID][]incumbent.Index{},
		calls: map[uint64]catalog.Command{}, txns: map[uint64]bool{}, since: map[recordID]time.Duration{},
	}
}

func (c *catalogChecker) numbered(n uint64, cmd catalog.Command) { c.calls[n] = cmd }
func (c *catalogChecker) inTransaction(n uint64)                 { c.txns[n] = true }

// changed checks a change when the first member applies it: it goes from what was, says
// when it was, and somebody has asked for it, or a deadline is over (G15, G25).
func (c *catalogChecker) changed(x *core.Change) {
	if x.SessionBefore != nil && x.Session == nil {
		c.sessionEnded(x)
	}
	f := x.Family
	if f == nil || f.Family != catalog.Number || f.Before == nil && f.After == nil {
		return
	}
	id := recordOf(cmp.Or(f.After, f.Before))
	was := c.records[id]
	if !sameRecord(f.Before, was) {
		c.w.violate("the change of %v at index %d goes from %+v, there was %+v (G15)", id, x.Index, f.Before, was)
	}
	c.records[id] = f.After
	if f.After == nil {
		delete(c.records, id)
	} else if created, modified := dates(f.After); modified != x.Index || was == nil && created != x.Index || was != nil && created != createdAt(was) {
		c.w.violate("the change of %v at index %d leaves %+v (G15)", id, x.Index, f.After)
	}
	c.past[id] = append(c.past[id], recordVersion{x.Index, f.After})
	c.last = x.Index
	c.moved(x.Index, id, f)
	c.asked(x, id, f)
}

// moved notes what else is another because of a change: the node, the table, and the
// services whose instances show it.
func (c *catalogChecker) moved(at incumbent.Index, id recordID, f *core.FamilyChange) {
	node, names := id.node, []string(nil)
	for _, r := range []any{f.Before, f.After} {
		switch r := r.(type) {
		case *catalog.Node:
			names = c.namesOn(node)
		case *catalog.Service:
			names = append(names, r.Name)
		case *catalog.Check:
			if r.ServiceID == "" {
				names = append(names, c.namesOn(node)...)
			} else if s, is := c.records[recordID{catalog.Services, node, r.ServiceID}].(*catalog.Service); is {
				names = append(names, s.Name)
			}
		case *catalog.Session:
			node = r.Node
		}
	}
	ids := []markID{{tableMark, string(id.table)}, {nodeMark, node}}
	for _, name := range names {
		ids = append(ids, markID{serviceMark, name})
	}
	for _, m := range ids {
		c.marks[m] = append(c.marks[m], at)
	}
}

// namesOn are the names of the services on a node.
func (c *catalogChecker) namesOn(node string) (names []string) {
	for id, r := range c.records {
		if s, is := r.(*catalog.Service); is && id.node == node {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// asked checks that a change is what a call was to do, or the end of a deadline.
func (c *catalogChecker) asked(x *core.Change, id recordID, f *core.FamilyChange) {
	before, _ := f.Before.(*catalog.Check)
	after, _ := f.After.(*catalog.Check)
	c.noteCritical(id, before, after)
	n, called := markIn([]byte(x.Origin.Address))
	cmd, direct := c.calls[n]
	switch {
	case strings.HasPrefix(x.Origin.Address, passPrefix):
		if after == nil || before == nil || after.Status != catalog.Passing {
			c.w.violate("the pass of a check changes %v at index %d from %+v to %+v (G25)", id, x.Index, f.Before, f.After)
		}
		c.w.res.PassesLogged++
	case called && direct:
		if cmd.Target.Node != id.node && id.table != catalog.Sessions {
			c.w.violate("the call %+v changes %v at index %d (G25)", cmd, id, x.Index)
		}
	case called && c.txns[n], id.table == catalog.Sessions: // or the end of a session, in whatever way
	case before != nil && after != nil:
		c.lapsed(x, id, before, after)
	case f.After == nil:
		c.went(x, id)
	default:
		c.w.violate("nobody has asked for the change of %v at index %d (G25)", id, x.Index)
	}
}

func (c *catalogChecker) noteCritical(id recordID, before, after *catalog.Check) {
	switch {
	case after == nil || after.Status != catalog.Critical:
		if before == nil || after != nil {
			delete(c.since, id)
		}
	case before == nil || before.Status != catalog.Critical:
		c.since[id] = c.w.now
	}
}

// lapsed checks the end of a check's ttl: that it ends while its host may count on it
// is the worst that can happen (G4, G6, G7).
func (c *catalogChecker) lapsed(x *core.Change, id recordID, before, after *catalog.Check) {
	if before.Status == catalog.Critical || after.Status != catalog.Critical || before.TTL == 0 {
		c.w.violate("nobody has asked for the change of %v at index %d from %v to %v (G25)", id, x.Index, before.Status, after.Status)
	}
	c.w.res.Lapses++
	for _, h := range c.w.hosts {
		if h.node == id.node && h.check == id.id && h.counts() {
			c.w.violate("check %s of %s turns critical at index %d while its host counts on it for another %v (G4, G6, G7)", id.id, id.node, x.Index, h.until-h.a.clock())
		}
	}
}

// went checks that a service, with its checks, goes by itself only when one of these
// has been critical for as long as was said.
func (c *catalogChecker) went(x *core.Change, id recordID) {
	over := func(k *catalog.Check) bool {
		since, is := c.since[recordID{catalog.Checks, k.Node, k.ID}]
		return is && k.DeregisterAfter > 0 && c.w.now-since >= k.DeregisterAfter
	}
	for _, v := range c.past {
		n := len(v)
		k, is := v[n-1].is.(*catalog.Check)
		if !is && n > 1 && v[n-1].at == x.Index { // it went with the service
			k, is = v[n-2].is.(*catalog.Check)
		}
		if is && k.Node == id.node && over(k) {
			return
		}
	}
	c.w.violate("%v goes at index %d, and nothing was critical for long enough (G7)", id, x.Index)
}

// sessionEnded checks that a session that depends on a check lives as long as its host
// may count on that.
func (c *catalogChecker) sessionEnded(x *core.Change) {
	for _, h := range c.w.hosts {
		if h.bound && h.a.session == x.SessionBefore.ID && h.counts() {
			c.w.violate("the session of host %d ends at index %d while it counts on its check for another %v (G4)", h.number, x.Index, h.until-h.a.clock())
		}
	}
}

// applied checks the state that the first member has after a batch, at times in full.
func (c *catalogChecker) applied(p *process, v *core.View, full bool) {
	for id, r := range c.records {
		s, is := r.(*catalog.Session)
		if !is {
			continue
		}
		if c.records[recordID{catalog.Nodes, s.Node, ""}] == nil {
			c.w.violate("session %s lives on at index %d without its node (G8)", id.id, v.Index())
		}
		for _, check := range append(slices.Clone(s.NodeChecks), s.ServiceChecks...) {
			if k, _ := c.records[recordID{catalog.Checks, s.Node, check}].(*catalog.Check); k == nil || k.Status == catalog.Critical {
				c.w.violate("session %s lives on at index %d, its check %s is %+v (G8)", id.id, v.Index(), check, k)
			}
		}
		if v.Session(s.ID) == nil {
			c.w.violate("session %s is over at index %d and the catalog has it (G8)", id.id, v.Index())
		}
	}
	if full {
		c.shown(p, v)
	}
}

// at is what a record was at an index; nil: it was not there.
func (c *catalogChecker) at(id recordID, index incumbent.Index) any {
	past := c.past[id]
	i, _ := slices.BinarySearchFunc(past, index+1, func(v recordVersion, index incumbent.Index) int { return cmp.Compare(v.at, index) })
	if i == 0 {
		return nil
	}
	return past[i-1].is
}

// shown checks what a member shows, to whomever: the records that there were at its
// index, and for each name the index of its last change (G14, G15, G23, G28).
func (c *catalogChecker) shown(p *process, v *core.View) {
	view, n := catalog.Of(v), 0
	look := func(r any) {
		n++
		if id := recordOf(r); !sameRecord(r, c.at(id, v.Index())) {
			c.w.violate("member %d shows %v at index %d as %+v, there was %+v (G28)", p.m.at, id, v.Index(), r, c.at(id, v.Index()))
		}
	}
	view.Nodes(incumbent.DefaultNamespace, "", func(n *catalog.Node) bool { look(n); return true })
	view.AllInstances(incumbent.DefaultNamespace, func(i *catalog.Instance) bool { look(i.Service); return true })
	view.Checks(incumbent.DefaultNamespace, func(k *catalog.Check) bool { look(k); return true })
	view.Sessions(incumbent.DefaultNamespace, func(s *catalog.Session) bool { look(s); return true })
	for id := range c.past {
		if c.at(id, v.Index()) != nil {
			n--
		}
	}
	if n != 0 {
		c.w.violate("member %d shows %d records of the catalog too many at index %d (G28)", p.m.at, n, v.Index())
	}
	for m, past := range c.marks {
		i, _ := slices.BinarySearch(past, v.Index()+1)
		var want incumbent.Index
		if i > 0 {
			want = past[i-1]
		}
		if got := indexOf(view, m); got != want {
			c.w.violate("member %d has index %d for %v at index %d, it changed at %d (G14)", p.m.at, got, m, v.Index(), want)
		}
	}
	c.paired(p, v)
}

func indexOf(v *catalog.View, m markID) incumbent.Index {
	switch m.of {
	case tableMark:
		return v.TableIndex(incumbent.DefaultNamespace, catalog.Table(m.name))
	case nodeMark:
		return v.NodeIndex(incumbent.DefaultNamespace, m.name)
	}
	return v.ServiceIndex(incumbent.DefaultNamespace, m.name)
}

// paired checks that what transactions change together is there together (G15, G24).
func (c *catalogChecker) paired(p *process, v *core.View) {
	for _, h := range c.w.hosts {
		name := pairNode(h.number)
		s := catalog.Of(v).Service(incumbent.DefaultNamespace, name, pairService)
		e := kv.Of(v).Entry(kv.Key{Namespace: pairsOf, Name: name})
		if (s == nil) != (e == nil) || s != nil && s.Meta[0].Value != string(e.Value) {
			c.w.violate("member %d shows service %+v at index %d, and the key %+v (G24)", p.m.at, s, v.Index(), e)
		}
	}
}

// ended is called when all clients die: each check that nobody passes is critical soon,
// whatever was under way (G8).
func (c *catalogChecker) ended() {
	for _, h := range c.w.hosts {
		id := recordID{catalog.Checks, h.node, h.check}
		within := time.Duration(float64(h.ttl)*(1+2*drift)) + time.Second/2 + lapsesWithin
		c.w.after(within, func() {
			if k, _ := c.records[id].(*catalog.Check); k != nil && k.Status != catalog.Critical {
				c.w.violate("check %s of %s is %v, nobody has passed it for %v and its ttl is %v (G8)", k.ID, k.Node, k.Status, within, k.TTL)
			}
		})
	}
}

// atEnd: all clients have been dead for a while. No check that has a ttl is well, no
// service is there that was to go, and no session is left that depended on any (G8).
func (c *catalogChecker) atEnd(p *process) {
	v := p.group.View()
	c.shown(p, v)
	catalog.Of(v).Checks(incumbent.DefaultNamespace, func(k *catalog.Check) bool {
		if k.TTL > 0 && (k.Status != catalog.Critical || k.DeregisterAfter > 0) {
			c.w.violate("member %d has check %+v although all clients have been dead for %v (G8)", p.m.at, k, quiet)
		}
		return true
	})
	catalog.Of(v).Sessions(incumbent.DefaultNamespace, func(s *catalog.Session) bool {
		c.w.violate("member %d has session %+v although all clients have been dead for %v (G8)", p.m.at, s, quiet)
		return true
	})
}

// idsAt are the records that there were at an index, in order.
func (c *catalogChecker) idsAt(index incumbent.Index) []recordID {
	var ids []recordID
	for _, id := range slices.SortedFunc(maps.Keys(c.past), recordID.compare) {
		if c.at(id, index) != nil {
			ids = append(ids, id)
		}
	}
	return ids
}

func recordOf(r any) recordID {
	switch r := r.(type) {
	case *catalog.Node:
		return recordID{catalog.Nodes, r.Name, ""}
	case *catalog.Service:
		return recordID{catalog.Services, r.Node, r.ID}
	case *catalog.Check:
		return recordID{catalog.Checks, r.Node, r.ID}
	case *catalog.Session:
		return recordID{catalog.Sessions, "", r.ID.String()}
	}
	return recordID{}
}

// dates is when a record was made, and when it was as it is.
func dates(r any) (created, modified incumbent.Index) {
	switch r := r.(type) {
	case *catalog.Node:
		return r.Created, r.Modified
	case *catalog.Service:
		return r.Created, r.Modified
	case *catalog.Check:
		return r.Created, r.Modified
	case *catalog.Session:
		return r.Created, r.Modified
	}
	return 0, 0
}

func createdAt(r any) incumbent.Index {
	created, _ := dates(r)
	return created
}

func sameRecord(a, b any) bool {
	return a == b || reflect.DeepEqual(a, b)
}

// appendRecord appends what a change says of a record of the catalog.
func appendRecord(b []byte, r any) []byte {
	if r == nil {
		return append(b, 0)
	}
	id := recordOf(r)
	b = append(b, strings.Join([]string{string(id.table), id.node, id.id}, "\x00")...)
	created, modified := dates(r)
	b = appendUint(appendUint(b, uint64(created)), uint64(modified))
	if k, is := r.(*catalog.Check); is {
		b = append(append(b, byte(k.Status)), k.Output...)
		b = appendUint(b, uint64(k.Since))
		b = append(b, bytes.Join([][]byte{[]byte(k.ServiceName), k.Definition}, []byte{0})...)
	}
	return b
}
