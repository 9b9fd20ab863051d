package native

import (
	"context"
	"net/http"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
	"github.com/incumbent-dev/incumbent/engine"
)

// keyService serves KeyValueService; its methods are documented in kv.proto.
// What reads is in keys_read.go.
type keyService struct{ d *Door }

// Put stores.
func (s keyService) Put(ctx context.Context, r *connect.Request[pb.PutRequest]) (*connect.Response[pb.PutResponse], error) {
	res, entry, err := s.d.write(ctx, r.Header(), admit.Small, putCommand(r.Msg), r.Msg.Idempotency)
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
	res, _, err := s.d.write(ctx, r.Header(), admit.Releases, deleteCommand(r.Msg), r.Msg.Idempotency)
	n, _ := res.Record.(int)
	return unary(&pb.DeleteResponse{Index: uint64(res.Index), Deleted: uint32(n)}, err)
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
	res, entry, err := s.d.write(ctx, r.Header(), admit.Small, c, r.Msg.Idempotency)
	return unary(&pb.LockResponse{Index: uint64(res.Index), Entry: entry}, err)
}

func lockCommand(in *pb.LockRequest) (*kv.Command, error) {
	session, err := neededSession("session", in.Session)
	if err != nil {
		return nil, err
	}
	c := &kv.Command{
		Verb: kv.Acquire, Key: keyIn(in.Namespace, in.Key), Value: in.Value, Flags: in.Flags,
		Session: session, Delay: time.Duration(in.LockDelayMs) * time.Millisecond,
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
	res, entry, err := s.d.write(ctx, r.Header(), admit.Releases, c, r.Msg.Idempotency)
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
	return kv.Key{Namespace: or(namespace, incumbent.DefaultNamespace), Name: key}
}

// write executes a command about keys for a caller who waits, and returns what it
// did with the entry as it left it. The error is the call's, with the entry as it
// was found.
func (d *Door) write(ctx context.Context, h http.Header, lane admit.Lane, c *kv.Command, key *pb.Idempotency) (core.Result, *pb.KeyValue, error) {
	ctx, cancel := d.deadline(ctx)
	defer cancel()
	done, err := d.admit(ctx, lane, 1)
	if err != nil {
		return core.Result{}, nil, d.callError(err)
	}
	defer done()
	r, err := d.writeAdmitted(ctx, h, c, key)
	if err != nil {
		return r, nil, d.callError(err)
	}
	e, _ := r.Record.(*kv.Entry)
	if r.Err != nil {
		return r, nil, d.keyError(r.Err, e)
	}
	if e == nil { // of a known key only the outcome was kept
		e = kv.Of(d.view()).Entry(c.Key)
		if e != nil && e.Modified != r.Index {
			e = nil
		}
	}
	return r, entryPB(e, true), nil
}

// frees reports whether a command makes room or lets go without taking more, so
// that it may use what is kept back for that, and no quota stops it. o is the entry
// as it is.
func frees(c *kv.Command, o *kv.Entry) bool {
	switch c.Verb {
	case kv.Remove, kv.RemoveTree:
		return true
	case kv.Release:
		return c.Growth(o) <= 0
	}
	return false
}

// writeAdmitted is write in a place of its lane.
func (d *Door) writeAdmitted(ctx context.Context, h http.Header, c *kv.Command, key *pb.Idempotency) (core.Result, error) {
	if err := c.Validate(); err != nil {
		return core.Result{}, err
	}
	who := callerOf(ctx)
	o := &operation{action: auth.KeyWrite, name: incumbent.Name{Namespace: c.Key.Namespace, Lease: c.Key.Name}, session: c.Session, command: *c}
	if _, err := o.setKey(key); err != nil {
		return core.Result{}, err
	}
	if err := d.keyFromHeader(o, h); err != nil {
		return core.Result{}, err
	}
	// What an earlier attempt may yet do only the log decides: where it comes second,
	// it does nothing.
	first := o.key == nil || h.Get(headerFirst) != ""
	look, call := d.lookAt(c), d.callOf(ctx, who, o)
	if !c.Session.IsZero() {
		if err := d.allowSession(who, auth.SessionUse, c.Session); err != nil && (incumbent.KindOf(err) != incumbent.Expired || !d.answeredBefore(ctx, call.KeyID)) {
			return core.Result{}, err
		}
	}
	free := frees(c, look.entry)
	if !free && first {
		if err := d.roomFor(c.Growth(look.entry)); err != nil {
			return core.Result{}, err
		}
	}
	c.Most = uint64(d.quota)
	if first {
		r, done, err := d.doneAsItIs(ctx, c, look)
		if err != nil || done {
			return r, err
		}
	}
	got := make(chan core.Result, 1)
	d.engine.Execute(engine.Call{
		Meta:     core.Meta{Origin: call.Origin, KeyID: call.KeyID, KeyBase: call.KeyBase},
		Deadline: call.Deadline, Reserve: free,
	}, c, func(r core.Result) { got <- r })
	select {
	case r := <-got:
		return r, nil
	case <-ctx.Done():
		return core.Result{}, outcomeUnknown(ctx, "key")
	}
}

// doneAsItIs answers a command that would do nothing to the state as it is,
// without an entry of the log: by a view that is confirmed, once the one at hand
// says so.
func (d *Door) doneAsItIs(ctx context.Context, c *kv.Command, first look) (core.Result, bool, error) {
	if !first.idle {
		return core.Result{}, false, nil
	}
	if err := d.confirmed(ctx); err != nil {
		return core.Result{}, false, err
	}
	again := d.lookAt(c)
	return again.result, again.idle, nil
}

// look is what a view says of a command: one look at its key serves all that a door
// wants to know before it proposes.
type look struct {
	entry  *kv.Entry   // as it is, nil: there is none; of a command about one key
	result core.Result // if the command would change nothing
	idle   bool        // it would not
}

func (d *Door) lookAt(c *kv.Command) (l look) {
	all := d.view()
	l.entry, l.result, l.idle = kv.Of(all).Idling(c, all.Session(c.Session) != nil)
	l.result.Index = all.Index()
	return l
}

// answeredBefore reports whether a call with a key that would be refused, because its
// session is over or the quota full, has been executed before: then the log answers
// what it did.
func (d *Door) answeredBefore(ctx context.Context, key []byte) bool {
	return len(key) > 0 && d.confirmed(ctx) == nil && d.view().Keeps(key)
}

// keyError is the error of a call about a key, with the entry as it was found: it
// travels in headers or trailers, so a large value is left out.
func (d *Door) keyError(err error, found *kv.Entry) *connect.Error {
	ce := d.callError(err)
	if found == nil {
		return ce
	}
	if detail, err := connect.NewErrorDetail(entryPB(found, len(found.Value) > maxDetailValue)); err == nil {
		ce.AddDetail(detail)
	}
	return ce
}

// entryPB writes an entry; nil gives nil.
func entryPB(e *kv.Entry, keyOnly bool) *pb.KeyValue {
	if e == nil {
		return nil
	}
	p := &pb.KeyValue{
		Namespace: e.Namespace, Key: e.Name, Flags: e.Flags, Value: e.Value,
		CreatedIndex: uint64(e.Created), ModifiedIndex: uint64(e.Modified),
		LockIndex: e.LockIndex, Session: e.Session.String(), LockDelayMs: ms(e.Delay),
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

// roomFor refuses what would make keys and values take more than they may.
func (d *Door) roomFor(grows int64) error {
	v := kv.Of(d.view())
	if d.quota == 0 || grows <= 0 || v.Bytes()+grows <= d.quota {
		return nil
	}
	return kv.ErrFull(v.Bytes(), uint64(d.quota))
}
