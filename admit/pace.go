package admit

import "time"

// What is fixed of a [Pace].
const (
	paceRate  = 16 << 10        // bytes in a second
	paceAhead = 4 * time.Second // so much of it at once
	paceDebt  = time.Minute     // the most that it is behind
	paceLeast = time.Second / 2 // to rest: to go on for each few bytes would cost more than they do
	paceMost  = 2 * time.Second // to rest at a time: extensions may stand behind what is slowed
	paceApart = 0.25            // by which part a wait may be longer than it has to be: those who have come at once are not to come at once again
)

// MessageBytes is what a message counts as at least, beside its own bytes: to be read by itself, and
// answered, takes about as long.
const MessageBytes = 512

// Pace bounds what is spent on what comes over one connection and asks for nothing that the load
// could be a reason to refuse: pings, and requests that are refused for what they say, or because
// their sender may not make them. To read and answer them is no queue that a lane sees; without a
// pace a few who send nothing else, as fast as they can, have a processor to themselves.
//
// It is a bucket of bytes that refills at a rate, kept as the time at which it is full again (the
// generic cell rate algorithm, https://www.itu.int/rec/T-REC-I.371). The zero value is full. It
// is for one goroutine at a time.
type Pace struct {
	full int64 // monotonic nanoseconds
}

// Slow takes so many bytes out of a connection's pace, and returns for how long nothing further is
// to be served of what comes over it: 0 for who keeps to the pace, else half a second to two and a
// half.
func (c *Controller) Slow(p *Pace, bytes int, now int64) time.Duration {
	mode := Mode(c.mode.Load())
	if bytes <= 0 || mode == Off {
		return 0
	}
	p.full = min(max(p.full, now)+int64(bytes)*int64(time.Second)/paceRate, now+int64(paceDebt))
	behind := time.Duration(p.full-now) - paceAhead
	if behind <= 0 {
		return 0
	}
	c.slowed.Add(1)
	if mode == Observe {
		return 0
	}
	wait := min(max(behind, paceLeast), paceMost)
	return wait + time.Duration(float64(wait)*paceApart*c.jitter())
}

// Behind reports whether a pace is used up.
func (p *Pace) Behind(now int64) bool { return time.Duration(p.full-now) > paceAhead }

// Slowed is how often [Controller.Slow] has said, or would have said but for the mode, that a
// connection is to wait.
func (c *Controller) Slowed() uint64 { return c.slowed.Load() }
