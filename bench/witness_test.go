package bench

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// TestWitnessSeesAStandstill: a nap that is late by what the clock jumped is in the
// second's sample, and in what is said of the run.
func TestWitnessSeesAStandstill(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, began := newWitness(), time.Now()
		var still atomic.Int64
		ctx, stop := context.WithCancel(t.Context())
		go w.watch(ctx, func() time.Duration { return time.Since(began) + time.Duration(still.Load()) })
		time.Sleep(95 * time.Millisecond)
		synctest.Wait()
		if late, _ := w.sample(); late > millis(lowestMicros) {
			t.Errorf("late by %v ms on a machine that runs", late)
		}
		still.Store(int64(700 * time.Millisecond))
		time.Sleep(nap)
		synctest.Wait()
		if late, _ := w.sample(); late < 699 || late > 701 {
			t.Errorf("late by %v ms, want 700", late)
		}
		stop()
		synctest.Wait()
		r := &run{facts: map[string]float64{}}
		w.testify(r)
		if late := r.facts["machine_late_max_ms"]; late < 699 || late > 701 {
			t.Errorf("of the run: late by %v ms", late)
		}
		if share, ok := r.facts["machine_stolen_share"]; !ok || share < 0 || share > 1 {
			t.Errorf("stolen: %v", r.facts)
		}
	})
}

func TestStolenTime(t *testing.T) {
	was := parseCPUTimes("cpu  100 0 50 800 10 0 20 20 7 7\ncpu0 1 2 3\n")
	now := parseCPUTimes("cpu  150 0 50 820 10 0 20 50 9 9\n")
	if was != (cpuTimes{1000, 20}) || now.stolenSince(was) != 0.3 || was.stolenSince(now) != 0 {
		t.Errorf("%+v, %+v, %v", was, now, now.stolenSince(was))
	}
	for _, text := range []string{"", "intr 1 2 3 4 5 6 7 8 9", "cpu 1 2 3", "cpu a b c d e f g h i"} {
		if got := parseCPUTimes(text); got != (cpuTimes{}) {
			t.Errorf("%q: %+v", text, got)
		}
	}
}
