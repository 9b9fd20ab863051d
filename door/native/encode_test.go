package native

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	"github.com/incumbent-dev/incumbent"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

func TestAppendTokensExtended(t *testing.T) {
	ok := func(d time.Duration) outcome { return outcome{held: d} }
	tests := []struct {
		name string
		in   []outcome
		want *pb.TokensExtended
	}{
		{"none", nil, &pb.TokensExtended{}},
		{"same", []outcome{ok(time.Second), ok(time.Second)}, &pb.TokensExtended{HeldMs: 1000}},
		{"different", []outcome{ok(time.Second), ok(2 * time.Second)}, &pb.TokensExtended{HeldEachMs: []uint32{1000, 2000}}},
		{
			"mixed",
			[]outcome{{kind: incumbent.NotHolder}, ok(3 * time.Second), {kind: incumbent.Unavailable, retry: 5 * time.Millisecond}},
			&pb.TokensExtended{HeldMs: 3000, NotHeld: []uint64{0}, Unavailable: []uint64{2}, RetryAfterMs: 5},
		},
		{
			"mixed and different",
			[]outcome{{kind: incumbent.NotHolder}, ok(3 * time.Second), ok(4 * time.Second)},
			&pb.TokensExtended{HeldEachMs: []uint32{0, 3000, 4000}, NotHeld: []uint64{0}},
		},
		{
			"what may be asked for soonest",
			[]outcome{{kind: incumbent.Denied, retry: time.Minute}, {kind: incumbent.Overloaded, retry: time.Second}, {kind: incumbent.Denied, retry: time.Minute}},
			&pb.TokensExtended{Unavailable: []uint64{0, 1, 2}, RetryAfterMs: 1000},
		},
		{"unknown is not over", []outcome{{kind: incumbent.Unknown}}, &pb.TokensExtended{Unavailable: []uint64{0}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := appendTokensExtended(nil, 300, len(tt.in), func(i int) uint64 { return uint64(i) }, func(i int) outcome { return tt.in[i] })
			got := &pb.ServerMessage{}
			if err := proto.Unmarshal(b, got); err != nil {
				t.Fatal(err)
			}
			want := &pb.ServerMessage{Frames: []*pb.ServerFrame{{Id: 300, Answer: &pb.ServerFrame_TokensExtended{TokensExtended: tt.want}}}}
			if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestAppendBeaten(t *testing.T) {
	lost := []incumbent.SessionID{{1}, {2}}
	b := appendBeaten(nil, 1, &beaten{held: 1500 * time.Millisecond, lost: lost, revoking: []incumbent.Token{7, 1 << 40}})
	b = appendBeaten(b, 0, &beaten{})
	got := &pb.ServerMessage{}
	if err := proto.Unmarshal(b, got); err != nil {
		t.Fatal(err)
	}
	want := &pb.ServerMessage{Frames: []*pb.ServerFrame{
		{Id: 1, Answer: &pb.ServerFrame_Beaten{Beaten: &pb.Beaten{HeldMs: 1500, Lost: []string{lost[0].String(), lost[1].String()}, Revoking: []uint64{7, 1 << 40}}}},
		{Answer: &pb.ServerFrame_Beaten{Beaten: &pb.Beaten{}}},
	}}
	if diff := cmp.Diff(want, got, protocmp.Transform()); diff != "" {
		t.Error(diff)
	}
}
