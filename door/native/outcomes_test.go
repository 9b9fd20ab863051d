package native

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/websocket"
)

// Frames that are appended one by one are a message.
func TestAppendFrame(t *testing.T) {
	want := &pb.ServerMessage{Frames: []*pb.ServerFrame{
		answerFrame(7, &pb.OperationResult{Result: &pb.OperationResult_Release{Release: &pb.ReleaseResponse{Index: 300, Released: true}}}),
		answerFrame(1<<40, &pb.OperationResult{Error: &pb.Error{Kind: "held", Message: "another holds the lease"}}),
		{},
	}}
	var b []byte
	for _, f := range want.Frames {
		b = appendFrame(b, f)
	}
	got := &pb.ServerMessage{}
	if err := proto.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}

// Answers that are there together go out as one message for each stream, in
// pieces of bounded size.
func TestOutbox(t *testing.T) {
	out := newOutbox()
	one, two := &stream{}, &stream{} // without connections: nothing is sent
	frame := &pb.ServerFrame{Id: 1}
	for range 3 {
		out.add(one, frame)
		out.add(two, frame)
	}
	if out.used != 2 || out.all[0].to != one || out.all[1].to != two {
		t.Fatalf("%d messages for two streams", out.used)
	}
	if got, want := len(out.all[0].body), websocket.MaxHeader+3*len(appendFrame(nil, frame)); got != want {
		t.Errorf("message has %d bytes, want %d", got, want)
	}
	large := &pb.ServerFrame{Error: &pb.Error{Message: string(make([]byte, maxLetterBytes))}}
	out.add(one, large)
	if got := len(out.all[0].body); got != websocket.MaxHeader {
		t.Errorf("%d bytes wait behind a full message", got-websocket.MaxHeader)
	}
	out.send()
	if out.used != 0 || len(out.places) != 0 || out.all[0].to != nil || out.all[1].to != nil {
		t.Error("the outbox keeps streams")
	}
	for range maxLetters + 1 {
		out.add(&stream{}, frame)
	}
	out.send()
	if out.all[maxLetters].body != nil {
		t.Error("the outbox keeps more buffers than it may")
	}
}
