package bench

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// One key is changed at a rate, open loop, before watchers that have a connection
// each: how many of the changes reach them, and how late? What is stored is the
// change's number, so that a watcher knows when it was due. Of several members the
// first watcher at each also tells how long after the leader's it sees a change: what
// a watch itself takes is in both alike, so that the difference is that of their
// applies. All clocks are this process's.

// Limits of a fan-out.
const (
	changers   = 256       // changes under way at most; further ones wait, and are charged for it
	maxChanges = 1_000_000 // of one run
	lookEvery  = 20 * time.Millisecond
)

// Operations of a fan-out.
const (
	changeOp  = "put"                   // from when it was due
	deliverOp = "delivery"              // of one change to one watcher, from when it was due
	lagOp     = "follower after leader" // between the first watchers there
)

// FanOut is how a system changes the key and watches it.
type FanOut struct {
	// Put stores a value, and gives up when its context ends. Each of the 256 changers
	// has one call under way.
	Put func(ctx context.Context, changer int, value []byte) error
	// Watch follows the key over connection i until its context ends; an error before
	// ends the run. It calls began once it is told of all that happens from then on,
	// and seen for each change, in order.
	Watch func(ctx context.Context, i int, began func(), seen func(index uint64, value []byte)) error
	// Poll, where it is set, takes the place of Watch for watchers that are told what is
	// there now, not of each change: knows says that from a moment of the run on the
	// watcher had every change up to a number. It may be called from any goroutine.
	Poll func(ctx context.Context, i int, began func(), knows Knows) error
	// Concerns, with Poll, reports whether change n is one that watcher i asks for; nil:
	// each is. Audience is for how many watchers each change is, then.
	Concerns func(i, n int) bool
	Audience int
	// Changers is how many changes may be under way; 0: 256.
	Changers int
	// Measure, where it is set, is called when the first change that is measured is due,
	// and what it returns once the last was handed out.
	Measure func() (end func())
}

// Knows says that a watcher had all changes up to a number (-1: none) at a moment, and
// returns how long after the last of them was due, if that is one which is measured.
type Knows func(upTo int, at time.Duration) (late time.Duration, measured bool)

// validateFanOut is for the play watch.
func (c *Closed) validateFanOut() error {
	switch {
	case c == nil:
		return fmt.Errorf("play watch needs closed")
	case !perSecond(c.Rate) || c.Duration <= 0 || c.changes() > maxChanges:
		return fmt.Errorf("closed.rate must be %v to %d, duration positive, and both for %d changes at most", minPerSecond, maxPerSecond, maxChanges)
	case c.Workers < 1 || c.Workers > maxConnections-changers:
		return fmt.Errorf("closed.workers, the watchers, must be 1 to %d", maxConnections-changers)
	case c.ValueBytes < numberBytes || c.ValueBytes > maxValueBytes:
		return fmt.Errorf("closed.value_bytes must be %d to %d", numberBytes, maxValueBytes)
	}
	return nil
}

// changes are those of warm-up and measurement.
func (c *Closed) changes() float64 {
	return c.Rate * time.Duration(c.Warmup+c.Duration).Seconds()
}

// fanOut is one such run.
type fanOut struct {
	*run
	system    FanOut
	put, told *opRecord
	lag       *opRecord
	first     int           // number of the first change that is measured
	all       int           // changes
	began     atomic.Int64  // when the first change was due, in ns since the run began
	underWay  atomic.Int64  // changes
	delivered atomic.Uint64 // measured changes, to all watchers
	leader    int           // of the members; -1: not known, or there is one

	mu    sync.Mutex // protects sight; held for a look-up or a change of it
	sight map[int][]time.Duration
}

