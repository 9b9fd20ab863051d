package node

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/wal"
)

// appender owns the log: it writes appends in order, syncs once for all that
// wait, and tells the loop. It is a goroutine of its own so that no flush holds
// up a heartbeat.
type appender struct {
	log    *segments
	clock  Clock
	events Events
	queue  *queue[appendTask]
	marks  *queue[func() error] // of snapshots that are durable; also done while an append waits for space, for they make some
	done   func([]*Append)      // tells the loop
	dirty  bool                 // something is written and not synced
	commit uint64               // in the last hard state written, or of a snapshot installed after it

	installed uint64 // index of the last snapshot that another member sent

	oldest atomic.Uint64 // index that a snapshot must reach for a file of the log to go; 0: there is only the one that is written

	flush flushState
}

// appendTask is an append, or something to do once everything before is durable.
type appendTask struct {
	append *Append
	mark   wal.SnapshotMark // of the file, if the append has a snapshot
	then   func() error
}

// flushState is what others may see of the appender.
type flushState struct {
	mu     sync.Mutex // held for a few assignments
	began  time.Time  // of the write or sync that is out; zero: none, or it waits for space
	last   time.Duration
	recent [usualFlushes]time.Duration // a ring of what they took
	count  int                         // of all that were put there
	paused error                       // why appends wait, or nil
}

func (a *appender) run(ctx context.Context) error {
	var tasks []appendTask
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.marks.wake:
			if err := a.performMarks(); err != nil {
				return err
			}
			continue
		case <-a.queue.wake:
		}
		tasks = a.queue.take(tasks)
		if err := a.perform(ctx, tasks); err != nil {
			return err
		}
	}
}

// perform does tasks in order: appends up to the next task of another kind are
// written together and synced once.
func (a *appender) perform(ctx context.Context, tasks []appendTask) error {
	for len(tasks) > 0 {
		n := 0
		for n < len(tasks) && tasks[n].append != nil {
			n++
		}
		if n > 0 {
			group := make([]*Append, n)
			for i := range group {
				group[i] = tasks[i].append
			}
			if err := a.write(ctx, tasks[:n]); err != nil {
				return err
			}
			a.done(group)
			tasks = tasks[n:]
			continue
		}
		if err := a.settle(tasks[0].then); err != nil {
			return err
		}
		tasks = tasks[1:]
	}
	return nil
}

// performMarks does what waits to be marked. A mark needs nothing of the appends that
// wait: what it covers was durable before its snapshot was written.
func (a *appender) performMarks() error {
	for _, f := range a.marks.take(nil) {
		if err := f(); err != nil {
			return err
		}
	}
	return nil
}

// settle makes everything before durable, then runs f.
func (a *appender) settle(f func() error) error {
	if a.dirty {
		a.flushBegins()
		err := a.sync(0, 0)
		a.flushEnds()
		if err != nil {
			return err
		}
	}
	return f()
}

// mark has the log name a snapshot, and give up what it covers.
func (a *appender) mark(ctx context.Context, mark wal.SnapshotMark) error {
	a.flushBegins()
	defer a.flushEnds()
	if err := a.untilSpace(ctx, "mark snapshot", func() error { return a.log.markSnapshot(mark) }); err != nil {
		return err
	}
	return a.release(mark.Index)
}

// release gives up what a snapshot that the log names covers.
func (a *appender) release(index uint64) error {
	if err := a.log.release(index); err != nil {
		return fatal("release the log", err)
	}
	a.oldest.Store(a.log.oldest())
	return nil
}

// write makes a group of appends durable, as far as they ask for it.
func (a *appender) write(ctx context.Context, group []appendTask) error {
	a.flushBegins()
	defer a.flushEnds()
	mustSync := false
	entries, bytes := 0, 0
	for _, t := range group {
		ap := t.append
		if ap.Snapshot != nil {
			if err := a.install(ctx, t.mark); err != nil {
				return err
			}
		}
		write := func() error { return a.log.Append(ap.HardState, ap.Entries) }
		if err := a.untilSpace(ctx, "write the log", write); err != nil {
			return err
		}
		a.dirty = true
		mustSync = mustSync || ap.MustSync
		entries += len(ap.Entries)
		for _, e := range ap.Entries {
			bytes += len(e.GetData())
		}
		if ap.HardState != nil {
			a.commit = ap.HardState.GetCommit()
		}
	}
	if !mustSync {
		return nil
	}
	return a.sync(entries, bytes)
}

