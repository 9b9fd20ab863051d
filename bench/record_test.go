package bench

import (
	"math/rand/v2"
	"testing"
	"time"
)

func TestScheduleGivesStepsInOrder(t *testing.T) {
	var s schedule
	if s.next(0) != idleWait {
		t.Errorf("an empty schedule waits %v", s.next(0))
	}
	rng := rand.New(rand.NewPCG(1, 2))
	const n = 500
	least := time.Hour
	for range n {
		at := time.Duration(rng.IntN(100)) * time.Millisecond
		if first := s.push(planned{at: at}); first != (at < least) {
			t.Fatalf("pushed %v below %v: first %v", at, least, first)
		}
		least = min(least, at)
	}
	if _, ok := s.due(least - 1); ok {
		t.Error("a step came before its time")
	}
	if got := s.next(least - 5); got != 5 {
		t.Errorf("next in %v, want 5ns", got)
	}
	last := time.Duration(-1)
	for i := range n {
		p, ok := s.due(time.Hour)
		if !ok || p.at < last {
			t.Fatalf("step %d: %v after %v, %v", i, p.at, last, ok)
		}
		last = p.at
	}
	if _, ok := s.due(time.Hour); ok {
		t.Error("more came out than went in")
	}
}

func near(got, want float64) bool { return got > want*0.998 && got < want*1.002 }

func TestRecorder(t *testing.T) {
	r := NewRecorder()
	o := r.op("extend")
	for i := 1; i <= 1000; i++ {
		o.done(time.Duration(i)*time.Millisecond, time.Duration(i)*time.Millisecond, 1)
	}
	o.failed(1001*time.Millisecond, 3)
	if s := r.sample()["extend"]; s.Count != 1000 || s.Errors != 3 || !near(s.P50, 500) || !near(s.P99, 990) || !near(s.Max, 1000) {
		t.Errorf("the second: %+v", s)
	}
	if again := r.sample(); len(again) != 0 {
		t.Errorf("the next second has %+v", again)
	}
	if s := o.summary(); s.Count != 1000 || s.Errors != 3 || !near(s.P50, 500) || !near(s.P90, 900) || !near(s.P999, 999) || !near(s.Rate, 1000) {
		t.Errorf("in all: %+v", s)
	}
	if st := o.closeStep(); st.Count != 1000 || !near(st.P99, 990) {
		t.Errorf("first step: %+v", st)
	}
	o.done(2*time.Second, 7*time.Millisecond, 10) // one answer for ten
	if st := o.closeStep(); st.Count != 10 || !near(st.P50, 7) || !near(st.Max, 7) {
		t.Errorf("second step: %+v", st)
	}
	o.done(3*time.Second, time.Hour, 1)
	if s := o.summary(); s.Count != 1011 || !near(s.Max, 600_000) {
		t.Errorf("a latency beyond the range: %+v", s)
	}
	r.reset()
	if s := o.summary(); s != (OpSummary{}) {
		t.Errorf("after a reset: %+v", s)
	}
	if r.op("extend") != o {
		t.Error("a second record of the same name")
	}
}
