package ovsdb

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/tally"
)

// monitor is one of a client's. What is not of its feed never changes.
type monitor struct {
	conn    *conn
	feed    *feed
	version version

	name  string      // its id as compact JSON; of its session
	place tally.Place // among what its principal has open; of its session

	// Of the feed.
	id    string // the same, as of what the feed has done
	begun bool   // it has been answered
	later func() // what was asked for before; nil: nothing
	head  []byte // what goes before the body of an update
	group *group // nil: it is not told of anything
	over  bool
	kept  int64 // bytes that its conditions cost
}

func monitorRequest(c *conn, r *request)      { c.monitor(r, plain, 3) }
func monitorCondRequest(c *conn, r *request)  { c.monitor(r, cond, 3) }
func monitorSinceRequest(c *conn, r *request) { c.monitor(r, since, 4) }

func (c *conn) monitor(r *request, v version, params int) {
	db, ok := r.text(0)
	if !ok || len(r.params) < params || len(r.params) > params && v != plain { // of the first version it may have more
		r.syntax("a monitor is of a database, with an id, of tables")
		return
	}
	if !c.visible(r, db) {
		return
	}
	name := compact(r.params[1])
	s := &c.session
	switch {
	case len(name) > maxMonitorID:
		r.refuse(longID())
		return
	case s.monitors.get(name) != nil:
		r.refuse(syntaxError("duplicate monitor ID"))
		return
	case len(s.monitors) >= c.door.limits.Load().MaxMonitors:
		r.refuse(ovs.Errorf(ovs.ResourcesExhausted, "too many monitors on one connection"))
		return
	}
	var last ovs.UUID
	if v == since {
		text, ok := r.text(3)
		if last, ok = parseTxn(text, ok); !ok {
			r.syntax("the id of the last transaction is to be a UUID")
			return
		}
	}
	place, err := c.door.cfg.Tally.Take(settings.OpenWatches, c.who.principal, "")
	if err != nil {
		r.full(err)
		return
	}
	m := &monitor{conn: c, feed: c.door.feeds.of(db), version: v, name: name, place: place, id: name, head: headOf(v, r.params[1])}
	s.monitors.set(name, m)
	c.owed.Add(1)
	begin := func(err error) {
		m.feed.do(func() {
			if err != nil {
				m.abandon()
				r.fail(err)
				m.answered()
				return
			}
			m.feed.now(func(state contents) {
				m.begin(r, state, last)
				m.answered()
			})
		})
	}
	if db == serverName {
		begin(nil)
		return
	}
	c.door.confirm(begin)
}

// after has done on the feed, once the monitor has been answered, what its client asked
// for behind it.
func (m *monitor) after(task func()) {
	if !m.begun {
		m.later = task // no other comes behind a change before it is done, nor behind the end
		return
	}
	task()
}

func (m *monitor) answered() {
	m.begun = true
	m.conn.owed.Add(-1)
	if task := m.later; task != nil {
		m.later = nil
		task()
	}
}

func parseTxn(text string, ok bool) (ovs.UUID, bool) {
	if !ok {
		return ovs.UUID{}, false
	}
	return ovs.ParseUUID(text)
}

// headOf is what goes before the body of each update of a monitor.
func headOf(v version, id ovs.Value) []byte {
	b := append([]byte(`{"id":null,"method":"`), updateNames[v]...)
	return append(id.Append(append(b, `","params":[`...)), ',')
}

// begin answers with what there is, and has the monitor told of all that changes from
// then on. On the feed.
func (m *monitor) begin(r *request, state contents, last ovs.UUID) {
	f := m.feed
	if m.over {
		r.failed("canceled")
		return
	}
	if err := m.judge(); err != nil { // policies may have changed since it was asked for
		m.refused(r, faultOf(err))
		return
	}
	var x *shape
	if state != nil {
		x = f.shapeOf(state)
	}
	if x == nil {
		m.refused(r, &ovs.Error{Name: ovs.UnknownDatabase})
		return
	}
	wishes, bad := x.wishes(r.params[2], m.version)
	if bad != nil {
		m.refused(r, bad)
		return
	}
	if err := m.keeps(wishes); err != nil {
		m.abandon()
		r.full(err)
		return
	}
	m.limit(wishes)
	f.join(m, wishes)
	if m.version != since {
		r.result(m.group.snapshot(state)...)
		return
	}
	now := append([]byte{'"'}, f.shared(state.LastTxn()).String()...)
	now = append(now, `",`...)
	if changes, found := m.resumes(state, last); found {
		r.result([]byte(`[true,`), now, f.composed(m.group.specs, changes), []byte{']'})
		f.door.counts.resumed.Add(1)
		return
	}
	bufs := append([][]byte{[]byte(`[false,`), now}, m.group.snapshot(state)...)
	r.result(append(bufs, []byte{']'})...)
}

