package admit

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/incumbent-dev/incumbent"
)

// Two controllers see the same work: one is asked before the work is read and again once
// it is, the other only then. They let in the same, count the same and move their limits
// the same: what is asked early is neither counted twice nor judged otherwise.
func TestG41_ARequestIsJudgedOnce(t *testing.T) {
	refused := map[Reason]int{}
	rapid.Check(t, func(t *rapid.T) {
		limits := Limits{Min: 1, Max: rapid.IntRange(2, 6).Draw(t, "limit")} // a share is met before a limit of 5 or more
		twin := func() *Controller {
			c, err := New(limits, func() float64 { return 0.5 })
			if err != nil {
				t.Fatal(err)
			}
			return c
		}
		early, late := twin(), twin()
		var now int64
		var open [][2]Ticket
		t.Repeat(map[string]func(*rapid.T){
			"enter": func(t *rapid.T) {
				l := Lane(rapid.IntRange(0, int(NumLanes)-1).Draw(t, "lane"))
				w := Who{Client: Key(rapid.IntRange(1, 3).Draw(t, "client"))}
				for range rapid.IntRange(1, 12).Draw(t, "times") {
					var pair [2]Ticket
					err := early.Refuses(w, []Lane{l}, now)
					if err == nil {
						if pair[0], err = early.EnterFor(w, l, 1, now); err != nil {
							t.Fatalf("%s: refused late at the same time: %v", l, err)
						}
					}
					var lateErr error
					if pair[1], lateErr = late.EnterFor(w, l, 1, now); (err == nil) != (lateErr == nil) {
						t.Fatalf("%s: early %v, late %v", l, err, lateErr)
					}
					if err == nil {
						open = append(open, pair)
						continue
					}
					a, b := err.(*incumbent.Error), lateErr.(*incumbent.Error)
					if a.Message != b.Message || a.RetryAfter != b.RetryAfter {
						t.Fatalf("%s: early %v in %v, late %v in %v", l, a, a.RetryAfter, b, b.RetryAfter)
					}
				}
			},
			"done": func(t *rapid.T) {
				if len(open) == 0 {
					t.Skip("nothing is under way")
				}
				i := rapid.IntRange(0, len(open)-1).Draw(t, "ticket")
				for _, ticket := range open[i] {
					ticket.Done(now)
				}
				open = append(open[:i], open[i+1:]...)
			},
			"time": func(t *rapid.T) { now += int64(rapid.IntRange(1, 60).Draw(t, "ms")) * ms },
			"memory": func(t *rapid.T) {
				used := int64(rapid.IntRange(60, 100).Draw(t, "percent"))
				early.SetMemory(used, 100)
				late.SetMemory(used, 100)
			},
			"": func(t *rapid.T) {
				if a, b := early.Stats(), late.Stats(); a != b {
					t.Fatalf("early %+v\nlate  %+v", a, b)
				}
				for r := range early.shut {
					if a, b := early.shut[r].Load(), late.shut[r].Load(); a != b {
						t.Fatalf("rank %d is shut until %d, and %d", r, a, b)
					}
				}
			},
		})
		for _, s := range early.Stats() {
			for why, n := range s.Refused {
				refused[Reason(why)] += int(n)
			}
		}
	})
	for why := range NumReasons {
		if refused[why] == 0 {
			t.Errorf("nothing was refused for %s", why)
		}
	}
}

// What is refused early for want of more knowledge is refused whatever it turns out to be,
// and counted once; what is not may be let in by one of its lanes.
func TestG41_WhatIsRefusedEarlyWouldBeRefused(t *testing.T) {
	var refused, open int
	rapid.Check(t, func(t *rapid.T) {
		c, err := New(Limits{Min: 1, Max: 2}, nil)
		if err != nil {
			t.Fatal(err)
		}
		var now int64
		t.Repeat(map[string]func(*rapid.T){
			"fill": func(t *rapid.T) {
				_, _ = c.Enter(Lane(rapid.IntRange(0, int(Critical)).Draw(t, "lane")), 1, now)
			},
			"time":   func(t *rapid.T) { now += int64(rapid.IntRange(1, 60).Draw(t, "ms")) * ms },
			"memory": func(t *rapid.T) { c.SetMemory(int64(rapid.IntRange(60, 100).Draw(t, "percent")), 100) },
			"ask": func(t *rapid.T) {
				lanes := rapid.SliceOfNDistinct(rapid.Custom(func(t *rapid.T) Lane { return Lane(rapid.IntRange(0, int(Critical)).Draw(t, "lane")) }), 1, 3, rapid.ID).Draw(t, "lanes")
				before := counted(c)
				err := c.Refuses(Who{}, lanes, now)
				if now := counted(c); now != before && err == nil || now != before+1 && err != nil {
					t.Fatalf("%v: %v, and %d refusals became %d", lanes, err, before, now)
				}
				somebody := false
				for _, l := range lanes {
					if why, _ := c.refuses(Who{}, l, now); why == NumReasons {
						somebody = true
					}
				}
				if (err != nil) == somebody {
					t.Fatalf("%v: %v, though one of them lets in: %v", lanes, err, somebody)
				}
				if err == nil {
					open++
					return
				}
				refused++
				for _, l := range lanes {
					if _, err := c.Enter(l, 1, now); err == nil {
						t.Fatalf("%v were refused early, %s lets in", lanes, l)
					}
				}
			},
		})
	})
	if refused == 0 || open == 0 {
		t.Errorf("%d were refused early, %d were not", refused, open)
	}
}

func counted(c *Controller) (n uint64) {
	for _, s := range c.Stats() {
		for _, r := range s.Refused {
			n += r
		}
	}
	return n
}

// Whoever has more than their share is refused early while others are let in, and what
// only observes refuses nobody early.
func TestG41_WhoHasMoreThanTheirShareIsRefusedEarly(t *testing.T) {
	c := newController(t, Limits{Min: 1, Max: 8})
	heavy, light := Who{Client: 1}, Who{Client: 2}
	for range 16 {
		if _, err := c.EnterFor(heavy, Reads, 1, 0); err != nil {
			break
		}
	}
	if c.Refuses(heavy, []Lane{Reads}, 0) == nil {
		t.Error("who floods the lane is not refused")
	}
	if err := c.Refuses(light, []Lane{Reads}, 0); err != nil {
		t.Errorf("who sends little is refused: %v", err)
	}
	if err := c.Refuses(heavy, nil, 0); err != nil {
		t.Errorf("what has no lane is refused: %v", err)
	}
	before := counted(c)
	for _, m := range []Mode{Observe, Off} {
		c.SetMode(m)
		if err := c.Refuses(heavy, []Lane{Reads}, 0); err != nil || counted(c) != before {
			t.Errorf("mode %d: %v, %d refusals counted", m, err, counted(c)-before)
		}
	}
}
