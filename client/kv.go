package client

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// KV reads and writes keys and values of one namespace. Its errors are
// *incumbent.Error; [FoundEntry] gives the entry that a refusal was about. It is
// safe for concurrent use.
type KV struct {
	c         *Client
	s         *Session // whose stream it uses; nil: it calls
	namespace string
}

// KV returns the keys of a namespace; "" means the default one.
func (c *Client) KV(namespace string) *KV { return &KV{c: c, namespace: namespace} }

// Keys returns the plain calls on keys and values.
func (c *Client) Keys() incumbentv1connect.KeyValueServiceClient { return c.keys }

// PutOption says more about a Put.
type PutOption func(*apiv1.PutRequest)

// Flags are kept with the value, for the caller's use.
func Flags(flags uint64) PutOption {
	return func(r *apiv1.PutRequest) { r.Flags = flags }
}

// IfIndex has Put fail with the kind Conflict unless the entry was last modified
// at index; 0: unless it is not there.
func IfIndex(index incumbent.Index) PutOption {
	return func(r *apiv1.PutRequest) { r.Condition = &apiv1.PutRequest_IfIndex{IfIndex: uint64(index)} }
}

// IfValue has Put fail with the kind Conflict unless the entry has this value.
func IfValue(value []byte) PutOption {
	return func(r *apiv1.PutRequest) { r.Condition = &apiv1.PutRequest_IfValue{IfValue: value} }
}

// Get returns the entry of a key, or an error of kind NotFound.
func (k *KV) Get(ctx context.Context, key string) (*apiv1.KeyValue, error) {
	res, err := k.get(ctx, &apiv1.GetKeyRequest{Namespace: k.namespace, Key: key})
	return res.GetEntry(), err
}

// List calls page with the entries below a prefix, in the order of their keys, as
// they come: each page is of a state of its own. It ends with an error of page's.
func (k *KV) List(ctx context.Context, r *apiv1.ListKeysRequest, page func(*apiv1.ListKeysResponse) error) error {
	r.Namespace = k.namespace
	for {
		res, err := called(k.c.keys.List(ctx, connect.NewRequest(r)))
		if err != nil {
			return err
		}
		if err := page(res); err != nil || res.Next == "" {
			return err
		}
		r.After = res.Next
	}
}

// Put stores a value and returns the index at which it was stored. Repeated by
// this client when an answer is lost, it still takes effect once.
func (k *KV) Put(ctx context.Context, key string, value []byte, opts ...PutOption) (incumbent.Index, error) {
	res, err := k.PutEntry(ctx, key, value, opts...)
	return incumbent.Index(res.GetIndex()), err
}

// PutEntry is Put, and returns the entry, too: nil if an answer was lost and the
// entry has changed since.
func (k *KV) PutEntry(ctx context.Context, key string, value []byte, opts ...PutOption) (*apiv1.PutResponse, error) {
	r := &apiv1.PutRequest{Namespace: k.namespace, Key: key, Value: value, Idempotency: k.c.NewKey()}
	for _, o := range opts {
		o(r)
	}
	res, err := k.put(ctx, r)
	if err != nil {
		return nil, err
	}
	withValue(res.Entry, value)
	return res, nil
}

// headerFirst says that nothing with the request's key was sent before, so that a
// refusal needs no entry of the log. The transport takes it off what it repeats.
const headerFirst = "Idempotency-First"

// firstOf is a request with a key of its own.
func firstOf[M any](m *M) *connect.Request[M] {
	r := connect.NewRequest(m)
	r.Header().Set(headerFirst, "1")
	return r
}

// Delete deletes an entry, if it is there, and reports whether it was.
func (k *KV) Delete(ctx context.Context, key string) (bool, error) {
	n, err := k.delete(ctx, &apiv1.DeleteRequest{Key: key})
	return n > 0, err
}

// DeleteIf deletes an entry that was last modified at index, or fails with the kind
// Conflict.
func (k *KV) DeleteIf(ctx context.Context, key string, index incumbent.Index) error {
	_, err := k.delete(ctx, &apiv1.DeleteRequest{Key: key, Condition: &apiv1.DeleteRequest_IfIndex{IfIndex: uint64(index)}})
	return err
}

// DeleteTree deletes all entries below a prefix, in one step, and returns how many
// those were.
func (k *KV) DeleteTree(ctx context.Context, prefix string) (int, error) {
	return k.delete(ctx, &apiv1.DeleteRequest{Key: prefix, Tree: true})
}

// delete returns how many entries went; of a call whose first answer was lost 0.
func (k *KV) delete(ctx context.Context, r *apiv1.DeleteRequest) (int, error) {
	r.Namespace, r.Idempotency = k.namespace, k.c.NewKey()
	res, err := k.remove(ctx, r)
	return int(res.GetDeleted()), err
}

// LockOptions say what the end of its session means to an entry.
type LockOptions struct {
	DeleteOnEnd bool          // the entry ends, too
	Delay       time.Duration // for so long nobody locks it then; up to a minute
}

// Lock stores a value and locks the entry for a session, which is open. It fails
// with the kind Held while another has it.
func (k *KV) Lock(ctx context.Context, key string, value []byte, session incumbent.SessionID, o LockOptions) (*apiv1.KeyValue, error) {
	r := &apiv1.LockRequest{
		Namespace: k.namespace, Key: key, Value: value, Session: session.String(),
		OnEnd: apiv1.OnEnd_ON_END_KEEP, LockDelayMs: uint32(o.Delay.Milliseconds()), Idempotency: k.c.NewKey(),
	}
	if o.DeleteOnEnd {
		r.OnEnd = apiv1.OnEnd_ON_END_DELETE
	}
	res, err := k.lock(ctx, r)
	if err != nil {
		return nil, err
	}
	return withValue(res.Entry, value), nil
}

// withValue puts into the entry that a call has stored what its answer leaves out.
func withValue(e *apiv1.KeyValue, value []byte) *apiv1.KeyValue {
	if e != nil {
		e.Value = value
	}
	return e
}

// Unlock stores a value and gives the session's lock up. It fails with the kind
// NotHolder if the session has not locked the entry.
func (k *KV) Unlock(ctx context.Context, key string, value []byte, session incumbent.SessionID) error {
	_, err := k.unlock(ctx, &apiv1.UnlockRequest{
		Namespace: k.namespace, Key: key, Value: value, Session: session.String(), Idempotency: k.c.NewKey(),
	})
	return err
}

// entryError carries the entry that a refusal was about.
type entryError struct {
	error
	entry *apiv1.KeyValue
}

func (e *entryError) Unwrap() error { return e.error }

func withEntry(err error) error {
	var call *connect.Error
	if errors.As(err, &call) {
		for _, d := range call.Details() {
			if m, verr := d.Value(); verr == nil {
				if entry, ok := m.(*apiv1.KeyValue); ok {
					return &entryError{AsError(err), entry}
				}
			}
		}
	}
	return AsError(err)
}

// FoundEntry returns the entry as a refusal of Put, Delete, Lock or Unlock found
// it, without a value of more than 4 KiB; nil: it was not there.
func FoundEntry(err error) *apiv1.KeyValue {
	var e *entryError
	if errors.As(err, &e) {
		return e.entry
	}
	return nil
}
