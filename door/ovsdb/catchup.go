package ovsdb

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/watch"
)

// The history from which a feed pulls is bounded, and all families' together: a few large
// transactions are enough for what a feed has not pulled to be gone. Then it compares the
// newest state with what it has handed on and hands the difference on as one change, under
// the id of the newest transaction. Clients keep their monitors; who resumes from a
// transaction in between is told of what the database itself remembers.

// comparedRows are looked at in one turn, which takes a few milliseconds.
const comparedRows = 16_384

// inView is the database in a view.
type inView struct {
	at incumbent.Index
	db *table.Database // nil: it is not there
}

// shown is the database as it is.
func (f *feed) shown() inView {
	v := f.door.view()
	return inView{v.Index(), table.Of(v).Database(f.door.namespace, f.name)}
}

// place is where a row is.
type place struct {
	table int
	id    ovs.UUID
}

func (p place) compare(o place) int {
	return cmp.Or(cmp.Compare(p.table, o.table), bytes.Compare(p.id[:], o.id[:]))
}

func placeOf(r *rowChange) place { return place{r.table, idOf(r)} }

// told is what a feed has handed on: a state, and what was changed behind it. Not every index
// has a state: views show the last one of each batch of the log.
type told struct {
	state  inView
	behind []toldChange
	next   *inView // becomes state once all of it was handed on; nil: none is chosen
}

type toldChange struct {
	at   incumbent.Index
	rows []rowChange
}

// note adds what was handed on.
func (t *told) note(at incumbent.Index, c *change) {
	t.behind = append(t.behind, toldChange{at, c.rows})
}

// reach takes note that all was handed on up to an index.
func (t *told) reach(at incumbent.Index) {
	if t.next == nil || t.next.at > at {
		return
	}
	t.state, t.next = *t.next, nil
	t.behind = slices.DeleteFunc(t.behind, func(c toldChange) bool { return c.at <= t.state.at })
}

// until is what leads from what was handed on to a later state, from which the state told of
// differs in these rows.
func (t *told) until(is *table.Database, differ []table.RowChange) []rowChange {
	behind := map[place]*ovs.Row{}
	for _, c := range t.behind {
		for i := range c.rows {
			behind[placeOf(&c.rows[i])] = c.rows[i].new
		}
	}
	var out []rowChange
	add := func(r rowChange) {
		if !table.SameRow(r.old, r.new) {
			out = append(out, r)
		}
	}
	for i := range differ {
		r := rowChange{differ[i].Table, differ[i].Old, differ[i].New}
		p := placeOf(&r)
		if old, there := behind[p]; there {
			r.old = old
			delete(behind, p)
		}
		add(r)
	}
	for p, old := range behind {
		add(rowChange{p.table, old, is.Row(p.table, p.id)})
	}
	slices.SortFunc(out, func(a, b rowChange) int { return placeOf(&a).compare(placeOf(&b)) })
	return out
}

// catchUp is a comparison under way.
type catchUp struct {
	to      inView
	compare *table.Comparison
	differ  []table.RowChange
}

// missed goes on behind changes that are gone. If the database has another schema by now, or is
// gone itself, its monitors end.
func (f *feed) missed(err error) {
	was, is := f.told.state.db, f.shown()
	if incumbent.KindOf(err) != incumbent.Compacted || was == nil || is.db == nil || was.SchemaIndex != is.db.SchemaIndex {
		f.lost(err)
		return
	}
	r, failed := f.subscribe(is.at) // what is changed behind the state is told of, and nothing that it shows
	switch {
	case failed == nil:
	case incumbent.KindOf(failed) == incumbent.Compacted: // there is a later one already
		f.do(f.pull)
		return
	default:
		f.lost(err)
		return
	}
	f.reader.Close()
	f.reader = r
	f.catching = &catchUp{to: is, compare: table.Compare(was, is.db)}
	f.do(f.compare)
}

func (f *feed) subscribe(from incumbent.Index) (*watch.Reader, error) {
	return f.door.engine.Hub().Subscribe(from, func() { f.do(f.pull) }, watch.Exact(f.door.topicOf(f.name)))
}

// compare goes on with the comparison, and behind its end hands on what it has found.
func (f *feed) compare() {
	c := f.catching
	if f.reader == nil || c == nil {
		return // the door closes
	}
	var all bool
	if c.differ, all = c.compare.Next(c.differ, comparedRows); !all {
		f.do(f.compare)
		return
	}
	f.catching = nil
	f.rejudge() // as in pull
	if rows := f.told.until(c.to.db, c.differ); len(rows) > 0 {
		f.changed(c.to.at, &change{txn: c.to.db.LastTxn(), rows: rows})
	}
	f.told = told{state: c.to}
	f.gaps++ // who is to begin with a state from before begins with a later one
	f.reached = c.to.at
	f.runJobs(f.reached)
	f.do(f.pull)
}
