package peers

import (
	"testing"

	"github.com/incumbent-dev/incumbent/node"
)

// TestFencedConnectionDeliversNothing fences a connection that still reads: what
// arrives on it from then on is dropped, as what was read before a member was
// found lost must be.
func TestFencedConnectionDeliversNothing(t *testing.T) {
	a, b := pair(t)
	a.set.Send([]node.Message{heartbeat(1, 2, 1)})
	b.until("a message", func() bool { return len(b.got) == 1 })
	(*b.set.peers.Load())[1].slots[node.Control].Load().fence()
	a.set.Send([]node.Message{heartbeat(1, 2, 2)})
	if !a.set.SendApp(2, []byte("x")) {
		t.Fatal("not taken")
	}
	eventually(t, "everything has left", func() bool { return a.set.Links()[0].QueuedBytes == 0 })
	awaitArrival(t, a)
	passed := make(chan struct{})
	b.set.Barrier(func() { close(passed) })
	<-passed
	if got := b.now(); len(got.got) != 1 || len(got.apps) != 0 {
		t.Errorf("delivered %d messages and %d frames, want 1 and 0", len(got.got), len(got.apps))
	}
}
