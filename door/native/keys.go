package native

import (
	"cmp"
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/calls"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/lease"
)

// keyService serves KeyValueService; its methods are documented in kv.proto.
// What reads is in keys_read.go.
type keyService struct{ d *Door }

// Put stores.
func (s keyService) Put(ctx context.Context, r *connect.Request[pb.PutRequest]) (*connect.Response[pb.PutResponse], error) {
	res, entry, err := s.d.write(ctx, r.Header(), putCommand(r.Msg), r.Msg.Idempotency)
	return unary(&pb.PutResponse{Index: uint64(res.Index), Entry: entry}, err)
}

func putCommand(in *pb.PutRequest) *kv.Command {
	c := &kv.Command{Verb: kv.Put, Key: keyIn(in.Namespace, in.Key), Value: in.Value, Flags: in.Flags}
	switch is := in.Condition.(type) {
	case *pb.PutRequest_IfIndex:
		c.If, c.Index = kv.IfIndex, incumbent.Index(is.IfIndex)
	case *pb.PutRequest_IfValue:
		c.If, c.Was = kv.IfValue, is.IfValue
	}
	return c
}

// Delete deletes.
func (s keyService) Delete(ctx context.Context, r *connect.Request[pb.DeleteRequest]) (*connect.Response[pb.DeleteResponse], error) {
	res, _, err := s.d.write(ctx, r.Header(), deleteCommand(r.Msg), r.Msg.Idempotency)
	return unary(deleted(res), err)
}

func deleted(r core.Result) *pb.DeleteResponse {
	n, _ := r.Record.(int)
	return &pb.DeleteResponse{Index: uint64(r.Index), Deleted: uint32(n)}
}

func deleteCommand(in *pb.DeleteRequest) *kv.Command {
	c := &kv.Command{Verb: kv.Remove, Key: keyIn(in.Namespace, in.Key)}
	if in.Tree {
		c.Verb = kv.RemoveTree
	}
	switch is := in.Condition.(type) {
	case *pb.DeleteRequest_IfIndex:
		c.If, c.Index = kv.IfIndex, incumbent.Index(is.IfIndex)
	case *pb.DeleteRequest_IfValue:
		c.If, c.Was = kv.IfValue, is.IfValue
	}
	return c
}

// Lock stores and locks.
func (s keyService) Lock(ctx context.Context, r *connect.Request[pb.LockRequest]) (*connect.Response[pb.LockResponse], error) {
	c, err := lockCommand(r.Msg)
	if err != nil {
		return nil, s.d.callError(err)
	}
	res, entry, err := s.d.write(ctx, r.Header(), c, r.Msg.Idempotency)
	return unary(&pb.LockResponse{Index: uint64(res.Index), Entry: entry}, err)
}

func lockCommand(in *pb.LockRequest) (*kv.Command, error) {
	session, err := neededSession("session", in.Session)
	if err != nil {
		return nil, err
	}
	c := &kv.Command{
		Verb: kv.Acquire, Key: keyIn(in.Namespace, in.Key), Value: in.Value, Flags: in.Flags,
		Session: session, Delay: time.Duration(in.LockDelayMs) * time.Millisecond, Lazy: in.Lazy,
	}
	switch in.OnEnd {
	case pb.OnEnd_ON_END_UNSPECIFIED, pb.OnEnd_ON_END_KEEP:
	case pb.OnEnd_ON_END_DELETE:
		c.OnEnd = kv.Delete
	default:
		return nil, invalid("on_end", "%d is unknown to this member", in.OnEnd)
	}
	return c, nil
}

// Unlock stores and gives the lock up.
func (s keyService) Unlock(ctx context.Context, r *connect.Request[pb.UnlockRequest]) (*connect.Response[pb.UnlockResponse], error) {
	c, err := unlockCommand(r.Msg)
	if err != nil {
		return nil, s.d.callError(err)
	}
	res, entry, err := s.d.write(ctx, r.Header(), c, r.Msg.Idempotency)
	return unary(&pb.UnlockResponse{Index: uint64(res.Index), Entry: entry}, err)
}

func unlockCommand(in *pb.UnlockRequest) (*kv.Command, error) {
	session, err := neededSession("session", in.Session)
	if err != nil {
		return nil, err
	}
	return &kv.Command{Verb: kv.Release, Key: keyIn(in.Namespace, in.Key), Value: in.Value, Flags: in.Flags, Session: session}, nil
}

func keyIn(namespace, key string) kv.Key {
	return kv.Key{Namespace: cmp.Or(namespace, incumbent.DefaultNamespace), Name: key}
}