func (m *monitor) resumes(state contents, last ovs.UUID) ([]*change, bool) {
	if last == (ovs.UUID{}) {
		return nil, false
	}
	return state.Since(m.feed.shared(last))
}

// refused answers that there will be no monitor.
func (m *monitor) refused(r *request, f *ovs.Error) {
	m.abandon()
	r.refuse(f)
}

// abandon gives up a monitor that does not begin, before its request is answered: the client
// may ask again at once.
func (m *monitor) abandon() {
	m.over = true
	m.conn.do(m.forget)
}

// forget gives the monitor's id and place back, of the session.
func (m *monitor) forget() {
	m.place.Give()
	m.conn.session.monitors.drop(func(n monitorName) bool { return n.monitor == m })
}

// end lets go of the monitor, from the session.
func (m *monitor) end() {
	m.place.Give()
	m.feed.do(func() {
		m.over = true
		m.leave()
	})
}

// canceled says that there is no such database any more, or another one: who does not
// know what that is connects anew.
func (m *monitor) canceled() {
	c := m.conn
	if c.session.monitors.get(m.name) != m {
		return
	}
	if !c.session.aware {
		c.goAway()
		return
	}
	m.forget()
	c.answer([]byte(`{"id":null,"method":"monitor_canceled","params":[`), []byte(m.name), []byte(`]}`))
}

func monitorCancelRequest(c *conn, r *request) {
	if len(r.params) != 1 {
		r.idle = true
		r.failed("invalid parameters")
		return
	}
	m := c.session.monitors.get(compact(r.params[0]))
	if m == nil {
		r.idle = true
		r.failed("unknown monitor")
		return
	}
	m.forget()
	m.feed.do(func() {
		m.after(func() {
			m.over = true
			m.leave()
			r.result(nothing)
		})
	})
}

// monitorCondChangeRequest changes the conditions of a monitor: the client is told of
// the difference first.
func monitorCondChangeRequest(c *conn, r *request) {
	if len(r.params) != 3 {
		r.syntax("the change of a monitor has its id, the next one and tables")
		return
	}
	from, next := compact(r.params[0]), compact(r.params[1])
	m := c.session.monitors.get(from)
	switch {
	case m == nil || m.version == plain:
		r.refuse(unknownMonitor())
		return
	case len(next) > maxMonitorID:
		r.refuse(longID())
		return
	}
	if other := c.session.monitors.get(next); other != nil && other != m {
		r.refuse(syntaxError("duplicate monitor ID"))
		return
	}
	c.session.monitors.set(next, m) // it has both ids until the change is done, or refused
	c.session.changing = true
	m.feed.do(func() {
		m.after(func() {
			m.feed.now(func(state contents) {
				bad := m.change(r, from, state)
				m.conn.do(func() { // before the client can ask again
					m.changed(from, next, bad == nil)
					m.conn.goOn()
				})
				if bad != nil {
					r.refuse(bad)
					return
				}
				m.id = next
				r.result(nothing)
			})
		})
	})
}

// waits reports whether the request waits for a change of one of its connection's monitors that
// is under way, as all that are about monitors do. A change may look at all rows of its tables
// twice: by one of each connection at a time, what the feed has to do for others, and what it
// hands on, has its turn between any two.
func (r *request) waits() bool {
	s := &r.conn.session
	if s.changing && r.method.ordered {
		s.behind = append(s.behind, r)
		return true
	}
	return false
}

// goOn serves what has waited for the change that is done now, up to the next one.
func (c *conn) goOn() {
	s := &c.session
	s.changing = false
	for len(s.behind) > 0 && !s.changing {
		r := s.behind[0]
		s.behind[0] = nil
		s.behind = s.behind[1:]
		r.admit()
	}
	if len(s.behind) == 0 {
		s.behind = nil
	}
}

func longID() *ovs.Error {
	return ovs.Errorf(ovs.ResourcesExhausted, "the id of a monitor has at most %d bytes", maxMonitorID)
}

func unknownMonitor() *ovs.Error { return syntaxError("unknown monitor session") }

// changed takes the id away from the monitor that it does not have.
func (m *monitor) changed(from, next string, done bool) {
	gone := next
	if done {
		m.name, gone = next, from
	}
	if m.name != gone {
		m.conn.session.monitors.drop(func(n monitorName) bool { return n.name == gone && n.monitor == m })
	}
}

