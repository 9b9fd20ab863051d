package native

import (
	"context"
	"net/http"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/parts"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
)

// tableService serves TableService; its methods are documented in table.proto. What
// reads is in tables_read.go, transactions in tables_transact.go.
type tableService struct{ d *Door }

// DefineSchema makes or converts a database.
func (s tableService) DefineSchema(ctx context.Context, r *connect.Request[pb.DefineSchemaRequest]) (*connect.Response[pb.DefineSchemaResponse], error) {
	in := r.Msg
	of, bad := ovs.ParseSchema([]byte(in.Schema))
	if bad != nil {
		return nil, s.d.callError(invalid("schema", "%v", bad))
	}
	namespace := namespaceOf(in.Namespace)
	var cmd core.Command = &table.Define{Namespace: namespace, Schema: []byte(in.Schema)}
	there := func() bool { return table.Of(s.d.view()).Database(namespace, of.Name) != nil }
	if in.Convert && !there() { // this member may not have applied yet what another has answered
		err := s.d.authorize(callerOf(ctx), calls.DefineSchema.Action(), auth.Resource{Name: databaseName(namespace, of.Name)})
		if err == nil {
			err = s.d.confirmed(ctx)
		}
		if err != nil {
			return nil, s.d.callError(err)
		}
	}
	if in.Convert && there() {
		cmd = &table.Convert{Namespace: namespace, Database: of.Name, Schema: []byte(in.Schema)}
	}
	res, err := s.d.changeTables(ctx, calls.DefineSchema, namespace, of.Name, cmd, in.Idempotency, r.Header())
	if err != nil {
		return nil, err
	}
	out := &pb.DefineSchemaResponse{Index: uint64(res.Index)}
	switch is := res.Record.(type) {
	case *table.Database:
		out.Changed = is.SchemaIndex == res.Index
	case *table.Outcome:
		if is.Failed {
			return nil, s.d.callError(notConverted(is.Results[len(is.Results)-1].Err))
		}
		out.Changed = !is.TxnID.IsZero()
	}
	return connect.NewResponse(out), nil
}

// notConverted is why a database was not converted: TooLarge for a limit or a quota.
func notConverted(err *ovs.Error) error {
	if err.Name == ovs.ResourcesExhausted {
		return incumbent.Errorf(incumbent.TooLarge, "%s", err.Details)
	}
	return incumbent.Errorf(incumbent.Conflict, "what its rows have does not fit the schema: %w", err)
}

// DropDatabase removes.
func (s tableService) DropDatabase(ctx context.Context, r *connect.Request[pb.DropDatabaseRequest]) (*connect.Response[pb.DropDatabaseResponse], error) {
	in := r.Msg
	namespace := namespaceOf(in.Namespace)
	var cmd core.Command = &table.Drop{Namespace: namespace, Database: in.Database}
	if in.Loading {
		cmd = &table.Abandon{Namespace: namespace, Database: in.Database}
	}
	res, err := s.d.changeTables(ctx, calls.DropDatabase, namespace, in.Database, cmd, in.Idempotency, r.Header())
	return unary(&pb.DropDatabaseResponse{Index: uint64(res.Index)}, err)
}

// Load brings rows in.
func (s tableService) Load(ctx context.Context, r *connect.Request[pb.LoadRequest]) (*connect.Response[pb.LoadResponse], error) {
	in := r.Msg
	namespace, name := namespaceOf(in.Namespace), in.Database
	var cmd core.Command
	switch step := in.Step.(type) {
	case *pb.LoadRequest_Begin:
		of, bad := ovs.ParseSchema([]byte(step.Begin.GetSchema()))
		switch {
		case bad != nil:
			return nil, s.d.callError(invalid("begin.schema", "%v", bad))
		case name != "" && name != of.Name:
			return nil, s.d.callError(invalid("database", "is not %s, of which the schema is", of.Name))
		}
		name = of.Name
		cmd = &table.Begin{Namespace: namespace, Schema: []byte(step.Begin.Schema)}
	case *pb.LoadRequest_Rows:
		rows, err := s.d.loadedRows(callerOf(ctx), in, step.Rows)
		if err != nil {
			return nil, s.d.callError(err)
		}
		cmd = &table.Load{Namespace: namespace, Database: name, Began: incumbent.Index(in.Load), Rows: rows}
	case *pb.LoadRequest_Finish:
		cmd = &table.Finish{Namespace: namespace, Database: name, Began: incumbent.Index(in.Load), Replace: step.Finish.GetReplace()}
	default:
		return nil, s.d.callError(invalid("step", "is none of begin, rows and finish"))
	}
	res, err := s.d.changeTables(ctx, calls.LoadTables, namespace, name, cmd, in.Idempotency, r.Header())
	out := &pb.LoadResponse{Index: uint64(res.Index)}
	if is, ok := res.Record.(*table.Database); ok {
		out.Rows = uint64(is.Len())
	}
	return unary(out, err)
}

