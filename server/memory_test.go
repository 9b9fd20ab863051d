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
		percent := uint64(gcPercent(live, 0, 1<<40))
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

// Where much is made there may be more garbage, within bounds.
func TestGarbageOfABusyMember(t *testing.T) {
	const mega = 1 << 20
	for _, c := range []struct {
		name                    string
		live, made, limit, want uint64 // megabytes; want: garbage
	}{
		{"nothing lives yet", 0, 1000, 1000, 0},
		{"a small heap", 40, 1000, 1000, 80},
		{"a small heap in which little is made", 40, 30, 1000, 40},
		{"little is made", 264, 50, 10000, 64 + 25},
		{"much is made", 264, 150, 10000, 150},
		{"no more than twice what lives", 100, 250, 10000, 200},
		{"no more than a bound", 1064, 5000, 10000, 384},
		{"within half of the limit", 464, 400, 1200, 136},
		{"beyond it", 464, 400, 900, 64 + 50},
		{"a very large heap", 8064, 5000, 100000, 64 + 1000},
	} {
		garbage := c.live * uint64(gcPercent(c.live*mega, c.made*mega, c.limit*mega)) / plainPercent
		if garbage > c.want || garbage+c.live/50 < c.want { // a percentage is whole
			t.Errorf("%s: %d MiB of garbage, want %d", c.name, garbage, c.want)
		}
	}
}

// What is made lately is what is made in the last turns.
func TestWhatIsMadeLately(t *testing.T) {
	var i idleness
	for turn := range uint64(30) {
		made := min(turn, 20) * 100 // until turn 20
		if got, want := i.lately(made), 100*(min(turn, 20)-min(max(turn, idleTurns)-idleTurns, 20)); got != want {
			t.Errorf("turn %d: %d, want %d", turn, got, want)
		}
		i.givesBack(0, made, 0)
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
		{"a large heap", 500 * mega, mega, 750 * mega, []uint64{11, 41, 71}},
		{"a large heap, little to spare", 500 * mega, mega, 550 * mega, nil},
		{"a very large heap", 1100 * mega, mega, 1500 * mega, nil},
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