// change changes the conditions of the monitor that has an id. On the feed.
func (m *monitor) change(r *request, from string, state contents) *ovs.Error {
	f := m.feed
	if m.group == nil || state == nil || m.id != from {
		return unknownMonitor()
	}
	if err := m.judge(); err != nil {
		return faultOf(err)
	}
	wishes, bad := f.shape.changed(m.group.wishes(), r.params[2])
	if bad != nil {
		return bad
	}
	if err := m.keeps(wishes); err != nil {
		return faultOf(err)
	}
	m.head = headOf(m.version, r.params[1])
	m.move(wishes, state)
	return nil
}

// move has the monitor want something else of a state: the client is told of the
// difference. On the feed.
func (m *monitor) move(wishes []wish, state contents) {
	f, was := m.feed, m.group
	m.limit(wishes)
	f.join(m, wishes)
	is := m.group
	if is == was {
		f.door.counts.monitors.Add(-1) // it has not become one more
		return
	}
	if body := f.transition(was, is, state); body != nil {
		m.conn.tellAlone(m.head, body)
	}
	was.drop(m) // forgets what only that had
}

// keeps counts what conditions cost that the monitor has in the place of others. Its error,
// TooLarge or Overloaded, says that those of its connection's monitors, or of all, may not cost
// so much.
func (m *monitor) keeps(wishes []wish) error {
	cost := costOf(wishes)
	more := cost - m.kept
	if m.conn.kept.Add(more) > maxConditionBytes && more > 0 {
		m.conn.kept.Add(-more)
		return incumbent.Errorf(incumbent.TooLarge, "the conditions of a connection's monitors take at most %d bytes, each %d and %d for a value and its text", maxConditionBytes, conditionBytes, atomBytes)
	}
	switch d := m.conn.door; {
	case more < 0:
		d.wishes.Give(m.conn.shares, -more)
	case more > 0 && !d.wishes.Take(m.conn.shares, more, d.WishBound()):
		m.conn.kept.Add(-more)
		return incumbent.Errorf(incumbent.Overloaded, "the conditions of all monitors take more than %d bytes, or more of them than its share are of this client's", d.WishBound())
	}
	m.kept = cost
	return nil
}

// costOf is what it costs to keep the conditions of wishes, in bytes, about.
func costOf(wishes []wish) (n int64) {
	for i := range wishes {
		for _, c := range wishes[i].where {
			n += conditionBytes
			for _, list := range [][]ovs.Atom{c.Arg.Keys, c.Arg.Values} {
				for _, a := range list {
					n += atomBytes + int64(len(a.Text()))
				}
			}
		}
	}
	return n
}

// transition is the difference between what two groups of one feed see in a state, as an
// update; nil: there is none.
func (f *feed) transition(was, is *group, state contents) []byte {
	var hits []*spec
	for i, s := range is.specs {
		old := was.specs[i]
		if s == old {
			continue
		}
		s.found = nil
		add := func(r *ovs.Row, k kind) {
			start := len(s.found)
			if start > 0 {
				s.found = append(s.found, ',')
			}
			at := len(s.found)
			if s.found = s.encoder.append(s.found, r, r, k); len(s.found) == at {
				s.found = s.found[:start]
			}
		}
		old.each(state, func(r *ovs.Row) {
			if !s.holds(r) {
				add(r, remove)
			}
		})
		s.each(state, func(r *ovs.Row) {
			if !old.holds(r) {
				add(r, insert)
			}
		})
		if len(s.found) > 0 {
			hits = append(hits, s)
		}
	}
	if len(hits) == 0 {
		return nil
	}
	g := &group{feed: f, version: is.version, hits: hits}
	body := g.body(state.LastTxn())
	for _, s := range hits {
		s.found = nil
	}
	return body
}

// composed is what changes together are to monitors of specs: tables, and their rows.
func (f *feed) composed(specs []*spec, changes []*change) []byte {
	var order []place
	rows := map[place]*rowChange{}
	for _, c := range changes {
		for i := range c.rows {
			r := &c.rows[i]
			p := placeOf(r)
			if was := rows[p]; was != nil {
				was.new = r.new
				continue
			}
			rows[p] = &rowChange{table: r.table, old: r.old, new: r.new}
			order = append(order, p)
		}
	}
	b := []byte{'{'}
	for _, s := range specs {
		s.found = nil
		for _, p := range order {
			if p.table == s.table {
				s.note(rows[p])
			}
		}
		if len(s.found) == 0 {
			continue
		}
		if len(b) > 1 {
			b = append(b, ',')
		}
		b = append(append(append(append(b, s.encoder.shape.tables[s.table]...), '{'), s.found...), '}')
		s.found = nil
	}
	return append(b, '}')
}
