package sim

import (
	"container/heap"
	"fmt"
	"io"
	"runtime/debug"
	"time"
)

// loop runs events until a moment, and reports whether all went well.
func (w *world) loop(until time.Duration) bool {
	for w.queue.Len() > 0 && w.queue[0].at <= until && w.failed == nil {
		e := heap.Pop(&w.queue).(event) //nolint:forcetypeassert // nothing else is in it
		w.now = e.at
		w.perform(e)
	}
	if w.failed != nil {
		w.violate("a member failed: %v", w.failed)
		return false
	}
	w.now = until
	return true
}

// perform lets an event happen. Code that panics stops its server; here it ends
// the run.
func (w *world) perform(e event) {
	defer func() {
		if r := recover(); r != nil {
			w.failed = fmt.Errorf("panic: %v", r)
			if w.cfg.Trace != nil {
				_, _ = w.cfg.Trace.Write(debug.Stack()) // for reading only
			}
		}
	}()
	e.do()
}

// after schedules do.
func (w *world) after(d time.Duration, do func()) {
	w.seq++
	heap.Push(&w.queue, event{w.now + d, w.seq, do})
}

// upTo draws a duration.
func (w *world) upTo(d time.Duration) time.Duration {
	return time.Duration(w.rng.Int64N(int64(d)) + 1)
}

// chance is true in one of n cases.
func (w *world) chance(n int) bool { return w.rng.IntN(n) == 0 }

// note puts an event into the trace.
func (w *world) note(format string, args ...any) {
	line := fmt.Sprintf("%14v %s\n", w.now, fmt.Sprintf(format, args...))
	_, _ = io.WriteString(w.digest, line) // a hash takes everything
	if w.cfg.Trace != nil {
		_, _ = io.WriteString(w.cfg.Trace, line) // for reading only
	}
}

// violate records that a guarantee does not hold. A run that has found enough
// says no more: one fault shows in many ways.
func (w *world) violate(format string, args ...any) {
	text := fmt.Sprintf("at %v: %s", w.now, fmt.Sprintf(format, args...))
	w.note("VIOLATION %s", text)
	if len(w.res.Violations) < maxViolations {
		w.res.Violations = append(w.res.Violations, text)
	}
}

// event is something that happens at a time; of two at one time the one planned
// first.
type event struct {
	at  time.Duration
	seq uint64
	do  func()
}

type events []event

func (q events) Len() int { return len(q) }
func (q events) Less(i, j int) bool {
	return q[i].at < q[j].at || q[i].at == q[j].at && q[i].seq < q[j].seq
}
func (q events) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *events) Push(x any)   { *q = append(*q, x.(event)) } //nolint:forcetypeassert // only events are pushed
func (q *events) Pop() any {
	old := *q
	e := old[len(old)-1]
	old[len(old)-1] = event{}
	*q = old[:len(old)-1]
	return e
}

// must ends the run on an error that nothing explains.
func (w *world) must(err error) {
	if err != nil && w.failed == nil {
		w.failed = err
	}
}
