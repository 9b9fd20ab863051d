package server

import (
	"slices"
	"testing"
)

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

// Memory is given back once, when a member has become idle and has some to spare.
func TestIdleMembersGiveMemoryBack(t *testing.T) {
	const mega = 1 << 20
	for _, c := range []struct {
		name             string
		live, made, held uint64 // made: in each turn
		want             []uint64
	}{
		{"idle", 15 * mega, mega / 2, 30 * mega, []uint64{11, 41, 71}},
		{"at work", 15 * mega, 2 * mega, 30 * mega, nil},
		{"nothing to spare", 15 * mega, 0, 16 * mega, nil},
		{"a large heap", 65 * mega, 0, 130 * mega, nil},
		{"little lives", mega, 0, 3 * mega, []uint64{11, 41, 71}},
		{"little to spare", mega, 0, 2*mega + mega/2, nil},
	} {
		var i idleness
		var got []uint64
		for turn := uint64(1); turn <= 100; turn++ {
			if i.givesBack(c.live, turn*c.made, c.held) {
				got = append(got, turn)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s: in turns %v, not %v", c.name, got, c.want)
		}
	}
	var i idleness
	for turn := range uint64(100) { // work until turn 50
		made := min(turn, 50) * 20 * mega
		if i.givesBack(15*mega, made, 30*mega) != (turn == 60 || turn == 90) {
			t.Errorf("turn %d", turn)
		}
	}
}
