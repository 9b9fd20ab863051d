package native

import (
	"bytes"
	"context"
	"net/http"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/api/incumbent/v1/incumbentv1connect"
)

// FuzzOutline: what is seen of a request before it is decoded is what there is after.
func FuzzOutline(f *testing.F) {
	claim := &pb.Operation{Op: &pb.Operation_Claim{Claim: &pb.ClaimRequest{Holder: "h"}}}
	extend := &pb.Operation{Op: &pb.Operation_Extend{Extend: &pb.Extension{Token: 7}}}
	release := &pb.Operation{Op: &pb.Operation_Release{Release: &pb.ReleaseRequest{}}}
	put := &pb.TxnOperation{Op: &pb.TxnOperation_Put{Put: &pb.PutRequest{Key: "k"}}}
	drop := &pb.TxnOperation{Op: &pb.TxnOperation_Delete{Delete: &pb.DeleteRequest{Key: "k"}}}
	take := &pb.TxnOperation{Op: &pb.TxnOperation_Claim{Claim: &pb.ClaimRequest{}}}
	for _, m := range []proto.Message{
		&pb.BatchRequest{}, &pb.BatchRequest{Operations: []*pb.Operation{claim, extend, {}}}, &pb.BatchRequest{Operations: []*pb.Operation{extend, release}},
		&pb.TxnRequest{Then: []*pb.TxnOperation{put, drop}, Conditions: []*pb.Condition{{}, {}}}, &pb.TxnRequest{Else: []*pb.TxnOperation{drop}},
		&pb.TxnRequest{Then: []*pb.TxnOperation{take, {}}, Idempotency: &pb.Idempotency{Key: []byte("k")}},
	} {
		raw, err := proto.Marshal(m)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	f.Add([]byte{0x0a, 0x04, 0x0a, 0x00, 0x12, 0x00}) // an operation that is two: the last one holds
	f.Fuzz(func(t *testing.T, raw []byte) {
		batch, decoded := &pb.BatchRequest{}, &pb.BatchRequest{}
		if undecoded(raw, batch); proto.Unmarshal(raw, decoded) == nil {
			decoded.ProtoReflect().SetUnknown(nil)
			n, lane := outlineOfBatch(batch)
			if want, wantLane := outlineOfBatch(decoded); n != want || lane != wantLane {
				t.Errorf("%d operations, %v; decoded %d, %v", n, lane, want, wantLane)
			}
			if err := decode(batch); err != nil || !proto.Equal(batch, decoded) {
				t.Errorf("decoded as %v (%v), is %v", batch, err, decoded)
			}
		} else if decode(batch) == nil {
			t.Error("decoded what is no message")
		}
		txn, whole := &pb.TxnRequest{}, &pb.TxnRequest{}
		if undecoded(raw, txn); proto.Unmarshal(raw, whole) == nil {
			whole.ProtoReflect().SetUnknown(nil)
			lane, cost := outlineOfTxn(txn)
			if wantLane, want := outlineOfTxn(whole); cost != want || lane != wantLane {
				t.Errorf("cost %d, %v; decoded %d, %v", cost, lane, want, wantLane)
			}
		}
	})
}

// A request that newer clients have more to say in is decoded once.
func TestDecodedOnce(t *testing.T) {
	raw, err := proto.Marshal(&pb.BatchRequest{Operations: []*pb.Operation{{}, {}}})
	if err != nil {
		t.Fatal(err)
	}
	in := &pb.BatchRequest{}
	undecoded(append(raw, 0x78, 1), in) // field 15, unknown here
	for range 2 {
		if err := decode(in); err != nil || len(in.Operations) != 2 {
			t.Errorf("%d operations, %v", len(in.Operations), err)
		}
	}
}

// What is refused is not decoded: bytes that are no operation are refused like others.
func TestARefusedBatchIsNotDecoded(t *testing.T) {
	lanes := shutLanes(t)
	m := newMember(t, func(c *Config) { c.Admission = lanes })
	body := []byte{0x0a, 0x05, 0x0a, 0x03, 0xff, 0xff, 0xff} // a claim that is none
	post := func() int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, m.url+incumbentv1connect.LeaseServiceBatchProcedure, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/proto")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	if got := post(); got != http.StatusTooManyRequests {
		t.Errorf("while its lane is shut: HTTP %d", got)
	}
	lanes.SetMemory(0, 1)
	if got := post(); got != http.StatusBadRequest {
		t.Errorf("afterwards: HTTP %d", got)
	}
}

// A refusal waits for a part of its hint, which is the shorter for it, as long as there
// are few; and less than the caller waits.
func TestRefusalsAreHeldBack(t *testing.T) {
	t.Parallel()
	life, end := context.WithCancel(t.Context())
	refusal := &incumbent.Error{Kind: incumbent.Overloaded, RetryAfter: 300 * time.Millisecond}
	d := &Door{life: life}
	untimed, theirs := new(callControl), &callControl{timed: true}
	limited, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for name, ctx := range map[string]context.Context{"no deadline": t.Context(), "the door's": limited} {
		if got := d.holdBack(ctx, untimed, refusal); got.RetryAfter != refusal.RetryAfter-admit.HeldBackFor {
			t.Errorf("%s: %v is left of %v", name, got.RetryAfter, refusal.RetryAfter)
		}
	}
	if got := d.holdBack(limited, theirs, refusal); got.RetryAfter != time.Millisecond {
		t.Errorf("the caller's: %v is left of %v", got.RetryAfter, refusal.RetryAfter)
	}
	short := &incumbent.Error{Kind: incumbent.Overloaded, RetryAfter: time.Millisecond}
	if got := d.holdBack(t.Context(), untimed, short); got.RetryAfter <= 0 {
		t.Error("no hint is left")
	}
	hurried, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if d.holdBack(hurried, theirs, refusal); hurried.Err() != nil {
		t.Error("the deadline passed meanwhile: what was certainly not done looks as if it might have been")
	}
	if d.held.Len() != 0 || d.HeldBackBytes() != 0 {
		t.Error("what was let go is counted")
	}
	for name, full := range map[string]func(){
		"calls": func() { fill(d) },
		"bytes": func() { d.held.Take(admit.MaxHeldBackBytes); untimed.message, untimed.size = new(pb.TxnRequest), 1 },
		"end":   end,
	} {
		d = &Door{life: life}
		if full(); d.holdBack(t.Context(), untimed, refusal) != refusal {
			t.Errorf("%s: held back", name)
		}
	}
}

// fill has a door hold no more back.
func fill(d *Door) {
	for d.held.Take(0) {
	}
}