// fanOut plays the scenario on a system.
func (r *run) fanOut(ctx context.Context, system FanOut) error {
	cfg := r.sc.Closed
	f := &fanOut{
		run: r, system: system, put: r.rec.op(changeOp), told: r.rec.op(deliverOp), lag: r.rec.op(lagOp),
		first: int(cfg.Rate * time.Duration(cfg.Warmup).Seconds()), all: int(cfg.changes()),
		leader: -1, sight: map[int][]time.Duration{},
	}
	if err := f.findLeader(ctx); err != nil {
		return err
	}
	loading, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	errs := make(chan error, cfg.Workers)
	if err := f.watchAll(loading, &running, errs); err != nil {
		return err
	}
	r.connected(cfg.Workers)
	numbers := make(chan int)
	var making sync.WaitGroup
	for i := range cmp.Or(system.Changers, changers) {
		making.Go(func() { f.change(loading, i, numbers) })
	}
	err := f.pace(loading, numbers, errs)
	close(numbers)
	if err == nil {
		err = f.settle(loading, errs)
	}
	stop() // a change that has no answer by now has failed
	making.Wait()
	if err != nil {
		return err
	}
	r.fact("changes", float64(f.all-f.first))
	r.fact("undelivered", float64(f.missing()))
	r.fact("delivered_share", 1-float64(f.missing())/float64(f.wanted()))
	r.judgeErrors()
	return nil
}

// wanted is how many deliveries there are if every change that is due is made.
func (f *fanOut) wanted() uint64 {
	return uint64(f.all-f.first) * uint64(cmp.Or(f.system.Audience, f.sc.Closed.Workers))
}

// missing is how many of them there were not.
func (f *fanOut) missing() uint64 { return f.wanted() - min(f.wanted(), f.delivered.Load()) }

// due is when a change is to be made.
func (f *fanOut) due(n int) time.Duration {
	return time.Duration(f.began.Load()) + time.Duration(float64(n)/f.sc.Closed.Rate*float64(time.Second))
}