// loadedRows parses the rows of a load, for a caller who may load.
func (d *Door) loadedRows(who *caller, in *pb.LoadRequest, text string) ([][]byte, error) {
	name := databaseName(namespaceOf(in.Namespace), in.Database)
	if err := d.authorize(who, calls.LoadTables.Action(), auth.Resource{Name: name}); err != nil {
		return nil, err
	}
	is := table.Of(d.view()).Loading(name.Namespace, name.Lease)
	if is == nil || uint64(is.SchemaIndex) != in.Load {
		// It may be that this member has not applied it: the client tries again.
		return nil, incumbent.Errorf(incumbent.Unavailable, "this member knows no load %d of database %s", in.Load, name.Lease)
	}
	all, bad := ovs.ParseJSON(text)
	if bad != nil || all.Kind() != ovs.Object {
		return nil, invalid("rows", "are no JSON object")
	}
	var list loadRows
	for i := range all.Members() {
		tableName, rows := all.MemberAt(i)
		of, at := is.Schema.Table(tableName)
		if of == nil {
			return nil, invalid("rows", "there is no table %q", tableName)
		}
		for j := range rows.Members() {
			id, columns := rows.MemberAt(j)
			r, err := ovs.ParseRow(of, id, columns)
			if err != nil {
				return nil, invalid("rows", "row %q of table %s: %v", id, tableName, err)
			}
			if err := list.add(at, r); err != nil {
				return nil, err
			}
		}
	}
	return list.rows, nil
}

// loadRows are rows of a load as a command has them: a few bytes of text may be one with
// thousands of columns.
type loadRows struct {
	rows  [][]byte
	bytes int
}

// add adds a row. It fails with TooLarge beyond what a command may have.
func (l *loadRows) add(at int, r *table.Row) error {
	if len(l.rows) == table.MaxLoadRows {
		return incumbent.Errorf(incumbent.TooLarge, "rows at once: limit MaxLoadRows is %d", table.MaxLoadRows)
	}
	b := table.LoadedRow(at, r)
	if l.bytes += len(b); l.bytes > parts.MaxBytes {
		return incumbent.Errorf(incumbent.TooLarge, "rows at once have more bytes than a command may: limit is %d", parts.MaxBytes)
	}
	l.rows = append(l.rows, b)
	return nil
}

// databaseName is the name of a database for policies.
func databaseName(namespace, name string) incumbent.Name {
	return incumbent.Name{Namespace: namespace, Lease: name}
}

// changeTables executes a command on a database for a caller who waits. The error is
// the call's.
func (d *Door) changeTables(ctx context.Context, call calls.Call, namespace, name string, cmd core.Command, key *pb.Idempotency, h http.Header) (core.Result, error) {
	if err := incumbent.ValidateNamespace(namespace); err != nil {
		return core.Result{}, d.callError(err)
	}
	who := callerOf(ctx)
	judged := d.judged(who)
	if err := d.authorize(who, call.Action(), auth.Resource{Name: databaseName(namespace, name)}); err != nil {
		return core.Result{}, d.callError(err)
	}
	r, err := d.change(ctx, change{
		call: call, name: namespace + "\x00" + name, command: cmd, key: key, header: h, judged: judged,
		reserve: call == calls.DropDatabase, about: "database",
	})
	if err != nil {
		return r, d.callError(err)
	}
	return r, nil
}
