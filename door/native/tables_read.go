package native

import (
	"context"
	"slices"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// ListDatabases lists what its caller may see.
func (s tableService) ListDatabases(ctx context.Context, r *connect.Request[pb.ListDatabasesRequest]) (*connect.Response[pb.ListDatabasesResponse], error) {
	in := r.Msg
	return reading(ctx, s.d, calls.ListDatabases.LaneOfRead(in.Stale), in.Stale, func(f *former) (*pb.ListDatabasesResponse, error) {
		_, sight, err := s.d.catalogPage(ctx, calls.ListDatabases, in.Namespace, 0)
		if err != nil {
			return nil, err
		}
		out := &pb.ListDatabasesResponse{Index: uint64(f.view.Index())}
		show := func(d *table.Database) bool {
			if sight.Sees(databaseName(d.Namespace, d.Name)) {
				out.Databases = append(out.Databases, databasePB(d))
			}
			return true
		}
		v, namespace := table.Of(f.view), namespaceOf(in.Namespace)
		v.Databases(namespace, show)
		there := len(out.Databases)
		v.Loads(namespace, show)
		for _, d := range out.Databases[there:] {
			d.Loading = true
		}
		return out, nil
	})
}

func databasePB(d *table.Database) *pb.Database {
	return &pb.Database{
		Namespace: d.Namespace, Name: d.Name, Version: d.Schema.Version, Tables: uint32(len(d.Schema.Tables)), Rows: uint64(d.Len()),
		Bytes: uint64(d.Bytes()), SchemaIndex: uint64(d.SchemaIndex), TxnId: d.LastTxn().String(), Owner: d.Owner,
	}
}

// GetSchema reads a schema.
func (s tableService) GetSchema(ctx context.Context, r *connect.Request[pb.GetSchemaRequest]) (*connect.Response[pb.GetSchemaResponse], error) {
	in := r.Msg
	return reading(ctx, s.d, calls.GetSchema.LaneOfRead(in.Stale), in.Stale, func(f *former) (*pb.GetSchemaResponse, error) {
		d, err := f.database(callerOf(ctx), calls.GetSchema.Action(), namespaceOf(in.Namespace), in.Database)
		if err != nil {
			return nil, err
		}
		return &pb.GetSchemaResponse{Index: uint64(f.view.Index()), Database: databasePB(d), Schema: string(d.Schema.JSON)}, nil
	})
}

// database is one that a caller may see.
func (f *former) database(who *caller, a auth.Action, namespace, name string) (*table.Database, error) {
	if err := incumbent.ValidateNamespace(namespace); err != nil {
		return nil, err
	}
	if err := f.d.authorize(who, a, auth.Resource{Name: databaseName(namespace, name)}); err != nil {
		return nil, err
	}
	d := table.Of(f.view).Database(namespace, name)
	if d == nil {
		return nil, incumbent.Errorf(incumbent.NotFound, "there is no database %q in namespace %q", name, namespace)
	}
	return d, nil
}

// Select reads a page of rows.
func (s tableService) Select(ctx context.Context, r *connect.Request[pb.SelectRequest]) (*connect.Response[pb.SelectResponse], error) {
	in := r.Msg
	return reading(ctx, s.d, calls.SelectRows.LaneOfRead(in.Stale), in.Stale, func(f *former) (*pb.SelectResponse, error) {
		page, err := newPage(in.Limit)
		if err != nil {
			return nil, err
		}
		d, err := f.database(callerOf(ctx), calls.SelectRows.Action(), namespaceOf(in.Namespace), in.Database)
		if err != nil {
			return nil, err
		}
		q, err := newRowQuery(ctx, d, in)
		if err != nil {
			return nil, err
		}
		out := &pb.SelectResponse{Index: uint64(f.view.Index())}
		q.rows(func(row *ovs.Row) bool {
			if page.full() {
				out.Next = q.last.String()
				return false
			}
			b := appendRow(nil, q.of, q.columns, row)
			page.left--
			page.bytes -= len(b)
			out.Rows = append(out.Rows, string(b))
			q.last = row.UUID
			return true
		})
		return out, q.stopped
	})
}

// rowQuery is which rows of a table somebody asks for.
type rowQuery struct {
	ctx     context.Context
	d       *table.Database
	of      *ovs.Table
	at      int
	where   []ovs.Condition
	columns []int
	after   *ovs.UUID
	last    ovs.UUID // of the page so far
	stopped error
}

func newRowQuery(ctx context.Context, d *table.Database, in *pb.SelectRequest) (*rowQuery, error) {
	q := &rowQuery{ctx: ctx, d: d}
	if q.of, q.at = d.Schema.Table(in.Table); q.of == nil {
		return nil, incumbent.Errorf(incumbent.NotFound, "database %s has no table %q", d.Name, in.Table)
	}
	if in.After != "" {
		after, ok := ovs.ParseUUID(in.After)
		if !ok {
			return nil, invalid("after", "%q is no uuid", in.After)
		}
		q.after = &after
	}
	var err error
	if q.where, err = conditions(q.of, in.Where); err != nil {
		return nil, err
	}
	if q.columns = allColumns(q.of); len(in.Columns) > 0 {
		q.columns = nil
	}
	for _, name := range in.Columns {
		c := q.of.Column(name)
		if c == nil {
			return nil, incumbent.Errorf(incumbent.NotFound, "table %s has no column %q", in.Table, name)
		}
		if !slices.Contains(q.columns, c.Index()) {
			q.columns = append(q.columns, c.Index())
		}
	}
	return q, nil
}

func conditions(of *ovs.Table, text string) (list []ovs.Condition, _ error) {
	if text == "" {
		return nil, nil
	}
	v, bad := ovs.ParseJSON(text)
	if bad != nil || v.Kind() != ovs.Array {
		return nil, invalid("where", "is no list of conditions")
	}
	for _, e := range v.Elements() {
		c, bad := ovs.ParseCondition(of, e, nil)
		if bad != nil {
			return nil, invalid("where", "%v", bad)
		}
		list = append(list, c)
	}
	return list, nil
}

// allColumns are those of a table, with those that every table has.
func allColumns(of *ovs.Table) []int {
	list := []int{ovs.ColumnUUID, ovs.ColumnVersion}
	for i := range of.Columns {
		list = append(list, i)
	}
	return list
}

// rows calls fn with the rows that are asked for, by uuid, until it returns false.
func (q *rowQuery) rows(fn func(*ovs.Row) bool) {
	if len(q.where) == 0 {
		q.d.RowsAfter(q.at, q.after, fn)
		return
	}
	var list []*ovs.Row
	looked := 0
	q.d.Find(q.at, q.where, func(r *ovs.Row) bool {
		if looked++; looked%ScanSlice == 0 && q.ctx.Err() != nil {
			q.stopped = context.Cause(q.ctx)
			return false
		}
		if q.after == nil || compareUUIDs(r.UUID, *q.after) > 0 {
			list = append(list, r)
		}
		return true
	})
	slices.SortFunc(list, func(a, b *ovs.Row) int { return compareUUIDs(a.UUID, b.UUID) })
	for _, r := range list {
		if !fn(r) {
			return
		}
	}
}

func compareUUIDs(a, b ovs.UUID) int { return slices.Compare(a[:], b[:]) }

// appendRow appends columns of a row as an object.
func appendRow(b []byte, of *ovs.Table, columns []int, r *ovs.Row) []byte {
	b = append(b, '{')
	for i, at := range columns {
		if i > 0 {
			b = append(b, ',')
		}
		c := of.At(at)
		b = append(ovs.AppendString(b, c.Name), ':')
		b = r.Datum(at).AppendJSON(b, &c.Type)
	}
	return append(b, '}')
}
