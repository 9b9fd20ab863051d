package native

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"slices"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/policy"
	"github.com/incumbent-dev/incumbent/core/settings"
	"github.com/incumbent-dev/incumbent/core/table"
	"github.com/incumbent-dev/incumbent/core/table/ovs"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/watch"
)

// operationBytes is what an operation has, about: a lane counts them before they are
// parsed.
const operationBytes = 256

// Transact executes operations.
func (s tableService) Transact(ctx context.Context, r *connect.Request[pb.TransactRequest]) (*connect.Response[pb.TransactResponse], error) {
	in := r.Msg
	ctx, cancel := s.d.deadline(ctx)
	defer cancel()
	out, err := s.d.transactTables(ctx, in, r)
	if err != nil {
		return nil, s.d.callError(err)
	}
	return connect.NewResponse(out), nil
}

func (d *Door) transactTables(ctx context.Context, in *pb.TransactRequest, r connect.AnyRequest) (*pb.TransactResponse, error) {
	cost := 1 + len(in.Operations)/operationBytes
	done, err := d.admit(ctx, calls.TransactTables.Lane(), cost)
	if err != nil {
		return nil, err
	}
	defer func() { done() }()
	v, bad := ovs.ParseJSON(in.Operations)
	if bad != nil || v.Kind() != ovs.Array {
		return nil, invalid("operations", "are no list")
	}
	who := callerOf(ctx)
	t := &tableTxn{
		d: d, who: who, name: databaseName(namespaceOf(in.Namespace), in.Database), ops: v.Elements(), came: d.now(),
		in: in.Locks, o: &operation{action: auth.TableWrite, name: incumbent.Name{Lease: in.Namespace + "\x00" + in.Database}, command: &table.Transact{}},
	}
	if err := incumbent.ValidateNamespace(t.name.Namespace); err != nil {
		return nil, err
	}
	if err := d.setKey(t.o, in.Idempotency, r.Header()); err != nil {
		return nil, err
	}
	t.key, t.base = t.o.logged(who)
	waited := false
	for {
		res, err := t.once(ctx)
		if err != nil {
			return nil, err
		}
		out, _ := res.Record.(*table.Outcome)
		again := incumbent.KindOf(asKind(res.Err)) == incumbent.Conflict && out == nil // by now it has another schema, or it is of an attempt whose wait did not hold
		switch {
		case again && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case again:
		case res.Replayed && res.Err == nil:
			return &pb.TransactResponse{Index: uint64(res.Index), Results: t.inserted(), Repeated: true}, nil
		case res.Replayed && res.Err.Kind == incumbent.Invalid:
			return nil, incumbent.Errorf(incumbent.Conflict, "the transaction failed when it was first executed; what it answered is not kept")
		case out == nil:
			return nil, asKind(res.Err)
		case !out.Waits:
			who.control.said.idle = out.TxnID.IsZero()
			return t.answer(out, res.Index), nil
		default:
			if !waited {
				open, err := d.tally.Take(settings.OpenWatches, who.principal, "")
				if err != nil {
					return nil, err
				}
				defer open.Give()
				waited = true
			}
			done() // a transaction that waits holds no place in a lane
			if done = func() {}; !t.waits(ctx, out, res.Index) {
				who.control.said.idle = true
				return t.answer(out, res.Index), nil
			}
			if done, err = d.admit(ctx, calls.TransactTables.Lane(), cost); err != nil {
				done = func() {}
				return nil, err
			}
		}
		if t.proposed {
			t.attempt++
		}
	}
}

