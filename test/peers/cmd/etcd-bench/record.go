//go:build linux

package main

import (
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// What a histogram can hold: 1 µs to a minute with three digits. A shard takes
// 150 kB, so that workers share shards instead of owning one each.
const (
	minLatency = time.Microsecond
	maxLatency = time.Minute
	digits     = 3
	shards     = 16
)

// recorder gathers latencies while it is open. What succeeds before it opens
// (the warm-up) or after it closes is not counted.
//
// Concurrency: done and failed may be called from any goroutine.
type recorder struct {
	open   atomic.Bool
	shard  [shards]shard
	errors atomic.Int64
	first  atomic.Pointer[error] // the first error counted
}

type shard struct {
	mu   sync.Mutex // protects hist, held for one record
	hist *hdrhistogram.Histogram
}

func newRecorder() *recorder {
	r := &recorder{}
	for i := range r.shard {
		r.shard[i].hist = newHistogram()
	}
	return r
}

func newHistogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(minLatency.Microseconds(), maxLatency.Microseconds(), digits)
}

// done counts one operation of a worker. What took longer than a histogram can
// hold counts as its maximum.
func (r *recorder) done(worker int, took time.Duration) error {
	if !r.open.Load() {
		return nil
	}
	s := &r.shard[worker%shards]
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hist.RecordValue(min(max(took, minLatency), maxLatency).Microseconds())
}

// failed counts one operation that did not do what it should, at any time: a
// worker that breaks while warming up is missing from the measurement.
func (r *recorder) failed(err error) {
	r.errors.Add(1)
	r.first.CompareAndSwap(nil, &err)
}

// result is what one kind of operation did. Latencies are in milliseconds, in
// open loop from the intended start.
type result struct {
	Count   int64   `json:"count"`
	Errors  int64   `json:"errors"`
	Rate    float64 `json:"rate"` // operations per second
	P50     float64 `json:"p50_ms"`
	P90     float64 `json:"p90_ms"`
	P99     float64 `json:"p99_ms"`
	Max     float64 `json:"max_ms"`
	CPUEach float64 `json:"cpu_us_per_op"` // of all servers together

	firstError error // nil without errors
}

func (r *recorder) result(elapsed, cpu time.Duration) result {
	all := newHistogram()
	for i := range r.shard {
		r.shard[i].mu.Lock()
		all.Merge(r.shard[i].hist)
		r.shard[i].mu.Unlock()
	}
	ms := func(us int64) float64 { return float64(us) / 1000 }
	res := result{
		Count:  all.TotalCount(),
		Errors: r.errors.Load(),
		Rate:   float64(all.TotalCount()) / elapsed.Seconds(),
		P50:    ms(all.ValueAtQuantile(50)),
		P90:    ms(all.ValueAtQuantile(90)),
		P99:    ms(all.ValueAtQuantile(99)),
		Max:    ms(all.Max()),
	}
	if first := r.first.Load(); first != nil {
		res.firstError = *first
	}
	if res.Count > 0 {
		res.CPUEach = float64(cpu.Microseconds()) / float64(res.Count)
	}
	return res
}
