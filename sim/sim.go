// Package sim runs a member's real code — log, node, core, lease loop — against
// agents, in virtual time and from one seed: who is slow, what is lost, when the
// power fails and when a process stands still are all the seed's choice. The
// same seed gives the same run, to the byte.
//
// Everything happens in one goroutine, in the order of one queue of events. The
// parts that run on goroutines of their own in a server are driven by hand
// ([node.Manual], [lease.Manual]); the disk is [vfs.Mem], which loses at a crash
// what a disk would. The checker knows what every agent believes at any moment
// of the one true time, which no agent and no member does.
package sim

import (
	"container/heap"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"time"
)

// quiet is how long a run goes on without faults and agents at its end: a boot,
// the time in which clients may return, and two ttls.
const quiet = bootTakes + returnTime + stallTakes + 2*maxTTL

// Config says what one run may do.
type Config struct {
	Seed     uint64
	Duration time.Duration // virtual
	Agents   int
	Leases   int
	// Mean times between faults; 0: never.
	Crash, Stall, Silence time.Duration
	Trace                 io.Writer // every event, for reading; nil: none
}

// Result is what one run did and found.
type Result struct {
	Seed       uint64
	Trace      uint64 // hash over every event: equal seeds give equal hashes
	Crashes    int
	Stalls     int
	Snapshots  int
	Grants     int
	Extensions int
	Releases   int
	Expiries   int
	HandOvers  int
	Refusals   int
	Violations []string
}

// world is one run.
type world struct {
	cfg    Config
	rng    *rand.Rand
	now    time.Duration // the one true time
	queue  events
	seq    uint64
	hash   interface{ Sum64() uint64 }
	digest io.Writer
	member *member
	agents []*agent
	check  *checker
	res    Result
	failed error
}

// Run performs one run.
func Run(cfg Config) Result {
	h := fnv.New64a()
	w := &world{cfg: cfg, rng: rand.New(rand.NewPCG(cfg.Seed, 0x1c0b)), hash: h, digest: h}
	w.res.Seed = cfg.Seed
	w.check = newChecker(w)
	w.member = newMember(w)
	for i := range cfg.Agents {
		w.agents = append(w.agents, newAgent(w, i))
	}
	w.member.open()
	for _, a := range w.agents {
		w.after(w.upTo(2*time.Second), a.begin)
	}
	w.plan(cfg.Crash, func() { w.member.powerFails() })
	w.plan(cfg.Stall, func() { w.member.stall() })
	w.plan(cfg.Silence, func() { w.agents[w.rng.IntN(len(w.agents))].fallSilent() })
	w.loop(cfg.Duration)
	// A time without faults, in which all that is pending must come to an end.
	w.cfg.Crash, w.cfg.Stall, w.cfg.Silence = 0, 0, 0
	for _, a := range w.agents {
		a.retire()
	}
	w.member.crash = 0
	w.loop(w.now + quiet)
	w.check.atEnd()
	w.res.Trace = w.hash.Sum64()
	return w.res
}

// loop runs events until a moment.
func (w *world) loop(until time.Duration) {
	for w.queue.Len() > 0 && w.queue[0].at <= until && w.failed == nil {
		e := heap.Pop(&w.queue).(event) //nolint:forcetypeassert // nothing else is in it
		w.now = e.at
		e.do()
	}
	if w.failed != nil {
		w.violate("the member failed: %v", w.failed)
	}
	w.now = until
}

// plan does something again and again, at random intervals of a mean.
func (w *world) plan(mean time.Duration, do func()) {
	if mean == 0 {
		return
	}
	w.after(w.upTo(2*mean), func() {
		if w.cfg.Crash+w.cfg.Stall+w.cfg.Silence > 0 {
			do()
			w.plan(mean, do)
		}
	})
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

func (w *world) violate(format string, args ...any) {
	text := fmt.Sprintf("at %v: %s", w.now, fmt.Sprintf(format, args...))
	w.note("VIOLATION %s", text)
	w.res.Violations = append(w.res.Violations, text)
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
	*q = old[:len(old)-1]
	return e
}
