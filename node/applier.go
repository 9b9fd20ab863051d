package node

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/incumbent-dev/incumbent/wal"
)

// Machine is the replicated state that entries are applied to. All calls come
// from one goroutine, in order. A machine that panics stops the node.
type Machine interface {
	// Apply performs commands in order and puts a result for each into results.
	// Both slices are reused afterwards; the bytes of the commands are not.
	Apply(cmds [][]byte, results []any)
	// Snapshot binds the present state, at once, and returns a function that
	// writes it and is called later, on another goroutine.
	Snapshot() func(io.Writer) error
	// Restore replaces the state by a snapshot's.
	Restore(r io.Reader) error
	// Lead says that the first entry of this member's own term of leadership has
	// been applied: from here on it may decide as the leader of term.
	Lead(term uint64)
	// Follow says that this member does not lead (any more). Leader is 0 while
	// nobody is known to lead.
	Follow(leader, term uint64)
}

// applier owns the machine.
type applier struct {
	machine Machine
	clock   Clock
	events  Events
	queue   *queue[applyTask]
	done    func(*Apply)                                    // tells the loop
	bound   func(index uint64, write func(io.Writer) error) // tells the loop
	restore func(wal.SnapshotMark) error                    // reads a snapshot file into the machine
	applied uint64
	tasks   []applyTask // taken; those performed are zero

	cmds    [][]byte // reused
	results []any    // reused
}

// applyTask is an apply, or the wish for a snapshot of the state reached then.
type applyTask struct {
	apply    *Apply
	mark     wal.SnapshotMark // of the file, if the apply restores a snapshot
	snapshot bool
	since    time.Time // when it was handed over
}

func (a *applier) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-a.queue.wake:
		}
		a.tasks = a.queue.take(a.tasks)
		for i, t := range a.tasks {
			if err := a.perform(t); err != nil {
				return err
			}
			a.tasks[i] = applyTask{}
		}
	}
}

func (a *applier) perform(t applyTask) error {
	if t.snapshot {
		a.bound(a.applied, a.machine.Snapshot())
		return nil
	}
	if err := a.apply(&t); err != nil {
		return err
	}
	a.done(t.apply)
	return nil
}

// abandon answers those whose entries were committed but will not be applied
// here any more. It is called when the goroutine has ended.
func (a *applier) abandon() {
	for _, t := range append(a.tasks, a.queue.take(nil)...) {
		if t.apply == nil {
			continue
		}
		for i := range t.apply.Entries {
			a.answer(&t.apply.Entries[i], func(int) (any, error) { return nil, errNotSeenApplied() })
		}
	}
}

// answer calls, once, each of those who wait for an entry.
func (a *applier) answer(c *Committed, result func(i int) (any, error)) {
	for i, f := range c.Done {
		if f == nil {
			continue
		}
		c.Done[i] = nil
		f(result(i))
	}
}

func (a *applier) apply(t *applyTask) error {
	ap := t.apply
	if ap.Follow != nil {
		a.machine.Follow(ap.Follow.Leader, ap.Follow.Term)
	}
	if ap.Restore != nil {
		// The file was verified when it came: what does not fit now is damage.
		if err := a.restore(t.mark); err != nil {
			return fatal("restore the leader's snapshot", err)
		}
		a.applied = ap.Restore.Index
	}
	if len(ap.Entries) == 0 {
		return nil
	}
	began := a.clock.Now()
	commands := 0
	for i := range ap.Entries {
		n, err := a.entry(&ap.Entries[i])
		if err != nil {
			return err
		}
		commands += n
	}
	a.events.Applied(AppliedEntries{Entries: len(ap.Entries), Commands: commands, Waited: began.Sub(t.since), Took: a.clock.Now().Sub(began)})
	return nil
}

// entry applies one entry and answers those who wait for it.
func (a *applier) entry(c *Committed) (int, error) {
	if c.Index != a.applied+1 {
		panic(fmt.Sprintf("entry %d is to be applied after %d", c.Index, a.applied))
	}
	a.applied = c.Index
	clear(a.cmds)
	cmds := a.cmds[:0]
	if c.Data != nil {
		var err error
		if cmds, err = decodeEntry(c.Data, cmds); err != nil {
			return 0, fmt.Errorf("committed entry %d: %w", c.Index, err)
		}
		a.cmds = cmds
		a.commands(c)
	}
	if c.Lead != 0 {
		a.machine.Lead(c.Lead)
	}
	return len(cmds), nil
}

func (a *applier) commands(c *Committed) {
	if a.results == nil {
		a.results = make([]any, MaxEntryCommands)
	}
	results := a.results[:len(a.cmds)]
	a.machine.Apply(a.cmds, results)
	a.answer(c, func(i int) (any, error) { return results[i], nil })
	clear(results) // a later entry may be shorter: what it does not overwrite would stay
}
