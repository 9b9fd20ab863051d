package health

import (
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent/histogram"
)

// bounds of the durations of runs, in seconds.
var bounds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 5, 10}

// counts are a runner's numbers, written from any goroutine.
type counts struct {
	runs     [numKinds]*histogram.Durations
	outcomes [numKinds][numStatuses]atomic.Uint64
	reports  atomic.Uint64
	lost     atomic.Uint64 // reports that came to nothing
	checks   atomic.Int64
	running  atomic.Int64
	lateness atomic.Int64 // nanoseconds
}

func (c *counts) init() {
	for k := range c.runs {
		c.runs[k] = histogram.New(bounds)
	}
}

func (c *counts) ran(k Kind, s Status, took time.Duration) {
	c.outcomes[k][s].Add(1)
	c.runs[k].Observe(took)
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
	Kind string
	histogram.Counts
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
		s.Runs = append(s.Runs, RunStats{k.String(), c.runs[k].Counts()})
	}
	return s
}