// watchAll starts the watches and returns once all have begun.
func (f *fanOut) watchAll(ctx context.Context, running *sync.WaitGroup, errs chan error) error {
	const opening = 64 // at once
	workers := f.sc.Closed.Workers
	f.setPhase("opening %d watches", workers)
	slots, begun := make(chan struct{}, opening), make(chan struct{}, workers)
	running.Go(func() {
		for i := range workers {
			select {
			case slots <- struct{}{}:
			case <-ctx.Done():
				return
			}
			w := &fanOutWatcher{fanOut: f, i: i}
			began := sync.OnceFunc(func() { <-slots; begun <- struct{}{} })
			running.Go(func() {
				if err := w.watch(ctx, began); ctx.Err() == nil {
					errs <- incumbent.Errorf(incumbent.Unavailable, "watch %d ended: %w", i, err)
				}
			})
		}
	})
	for range workers {
		select {
		case <-begun:
		case err := <-errs:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// end is when the run is over, whatever is on its way.
func (f *fanOut) end() time.Duration { return f.due(f.all) + time.Duration(f.sc.Settle) }

// pace hands out the changes, each at its time. Those for which nobody has time until
// the end are not made.
func (f *fanOut) pace(ctx context.Context, numbers chan<- int, errs <-chan error) error {
	f.setPhase("warm-up")
	f.began.Store(int64(f.now()))
	account := func() {}
	over := time.NewTimer(f.end() - f.now())
	defer over.Stop()
	for n, late := 0, false; n < f.all && !late; n++ {
		if err := sleepOr(ctx, f.due(n)-f.now(), errs); err != nil {
			return err
		}
		if n == f.first {
			f.setPhase("measuring")
			account = f.measured()
		}
		select {
		case numbers <- n:
			f.underWay.Add(1)
		case <-over.C:
			late = true
		case err := <-errs:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	account()
	return nil
}

// measured begins the account of what is measured, and returns what ends it.
func (f *fanOut) measured() (end func()) {
	if f.system.Measure != nil {
		return f.system.Measure()
	}
	before, own, began := f.meter.cpu(), selfCPU(), f.now()
	return func() { f.account(before, own, f.now()-began) }
}

// settle waits for what is on its way at the end.
func (f *fanOut) settle(ctx context.Context, errs <-chan error) error {
	f.setPhase("waiting for what is on its way")
	for (f.missing() > 0 || f.underWay.Load() > 0) && f.now() < f.end() {
		if err := sleepOr(ctx, lookEvery, errs); err != nil {
			return err
		}
	}
	return nil
}

// change makes the changes that are handed to one of the changers.
func (f *fanOut) change(ctx context.Context, i int, numbers <-chan int) {
	value := make([]byte, f.sc.Closed.ValueBytes)
	for n := range numbers {
		binary.BigEndian.PutUint64(value, uint64(n))
		err := f.system.Put(ctx, i, value)
		switch now := f.now(); {
		case n < f.first:
		case err != nil:
			f.put.failed(now, 1)
		default:
			f.put.done(now, now-f.due(n), 1)
		}
		f.underWay.Add(-1)
	}
}

// fanOutWatcher is one of the watchers.
type fanOutWatcher struct {
	*fanOut
	i    int
	last uint64 // index of the newest change

	mu   sync.Mutex // protects next, of a watcher that polls
	next int        // number of the first change that it does not have
}

func (w *fanOutWatcher) watch(ctx context.Context, began func()) error {
	if w.system.Poll != nil {
		return w.system.Poll(ctx, w.i, began, w.knows)
	}
	return w.system.Watch(ctx, w.i, began, w.seen)
}

// knows is the watcher's [Knows].
func (w *fanOutWatcher) knows(upTo int, at time.Duration) (late time.Duration, measured bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for n := max(w.next, w.first); n <= upTo; n++ {
		if w.system.Concerns == nil || w.system.Concerns(w.i, n) {
			w.delivered.Add(1)
			w.told.done(at, at-w.due(n), 1)
		}
	}
	w.next = max(w.next, upTo+1)
	return at - w.due(upTo), upTo >= w.first
}

func (w *fanOutWatcher) seen(index uint64, value []byte) {
	now := w.now()
	if index <= w.last {
		w.check.Violate("watch %d: a change of index %d after one of index %d", w.i, index, w.last)
	}
	w.last = index
	if len(value) < numberBytes || binary.BigEndian.Uint64(value) >= uint64(w.all) {
		w.check.Violate("watch %d: index %d stored %d bytes that nobody put", w.i, index, len(value))
		return
	}
	n := int(binary.BigEndian.Uint64(value))
	if n < w.first {
		return
	}
	w.delivered.Add(1)
	w.told.done(now, now-w.due(n), 1)
	if w.leader >= 0 && w.i < len(w.urls) {
		w.sighted(n, w.i, now)
	}
}

// sighted notes when the first watcher at a member saw a change, and what that says
// once all members' have.
func (f *fanOut) sighted(n, member int, now time.Duration) {
	f.mu.Lock()
	at := f.sight[n]
	if at == nil {
		at = make([]time.Duration, len(f.urls))
		f.sight[n] = at
	}
	at[member] = now
	whole := !slices.Contains(at, 0)
	if whole {
		delete(f.sight, n)
	}
	f.mu.Unlock()
	if !whole {
		return
	}
	for i, t := range at {
		if i != f.leader {
			f.lag.done(now, t-at[f.leader], 1) // before it is counted as at once
		}
	}
}

// findLeader waits until a member says who leads, if there are several, each with a
// watcher.
func (f *fanOut) findLeader(ctx context.Context) (err error) {
	if len(f.clients) < 2 || f.sc.Closed.Workers < len(f.clients) || f.system.Poll != nil {
		return nil
	}
	f.setPhase("looking for the leader")
	f.leader, err = f.leads(ctx)
	return err
}

// leaderIn is who leads as a member sees it, or -1.
func (r *run) leaderIn(st *apiv1.StatusResponse) int {
	for _, m := range st.Members {
		if m.Role == "leader" {
			return slices.IndexFunc(r.urls, func(u string) bool {
				return strings.TrimSuffix(u, "/") == strings.TrimSuffix(m.Address, "/")
			})
		}
	}
	return -1
}
