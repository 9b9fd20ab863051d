package cluster

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/node/peers"
)

// A connection that is up shows nothing of a member that has answered nothing for
// more than a second.
func TestHearing(t *testing.T) {
	h := Hearing{Confirmed: 30 * time.Millisecond, Links: map[uint64]peers.Link{
		1: {Connected: true, Silence: 40 * time.Millisecond},
		2: {Connected: true, Silence: HeardWithin + 1},
		3: {Silence: time.Millisecond},
	}}
	for id, want := range map[uint64]bool{1: true, 2: false, 3: false, 4: false} {
		if got := h.reaches(id); got != want {
			t.Errorf("member %d: got %v", id, got)
		}
	}
	if got := h.Age(); got != 40*time.Millisecond {
		t.Errorf("age %v", got)
	}
}
