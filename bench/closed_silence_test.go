package bench

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// turnsAway refuses each first try.
type turnsAway struct {
	tries int
	done  func()
}

func (c *turnsAway) call(context.Context, int) error {
	if c.tries++; c.tries%2 == 1 {
		e := incumbent.Errorf(incumbent.Overloaded, "later")
		e.RetryAfter = 300 * time.Millisecond
		return e
	}
	c.done()
	return nil
}

func (*turnsAway) close() {}

// A call that is turned away has waited since its first try.
func TestWhatIsTurnedAwayCountsFromItsFirstTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRun(&Scenario{}, Options{})
		r.begun = time.Now()
		ctx, stop := context.WithCancel(t.Context())
		record := r.rec.op("call")
		c := &turnsAway{}
		c.done = func() {
			if c.tries == 4 {
				time.AfterFunc(time.Nanosecond, stop)
			}
		}
		if err := r.callOn(ctx, c, []*opRecord{record}, true); err != nil {
			t.Fatal(err)
		}
		if s := record.summary(); s.Count < 2 || s.P50 < 299 || r.rec.op(turnedAway).answered() < 2 {
			t.Errorf("calls %+v, %d turned away", s, r.rec.op(turnedAway).answered())
		}
	})
}

// Servers that stop to answer are no good ones, however good what they have answered was.
func TestServersThatFallSilent(t *testing.T) {
	for silence, want := range map[time.Duration]uint64{500 * time.Millisecond: 0, 3 * time.Second: 1} {
		synctest.Test(t, func(t *testing.T) {
			r := newRun(&Scenario{}, Options{})
			r.begun = time.Now()
			began := r.now()
			for range 1000 {
				time.Sleep(time.Millisecond)
				r.rec.op("call").done(r.now(), time.Millisecond, 1)
			}
			time.Sleep(silence)
			for range 100 {
				r.rec.earlyOp("before the warm-up").done(began, time.Millisecond, 1)
			}
			r.judgeSilence(began)
			if _, _, got := r.check.Counts(); got != want {
				t.Errorf("silent for %v: %d violations, want %d", silence, got, want)
			}
		})
	}
}
