package native

import (
	"bytes"
	"cmp"
	"context"
	"slices"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/overload"
	"github.com/incumbent-dev/incumbent/watch"
)

// Watch sends a snapshot or resumes, then sends changes until the caller goes.
func (s tableService) Watch(ctx context.Context, r *connect.Request[pb.WatchTablesRequest], out *connect.ServerStream[pb.WatchTablesResponse]) error {
	sel, err := s.d.selectTables(callerOf(ctx), r.Msg)
	if incumbent.KindOf(err) == incumbent.NotFound { // this member may not have applied yet what another has answered
		if err = s.d.confirmed(ctx); err == nil {
			sel, err = s.d.selectTables(callerOf(ctx), r.Msg)
		}
	}
	return s.d.watch(ctx, sel, err, out.Conn())
}

// selectTables checks what a caller wants to watch.
func (d *Door) selectTables(who *caller, r *pb.WatchTablesRequest) (*selection, error) {
	name := databaseName(namespaceOf(r.GetNamespace()), r.GetDatabase())
	if err := incumbent.ValidateNamespace(name.Namespace); err != nil {
		return nil, err
	}
	pick, err := pickRows(r)
	if err != nil {
		return nil, err
	}
	selected, err := pick.selectors(engine.FamilyTopic(table.Number, table.Topic(name.Namespace, name.Lease)))
	if err != nil {
		return nil, err
	}
	sel := &selection{
		after: incumbent.Index(r.GetAfterIndex()), catchUp: r.GetCatchUp(), who: who, action: calls.WatchTables.Action(), selected: selected, about: name,
		form: form{answer: fieldWatchTables, pick: pick}, records: &tableRecords{name: name, pick: pick},
	}
	if _, err := sel.sight(d); err != nil {
		return nil, err
	}
	if is := table.Of(d.view()).Database(name.Namespace, name.Lease); is != nil {
		if err := pick.checkIn(is.Schema); err != nil {
			return nil, err
		}
	}
	return sel, nil
}

// watchTables opens a watch of a database in its place of the lane. What this member does not
// know it may not have applied yet: then it looks once more at a state that is confirmed.
func (s *stream) watchTables(place admit.Place, id uint64, r *pb.WatchTablesRequest) error {
	d := s.door
	sel, refusal := d.selectTables(s.who, r)
	if incumbent.KindOf(refusal) != incumbent.NotFound {
		return s.watch(place, id, sel, refusal)
	}
	w := &waitingFrame{s: s, id: id, who: s.who.work(0)} // so that an unwatch finds it meanwhile
	if !w.keep() {
		return overload.Errorf("more of this stream's frames wait than may")
	}
	d.confirm(func(err error) {
		d.work.Put(func() {
			if w.givenUp.Load() {
				w.forget()
				place.Leave()
				return
			}
			var sel *selection
			if err == nil {
				sel, err = d.selectTables(s.who, r)
			}
			err = s.watch(place, id, sel, err)
			if err != nil {
				place.Leave()
			}
			if w.begun(err) {
				s.refuse(id, err)
			}
		})
	})
	return nil
}

// anotherSchema is why a watch that catches up begins anew: the rows of one database are
// not those of the next. nil: there is no such change among events, or it is told.
func (s *selection) anotherSchema(events []*watch.Event) error {
	if !s.catchUp || s.form.pick == nil {
		return nil
	}
	for _, e := range events {
		if is, ok := changeOf(e).Family.After.(*table.Change); ok && is.Schema != nil {
			return incumbent.Errorf(incumbent.Compacted, "the database has another schema since index %d", e.Index)
		}
	}
	return nil
}

// tableRecords are the rows of a database, after its schema.
type tableRecords struct {
	name  incumbent.Name
	pick  *rowPick
	begun bool
	table int // of the last row that was shown
	last  *ovs.UUID

	changes bool      // only those that changed are shown
	changed []rowSpot // that are still to be
}

// rowSpot says where a row is: in which table, by its index, and under which uuid.
type rowSpot struct {
	table int
	id    ovs.UUID
}

