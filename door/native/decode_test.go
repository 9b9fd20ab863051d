package native

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

func tokensMessage(id uint64, timeout uint32, tokens ...uint64) *pb.ClientFrame {
	return &pb.ClientFrame{
		Id: id, TimeoutMs: timeout,
		Request: &pb.ClientFrame_ExtendTokens{ExtendTokens: &pb.ExtendTokens{Tokens: tokens}},
	}
}

func beatMessage(id uint64) *pb.ClientFrame {
	return &pb.ClientFrame{Id: id, Request: &pb.ClientFrame_Beat{Beat: &pb.Beat{}}}
}

func marshal(tb testing.TB, m proto.Message) []byte {
	tb.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// asGeneral is the frame as the protobuf library would have read it.
func (f *clientFrame) asGeneral(d *decoder) *pb.ClientFrame {
	switch f.kind {
	case tokensFrame:
		return tokensMessage(f.id, f.timeoutMS, d.tokens[f.first:f.first+f.count]...)
	case beatFrame:
		b := beatMessage(f.id)
		b.TimeoutMs = f.timeoutMS
		return b
	}
	return f.general
}

func TestDecodeTakesTheFastPath(t *testing.T) {
	in := marshal(t, &pb.ClientMessage{Frames: []*pb.ClientFrame{
		tokensMessage(1, 500, 7, 8, 9), beatMessage(2), tokensMessage(3, 0), tokensMessage(0, 0, 1),
		{Id: 5, Request: &pb.ClientFrame_Attach{Attach: &pb.Attach{Session: "x"}}},
	}})
	var d decoder
	if bad := d.decode(in); bad != nil {
		t.Fatal(bad)
	}
	want := []frameKind{tokensFrame, beatFrame, tokensFrame, tokensFrame, generalFrame}
	got := make([]frameKind, len(d.frames))
	for i := range d.frames {
		got[i] = d.frames[i].kind
	}
	if !slices.Equal(got, want) {
		t.Fatalf("kinds %v, want %v", got, want)
	}
	hot := in[:len(in)-9]
	if n := testing.AllocsPerRun(100, func() { _ = d.decode(hot) }); n != 0 {
		t.Errorf("%v allocations for frames of the fast path", n)
	}
}

func TestDecodeLimitsFrames(t *testing.T) {
	m := &pb.ClientMessage{}
	for range MaxFrames + 1 {
		m.Frames = append(m.Frames, beatMessage(1))
	}
	var d decoder
	if bad := d.decode(marshal(t, m)); bad == nil || bad.Code != 1008 {
		t.Fatalf("got %v", bad)
	}
}

func FuzzDecode(f *testing.F) {
	f.Add(marshal(f, &pb.ClientMessage{Frames: []*pb.ClientFrame{tokensMessage(1, 500, 7, 8), beatMessage(9)}}))
	f.Add(marshal(f, &pb.ClientMessage{Frames: []*pb.ClientFrame{
		{Id: 5, Request: &pb.ClientFrame_Attach{Attach: &pb.Attach{Session: "x", Counter: 3}}},
		{Request: &pb.ClientFrame_Operation{Operation: &pb.Operation{Op: &pb.Operation_Claim{Claim: &pb.ClaimRequest{Holder: "h"}}}}},
	}}))
	f.Add([]byte("\x0a\x0b\x1a\x09\x09\x01\x00\x00\x00\x00\x00\x00\x00"))     // tokens not packed
	f.Add([]byte("\x0a\x06\x1a\x00\x22\x00\x08\x01"))                         // two requests in one frame
	f.Add([]byte("\x0a\x0c\x08\x01\x10\xff\xff\xff\xff\xff\xff\xff\xff\x7f")) // a long timeout
	f.Fuzz(func(t *testing.T, in []byte) {
		var d decoder
		var want pb.ClientMessage
		err := proto.Unmarshal(in, &want)
		bad := d.decode(in)
		if bad != nil && bad.Code == 1008 && len(want.Frames) > MaxFrames {
			return
		}
		if (bad == nil) != (err == nil) {
			t.Fatalf("decode: %v, proto: %v", bad, err)
		}
		if err != nil {
			return
		}
		if len(d.frames) != len(want.Frames) {
			t.Fatalf("%d frames, want %d", len(d.frames), len(want.Frames))
		}
		for i := range d.frames {
			got := d.frames[i].asGeneral(&d)
			if d.frames[i].id != want.Frames[i].Id || d.frames[i].timeoutMS != want.Frames[i].TimeoutMs || !proto.Equal(got, want.Frames[i]) {
				t.Fatalf("frame %d: %v, want %v", i, got, want.Frames[i])
			}
		}
	})
}