// tableLocks are the locks that a caller says to hold, each by a lease that he may read.
func (d *Door) tableLocks(who *caller, in []*pb.TableLock) (list []table.Lock, _ error) {
	if len(in) > table.MaxLocks {
		return nil, invalid("locks", "are %d, limit MaxLocks is %d", len(in), table.MaxLocks)
	}
	for _, l := range in {
		name, err := leaseName(l.Lease)
		switch {
		case err != nil:
			return nil, err
		case l.Token == 0 || l.Lock == "" || len(l.Lock) > table.MaxNameBytes:
			return nil, invalid("locks", "a lock has a name of up to %d bytes and a token", table.MaxNameBytes)
		}
		if err := d.allowRead(who, calls.IfHeld.Action(), name); err != nil {
			return nil, err
		}
		list = append(list, table.Lock{Name: l.Lock, Lease: name, Token: incumbent.Token(l.Token)})
	}
	return list, nil
}

// asKind is an error as an interface: nil if there is none.
func asKind(e *incumbent.Error) error {
	if e == nil {
		return nil
	}
	return e
}

// tableTxn is a transaction of a caller who waits. It is executed once for each attempt,
// of which all but the last certainly changed nothing: a wait did not hold, or the
// database has another schema by now. Each attempt that the log executes has a key of its own, that follows
// from the caller's, so that a repeated call goes the same way.
type tableTxn struct {
	d        *Door
	who      *caller
	name     incumbent.Name
	ops      []ovs.Value
	in       []*pb.TableLock
	o        *operation
	came     time.Time
	key      []byte // nil: there is none
	base     incumbent.Index
	attempt  uint64 // how many were executed by the log
	proposed bool   // this one
	command  *table.Transact
	schema   *ovs.Schema
}

// once executes the transaction.
func (t *tableTxn) once(ctx context.Context) (core.Result, error) {
	t.proposed = false
	judged := t.d.judged(t.who)
	is := table.Of(t.d.view()).Database(t.name.Namespace, t.name.Lease)
	if err := t.d.authorize(t.who, auth.TableRead, auth.Resource{Name: t.name}); err != nil {
		return core.Result{}, err
	}
	if is == nil { // this member may not have applied yet what another has answered
		if err := t.d.confirmed(ctx); err != nil {
			return core.Result{}, err
		}
		if is = table.Of(t.d.view()).Database(t.name.Namespace, t.name.Lease); is == nil {
			return core.Result{}, incumbent.Errorf(incumbent.NotFound, "there is no database %q in namespace %q", t.name.Lease, t.name.Namespace)
		}
	}
	locks, err := t.d.tableLocks(t.who, t.in)
	if err != nil {
		return core.Result{}, err
	}
	key := t.attemptKey()
	ops, bad := ovs.ParseTransaction(is.Schema, t.ops, t.uuids(key))
	if bad != nil {
		return core.Result{}, incumbent.Errorf(incumbent.TooLarge, "%w", bad)
	}
	looks := !slices.ContainsFunc(ops, func(o ovs.Operation) bool {
		return o.Op == ovs.OpInsert || o.Op == ovs.OpUpdate || o.Op == ovs.OpMutate || o.Op == ovs.OpDelete
	})
	var roles []string
	if !looks {
		var err error
		if roles, err = auth.AuthorizeRows(t.d.rights(t.who), auth.Resource{Name: t.name}); err != nil {
			return core.Result{}, err
		}
	}
	t.schema = is.Schema
	t.command = &table.Transact{
		Namespace: t.name.Namespace, Database: t.name.Lease, Schema: is.SchemaIndex, Operations: ops, Locks: locks, Kept: key != nil,
		Roles: roles, Client: t.who.principal.Holder(),
	}
	if looks || ovs.Fails(ops) || t.o.first() {
		if r, idle := t.idling(); idle {
			return r, t.settle(ctx, judged, &r)
		}
	}
	t.proposed = true
	deadline, _ := ctx.Deadline()
	call := engine.Call{Deadline: deadline, Meta: core.Meta{Origin: t.d.origin(t.who), Judged: judged, KeyID: key, KeyBase: t.base}}
	return outcomeOf(ctx, "database", func(done func(core.Result)) { t.d.engine.Execute(call, t.command, done) })
}

