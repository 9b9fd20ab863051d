package client

import (
	"context"
	"iter"
	"slices"
	"strings"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// TableCalls returns the plain calls on databases of tables. Their errors are those of
// connect; [AsError] makes *incumbent.Error of them.
func (c *Client) TableCalls() incumbentv1connect.TableServiceClient { return c.tables }

// Tables are the databases of tables of one namespace. Its errors are *incumbent.Error.
// Schemas, rows, conditions, operations and results are JSON as RFC 7047 has them. It
// is safe for concurrent use.
type Tables struct {
	c         *Client
	namespace string
}

// Tables returns the databases of a namespace; "" means the default one.
func (c *Client) Tables(namespace string) *Tables { return &Tables{c, namespace} }

// List returns the databases, by name, and those that are being loaded behind them.
func (t *Tables) List(ctx context.Context) ([]*apiv1.Database, error) {
	res, err := called(t.c.tables.ListDatabases(ctx, connect.NewRequest(&apiv1.ListDatabasesRequest{Namespace: t.namespace})))
	return res.GetDatabases(), err
}

// Schema returns a database with its schema, or an error of kind NotFound.
func (t *Tables) Schema(ctx context.Context, database string) (*apiv1.GetSchemaResponse, error) {
	return called(t.c.tables.GetSchema(ctx, connect.NewRequest(&apiv1.GetSchemaRequest{Namespace: t.namespace, Database: database})))
}

// Define makes an empty database of a schema, and reports whether it was not there. There
// being one with another schema it is converted, or the kind is Conflict.
func (t *Tables) Define(ctx context.Context, schema string, convert bool) (changed bool, _ error) {
	res, err := called(t.c.tables.DefineSchema(ctx, firstOf(&apiv1.DefineSchemaRequest{
		Namespace: t.namespace, Schema: schema, Convert: convert, Idempotency: t.c.NewKey(),
	})))
	return res.GetChanged(), err
}

// Drop removes a database with all its rows, or (loading) what waits of its load.
func (t *Tables) Drop(ctx context.Context, database string, loading bool) error {
	_, err := called(t.c.tables.DropDatabase(ctx, firstOf(&apiv1.DropDatabaseRequest{
		Namespace: t.namespace, Database: database, Loading: loading, Idempotency: t.c.NewKey(),
	})))
	return err
}

// Select calls page with the rows that a request asks for, by uuid, as they come: each
// page is of a state of its own. It ends with an error of page's.
func (t *Tables) Select(ctx context.Context, r *apiv1.SelectRequest, page func(rows []string) error) error {
	r.Namespace = t.namespace
	for {
		res, err := called(t.c.tables.Select(ctx, connect.NewRequest(r)))
		if err != nil {
			return err
		}
		if err := page(res.Rows); err != nil || res.Next == "" {
			return err
		}
		r.After = res.Next
	}
}

// Transact executes a list of operations, all or none. Repeated by this client when an
// answer is lost it still takes effect once. That it failed is said by the answer, not
// by the error. Operations "assert" find held what locks say, by leases under tokens.
func (t *Tables) Transact(ctx context.Context, database, operations string, locks ...*apiv1.TableLock) (*apiv1.TransactResponse, error) {
	return called(t.c.tables.Transact(ctx, firstOf(&apiv1.TransactRequest{
		Namespace: t.namespace, Database: database, Operations: operations, Locks: locks, Idempotency: t.c.NewKey(),
	})))
}

// WatchTablesOptions say what to watch and from where.
type WatchTablesOptions struct {
	Database string
	Tables   []string // none: all, or those that Fields name
	// Fields are columns of which one has to change ("TABLE/COLUMN"; "TABLE": any), of the
	// tables that they name; _uuid changes when a row comes or goes. Rows are told whole.
	// At most 64.
	Fields    []string
	Rows      []string        // uuids; none: all. At most 64
	After     incumbent.Index // resume after this index; 0: begin with what is there
	StartOver bool            // see [WatchOptions]
}

// maxTables is how many tables may be named beside fields.
const maxTables = 64

// known are the tables, with those that only fields name: members that know no fields yet
// would tell of all tables.
func (o *WatchTablesOptions) known() []string {
	all := slices.Clone(o.Tables)
	for _, f := range o.Fields {
		if of, _, _ := strings.Cut(f, "/"); !slices.Contains(all, of) {
			all = append(all, of)
		}
	}
	if len(all) > maxTables {
		return o.Tables
	}
	return all
}

// Watch yields changes of a database as [Client.Watch] does those of leases.
func (t *Tables) Watch(ctx context.Context, opts WatchTablesOptions) iter.Seq2[*apiv1.WatchTablesResponse, error] {
	tables := opts.known()
	w := &watching[apiv1.WatchTablesResponse, *apiv1.WatchTablesResponse]{
		c: t.c, after: uint64(opts.After), startOver: opts.StartOver,
		open: func(ctx context.Context, after uint64) (*connect.ServerStreamForClient[apiv1.WatchTablesResponse], error) {
			return t.c.tables.Watch(ctx, connect.NewRequest(&apiv1.WatchTablesRequest{
				Namespace: t.namespace, Database: opts.Database, Tables: tables, Fields: opts.Fields, Rows: opts.Rows, AfterIndex: after,
			}))
		},
		whole: func() func(*apiv1.WatchTablesResponse) *apiv1.WatchTablesResponse { return new(wholeTables).add },
	}
	return w.all(ctx)
}

// wholeTables is [Whole] of the events of a database.
type wholeTables struct{ pieces[*apiv1.TableEvent] }

func (w *wholeTables) add(m *apiv1.WatchTablesResponse) *apiv1.WatchTablesResponse {
	return joined(&w.pieces, m, m.Events, func(whole []*apiv1.TableEvent) *apiv1.WatchTablesResponse {
		return &apiv1.WatchTablesResponse{Events: whole, ProgressIndex: m.ProgressIndex}
	})
}

// Load is a database that is being loaded: nobody sees it until it is finished.
type Load struct {
	t        *Tables
	database string
	index    uint64
}

// Begin begins a load of a database, whose name is that of its schema, in the place of one
// that was not finished.
func (t *Tables) Begin(ctx context.Context, database, schema string) (*Load, error) {
	l := &Load{t: t, database: database}
	res, err := l.call(ctx, &apiv1.LoadRequest{Step: &apiv1.LoadRequest_Begin{Begin: &apiv1.LoadBegin{Schema: schema}}})
	if err != nil {
		return nil, err
	}
	l.index = res.Index
	return l, nil
}

// Rows brings rows in, as {"TABLE": {"UUID": {"COLUMN": VALUE}}}, and returns how many are
// there. They may refer to rows that are still to come.
func (l *Load) Rows(ctx context.Context, rows string) (uint64, error) {
	for pause := minPause; ; pause = min(2*pause, maxPause) {
		res, err := l.call(ctx, &apiv1.LoadRequest{Load: l.index, Step: &apiv1.LoadRequest_Rows{Rows: rows}})
		if err == nil {
			return res.Rows, nil
		}
		// The same rows again change nothing; a member may have to hear of the load first.
		if !retryable(err) || !l.t.c.budget.repeat(l.t.c.clock()) {
			return 0, err
		}
		if err := sleep(ctx, jitter(pause, err)); err != nil {
			return 0, err
		}
	}
}

// Finish shows the database, if every reference leads to a row that is there and every row
// that needs it is referred to. There being a database of the name it is replaced, or the
// kind is Exists.
func (l *Load) Finish(ctx context.Context, replace bool) error {
	_, err := l.call(ctx, &apiv1.LoadRequest{Load: l.index, Step: &apiv1.LoadRequest_Finish{Finish: &apiv1.LoadFinish{Replace: replace}}})
	return err
}

// Abandon forgets what was loaded.
func (l *Load) Abandon(ctx context.Context) error { return l.t.Drop(ctx, l.database, true) }

func (l *Load) call(ctx context.Context, r *apiv1.LoadRequest) (*apiv1.LoadResponse, error) {
	r.Namespace, r.Database, r.Idempotency = l.t.namespace, l.database, l.t.c.NewKey()
	return called(l.t.c.tables.Load(ctx, firstOf(r)))
}
