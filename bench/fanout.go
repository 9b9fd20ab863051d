package bench

import (
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
	// Put stores a value. Each of the changers has one call under way; their number is
	// below [FanOut]'s limit of 256.
	Put func(ctx context.Context, changer int, value []byte) error
	// Watch follows the key over connection i until its context ends; an error before
	// ends the run. It calls began once it is told of all that happens from then on,
	// and seen for each change, in order.
	Watch func(ctx context.Context, i int, began func(), seen func(index uint64, value []byte)) error
}

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
	stored    atomic.Uint64 // measured changes that were made
	delivered atomic.Uint64 // of those, to all watchers
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
	watching, stop := context.WithCancel(ctx)
	var running sync.WaitGroup
	defer running.Wait()
	defer stop()
	errs := make(chan error, cfg.Workers)
	if err := f.watchAll(watching, &running, errs); err != nil {
		return err
	}
	r.mu.Lock()
	r.agents = func() (int, int, int) { return 0, 0, cfg.Workers }
	r.mu.Unlock()
	if err := f.change(watching, errs); err != nil {
		return err
	}
	r.setPhase("waiting for what is on its way")
	for end := r.now() + time.Duration(r.sc.Settle); f.missing() > 0 && r.now() < end; {
		if err := sleepOr(ctx, lookEvery, errs); err != nil {
			return err
		}
	}
	due := f.stored.Load() * uint64(cfg.Workers)
	r.fact("changes", float64(f.stored.Load()))
	r.fact("undelivered", float64(f.missing()))
	r.fact("delivered_share", float64(due-f.missing())/float64(max(due, 1)))
	r.judgeErrors()
	return nil
}

// missing is how many deliveries are to come.
func (f *fanOut) missing() uint64 {
	due, done := f.stored.Load()*uint64(f.sc.Closed.Workers), f.delivered.Load()
	return due - min(due, done) // a change that was refused may have been made
}

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
				if err := f.system.Watch(ctx, i, began, w.seen); ctx.Err() == nil {
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

// change makes all changes, each at its time, and waits for their answers.
func (f *fanOut) change(ctx context.Context, errs <-chan error) error {
	numbers := make(chan int)
	var making sync.WaitGroup
	defer making.Wait()
	stop := sync.OnceFunc(func() { close(numbers) })
	defer stop()
	for i := range changers {
		making.Go(func() {
			value := make([]byte, f.sc.Closed.ValueBytes)
			for n := range numbers {
				binary.BigEndian.PutUint64(value, uint64(n))
				f.made(ctx, n, f.system.Put(ctx, i, value))
			}
		})
	}
	f.setPhase("warm-up")
	f.began.Store(int64(f.now()))
	var before, own, measured time.Duration
	for n := range f.all {
		if err := sleepOr(ctx, f.due(n)-f.now(), errs); err != nil {
			return err
		}
		if n == f.first {
			before, own, measured = f.meter.cpu(), selfCPU(), f.now()
			f.setPhase("measuring")
		}
		select {
		case numbers <- n:
		case err := <-errs:
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	stop()
	making.Wait()
	f.account(before, own, f.now()-measured)
	return nil
}

// made records the outcome of a change.
func (f *fanOut) made(ctx context.Context, n int, err error) {
	if n < f.first {
		return
	}
	f.outcome(ctx, f.put, f.due(n), err)
	if err == nil {
		f.stored.Add(1)
	}
}

// fanOutWatcher is one of the watchers.
type fanOutWatcher struct {
	*fanOut
	i    int
	last uint64 // index of the newest change
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
func (f *fanOut) findLeader(ctx context.Context) error {
	if len(f.clients) < 2 || f.sc.Closed.Workers < len(f.clients) {
		return nil
	}
	f.setPhase("looking for the leader")
	for f.leader < 0 {
		st, err := statusOf(ctx, f.clients[0])
		if err != nil {
			return err
		}
		if f.leader = f.leaderIn(st); f.leader >= 0 {
			return nil
		}
		if err := sleep(ctx, localEvery); err != nil {
			return err
		}
	}
	return nil
}

// leaderIn is who leads as a member sees it, or -1.
func (f *fanOut) leaderIn(st *apiv1.StatusResponse) int {
	for _, m := range st.Members {
		if m.Role == "leader" {
			return slices.IndexFunc(f.urls, func(u string) bool {
				return strings.TrimSuffix(u, "/") == strings.TrimSuffix(m.Address, "/")
			})
		}
	}
	return -1
}
