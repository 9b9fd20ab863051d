package native

import (
	"context"
	"testing"
	"time"

	"connectrpc.com/connect"

	pb "github.com/incumbent-dev/incumbent/api/incumbent/v1"
	"github.com/incumbent-dev/incumbent/auth"
)

// TestG17_AnIdleWatchSaysThatItIsThere: where nothing happens at all, a watch is told each
// time how far all is certain. Clients leave a member that has been silent for longer.
func TestG17_AnIdleWatchSaysThatItIsThere(t *testing.T) {
	m := newMember(t, func(c *Config) { c.ProgressEvery = time.Millisecond })
	index := m.store("k", "1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	stream, err := m.keys().Watch(ctx, connect.NewRequest(&pb.WatchKeysRequest{Key: "k"}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for i := range 5 {
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		if got := stream.Msg(); got.ProgressIndex != index || got.Snapshot != (i == 0) || got.More {
			t.Errorf("message %d: %v", i, got)
		}
	}
}

// Who follows the timeline hears at once, and then each time, that there is nothing: also who may
// not see what is there.
func TestAnIdleTimelineSaysThatItIsThere(t *testing.T) {
	m := newMember(t, func(c *Config) { c.ProgressEvery = time.Millisecond })
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	m.operator.happenTo("lease expired", "secret")
	m.let("agent:a", auth.Rule{State: auth.Cluster, Verbs: auth.See})
	stream, err := clusterClient(m.as(agentA())).Events(ctx, connect.NewRequest(&pb.EventsRequest{Follow: true}))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Close()
	for range 5 {
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		if got := stream.Msg().Events; len(got) > 0 {
			t.Errorf("told of %v", got)
		}
	}
	m.operator.happen("leading")
	for stream.Receive() {
		if got := stream.Msg().Events; len(got) > 0 {
			if got[0].What != "leading" {
				t.Errorf("told of %v", got)
			}
			return
		}
	}
	t.Fatal(stream.Err())
}
