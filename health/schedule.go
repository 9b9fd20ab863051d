package health

import (
	"bytes"
	"container/heap"
	"time"

	"github.com/incumbent-dev/incumbent/core/catalog"
)

// stoodStill is how much longer than it may a run takes only where this member did not run
// meanwhile, as when its process or its machine was stopped.
const stoodStill = time.Second

// schedule is when which check is due, and how its runs went. It has no clock.
type schedule struct {
	cfg     Config
	members []uint64       // that run checks
	known   map[Key]*Check // that any of them runs
	jobs    map[Key]*job   // of them, this member's
	due     dueHeap
	running int
}

// job is a check that this member runs.
type job struct {
	key       Key
	stored    []byte // the definition
	def       *Definition
	record    *catalog.Check // with that definition, as the state has it
	status    Status         // as in the state
	output    string
	streak    streak
	due       time.Time
	place     int // in the heap; -1: not there
	began     time.Time
	running   bool
	cancel    func() // ends the run that is under way; set while running
	reporting bool
	gone      bool // it is not this member's any more, and its run has not ended
	// outputAt is from when on an output is reported while the status does not change.
	outputAt time.Time
}

func newSchedule(cfg Config) *schedule {
	return &schedule{cfg: cfg, known: map[Key]*Check{}, jobs: map[Key]*job{}}
}

// hear takes in what has changed.
func (s *schedule) hear(now time.Time, n news) {
	if n.all {
		for k := range s.known {
			if n.changed[k] == nil {
				n.changed[k] = nil
			}
		}
	}
	for k, c := range n.changed {
		if c == nil {
			delete(s.known, k)
		} else {
			s.known[k] = c
		}
		if n.members == nil {
			s.look(now, k)
		}
	}
	if n.members != nil {
		s.members = n.members
		for k := range s.known {
			s.look(now, k)
		}
		for k := range s.jobs {
			s.look(now, k)
		}
	}
	for _, d := range n.reported {
		d.job.reporting = false
		if d.err != nil {
			d.job.outputAt = now // what was found is not known yet
		}
		if soon := now.Add(runAgain); d.err != nil && d.job.place >= 0 && d.job.due.After(soon) {
			s.set(d.job, soon)
		}
	}
}

// look runs a check, or no longer, as it is this member's.
func (s *schedule) look(now time.Time, k Key) {
	c := s.known[k]
	if c == nil || memberOf(c, s.members) != s.cfg.Self {
		s.drop(k)
		return
	}
	s.put(now, c)
}

// put takes in a check as the state has it. One that is new, or does something else
// than before, begins somewhere in its interval, so that those that were registered
// together do not run together.
func (s *schedule) put(now time.Time, c *Check) {
	j := s.jobs[c.Key]
	if j != nil && !j.gone && bytes.Equal(j.stored, c.Definition) {
		j.status, j.output, j.record = c.Status, c.Output, c.record
		return
	}
	def, err := Parse(c.Definition)
	if err != nil || def.Kind() == KindNone { // whoever registered it meant something else
		s.drop(c.Key)
		return
	}
	runs := streak{}
	if j == nil || j.gone {
		runs.begun = c.Output != "" // by another member, or by this one before
	}
	if j == nil {
		j = &job{key: c.Key, place: -1, outputAt: now.Add(s.share(s.cfg.OutputEvery))}
		s.jobs[c.Key] = j
	}
	j.status, j.output, j.record = c.Status, c.Output, c.record
	j.def, j.stored, j.streak, j.gone = &def, c.Definition, runs, false
	if j.running { // what it finds does not count: it is due again once it has ended
		j.cancel()
		return
	}
	s.set(j, now.Add(s.share(def.interval())))
}

func (s *schedule) share(d time.Duration) time.Duration {
	return time.Duration(s.cfg.Jitter() * float64(d))
}

// drop forgets a check: at once, or when its run has ended, so that one of the same name
// that comes meanwhile is not run beside it.
func (s *schedule) drop(k Key) {
	j := s.jobs[k]
	switch {
	case j == nil:
		return
	case j.running:
		j.gone = true
		j.cancel()
		return
	case j.place >= 0:
		heap.Remove(&s.due, j.place)
	}
	delete(s.jobs, k)
}

// set says when a check is due.
func (s *schedule) set(j *job, at time.Time) {
	j.due = at
	if j.place >= 0 {
		heap.Fix(&s.due, j.place)
		return
	}
	heap.Push(&s.due, j)
}

// next returns a check that is due and may begin, which it does: whoever runs it says
// how that is ended. nil: there is none.
// Those that are late begin in the order in which they were due.
func (s *schedule) next(now time.Time) *job {
	if s.running >= s.cfg.AtOnce || len(s.due) == 0 || s.due[0].due.After(now) {
		return nil
	}
	j := heap.Pop(&s.due).(*job)
	j.running, j.began = true, now
	s.running++
	return j
}

// wait is how long there is nothing to begin, as far as nothing else happens.
func (s *schedule) wait(now time.Time) time.Duration {
	if s.running >= s.cfg.AtOnce || len(s.due) == 0 {
		return time.Hour // whatever ends or comes wakes the loop
	}
	return max(0, s.due[0].due.Sub(now))
}

// late is how long the check that was due first waits for others to end.
func (s *schedule) late(now time.Time) time.Duration {
	if len(s.due) == 0 {
		return 0
	}
	return max(0, now.Sub(s.due[0].due))
}

// ran takes in what a run found, and returns what is to be reported; false: nothing.
func (s *schedule) ran(now time.Time, r result) (Outcome, bool) {
	s.running--
	j := r.job
	j.running = false
	j.cancel()
	if j.gone {
		delete(s.jobs, j.key)
		return Outcome{}, false
	}
	if j.def != r.def { // it was changed meanwhile
		s.set(j, now.Add(s.share(j.def.interval())))
		return Outcome{}, false
	}
	if now.Sub(j.began) > j.def.timeout()+stoodStill { // this member did not run: nothing is known of what it asked
		s.set(j, now)
		return Outcome{}, false
	}
	due := j.began.Add(j.def.interval())
	if due.Before(now) { // it took longer: those that waited for it come first
		due = now
	}
	s.set(j, due)
	status, enough := j.streak.after(r.outcome.Status, j.def.Thresholds)
	if r.outcome.Status == Critical { // however few failures there were since this member runs it: one makes nothing better
		status = max(status, j.status)
	}
	if !enough || j.reporting {
		return Outcome{}, false
	}
	o := Outcome{Status: status, Output: r.outcome.Output, of: j.record}
	if o.Status == j.status {
		first := j.output == "" // nobody knows yet what it found
		if o.Output == j.output || !first && (s.cfg.OutputEvery < 0 || now.Before(j.outputAt)) {
			return Outcome{}, false
		}
	}
	j.outputAt = now.Add(max(0, s.cfg.OutputEvery))
	j.reporting = true
	return o, true
}

// dueHeap has the check that is due first in front.
type dueHeap []*job

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h dueHeap) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].place, h[j].place = i, j
}

// Push implements heap.Interface.
func (h *dueHeap) Push(x any) {
	j := x.(*job)
	j.place = len(*h)
	*h = append(*h, j)
}

// Pop implements heap.Interface.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	j := (*h)[last]
	j.place = -1
	(*h)[last] = nil
	*h = (*h)[:last]
	return j
}
