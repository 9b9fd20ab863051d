// Package histogram counts how long things took, for metrics.
package histogram

import (
	"sync/atomic"
	"time"
)

// Durations is a histogram of durations. All methods may be called from any goroutine, and
// none waits.
type Durations struct {
	bounds  []float64
	buckets []atomic.Uint64 // one for each bound; the last is what is beyond
	sum     atomic.Int64    // nanoseconds
}

// New returns an empty histogram with upper bounds in seconds, which ascend. The caller does
// not change them any more.
func New(bounds []float64) *Durations {
	return &Durations{bounds: bounds, buckets: make([]atomic.Uint64, len(bounds)+1)}
}

// Observe counts one that took so long.
func (d *Durations) Observe(took time.Duration) {
	i, seconds := 0, took.Seconds()
	for i < len(d.bounds) && seconds > d.bounds[i] {
		i++
	}
	d.buckets[i].Add(1)
	d.sum.Add(int64(took))
}

// Counts is what a histogram has counted.
type Counts struct {
	Count   uint64
	Sum     float64            // seconds
	Buckets map[float64]uint64 // how many took at most so many seconds, by each bound
}

// Counts returns the numbers of the moment. What is observed meanwhile may be in Count and
// not in Sum.
func (d *Durations) Counts() Counts {
	c := Counts{Sum: time.Duration(d.sum.Load()).Seconds(), Buckets: make(map[float64]uint64, len(d.bounds))}
	for i := range d.buckets {
		c.Count += d.buckets[i].Load()
		if i < len(d.bounds) {
			c.Buckets[d.bounds[i]] = c.Count
		}
	}
	return c
}
