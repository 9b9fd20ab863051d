package client

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// Txn does several things or none, guarded by what its caller saw:
//
//	res, err := c.Txn("").IfHeld(lease.Name(), lease.Token()).Put("state", value).Commit(ctx)
//
// Conditions are given first, in any number; then the operations for the case that
// all hold; behind Else those for the case that one does not. Keys are of the
// namespace that it was made for. It is to be committed once.
type Txn struct {
	c         *Client
	s         *Session // whose stream it uses; nil: it calls
	namespace string
	request   *apiv1.TxnRequest
	ops       *[]*apiv1.TxnOperation // those that are being added to
}

// Txn begins a transaction; namespace is that of its keys, "" the default one.
func (c *Client) Txn(namespace string) *Txn {
	t := &Txn{c: c, namespace: namespace, request: &apiv1.TxnRequest{}}
	t.ops = &t.request.Then
	return t
}

// Transactions returns the plain call.
func (c *Client) Transactions() incumbentv1connect.TransactionServiceClient { return c.txns }

// If adds conditions as the API has them.
func (t *Txn) If(conditions ...*apiv1.Condition) *Txn {
	t.request.Conditions = append(t.request.Conditions, conditions...)
	return t
}

// IfHeld holds while a lease is held under a token, that of an offer once it is
// accepted. What such a transaction does no later holder has to fear.
func (t *Txn) IfHeld(name incumbent.Name, token incumbent.Token) *Txn {
	return t.If(&apiv1.Condition{Is: &apiv1.Condition_Held{Held: &apiv1.HeldCondition{
		Name: &apiv1.LeaseName{Namespace: name.Namespace, Model: name.Model, Name: name.Lease}, Token: uint64(token),
	}}})
}

// IfOpen holds while a session is open.
func (t *Txn) IfOpen(session incumbent.SessionID) *Txn {
	return t.If(&apiv1.Condition{Is: &apiv1.Condition_SessionOpen{SessionOpen: session.String()}})
}

// IfIndex holds if the entry was last modified at index; 0: if it is not there.
func (t *Txn) IfIndex(key string, index incumbent.Index) *Txn {
	return t.ifKey(&apiv1.KeyCondition{Key: key, Is: &apiv1.KeyCondition_ModifiedIndex{ModifiedIndex: uint64(index)}})
}

// IfValue holds if the entry is there and has this value.
func (t *Txn) IfValue(key string, value []byte) *Txn {
	return t.ifKey(&apiv1.KeyCondition{Key: key, Is: &apiv1.KeyCondition_Value{Value: value}})
}

// IfLocked holds if the session has locked the entry.
func (t *Txn) IfLocked(key string, session incumbent.SessionID) *Txn {
	return t.ifKey(&apiv1.KeyCondition{Key: key, Is: &apiv1.KeyCondition_LockedBy{LockedBy: session.String()}})
}

func (t *Txn) ifKey(c *apiv1.KeyCondition) *Txn {
	c.Namespace = t.namespace
	return t.If(&apiv1.Condition{Is: &apiv1.Condition_Key{Key: c}})
}

// IfNone holds if there is no key with the prefix.
func (t *Txn) IfNone(prefix string) *Txn {
	return t.If(&apiv1.Condition{Is: &apiv1.Condition_Range{Range: &apiv1.RangeCondition{
		Namespace: t.namespace, Prefix: prefix, Is: &apiv1.RangeCondition_Empty{Empty: true},
	}}})
}

// IfUnchanged holds if no key with the prefix was stored or deleted after index, which
// a list answers as its modified index.
func (t *Txn) IfUnchanged(prefix string, index incumbent.Index) *Txn {
	return t.If(&apiv1.Condition{Is: &apiv1.Condition_Range{Range: &apiv1.RangeCondition{
		Namespace: t.namespace, Prefix: prefix, Is: &apiv1.RangeCondition_UnchangedSince{UnchangedSince: uint64(index)},
	}}})
}

// Else has what follows executed if a condition does not hold.
func (t *Txn) Else() *Txn {
	t.ops = &t.request.Else
	return t
}

