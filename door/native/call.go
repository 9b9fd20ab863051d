package native

import (
	"context"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/credential"
	"github.com/incumbent-dev/incumbent/core/kv"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/lease"
)

// Headers that stand in for the fields of Idempotency. Without a base, the
// index that this member has applied is taken: the key then protects a repeat
// for as long as results are kept (10 minutes), not beyond. Whoever has never sent
// the key before may say so, by any value of the last one: a refusal then needs no
// entry of the log.
const (
	headerKey   = "Idempotency-Key"
	headerBase  = "Idempotency-Base-Index"
	headerFirst = "Idempotency-First"
)

// headerIndex goes with the error of a read, and says the index of the state in which it
// found nothing, as an answer would.
const headerIndex = "Incumbent-Index"

// perform runs one operation for a caller who waits.
func (d *Door) perform(ctx context.Context, h http.Header, in *pb.Operation) (*pb.OperationResult, error) {
	ctx, cancel := d.deadline(ctx)
	defer cancel()
	done, err := d.admit(ctx, callOf(in).Lane(), 1)
	if err != nil {
		return nil, d.callError(err)
	}
	defer done()
	who := callerOf(ctx)
	o, err := operationOf(who.principal, in)
	if err != nil {
		return nil, d.callError(err)
	}
	if err := d.keyFromHeader(o, h); err != nil {
		return nil, d.callError(err)
	}
	if err := d.allow(who, o); err != nil {
		return nil, d.callError(err)
	}
	call := d.callOf(ctx, who, o)
	r, err := outcomeOf(ctx, "lease", func(done func(core.Result)) {
		d.submit(call, o, done)
		Heard(ctx)
	})
	if err != nil {
		return nil, d.callError(err)
	}
	f := d.former(who)
	if r.Err != nil {
		return nil, callError(r.Err, d.standing(), f.lease(leases.AnswerOf(r).Lease))
	}
	return o.answer(f, r), nil
}

// outcomeUnknown is what a mutation answers whose caller waits no longer: it
// was handed on, so it may take effect.
func outcomeUnknown(ctx context.Context, what string) error {
	e := incumbent.Errorf(incumbent.Unknown, "no outcome in time (%w): the operation may or may not take effect", context.Cause(ctx))
	return e.WithHint("repeat it with the same idempotency key, or read the " + what)
}

// deadline bounds a call that names no deadline, and ends it when the door
// drains.
func (d *Door) deadline(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := d.untilDrained(ctx)
	ctx, cancel := context.WithTimeout(ctx, d.limits.Load().CallTimeout)
	return ctx, func() { cancel(); stop() }
}

// callOf is what goes with the operation to the lease service.
func (d *Door) callOf(ctx context.Context, who *caller, o *operation) lease.Call {
	deadline, _ := ctx.Deadline()
	return d.callBy(deadline, who, o)
}

func (d *Door) callBy(deadline time.Time, who *caller, o *operation) lease.Call {
	c := lease.Call{Deadline: deadline, Origin: d.origin(who), Judged: o.judged}
	c.KeyID, c.KeyBase = o.logged(who)
	return c
}

// submit hands an operation to the lease service.
func (d *Door) submit(c lease.Call, o *operation, done func(core.Result)) {
	if claim, ok := o.command.(leases.ClaimCommand); ok && claim.Wait {
		d.owners.claims(claim.Session)
	}
	d.leases.Submit(c, o.command, done)
}

// logged is the operation's key as the log knows it, with its base.
func (o *operation) logged(who *caller) ([]byte, incumbent.Index) {
	if o.key == nil {
		return nil, 0
	}
	return o.keyOf(who), incumbent.Index(o.key.BaseIndex)
}

// keyOf is the operation's key as the log knows it: two callers that choose the
// same key, or one that uses a key for two purposes, do not meet. One that is too
// long is left as it is, to be refused.
func (o *operation) keyOf(who *caller) []byte {
	if n := len(o.key.Key); n == 0 || n > core.MaxKeyBytes {
		return o.key.Key
	}
	purpose := fmt.Sprintf("%T", o.command)
	switch c := o.command.(type) {
	case kv.Command:
		purpose = fmt.Sprintf("%T %d", c, c.Verb)
	case credential.Command:
		purpose = fmt.Sprintf("%T %d %d %x", c, c.Verb, c.ID, c.Secret)
	}
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%q %s %q %q", who.name(), purpose, o.name, o.key.Key)
	return h.Sum(nil)
}

