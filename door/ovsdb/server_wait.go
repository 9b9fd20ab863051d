package ovsdb

import (
	"maps"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/tally"
)

// serverTxn is a transaction of the database about the server that is not answered. It
// belongs to that database's feed. What waits is tried again when a row changes and when
// its time is over.
type serverTxn struct {
	request *request
	ops     []ovs.Operation
	came    time.Time   // waits count from then
	timer   *time.Timer // ends the wait; nil: it has none
	waited  bool
	place   tally.Place // among what its principal has open; once it has waited
}

// try answers a transaction, or has it wait.
func (s *serverDatabase) try(t *serverTxn) {
	out, waits := s.run(nil, t)
	s.drop(t)
	if waits == nil {
		t.place.Give()
		t.request.result(out)
		return
	}
	if !t.waited {
		var err error
		if t.place, err = s.door.cfg.Tally.Take(settings.OpenWatches, t.request.conn.who.principal, ""); err != nil {
			t.request.refuse(faultOf(err))
			return
		}
		t.waited = true
	}
	t.request.place.Drop() // what waits holds none
	s.waits[t] = struct{}{}
	if waits.HasTimeout {
		f := s.door.feeds.of(serverName)
		t.timer = time.AfterFunc(waits.Timeout-s.door.now().Sub(t.came), func() {
			f.do(func() {
				if _, still := s.waits[t]; still {
					s.try(t)
				}
			})
		})
	}
}

func (s *serverDatabase) drop(t *serverTxn) {
	if t.timer != nil {
		t.timer.Stop()
	}
	t.timer = nil
	delete(s.waits, t)
}

// retryAll looks again at all that wait, as far as there are places in the lane of that. The
// others are looked at with the next tick.
func (s *serverDatabase) retryAll() {
	s.crowded = false
	for _, t := range slices.Collect(maps.Keys(s.waits)) { // trying adds some again
		p, err := t.request.conn.placeIn(serverName, laneOfWaits, max(1, len(t.ops)), true)
		if err == nil {
			t.request.place = p
			s.try(t)
		} else {
			s.crowded = true
		}
	}
}

// dropClosed lets go of what clients waited for that are gone.
func (s *serverDatabase) dropClosed() {
	for t := range s.waits {
		if t.request.conn.gone() {
			s.drop(t)
			t.place.Give()
		}
	}
}

// cancel answers a transaction of a connection that its client wants to know of no more.
func (s *serverDatabase) cancel(c *conn, id string) {
	s.door.feeds.of(serverName).do(func() {
		for t := range s.waits {
			if t.request.conn == c && string(t.request.id) == id {
				s.drop(t)
				t.place.Give()
				t.request.failed("canceled")
			}
		}
	})
}

// holds reports whether the rows that a wait finds are those that it names, or are not,
// as it asks for. Rows count once; those that its client may not know of are not there.
func (s *serverDatabase) holds(o *ovs.Operation, who known) bool {
	var found, named [][]ovs.Datum
	serverContents{s}.Find(o.Table, o.Where, func(r *ovs.Row) bool {
		if !who.shows(r) {
			return true
		}
		list := make([]ovs.Datum, len(o.Columns))
		for i, c := range o.Columns {
			list[i] = r.Datum(c)
		}
		found = append(found, list)
		return true
	})
	for _, given := range o.Rows {
		list := make([]ovs.Datum, len(o.Columns))
		for i, c := range o.Columns {
			list[i] = s.defaultOf(o.Table, c)
			for _, g := range given {
				if g.Column == c {
					list[i] = g.Value
				}
			}
		}
		named = append(named, list)
	}
	return (within(found, named) && within(named, found)) == o.Equal
}

// defaultOf is what a row of a wait has in a column that it does not name.
func (s *serverDatabase) defaultOf(table, column int) ovs.Datum {
	if column < 0 {
		return (&ovs.Row{}).Datum(column)
	}
	return s.schema.Tables[table].Columns[column].Default
}

// within reports whether all of some rows are among others.
func within(rows, others [][]ovs.Datum) bool {
	for _, r := range rows {
		if !slices.ContainsFunc(others, func(o []ovs.Datum) bool { return slices.EqualFunc(r, o, ovs.Datum.Equal) }) {
			return false
		}
	}
	return true
}
