package native

import (
	"errors"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
)

// keyRequests is a life of some keys and a session, in one namespace.
func keyRequests(namespace, session, other string) []*pb.ClientFrame {
	put := func(r *pb.PutRequest) *pb.ClientFrame {
		r.Namespace = namespace
		return &pb.ClientFrame{Request: &pb.ClientFrame_Put{Put: r}}
	}
	get := func(key string, stale bool) *pb.ClientFrame {
		return &pb.ClientFrame{Request: &pb.ClientFrame_GetKey{GetKey: &pb.GetKeyRequest{Namespace: namespace, Key: key, Stale: stale}}}
	}
	remove := func(r *pb.DeleteRequest) *pb.ClientFrame {
		r.Namespace = namespace
		return &pb.ClientFrame{Request: &pb.ClientFrame_Delete{Delete: r}}
	}
	lock := func(session string) *pb.ClientFrame {
		return &pb.ClientFrame{Request: &pb.ClientFrame_Lock{Lock: &pb.LockRequest{Namespace: namespace, Key: "l", Value: []byte("v"), Session: session}}}
	}
	unlock := func(session string) *pb.ClientFrame {
		return &pb.ClientFrame{Request: &pb.ClientFrame_Unlock{Unlock: &pb.UnlockRequest{Namespace: namespace, Key: "l", Session: session}}}
	}
	list := func(r *pb.ListKeysRequest) *pb.ClientFrame {
		r.Namespace = namespace
		return &pb.ClientFrame{Request: &pb.ClientFrame_ListKeys{ListKeys: r}}
	}
	txn := func(r *pb.TxnRequest) *pb.ClientFrame {
		return &pb.ClientFrame{Request: &pb.ClientFrame_Txn{Txn: r}}
	}
	here := func(key string, index uint64) *pb.Condition {
		return &pb.Condition{Is: &pb.Condition_Key{Key: &pb.KeyCondition{Namespace: namespace, Key: key, Is: &pb.KeyCondition_ModifiedIndex{ModifiedIndex: index}}}}
	}
	op := func(r *pb.PutRequest) *pb.TxnOperation {
		r.Namespace = namespace
		return &pb.TxnOperation{Op: &pb.TxnOperation_Put{Put: r}}
	}
	var many []*pb.TxnOperation
	for range inlineSteps + 1 {
		many = append(many, op(&pb.PutRequest{Key: "many", Value: []byte("v")}))
	}
	large := strings.Repeat("v", maxDetailValue+1)
	key := &pb.Idempotency{Key: []byte("k of " + namespace), BaseIndex: 1}
	return []*pb.ClientFrame{
		get("x", false),
		put(&pb.PutRequest{Key: "x", Value: []byte("a"), Flags: 7}),
		put(&pb.PutRequest{Key: "x", Value: []byte("b"), Condition: ifIndex(0)}), // refused, with what was found
		put(&pb.PutRequest{Key: "x", Value: []byte("b"), Condition: &pb.PutRequest_IfValue{IfValue: []byte("a")}}),
		put(&pb.PutRequest{Key: "x", Value: []byte("once"), Idempotency: key}),
		put(&pb.PutRequest{Key: "x", Value: []byte("once"), Idempotency: key}),
		put(&pb.PutRequest{Key: ""}),
		put(&pb.PutRequest{Key: "large", Value: []byte(large)}),
		put(&pb.PutRequest{Key: "large", Condition: ifIndex(0)}), // without its value
		put(&pb.PutRequest{Key: "x", Idempotency: &pb.Idempotency{Key: make([]byte, 100)}}),
		get("x", false),
		get("x", true),
		get("", true),
		lock(session),
		lock(session),
		lock(other),
		lock("nobody"),
		unlock(other),
		unlock(session),
		unlock(incumbent.SessionID{1}.String()),
		list(&pb.ListKeysRequest{}),
		list(&pb.ListKeysRequest{Limit: 1, Stale: true}),
		list(&pb.ListKeysRequest{Limit: MaxPage + 1}),
		txn(&pb.TxnRequest{Conditions: []*pb.Condition{here("t", 0)}, Then: []*pb.TxnOperation{op(&pb.PutRequest{Key: "t", Value: []byte("v")})}}),
		txn(&pb.TxnRequest{Conditions: []*pb.Condition{here("t", 0)}, Then: []*pb.TxnOperation{op(&pb.PutRequest{Key: "t", Value: []byte("v")})}}),
		txn(&pb.TxnRequest{Then: []*pb.TxnOperation{op(&pb.PutRequest{Key: "u"}), op(&pb.PutRequest{Key: "t", Condition: ifIndex(0)})}}), // the second fails
		txn(&pb.TxnRequest{Then: many}),
		txn(&pb.TxnRequest{Then: []*pb.TxnOperation{{}}}),
		remove(&pb.DeleteRequest{Key: "x", Condition: &pb.DeleteRequest_IfIndex{IfIndex: 1}}),
		remove(&pb.DeleteRequest{Key: "x"}),
		remove(&pb.DeleteRequest{Key: "x"}),
		remove(&pb.DeleteRequest{Key: "t", Tree: true}),
		list(&pb.ListKeysRequest{KeysOnly: true}),
	}
}

