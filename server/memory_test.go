package server

import "testing"

// A small heap may double, as Go has it; what a large one may hold beside what lives
// grows slowly, and never falls.
func TestGarbageOfLargeHeapsIsBounded(t *testing.T) {
	last := uint64(0)
	for live := uint64(1 << 20); live < 1<<36; live += live / 4 {
		percent := uint64(gcPercent(live))
		garbage := live * percent / 100
		switch {
		case live <= freeGarbage && percent != plainPercent:
			t.Errorf("%d bytes live: %d %%", live, percent)
		case garbage+live/50 < last, garbage > freeGarbage+live/garbageShare:
			t.Errorf("%d bytes live: garbage of %d, %d where less lives", live, garbage, last)
		}
		last = garbage
	}
}