// Do adds operations as the API has them.
func (t *Txn) Do(ops ...*apiv1.TxnOperation) *Txn {
	*t.ops = append(*t.ops, ops...)
	return t
}

// Get reads an entry. One that is not there is no failure.
func (t *Txn) Get(key string) *Txn {
	return t.Do(&apiv1.TxnOperation{Op: &apiv1.TxnOperation_Get{Get: &apiv1.GetKeyRequest{Namespace: t.namespace, Key: key}}})
}

// List reads the entries with a prefix, up to limit; 0: all.
func (t *Txn) List(prefix string, limit uint32) *Txn {
	return t.Do(&apiv1.TxnOperation{Op: &apiv1.TxnOperation_List{List: &apiv1.ListKeysRequest{Namespace: t.namespace, Prefix: prefix, Limit: limit}}})
}

// Put stores a value. With a condition the transaction fails where it does not hold.
func (t *Txn) Put(key string, value []byte, opts ...PutOption) *Txn {
	r := &apiv1.PutRequest{Namespace: t.namespace, Key: key, Value: value}
	for _, o := range opts {
		o(r)
	}
	return t.Do(&apiv1.TxnOperation{Op: &apiv1.TxnOperation_Put{Put: r}})
}

// Delete deletes an entry, if it is there.
func (t *Txn) Delete(key string) *Txn {
	return t.Do(&apiv1.TxnOperation{Op: &apiv1.TxnOperation_Delete{Delete: &apiv1.DeleteRequest{Namespace: t.namespace, Key: key}}})
}

// DeleteTree deletes all entries with a prefix.
func (t *Txn) DeleteTree(prefix string) *Txn {
	return t.Do(&apiv1.TxnOperation{Op: &apiv1.TxnOperation_Delete{Delete: &apiv1.DeleteRequest{Namespace: t.namespace, Key: prefix, Tree: true}}})
}

// Release frees a lease that is held under a token.
func (t *Txn) Release(name incumbent.Name, token incumbent.Token) *Txn {
	return t.Do(&apiv1.TxnOperation{Op: &apiv1.TxnOperation_Release{Release: &apiv1.ReleaseRequest{
		Name: &apiv1.LeaseName{Namespace: name.Namespace, Model: name.Model, Name: name.Lease}, Token: uint64(token),
	}}})
}

// Commit executes the transaction. That a condition did not hold is no error: the
// answer says it. An error means that nothing has happened, unless it is of kind
// Unknown; [FailedOperation] says which operation it is of. Repeated by this client
// when an answer is lost, it still takes effect once.
func (t *Txn) Commit(ctx context.Context) (*apiv1.TxnResponse, error) {
	if !readsOnly(t.request) {
		t.request.Idempotency = t.c.NewKey()
	}
	res, err := t.commit(ctx)
	if err != nil {
		return nil, err
	}
	return res, nil
}

// failureError says which operation of a transaction failed.
type failureError struct {
	error
	operation int
}

func (e *failureError) Unwrap() error { return e.error }

func withFailure(err error) error {
	var call *connect.Error
	if !errors.As(err, &call) {
		return AsError(err)
	}
	for _, d := range call.Details() {
		if m, verr := d.Value(); verr == nil {
			if f, ok := m.(*apiv1.TxnFailure); ok {
				return &failureError{AsError(err), int(f.Operation)}
			}
		}
	}
	return AsError(err)
}

// FailedOperation is which operation of a transaction failed, from 1; 0: the error is
// of none.
func FailedOperation(err error) int {
	var e *failureError
	if errors.As(err, &e) {
		return e.operation
	}
	return 0
}

// readsOnly reports whether a transaction changes nothing, whatever it finds: it may
// then be sent again at any time.
func readsOnly(r *apiv1.TxnRequest) bool {
	for _, ops := range [][]*apiv1.TxnOperation{r.Then, r.Else} {
		for _, op := range ops {
			if op.GetGet() == nil && op.GetList() == nil {
				return false
			}
		}
	}
	return true
}