// write executes a command about keys for a caller who waits, and returns what it
// did with the entry as it left it. The error is the call's, with the entry as it
// was found.
func (d *Door) write(ctx context.Context, h http.Header, c *kv.Command, key *pb.Idempotency) (core.Result, *pb.KeyValue, error) {
	ctx, cancel := d.deadline(ctx)
	defer cancel()
	done, err := d.admit(ctx, callOfKey(c).Lane(), 1)
	if err != nil {
		return core.Result{}, nil, d.callError(err)
	}
	defer done()
	o := keyOperationOf(c)
	if err := d.setKey(o, key, h); err != nil {
		return core.Result{}, nil, d.callError(err)
	}
	who := callerOf(ctx)
	call := d.callOf(ctx, who, o)
	r, err := outcomeOf(ctx, "key", func(done func(core.Result)) { d.writeKey(who, call, o, c, done) })
	if err != nil {
		return r, nil, d.callError(err)
	}
	if notProposed(r) {
		placeOf(ctx).doing(false)
	}
	who.control.said.idle = !changes(&r)
	e := d.former(who).stored(who, c, r)
	if r.Err != nil {
		return r, nil, d.keyError(r.Err, e)
	}
	return r, e, nil
}

// callOfKey is the call that a change of keys is.
func callOfKey(c *kv.Command) calls.Call {
	switch c.Verb {
	case kv.Remove, kv.RemoveTree:
		return calls.DeleteKey
	case kv.Release:
		return calls.UnlockKey
	case kv.Acquire:
		return calls.LockKey
	}
	return calls.PutKey
}

func keyOperationOf(c *kv.Command) *operation {
	return &operation{action: callOfKey(c).Action(), name: incumbent.Name{Namespace: c.Key.Namespace, Lease: c.Key.Name}, session: c.Session, command: *c}
}

// stored is the entry as a change left it, or found it where it was refused, without
// its value, which the caller has sent or which errors have no room for. nil: there
// is none, it has changed since, or its caller may not see what refused it.
func (f *former) stored(who *caller, c *kv.Command, r core.Result) *pb.KeyValue {
	e, _ := r.Record.(*kv.Entry)
	switch {
	case r.Err != nil && e != nil && f.d.allowKey(who, auth.KeyRead, c.Key, false) != nil:
		return nil
	case r.Err != nil:
		return f.entry(e, e != nil && len(e.Value) > maxDetailValue)
	case e == nil: // of a known key only the outcome was kept
		if e = kv.Of(f.view).Entry(c.Key); e != nil && e.Modified != r.Index {
			e = nil
		}
	}
	return f.entry(e, true)
}

// writeKey checks a change of keys and executes it. done is called once, at once or
// from a goroutine that must not wait, and must not block. What it is told of a change
// that was refused before it was proposed is an error without an index.
func (d *Door) writeKey(who *caller, call lease.Call, o *operation, c *kv.Command, done func(core.Result)) {
	refuse := func(err error) { done(core.Result{Err: asError(err)}) }
	if err := c.Validate(); err != nil {
		refuse(err)
		return
	}
	call.Judged = d.judged(who)
	if err := d.allowChange(who, o.action, c); err != nil {
		refuse(err)
		return
	}
	if c.Session.IsZero() {
		d.writeAllowed(call, o, c, done)
		return
	}
	err := d.allowSession(who, auth.SessionUse, c.Session)
	switch {
	case err == nil:
		d.writeAllowed(call, o, c, done)
	case incumbent.KindOf(err) != incumbent.Expired || len(call.KeyID) == 0:
		refuse(err)
	default: // the log answers what it did, if it was executed while the session was open
		d.afterConfirm(done, func() {
			if !d.view().Keeps(call.KeyID) {
				refuse(err)
				return
			}
			d.writeAllowed(call, o, c, done)
		})
	}
}

// writeAllowed executes a change, unless a confirmed view says that it would do nothing.
func (d *Door) writeAllowed(call lease.Call, o *operation, c *kv.Command, done func(core.Result)) {
	d.writes.Key(familyCall(call, false), c, o.first(), done)
}

// afterConfirm runs then, on a goroutine of the door, when this member has applied
// all that was committed when it was called; or tells done why it has not.
func (d *Door) afterConfirm(done func(core.Result), then func()) {
	d.confirm(func(err error) {
		d.work.Put(func() {
			if err != nil {
				done(core.Result{Err: asError(err)})
				return
			}
			then()
		})
	})
}

// keyError is the error of a call about a key, with the entry as it was found.
func (d *Door) keyError(err error, found *pb.KeyValue) *connect.Error {
	ce := d.callError(err)
	if found == nil {
		return ce
	}
	if detail, err := connect.NewErrorDetail(found); err == nil {
		ce.AddDetail(detail)
	}
	return ce
}

// entry writes an entry; nil gives nil.
func (f *former) entry(e *kv.Entry, keyOnly bool) *pb.KeyValue {
	if e == nil {
		return nil
	}
	p := &pb.KeyValue{
		Namespace: e.Namespace, Key: e.Name, Flags: e.Flags, Value: e.Value,
		CreatedIndex: uint64(e.Created), ModifiedIndex: uint64(e.Modified),
		LockIndex: e.LockIndex, Session: f.sessionID(e.Session), LockDelayMs: ms(e.Delay),
	}
	if keyOnly {
		p.Value = nil
	}
	if !e.Session.IsZero() {
		if p.OnEnd = pb.OnEnd_ON_END_KEEP; e.OnEnd == kv.Delete {
			p.OnEnd = pb.OnEnd_ON_END_DELETE
		}
	}
	return p
}
