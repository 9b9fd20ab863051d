package client

import (
	"context"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// maxFrameBytes is the largest request that goes over a session's stream, and what requests
// that go together have in a message. Others are called.
const maxFrameBytes = maxMessageBytes / 2

// KV returns the keys of a namespace, "" the default one, as [Client.KV] does, but
// reads and writes them over the session's stream: for a fraction of a call's cost, at
// the member that the session is at. Pages of lists are called.
func (s *Session) KV(namespace string) *KV { return &KV{c: s.c, s: s, namespace: namespace} }

// Txn begins a transaction that is committed over the session's stream; see
// [Client.Txn].
func (s *Session) Txn(namespace string) *Txn {
	t := s.c.Txn(namespace)
	t.s = s
	return t
}

// keyed is a request that changes something.
type keyed interface {
	proto.Message
	GetIdempotency() *apiv1.Idempotency
}

// overStream reports whether a request goes over the session's stream.
func (s *Session) overStream(m proto.Message) bool { return s != nil && proto.Size(m) <= maxFrameBytes }

// change sends a request that changes something over the stream, until it is answered.
// An error may come with an answer, which says what the request was refused for. It is
// of kind Unknown if an attempt may have taken effect.
func (s *Session) change(ctx context.Context, m keyed, frame *apiv1.ClientFrame) (*apiv1.ServerFrame, error) {
	key := m.GetIdempotency()
	if err := s.c.complete(ctx, key, s.learn); err != nil {
		return nil, err
	}
	attempts := 0
	a, unsure, err := s.attempt(ctx, rebased(key, s.again), func() *apiv1.ClientFrame {
		attempts++
		if key != nil {
			key.First = attempts == 1
		}
		return frame
	})
	// A later attempt that was refused says nothing of the first, nor does the end of the
	// session; what the log has answered, as that a condition does not hold, is what became
	// of all.
	if err != nil && unsure && (a == nil || retryable(err)) {
		return nil, incumbent.Errorf(incumbent.Unknown, "no answer in time: it may or may not take effect: %w", err)
	}
	return a, err
}

// put, delete, lock, unlock, get and commit do one request, over the session's stream if
// there is one that it fits through.

func (k *KV) put(ctx context.Context, r *apiv1.PutRequest) (*apiv1.PutResponse, error) {
	if k.s.overStream(r) {
		a, err := k.s.change(ctx, r, &apiv1.ClientFrame{Request: &apiv1.ClientFrame_Put{Put: r}})
		return a.GetPut(), withFound(err, a.GetPut().GetEntry())
	}
	return called(k.c.keys.Put(ctx, firstOf(r)))
}

func (k *KV) remove(ctx context.Context, r *apiv1.DeleteRequest) (*apiv1.DeleteResponse, error) {
	if k.s.overStream(r) {
		a, err := k.s.change(ctx, r, &apiv1.ClientFrame{Request: &apiv1.ClientFrame_Delete{Delete: r}})
		return a.GetDelete(), withFound(err, a.GetDelete().GetEntry())
	}
	return called(k.c.keys.Delete(ctx, firstOf(r)))
}

func (k *KV) lock(ctx context.Context, r *apiv1.LockRequest) (*apiv1.LockResponse, error) {
	if k.s.overStream(r) {
		a, err := k.s.change(ctx, r, &apiv1.ClientFrame{Request: &apiv1.ClientFrame_Lock{Lock: r}})
		return a.GetLock(), withFound(err, a.GetLock().GetEntry())
	}
	return called(k.c.keys.Lock(ctx, firstOf(r)))
}

func (k *KV) unlock(ctx context.Context, r *apiv1.UnlockRequest) (*apiv1.UnlockResponse, error) {
	if k.s.overStream(r) {
		a, err := k.s.change(ctx, r, &apiv1.ClientFrame{Request: &apiv1.ClientFrame_Unlock{Unlock: r}})
		return a.GetUnlock(), withFound(err, a.GetUnlock().GetEntry())
	}
	return called(k.c.keys.Unlock(ctx, firstOf(r)))
}

func (k *KV) get(ctx context.Context, r *apiv1.GetKeyRequest) (*apiv1.GetKeyResponse, error) {
	if k.s.overStream(r) {
		a, err := k.s.request(ctx, func() *apiv1.ClientFrame {
			return &apiv1.ClientFrame{Request: &apiv1.ClientFrame_GetKey{GetKey: r}}
		})
		return a.GetGetKey(), err
	}
	return called(k.c.keys.Get(ctx, connect.NewRequest(r)))
}

func (t *Txn) commit(ctx context.Context) (*apiv1.TxnResponse, error) {
	if t.s.overStream(t.request) {
		frame := &apiv1.ClientFrame{Request: &apiv1.ClientFrame_Txn{Txn: t.request}}
		var a *apiv1.ServerFrame
		var err error
		if t.request.Idempotency != nil {
			a, err = t.s.change(ctx, t.request, frame)
		} else {
			a, err = t.s.request(ctx, func() *apiv1.ClientFrame { return frame })
		}
		if failed := a.GetTxn().GetFailed(); err != nil && failed > 0 {
			err = &failureError{err, int(failed)}
		}
		return a.GetTxn(), err
	}
	r := connect.NewRequest(t.request)
	if t.request.Idempotency != nil {
		r = firstOf(t.request)
	}
	res, err := t.c.txns.Txn(ctx, r)
	if err != nil {
		return nil, withFailure(err)
	}
	return res.Msg, nil
}

// called is the outcome of a call. The error is an *incumbent.Error, behind which is the
// entry that a refusal was about.
func called[T any](r *connect.Response[T], err error) (*T, error) {
	if err != nil {
		return nil, withEntry(err)
	}
	return r.Msg, nil
}

// withFound is an error with the entry that a refusal was about.
func withFound(err error, found *apiv1.KeyValue) error {
	if err == nil || found == nil {
		return err
	}
	return &entryError{err, found}
}
