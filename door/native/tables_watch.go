package native

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
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
	name := databaseName(namespaceOf(r.Namespace), r.Database)
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
		after: incumbent.Index(r.AfterIndex), who: who, action: calls.WatchTables.Action(), selected: selected, about: name,
		form: form{pick: pick}, records: &tableRecords{name: name, pick: pick},
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

// tableRecords are the rows of a database, after its schema.
type tableRecords struct {
	name  incumbent.Name
	pick  *rowPick
	begun bool
	table int // of the last row that was shown
	last  *ovs.UUID
}

// begin begins anew with what there is.
func (s *tableRecords) begin(*core.View, incumbent.Index) (changes bool) {
	s.begun, s.table, s.last = false, 0, nil
	return false
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
			show(&pb.TableEvent{Index: uint64(table.IndexOf(r.Version)), Rows: []*pb.RowChange{{
				Table: of.Name, Uuid: r.UUID.String(), Row: rowJSON(of, r),
			}}})
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