// called is a request by a call, answered as a frame would be.
func (m *member) called(f *pb.ClientFrame) *pb.ServerFrame {
	out := &pb.ServerFrame{}
	var err error
	ctx := m.tb.Context()
	switch r := f.Request.(type) {
	case *pb.ClientFrame_Put:
		var res *connect.Response[pb.PutResponse]
		if res, err = m.keys().Put(ctx, connect.NewRequest(r.Put)); err == nil {
			out.Answer = &pb.ServerFrame_Put{Put: res.Msg}
		}
	case *pb.ClientFrame_Delete:
		var res *connect.Response[pb.DeleteResponse]
		if res, err = m.keys().Delete(ctx, connect.NewRequest(r.Delete)); err == nil {
			out.Answer = &pb.ServerFrame_Delete{Delete: res.Msg}
		}
	case *pb.ClientFrame_Lock:
		var res *connect.Response[pb.LockResponse]
		if res, err = m.keys().Lock(ctx, connect.NewRequest(r.Lock)); err == nil {
			out.Answer = &pb.ServerFrame_Lock{Lock: res.Msg}
		}
	case *pb.ClientFrame_Unlock:
		var res *connect.Response[pb.UnlockResponse]
		if res, err = m.keys().Unlock(ctx, connect.NewRequest(r.Unlock)); err == nil {
			out.Answer = &pb.ServerFrame_Unlock{Unlock: res.Msg}
		}
	case *pb.ClientFrame_GetKey:
		var res *connect.Response[pb.GetKeyResponse]
		if res, err = m.keys().Get(ctx, connect.NewRequest(r.GetKey)); err == nil {
			out.Answer = &pb.ServerFrame_GetKey{GetKey: res.Msg}
		}
	case *pb.ClientFrame_ListKeys:
		var res *connect.Response[pb.ListKeysResponse]
		if res, err = m.keys().List(ctx, connect.NewRequest(r.ListKeys)); err == nil {
			out.Answer = &pb.ServerFrame_ListKeys{ListKeys: res.Msg}
		}
	case *pb.ClientFrame_Txn:
		var res *pb.TxnResponse
		if res, err = m.txn(r.Txn); err == nil {
			out.Answer = &pb.ServerFrame_Txn{Txn: res}
		}
	}
	if err != nil {
		m.answerOf(err, out)
	}
	return out
}

// answerOf takes apart the error of a call.
func (m *member) answerOf(err error, out *pb.ServerFrame) {
	var call *connect.Error
	if !errors.As(err, &call) {
		m.tb.Fatal(err)
	}
	for _, d := range call.Details() {
		v, err := d.Value()
		if err != nil {
			m.tb.Fatal(err)
		}
		switch v := v.(type) {
		case *pb.Error:
			out.Error = v
		case *pb.KeyValue:
			out.Answer = &pb.ServerFrame_Put{Put: &pb.PutResponse{Entry: v}}
		case *pb.TxnFailure:
			out.Answer = &pb.ServerFrame_Txn{Txn: &pb.TxnResponse{Unmet: v.Unmet, Failed: v.Operation}}
		}
	}
}

// found is the entry beside an error.
func found(f *pb.ServerFrame) *pb.KeyValue {
	for _, e := range []*pb.KeyValue{f.GetPut().GetEntry(), f.GetLock().GetEntry(), f.GetUnlock().GetEntry(), f.GetDelete().GetEntry()} {
		if e != nil {
			return e
		}
	}
	return nil
}

// A stream answers as the calls do, each played to a member of its own.
func TestKeysOverAStreamAnswerAsCalls(t *testing.T) {
	byCall, byStream := newMember(t), newMember(t)
	session, other := incumbent.SessionID{7}.String(), incumbent.SessionID{8}.String()
	w := byStream.dial()
	callers := byCall.dial()
	for i, id := range []string{session, other} {
		w.ok(openFrame(uint64(i)+1, id, 60_000))
		callers.ok(openFrame(uint64(i)+1, id, 60_000))
	}
	calls, frames := keyRequests("n", session, other), keyRequests("n", session, other)
	for i, f := range frames {
		want := byCall.called(calls[i])
		f.Id = uint64(100 + i)
		got := w.ask(f)
		got.Id = 0
		if want.Error != nil {
			if got.Error.GetKind() != want.Error.Kind || got.Error.GetMessage() != want.Error.Message || got.Error.GetHint() != want.Error.Hint {
				t.Errorf("%v\n by stream: %v\n by call: %v", f, got.Error, want.Error)
			}
			if !proto.Equal(found(got), found(want)) || got.GetTxn().GetFailed() != want.GetTxn().GetFailed() {
				t.Errorf("%v\n by stream: %v\n by call: %v", f, got, want)
			}
			continue
		}
		if g, w := protojson.Format(got), protojson.Format(want); got.Error != nil || !proto.Equal(got, want) {
			t.Errorf("%v\n by stream: %v\n by call: %v", f, g, w)
		}
	}
}

func TestG12_KeysOverAStreamAreForAgentsAndOperators(t *testing.T) {
	m := newMember(t)
	m.guard.principal = auth.Principal{Name: "a", Kind: auth.Observer}
	w := m.dial()
	requests := []*pb.ClientFrame{
		{Request: &pb.ClientFrame_Put{Put: &pb.PutRequest{Key: "x"}}},
		{Request: &pb.ClientFrame_Delete{Delete: &pb.DeleteRequest{Key: "x"}}},
		{Request: &pb.ClientFrame_GetKey{GetKey: &pb.GetKeyRequest{Key: "x", Stale: true}}},
		{Request: &pb.ClientFrame_ListKeys{ListKeys: &pb.ListKeysRequest{}}},
		{Request: &pb.ClientFrame_Txn{Txn: &pb.TxnRequest{Then: []*pb.TxnOperation{opPut("x", "v")}}}},
		{Request: &pb.ClientFrame_Txn{Txn: &pb.TxnRequest{Then: []*pb.TxnOperation{opGet("x")}}}},
	}
	for i, f := range requests {
		f.Id = uint64(i) + 1
		if got := w.ask(f); got.Error.GetKind() != incumbent.Denied.String() {
			t.Errorf("%v: %v", f, got)
		}
	}
}
