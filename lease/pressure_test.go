package lease

import (
	"testing"

	"github.com/incumbent-dev/incumbent"
)

// How much the leader refuses is told to whoever asks it, with the answer: a follower
// refuses the same within a round trip.
func TestG40_TheLeadersPressureComesWithItsAnswers(t *testing.T) {
	pressure := uint8(0)
	var told []uint8
	c := newCluster(t, Config{Pressure: func() uint8 { return pressure }, Press: func(rank uint8) { told = append(told, rank) }}, 3)
	c.lead(1)
	token := c.at(2).claim("a", "h", ttl)
	for _, pressure = range []uint8{0, 3, 6, 0} {
		if b, done := c.at(2).extend(Extension{Token: token}); !*done || b.Items[0].Kind != incumbent.OK {
			t.Fatalf("done %v: %v", *done, b.Items[0].Kind)
		}
	}
	if len(told) != 2 || told[0] != 3 || told[1] != 6 {
		t.Errorf("the follower was told %v, want 3 and 6", told)
	}
}
