package sim

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// What monitors do.
const (
	monitorRests = time.Second // between two questions, at most
	monitorMoves = 15          // questions in whose place it goes to another member: one in so many
	monitorAnew  = 5           // beginnings that do not resume: one in so many
)

// tableMonitor is a client that puts a database together from what it is told: all
// rows, or, at another member or after a failure, what has changed since the last
// transaction that it knows; then every change.
type tableMonitor struct {
	w *world
	a *agent

	rows  tableRows
	last  ovs.UUID // transaction that it knows everything up to
	known bool
	open  *tableFeed
}

// tableFeed is what a member keeps for a monitor.
type tableFeed struct {
	p      *process
	reader *watch.Reader
	from   incumbent.Index // it tells of what comes behind
}

func newTableMonitor(w *world, id int) *tableMonitor {
	return &tableMonitor{w: w, a: newClient(w, id)}
}

func (m *tableMonitor) next() { m.a.later(m.w.upTo(monitorRests), m.act) }

func (m *tableMonitor) act() {
	if m.open == nil || m.open.p.gone || m.w.chance(monitorMoves) {
		m.begin()
		return
	}
	m.ask()
}

// lost has the monitor begin again: it does not know what it was not told.
func (m *tableMonitor) lost() {
	m.open = nil
	m.next()
}

// begin asks another member, which tells either all rows or what has changed since.
func (m *tableMonitor) begin() {
	w := m.w
	m.open = nil
	m.a.at = w.anyone()
	after, resumes := m.last, m.known && !w.chance(monitorAnew)
	m.a.call(func(p *process, reply func(func())) {
		bound := w.check.acked
		p.group.Confirm(func(err error) {
			if err != nil {
				reply(m.lost)
				return
			}
			v := p.group.View()
			w.check.read(p, v, bound)
			d := table.Of(v).Database(incumbent.DefaultNamespace, tableName)
			if d == nil {
				reply(m.lost)
				return
			}
			var changes []*table.Change
			found := false
			if resumes {
				changes, found = d.Since(after)
			}
			r, err := p.group.Hub().Subscribe(v.Index(), func() {}, watch.Exact(tableTopic()))
			if err != nil {
				w.violate("member %d refuses to be monitored: %v (G16)", p.m.at, err)
				return
			}
			feed := &tableFeed{p, r, v.Index()}
			reply(func() {
				m.open = feed
				if found {
					w.res.TableResumed++
					m.told(p, changes)
				} else {
					m.known, m.rows = true, rowsOf(d)
				}
				m.last = d.LastTxn()
				w.check.tables.composed(m, p, v.Index())
				m.next()
			})
		})
	}, m.lost)
}

// tableTopic is the topic under which watchers are told of the database.
func tableTopic() watch.Topic {
	return engine.FamilyTopic(table.Number, table.Topic(incumbent.DefaultNamespace, tableName))
}

// ask asks for what has changed since.
func (m *tableMonitor) ask() {
	feed := m.open
	m.a.at = feed.p.m
	m.a.call(func(p *process, reply func(func())) {
		if p != feed.p {
			reply(m.lost)
			return
		}
		var b watch.Batch
		var err error
		for whole := false; !whole && err == nil; whole = b.Whole() {
			b, err = feed.reader.Pull(b.Events, watchPull, watchPullBytes)
		}
		if err != nil {
			m.w.res.CutOff++
			reply(m.lost)
			return
		}
		var changes []*table.Change
		for _, e := range b.Events {
			x := e.Payload.(*core.Change)                             //nolint:forcetypeassert // what topics carry
			changes = append(changes, x.Family.After.(*table.Change)) //nolint:forcetypeassert // what this topic carries
		}
		to := max(b.Progress, feed.from)
		reply(func() {
			m.told(p, changes)
			if m.open != nil {
				m.w.check.tables.composed(m, p, to)
			}
			m.next()
		})
	}, m.lost)
}

// told puts changes together with what the monitor has. Behind another schema all rows
// are to be read anew.
func (m *tableMonitor) told(p *process, changes []*table.Change) {
	for _, c := range changes {
		if c.Schema != nil {
			m.open, m.known = nil, false
			return
		}
		m.w.res.TableTold++
		m.last = c.TxnID
		for i := range c.Rows {
			if !m.rows.change(c.Under(), &c.Rows[i]) {
				m.w.violate("member %d tells monitor %d of a change at index %d from a row that it does not have (G20)", p.m.at, m.a.id, c.Index)
			}
		}
	}
}

// tableRows are the rows of a database, put together from changes.
type tableRows struct {
	is  map[tablePlace]uint64 // the hash of each
	sum uint64                // of the hashes
}

type tablePlace struct {
	table string
	id    ovs.UUID
}

// rowsOf are those of a database as it is.
func rowsOf(d *table.Database) (rows tableRows) {
	rows.is = map[tablePlace]uint64{}
	for i := range d.Schema.Tables {
		d.Rows(i, func(r *table.Row) bool {
			rows.change(d.Schema, &table.RowChange{Table: i, New: r})
			return true
		})
	}
	return rows
}

// change takes a change, and reports whether what it goes from was there.
func (r *tableRows) change(s *ovs.Schema, c *table.RowChange) bool {
	at := tablePlace{s.Tables[c.Table].Name, c.ID()}
	was := r.is[at]
	is := hashOfRow(at, c.New)
	r.sum += is - was
	if r.is[at] = is; is == 0 {
		delete(r.is, at)
	}
	return was == hashOfRow(at, c.Old)
}
