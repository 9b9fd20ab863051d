package server

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/cluster"
)

// Members that are asked answer at once, and what they answered is as old as the
// question; a member that is alone asks nobody.
func TestHearingAsks(t *testing.T) {
	for _, s := range trio(t) {
		before := time.Now()
		until(t, "all are heard", func() bool {
			h := s.cluster.Hear(testContext(t))
			return len(h.Links) == 2 && h.Age() <= min(time.Since(before), cluster.HeardWithin)
		})
	}
	if h := open(t, testConfig(t)).cluster.Hear(testContext(t)); !h.Alone {
		t.Errorf("alone: %+v", h)
	}
}

// The rates are of ten seconds; what is warned of is of the last one.
func TestDropsAreOver(t *testing.T) {
	var k rateKeeper
	begin := time.Unix(1000, 0)
	values := make([]float64, numRates)
	for i := range 5 {
		values[ratePeerDrops] = float64(min(i, 3) * 100)
		k.sample(begin.Add(time.Duration(i)*time.Second), values)
		want := 100.0
		if i == 0 || i > 3 {
			want = 0
		}
		if got := k.dropsPerSecond(); got != want {
			t.Errorf("after %d s: %v a second", i, got)
		}
	}
	if got := k.ring.perSecond(numRates)[ratePeerDrops]; got != 75 {
		t.Errorf("over all of it: %v a second", got)
	}
}
