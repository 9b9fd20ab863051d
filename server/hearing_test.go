package server

import (
	"testing"
	"time"

	"github.com/incumbent-dev/incumbent/node/peers"
)

// A connection that is up shows nothing of a member that has answered nothing for
// more than a second.
func TestHearing(t *testing.T) {
	h := hearing{confirmed: 30 * time.Millisecond, links: map[uint64]peers.Link{
		1: {Connected: true, Silence: 40 * time.Millisecond},
		2: {Connected: true, Silence: heardWithin + 1},
		3: {Silence: time.Millisecond},
	}}
	for id, want := range map[uint64]bool{1: true, 2: false, 3: false, 4: false} {
		if got := h.reaches(id); got != want {
			t.Errorf("member %d: got %v", id, got)
		}
	}
	if got := h.age(); got != 40*time.Millisecond {
		t.Errorf("age %v", got)
	}
}

// Members that are asked answer at once, and what they answered is as old as the
// question; a member that is alone asks nobody.
func TestHearingAsks(t *testing.T) {
	for _, s := range trio(t) {
		before := time.Now()
		until(t, "all are heard", func() bool {
			h := s.hear(testContext(t))
			return len(h.links) == 2 && h.age() <= min(time.Since(before), heardWithin)
		})
	}
	if h := open(t, testConfig(t)).hear(testContext(t)); !h.alone {
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
