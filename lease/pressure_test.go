package lease

import (
	"fmt"
	"testing"
	"time"

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

// A follower through which nobody extends hears of the leader's pressure by the work that
// is done, at a rate that does not grow with it; where nothing happens it asks nothing.
func TestG40_TheLeadersPressureIsHeardWithoutExtensions(t *testing.T) {
	told := 0
	c := newCluster(t, Config{Pressure: func() uint8 { return 3 }, Press: func(uint8) { told++ }}, 3)
	c.lead(1)
	const claims = 40
	for i := range claims {
		c.at(2).claim(fmt.Sprint("a", i), "h", ttl)
		c.advance(pressureEvery / 4)
	}
	if told < claims/4/2 || told > 2*claims/4+2 { // by two followers
		t.Errorf("told %d times while %d claims were made in %v", told, claims, claims*pressureEvery/4)
	}
	c.advance(2 * ttl) // all of them end
	told = 0
	c.advance(time.Minute)
	if told > 0 {
		t.Errorf("told %d times where nothing happened", told)
	}
}

// Nothing is applied while the leader's log stalls, which is when it refuses most: who has
// work under way hears of its pressure all the same, and asks no longer than that.
func TestG40_TheLeadersPressureIsHeardWhileTheLogStalls(t *testing.T) {
	told, busy := 0, true
	c := newCluster(t, Config{Pressure: func() uint8 { return 3 }, Press: func(uint8) { told++ }, Busy: func() bool { return busy }}, 3)
	c.lead(1)
	const asks = 20
	c.advance(asks * pressureEvery)
	if told < 2*asks/2 || told > 2*asks {
		t.Errorf("two followers were told %d times in %v", told, asks*pressureEvery)
	}
	told, busy = 0, false
	if c.advance(time.Minute); told > 2 {
		t.Errorf("told %d times where nothing was under way", told)
	}
}