// origin says where a command came from.
func (d *Door) origin(who *caller) core.Origin {
	return core.Origin{At: d.now().UTC(), Door: doorName, Address: who.address, Principal: who.name()}
}

// setKey checks the idempotency key of a request, in its message or its header.
func (d *Door) setKey(o *operation, key *pb.Idempotency, h http.Header) error {
	if _, err := o.setKey(key); err != nil {
		return err
	}
	if err := d.keyFromHeader(o, h); err != nil {
		return err
	}
	if o.key != nil && h.Get(headerFirst) != "" {
		o.key.First = true
	}
	return nil
}

// first reports whether no earlier attempt at the operation is under way: what one
// may yet do only the log decides, and where it comes second, it does nothing.
func (o *operation) first() bool { return o.key == nil || o.key.First }

// keyFromHeader takes the idempotency key from the header if the message has
// none.
func (d *Door) keyFromHeader(o *operation, h http.Header) error {
	key := h.Get(headerKey)
	if key == "" {
		return nil
	}
	if o.key != nil {
		if string(o.key.Key) != key {
			return invalid("idempotency.key", "differs from the header %s", headerKey)
		}
		return nil
	}
	base := uint64(d.view().Index())
	if text := h.Get(headerBase); text != "" {
		var err error
		if base, err = strconv.ParseUint(text, 10, 64); err != nil {
			return invalid(headerBase, "%q is not an index", text)
		}
	}
	_, err := o.setKey(&pb.Idempotency{Key: []byte(key), BaseIndex: base})
	return err
}

// runExtensions extends and waits. Once it has given up, the batch is not the
// caller's any more.
func (d *Door) runExtensions(ctx context.Context, b *lease.Batch) error {
	if len(b.Items) == 0 {
		return nil
	}
	place := placeOf(ctx).keep()
	done := make(chan struct{})
	b.Done = func(*lease.Batch) {
		place.leave()
		close(done)
	}
	d.leases.Extend(b)
	Heard(ctx)
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// extensionOf checks one extension.
func (d *Door) extensionOf(who *caller, in *pb.Extension) (lease.Extension, error) {
	var e lease.Extension
	session, err := sessionOf("session", in.GetSession())
	if err != nil {
		return e, err
	}
	e.Token, e.Session = incumbent.Token(in.GetToken()), session
	if in.GetName() != nil || in.GetHolder() != "" {
		name, err := leaseName(in.GetName())
		if err != nil {
			return e, err
		}
		if err := holderOf("holder", in.GetHolder()); err != nil {
			return e, err
		}
		e.Named = &lease.Named{Name: name, Holder: in.GetHolder()}
	}
	if e.Token == 0 && e.Named == nil && session.IsZero() {
		return e, invalid("token", "is missing, and so are name with holder, and session: say what to extend")
	}
	if in.GetTtlMs() != 0 {
		if e.TTL, err = ttlOf("ttl_ms", in.GetTtlMs()); err != nil {
			return e, err
		}
	}
	return e, d.allowExtension(who, &e)
}

// keepsCritical reports whether an extension keeps a critical lease, and its caller may.
func (d *Door) keepsCritical(who *caller, in *pb.Extension) bool {
	e, err := d.extensionOf(who, in)
	return err == nil && lease.KeepsCritical(d.view(), &e)
}

// extensionResult answers item i of a batch.
func (d *Door) extensionResult(b *lease.Batch, i int) *pb.ExtensionResult {
	item := &b.Items[i]
	if item.Kind == incumbent.OK {
		out := &pb.ExtensionResult{HeldMs: ms(item.Held)}
		for _, token := range item.RevokingTokens {
			out.Revoking = append(out.Revoking, uint64(token))
		}
		return out
	}
	return &pb.ExtensionResult{Error: errorPB(extensionError(b, item.Kind), d.standing(), nil)}
}

// extensionError puts the kind of an unsuccessful extension in words.
func extensionError(b *lease.Batch, k incumbent.Kind) *incumbent.Error {
	one := lease.Batch{Items: []lease.Extension{{Kind: k}}}
	e := one.Err()
	if k.Transient() {
		e.RetryAfter = b.RetryAfter
	}
	return e
}

// unary turns the result of an operation into a call's answer.
func unary[T any](m *T, err error) (*connect.Response[T], error) {
	if err != nil {
		return nil, err
	}
	return connect.NewResponse(m), nil
}
