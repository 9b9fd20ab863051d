package bench

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

func TestAppendExtend(t *testing.T) {
	for _, tokens := range [][]uint64{{1}, {1<<64 - 1, 0, 7}, make([]uint64, 10_000)} {
		for _, id := range []uint64{1, 127, 128, 1 << 40} {
			want := &apiv1.ClientMessage{Frames: []*apiv1.ClientFrame{{
				Id: id, Request: &apiv1.ClientFrame_ExtendTokens{ExtendTokens: &apiv1.ExtendTokens{Tokens: tokens}},
			}}}
			got := new(apiv1.ClientMessage)
			if err := proto.Unmarshal(appendExtend(nil, id, tokens), got); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, got, protocmp.Transform()); d != "" {
				t.Errorf("id %d, %d tokens: %s", id, len(tokens), d)
			}
		}
	}
}

// manyAnswers is a message with an answer of each sort.
func manyAnswers(t testing.TB) []byte {
	msg, err := proto.Marshal(&apiv1.ServerMessage{Frames: []*apiv1.ServerFrame{
		{Id: 300, Answer: &apiv1.ServerFrame_TokensExtended{TokensExtended: &apiv1.TokensExtended{HeldMs: 15_000, NotHeld: []uint64{5, 6}, Unavailable: []uint64{7}, HeldEachMs: []uint32{1}}}},
		{Id: 2, Error: &apiv1.Error{Kind: "held", RetryAfterMs: 10}},
		{Answer: &apiv1.ServerFrame_Offer{Offer: &apiv1.Offer{AcceptWithinMs: 20}}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return msg
}

func TestEachAnswer(t *testing.T) {
	msg := manyAnswers(t)
	// What a newer server says besides is skipped: a number, and a message.
	msg = protowire.AppendTag(msg, 9, protowire.VarintType)
	msg = protowire.AppendVarint(msg, 1)
	msg = append(protowire.AppendTag(nil, 8, protowire.BytesType), append([]byte{2, 1, 1}, msg...)...)
	var got []answer
	var kinds []string
	err := eachAnswer(msg, func(a *answer) error {
		f, err := a.full()
		kinds = append(kinds, f.GetError().GetKind())
		one := *a
		one.raw = nil
		got = append(got, one)
		return err
	})
	want := []answer{{id: 300, extended: true, heldMs: 15_000, notHeld: 2, unavailable: 1}, {id: 2, failed: true}, {}}
	if d := cmp.Diff(want, got, cmp.AllowUnexported(answer{})); err != nil || d != "" {
		t.Errorf("%v: %s", err, d)
	}
	if d := cmp.Diff([]string{"", "held", ""}, kinds); d != "" {
		t.Error(d)
	}
	stop := errors.New("stop")
	if err := eachAnswer(msg, func(*answer) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the handler came back as %v", err)
	}
	if err := eachAnswer(msg[:len(msg)-1], func(*answer) error { return nil }); !errors.Is(err, errWire) {
		t.Errorf("a message cut short: %v", err)
	}
}

func FuzzEachAnswer(f *testing.F) {
	f.Add(manyAnswers(f))
	f.Add([]byte{0x48, 1})
	f.Add([]byte{0x0a, 3, 0x0a, 1, 0})
	f.Fuzz(func(t *testing.T, data []byte) {
		var ids []uint64
		err := eachAnswer(data, func(a *answer) error {
			ids = append(ids, a.id)
			return nil
		})
		var m apiv1.ServerMessage
		if proto.Unmarshal(data, &m) != nil {
			return // what protobuf refuses may be taken here: strings are not looked at
		}
		if err != nil || len(ids) != len(m.Frames) {
			t.Fatalf("%d answers, %v; protobuf finds %d", len(ids), err, len(m.Frames))
		}
		for i, frame := range m.Frames {
			if frame.Id != ids[i] {
				t.Errorf("answer %d has id %d; protobuf finds %d", i, ids[i], frame.Id)
			}
		}
	})
}
