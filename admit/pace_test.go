package admit

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// However messages come, no more of them are served than the pace allows, and who keeps to it
// never waits.
func TestG47_WhatAsksForNothingIsServedAtAPace(t *testing.T) {
	const burst = paceRate * int64(paceAhead) / int64(time.Second)
	rapid.Check(t, func(t *rapid.T) {
		c, err := New(Limits{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var p, quiet Pace
		now, sent, last, begun := int64(0), int64(0), int64(0), rapid.Int64Range(0, int64(time.Hour)).Draw(t, "begin")
		for range rapid.IntRange(1, 300).Draw(t, "messages") {
			last = rapid.Int64Range(1, paceRate*int64(paceMost)/int64(time.Second)).Draw(t, "bytes")
			sent += last
			now += int64(c.Slow(&p, int(last), begun+now))
			if allowed := burst + now*paceRate/int64(time.Second); sent > allowed+1 {
				t.Fatalf("%d bytes within %v, at most %d are allowed", sent, time.Duration(now), allowed)
			}
			now += rapid.Int64Range(0, 100*ms).Draw(t, "pause")
			if wait := c.Slow(&quiet, int(min(burst, last)), int64(time.Minute)*sent); wait != 0 {
				t.Fatalf("who sends a message a minute waits for %v", wait)
			}
		}
	})
}

// How long one waits, and what the modes say, which holds here, too.
func TestSlow(t *testing.T) {
	c, err := New(Limits{}, func() float64 { return 0.5 })
	if err != nil {
		t.Fatal(err)
	}
	var p Pace
	for _, s := range []struct {
		bytes int
		mode  Mode
		now   time.Duration
		want  time.Duration
		told  uint64 // so often, from the beginning on
	}{
		{-1, Enforce, 0, 0, 0},
		{0, Enforce, 0, 0, 0},
		{4 * paceRate, Enforce, 0, 0, 0},
		{paceRate, Enforce, 0, time.Second * 9 / 8, 1},
		{100 << 20, Enforce, 0, paceMost * 9 / 8, 2},
		{1, Observe, 0, 0, 3},
		{1 << 20, Off, time.Hour, 0, 3},
		{1, Enforce, time.Hour, 0, 3},
		{4*paceRate + 1, Enforce, 2 * time.Hour, paceLeast * 9 / 8, 4},
	} {
		c.SetMode(s.mode)
		if got := c.Slow(&p, s.bytes, int64(s.now)); got != s.want || c.Slowed() != s.told {
			t.Errorf("%d bytes after %v: %v, %d times told, want %v, %d", s.bytes, s.now, got, c.Slowed(), s.want, s.told)
		}
	}
	if now := int64(2 * time.Hour); !p.Behind(now) || p.Behind(now+int64(time.Second)) {
		t.Error("when it is behind")
	}
}
