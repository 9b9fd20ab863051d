package health

import (
	"sync/atomic"
	"time"
)

// numBounds is how many bounds the histograms of durations have.
const numBounds = 12

// bounds of the durations of runs, in seconds.
var bounds = [numBounds]float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 10}

// counts are a runner's numbers, written from any goroutine.
type counts struct {
	runs     [numKinds]durations
	outcomes [numKinds][numStatuses]atomic.Uint64
	reports  atomic.Uint64
	lost     atomic.Uint64 // reports that came to nothing
	checks   atomic.Int64
	running  atomic.Int64
	lateness atomic.Int64 // nanoseconds
}

type durations struct {
	buckets [numBounds + 1]atomic.Uint64 // the last is what is beyond
	sum     atomic.Int64                 // nanoseconds
}

func (c *counts) ran(k Kind, s Status, took time.Duration) {
	c.outcomes[k][s].Add(1)
	d, i := &c.runs[k], 0
	for i < numBounds && took.Seconds() > bounds[i] {
		i++
	}
	d.buckets[i].Add(1)
	d.sum.Add(int64(took))
}

func (c *counts) reported(err error) {
	c.reports.Add(1)
	if err != nil {
		c.lost.Add(1)
	}
}

// is takes the numbers of the moment.
func (c *counts) is(now time.Time, s *schedule) {
	c.checks.Store(int64(len(s.jobs)))
	c.running.Store(int64(s.running))
	c.lateness.Store(int64(s.late(now)))
}

// RunCount is how often checks of a kind were found in a status.
type RunCount struct {
	Kind, Status string
	N            uint64
}

// RunStats is how long runs of a kind took.
type RunStats struct {
	Kind    string
	Count   uint64
	Sum     float64            // seconds
	Buckets map[float64]uint64 // runs that took at most so many seconds
}

// Stats are a runner's numbers; labels are from closed sets and all there from the
// start.
type Stats struct {
	Checks  int           // run by this member
	Running int           // runs under way
	Late    time.Duration // how long the check that was due first waits for others to end
	Runs    []RunStats
	Found   []RunCount
	Reports uint64 // outcomes written into the state, or tried to be
	Lost    uint64 // of them, those that came to nothing and were repeated
}

// Stats returns the numbers of the moment.
func (r *Runner) Stats() Stats {
	c := &r.counts
	s := Stats{
		Checks: int(c.checks.Load()), Running: int(c.running.Load()), Late: time.Duration(c.lateness.Load()),
		Reports: c.reports.Load(), Lost: c.lost.Load(),
	}
	for k := KindHTTP; k < numKinds; k++ {
		for is := range numStatuses {
			s.Found = append(s.Found, RunCount{k.String(), is.String(), c.outcomes[k][is].Load()})
		}
		s.Runs = append(s.Runs, c.runs[k].stats(k))
	}
	return s
}

func (d *durations) stats(k Kind) RunStats {
	s := RunStats{Kind: k.String(), Sum: float64(d.sum.Load()) / 1e9, Buckets: make(map[float64]uint64, numBounds)}
	for i := range d.buckets {
		s.Count += d.buckets[i].Load()
		if i < numBounds {
			s.Buckets[bounds[i]] = s.Count
		}
	}
	return s
}