// install puts a snapshot that another member sent, whose file is durable under
// its name, in the place of the log. The mark is durable when it returns, and
// with it all that was written before. A batch whose commit covers the snapshot
// comes after, so that no commit index is ever beyond what the log stands for.
func (a *appender) install(ctx context.Context, mark wal.SnapshotMark) error {
	err := a.untilSpace(ctx, "install a snapshot", func() error { return a.log.installSnapshot(mark) })
	if err != nil {
		return err
	}
	a.dirty = false
	a.installed = mark.Index
	a.commit = max(a.commit, mark.Index)
	return a.release(mark.Index)
}

// untilSpace writes to the log. When the disk is full it waits until there is
// space: nobody has been told anything yet, so nothing is lost but time. A snapshot
// that was begun before is marked meanwhile.
func (a *appender) untilSpace(ctx context.Context, what string, write func() error) error {
	within := a.waits() // an append waits, and this is a mark
	for {
		err := write()
		if err == nil {
			a.oldest.Store(a.log.oldest())
			if !within {
				a.pause(nil)
			}
			return nil
		}
		if incumbent.KindOf(err) != incumbent.Unavailable {
			return fatal(what, err)
		}
		a.pause(err)
		a.flushEnds() // a disk that is full has answered: it does not hang
		a.clock.Sleep(ctx, appendRetryEvery)
		if err := a.performMarks(); err != nil {
			return err
		}
		a.flushBegins()
		if ctx.Err() != nil {
			return incumbent.Errorf(incumbent.Unavailable, "stopped while the log waited for space: %w", err)
		}
	}
}

func (a *appender) sync(entries, bytes int) error {
	began := a.clock.Now()
	if err := a.log.Sync(); err != nil {
		return fatal("sync the log", err)
	}
	a.dirty = false
	took := a.clock.Now().Sub(began)
	a.flush.mu.Lock()
	a.flush.last = took
	a.flush.recent[a.flush.count%usualFlushes] = took
	a.flush.count++
	a.flush.mu.Unlock()
	a.events.Synced(took, entries, bytes)
	return nil
}

// fatal names what failed. Errors that already say they are fatal stay.
func fatal(what string, err error) error {
	if e := (*incumbent.Error)(nil); errors.As(err, &e) && e.Kind.Fatal() {
		return err
	}
	return incumbent.Errorf(incumbent.Internal, "%s: %w", what, err)
}

func (a *appender) flushBegins() {
	now := a.clock.Now()
	a.flush.mu.Lock()
	defer a.flush.mu.Unlock()
	a.flush.began = now
}

func (a *appender) flushEnds() {
	a.flush.mu.Lock()
	defer a.flush.mu.Unlock()
	a.flush.began = time.Time{}
}

// pause shows why appends wait, or that they go on.
func (a *appender) pause(err error) {
	a.flush.mu.Lock()
	changed := (a.flush.paused == nil) != (err == nil)
	a.flush.paused = err
	a.flush.mu.Unlock()
	if changed {
		a.events.Paused(err != nil, err)
	}
}

// waits reports whether appends wait for space.
func (a *appender) waits() bool {
	a.flush.mu.Lock()
	defer a.flush.mu.Unlock()
	return a.flush.paused != nil
}

// usually returns what a flush takes at least here, as the last few show; at most
// maxUsualFlush, and 0 while there were fewer. One that took long once does not
// count: the disk is as fast as before.
func (a *appender) usually() time.Duration {
	a.flush.mu.Lock()
	defer a.flush.mu.Unlock()
	if a.flush.count < usualFlushes {
		return 0
	}
	return min(slices.Min(a.flush.recent[:]), maxUsualFlush)
}

// out returns for how long a flush has been out.
func (a *appender) out(now time.Time) time.Duration {
	a.flush.mu.Lock()
	defer a.flush.mu.Unlock()
	if a.flush.began.IsZero() {
		return 0
	}
	return now.Sub(a.flush.began)
}