// begin knows what has changed as far as the history of the database goes, and leaves
// nothing out unless a row is gone, which is not there to be shown.
func (s *tableRecords) begin(v *core.View, after incumbent.Index) (changes bool) {
	*s = tableRecords{name: s.name, pick: s.pick}
	d := table.Of(v).Database(s.name.Namespace, s.name.Lease)
	if d == nil || after == 0 {
		return false
	}
	list, known := d.ChangesAfter(after)
	if !known {
		return false
	}
	var changed []rowSpot
	for _, c := range list {
		for i := range c.Rows {
			r := &c.Rows[i]
			if !s.pick.changed(d.Schema.Tables[r.Table], r) {
				continue
			}
			if r.New == nil {
				return false
			}
			changed = append(changed, rowSpot{r.Table, r.ID()})
		}
	}
	slices.SortFunc(changed, func(a, b rowSpot) int { return cmp.Or(cmp.Compare(a.table, b.table), bytes.Compare(a.id[:], b.id[:])) })
	s.changes, s.changed = true, slices.Compact(changed)
	return true
}

// next shows the rows that are there, each as an event. Of a database that is not there
// it shows nothing.
func (s *tableRecords) next(f *former, room *room, _ auth.Sight) (out []proto.Message, more bool) {
	d := table.Of(f.view).Database(s.name.Namespace, s.name.Lease)
	if d == nil {
		return nil, false
	}
	show := func(e *pb.TableEvent) {
		e.What = present
		room.use(e)
		out = append(out, e)
	}
	showRow := func(of *ovs.Table, r *ovs.Row) {
		show(&pb.TableEvent{Index: uint64(table.IndexOf(r.Version)), Rows: []*pb.RowChange{{
			Table: of.Name, Uuid: r.UUID.String(), Row: rowJSON(of, r),
		}}})
	}
	if s.changes {
		for len(s.changed) > 0 && !room.full() {
			at := s.changed[0]
			s.changed = s.changed[1:]
			if r := d.Row(at.table, at.id); r != nil {
				showRow(d.Schema.Tables[at.table], r)
			}
		}
		return out, len(s.changed) > 0
	}
	if !s.begun {
		s.begun = true
		show(&pb.TableEvent{Index: uint64(d.SchemaIndex), Schema: string(d.Schema.JSON), TxnId: d.LastTxn().String()})
	}
	for ; s.table < len(d.Schema.Tables) && !more; s.table++ {
		of := d.Schema.Tables[s.table]
		if !s.pick.in(of) {
			continue
		}
		s.pick.rowsAfter(d, s.table, s.last, func(r *ovs.Row) bool {
			if more = room.full(); more {
				return false
			}
			s.last = &r.UUID
			showRow(of, r)
			return true
		})
		if more {
			return out, true
		}
		s.last = nil
	}
	return out, false
}

// rowJSON is a row with its version; "" of none.
func rowJSON(of *ovs.Table, r *ovs.Row) string {
	if r == nil {
		return ""
	}
	return string(appendRow(nil, of, allColumns(of)[1:], r))
}

// tableEvent writes a change of a database, as far as a watch is about it; nil: it is not.
func (f *former) tableEvent(c *core.Change, pick *rowPick) proto.Message {
	is, ok := c.Family.After.(*table.Change)
	if !ok {
		return nil
	}
	e := &pb.TableEvent{Index: uint64(c.Index), What: "changed", TxnId: is.TxnID.String()}
	switch {
	case is.Dropped:
		return &pb.TableEvent{Index: uint64(c.Index), What: "dropped"}
	case is.Schema != nil:
		e.What, e.Schema = "schema", string(is.Schema.JSON)
		return e
	}
	for i := range is.Rows {
		r := &is.Rows[i]
		if of := is.Under().Tables[r.Table]; pick.changed(of, r) {
			e.Rows = append(e.Rows, &pb.RowChange{Table: of.Name, Uuid: r.ID().String(), Row: rowJSON(of, r.New), Previous: rowJSON(of, r.Old)})
		}
	}
	if len(e.Rows) == 0 {
		return nil
	}
	return e
}
