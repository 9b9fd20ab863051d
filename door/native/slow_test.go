package native

import (
	"strings"
	"testing"
	"time"

	"github.com/gobwas/ws"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/admit"
	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

func slowed(t *testing.T) (*member, *admit.Controller) {
	t.Helper()
	lanes, err := admit.New(admit.Limits{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return newMember(t, func(c *Config) { c.Admission = lanes }), lanes
}

// Who sends pings on a stream, or frames that are refused for what they say, as fast as it can, is
// answered later; nobody else is.
func TestG47_WhatIsRefusedIsReadSlowly(t *testing.T) {
	bad := opFrame(1, &pb.Operation{Op: &pb.Operation_Claim{Claim: &pb.ClaimRequest{Name: nameOf(strings.Repeat("n", 300)), Holder: "h"}}})
	const frames = 300
	var one []*pb.ClientFrame
	for range frames {
		one = append(one, bad)
	}
	message := clientFrameBytes(ws.OpBinary, true, marshal(t, &pb.ClientMessage{Frames: one}))
	ping := clientFrameBytes(ws.OpPing, true, []byte("?"))
	for _, tt := range []struct {
		name  string
		send  []byte
		costs int
	}{
		{"refused", append(message, message...), len(message)}, // the second is read before it counts
		{"pings", []byte(strings.Repeat(string(ping), 200)), 200 * admit.MessageBytes},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, lanes := slowed(t)
			a, b := m.dial(), m.dial()
			began := time.Now()
			a.write(append(tt.send, clientFrameBytes(ws.OpBinary, true, marshal(t, &pb.ClientMessage{Frames: []*pb.ClientFrame{openFrame(7, incumbent.NewSessionID().String(), 60_000)}}))...))
			for i := range uint64(200) {
				b.ok(claimFrame(1+i, "l", "h", "", false))
			}
			for answered := false; !answered; {
				op, p := a.read()
				if op == ws.OpPong {
					continue
				}
				var m pb.ServerMessage
				if err := proto.Unmarshal(p, &m); err != nil {
					t.Fatal(err)
				}
				for _, f := range m.Frames {
					if answered = f.Id == 7; answered == (f.Error != nil) {
						t.Fatalf("got %v", f)
					}
				}
			}
			least := time.Duration(tt.costs-64<<10) * time.Second / (16 << 10)
			if took := time.Since(began); took < least {
				t.Errorf("it was answered within %v, which is to take %v", took, least)
			}
			if lanes.Slowed() == 0 {
				t.Error("nobody is said to have waited")
			}
		})
	}
}

// A call that is refused has nothing to hand on: while its answer is held back, no expiry waits for
// it to do so.
func TestACallThatIsHeldBackIsHeard(t *testing.T) {
	m, _ := slowed(t)
	heard := false
	ctx := WithHeard(t.Context(), func() { heard = true })
	refusal := incumbent.Errorf(incumbent.Overloaded, "later")
	refusal.RetryAfter = time.Millisecond
	if told := m.door.holdBack(ctx, &callControl{}, refusal); told.Kind != incumbent.Overloaded || !heard {
		t.Errorf("%v, heard: %v", told, heard)
	}
}