func (t *tableTxn) idling() (core.Result, bool) {
	v := t.d.view()
	r, idle := table.Of(v).Idling(v, t.command)
	r.Index = v.Index()
	return r, idle
}

// settle has an answer that needs no entry of the log come from a confirmed state. If
// that is another by then, or policies are, the answer is Conflict, as of one that is to be
// tried again.
func (t *tableTxn) settle(ctx context.Context, judged incumbent.Index, r *core.Result) error {
	if err := t.d.confirmed(ctx); err != nil {
		return err
	}
	is, idle := t.idling()
	if *r = is; !idle || policy.Outlived(t.d.view(), judged) {
		*r = core.Result{Err: incumbent.Errorf(incumbent.Conflict, "something would change now")}
	}
	return nil
}

// attemptKey is the key of the attempt; nil: there is none.
func (t *tableTxn) attemptKey() []byte {
	if t.key == nil || t.attempt == 0 {
		return t.key
	}
	h := sha256.New()
	h.Write(t.key)
	_ = binary.Write(h, binary.BigEndian, t.attempt) // a hash takes everything
	return h.Sum(nil)
}

// uuids chooses those of new rows: with a key always the same, so that what a repeated
// call inserted is known.
func (t *tableTxn) uuids(key []byte) func() ovs.UUID {
	n := uint64(0)
	return func() (u ovs.UUID) {
		if key == nil {
			rand.Read(u[:]) // never fails: crypto/rand stops the process instead
		} else {
			n++
			sum := sha256.Sum256(binary.BigEndian.AppendUint64(append([]byte("row\x00"), key...), n))
			copy(u[:], sum[:])
		}
		u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80 // of version 4
		return u
	}
}

// inserted is what is known of the results of a transaction that was executed before.
func (t *tableTxn) inserted() string {
	out := &table.Outcome{Results: make([]table.Result, len(t.command.Operations))}
	for i := range t.command.Operations {
		if o := &t.command.Operations[i]; o.Op == ovs.OpInsert {
			out.Results[i] = table.Result{Op: o.Op, UUID: o.UUID}
		}
	}
	return string(out.AppendJSON(nil, t.schema))
}

func (t *tableTxn) answer(out *table.Outcome, at incumbent.Index) *pb.TransactResponse {
	if out.Waits {
		over := *out
		over.Results = slices.Clone(out.Results)
		over.Results[t.waiting(out)].Err = ovs.TimedOutError(t.d.now().Sub(t.came))
		out = &over
	}
	return &pb.TransactResponse{Index: uint64(at), Results: string(out.AppendJSON(nil, t.schema)), Failed: out.Failed}
}

// waiting is the operation that waits.
func (t *tableTxn) waiting(out *table.Outcome) int {
	return slices.IndexFunc(out.Results, func(r table.Result) bool { return r.Err != nil })
}

// waits waits until something changes in the database after an index, and reports
// whether it has: not if the time of the operation, or of the call, is over.
func (t *tableTxn) waits(ctx context.Context, out *table.Outcome, after incumbent.Index) bool {
	if o := &t.command.Operations[t.waiting(out)]; o.HasTimeout {
		left := t.came.Add(o.Timeout).Sub(t.d.now())
		if left <= 0 {
			return false
		}
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, left)
		defer cancel()
	}
	changed := make(chan struct{}, 1)
	reader, err := t.d.hub.Subscribe(after, func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}, watch.Exact(engine.FamilyTopic(table.Number, table.Topic(t.name.Namespace, t.name.Lease))))
	if err != nil { // so much has happened that it is tried again at once
		return ctx.Err() == nil
	}
	defer reader.Close()
	for { // a reader is woken for what comes once it has pulled what is there
		batch, err := reader.Pull(nil, 1, pullBytes)
		if err != nil || len(batch.Events) > 0 {
			return ctx.Err() == nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}
