package node

import (
	"context"
	"math"
	"time"

	"github.com/incumbent-dev/incumbent/vfs"
)

// Manual is a node without goroutines: whoever drives it says when the loop
// takes a turn, when the disk has finished and when entries are applied, with
// Config.Clock for the time. It is the same code as a running node's, put in an
// order that a seed decides: for simulation.
//
// Its driver may hold up the work on files in the middle (a disk that hangs, in
// a coroutine) and go on with Turn and Apply meanwhile, as the loop and the
// applier of a running node do.
type Manual struct {
	*Node
	onDisk bool // within Append or TakeSnapshot
}

// OpenManual opens a node that the caller drives. Run refuses.
func OpenManual(cfg Config) (*Manual, error) {
	// Snapshots are taken when the driver says so, not on a goroutine.
	cfg.SnapshotBytes, cfg.SnapshotEntries = math.MaxInt64, math.MaxUint64
	n, err := Open(cfg)
	if err != nil {
		return nil, err
	}
	n.started.Store(true)
	n.ran.Store(true)
	n.files.inline = true
	n.replica.Confirm(n.confirmedStart)
	n.turn(false)
	return &Manual{Node: n}, nil
}

// Turn lets the loop take all that waits, and count a tick if one is due.
func (m *Manual) Turn(ticked bool) {
	takeToken(m.inbox.wake)
	m.drain(inboxBatch{})
	m.turn(ticked)
	if (m.snap.wanted || m.status.SnapshotWanted) && m.files.failed == nil && !m.onDisk && !m.cfg.Clock.Now().Before(m.snap.notBefore) {
		m.takeWanted()
	}
}

// takeWanted takes a snapshot that somebody waits for. Without space it is tried
// again later, as a running node does.
func (m *Manual) takeWanted() {
	err := m.TakeSnapshot()
	if vfs.IsNoSpace(err) {
		m.snap.notBefore = m.cfg.Clock.Now().Add(snapshotRetryAfter)
		return
	}
	m.files.failed = err
}

// Wake returns when a turn is wanted even if nothing happens until then and no
// tick is due, if it is.
func (m *Manual) Wake() (time.Time, bool) { return m.replica.Wake() }

// StartChangeMembers is [Node.ChangeMembers] without waiting: done is called in a
// later turn.
func (m *Manual) StartChangeMembers(done func(error), changes ...MemberChange) {
	m.startChange(done, changes)
}

// StartTransferLeader is [Node.TransferLeader] without waiting: done is called in
// a later turn.
func (m *Manual) StartTransferLeader(to uint64, done func(error)) { m.startTransfer(to, done) }

// Append performs what the appender has been given, and reports whether there
// was anything. An error is fatal to a running node.
func (m *Manual) Append() (worked bool, err error) {
	takeToken(m.appender.queue.wake)
	if err := m.files.failed; err != nil {
		return true, err
	}
	tasks := m.appender.queue.take(nil)
	if len(tasks) == 0 {
		return false, nil
	}
	m.onDisk = true
	defer func() { m.onDisk = false }()
	return true, m.appender.perform(context.Background(), tasks)
}

// Apply performs what the applier has been given, and reports whether there was
// anything.
func (m *Manual) Apply() (worked bool, err error) {
	takeToken(m.applier.queue.wake)
	tasks := m.applier.queue.take(nil)
	for _, t := range tasks {
		if err := m.applier.perform(t); err != nil {
			return true, err
		}
	}
	return len(tasks) > 0, nil
}

// TakeSnapshot takes a snapshot of what is applied, in the order in which a
// running node does.
func (m *Manual) TakeSnapshot() error {
	if m.writeCommit() {
		if _, err := m.Append(); err != nil {
			return err
		}
	}
	index, write := m.applier.applied, m.cfg.Machine.Snapshot()
	if m.replica.Status().Applied != index || m.appender.commit < index || m.replica.restoring > index || index == m.snap.mark.Index {
		return nil // not all of it has been acknowledged: another time
	}
	b := &boundSnapshot{meta: m.replica.MetaAt(index), write: write, least: m.snap.mark.Bytes}
	m.onDisk = true
	defer func() { m.onDisk = false }()
	return m.appender.settle(func() error {
		name := m.snapshots.name(b.meta)
		m.snapshots.kept.hold(name, name+temporarySuffix)
		defer m.snapshots.kept.letGo(name, name+temporarySuffix)
		mark, err := m.writeFile(context.Background(), math.MaxInt64, b)
		if err != nil {
			return err
		}
		if err := m.appender.log.markSnapshot(mark); err != nil {
			return err
		}
		if err := m.appender.log.release(index); err != nil {
			return err
		}
		m.snapshotMarked(b.meta, mark)
		m.sweep()
		return m.files.failed
	})
}

// Close answers everybody who waits and closes the files. Nothing else may be
// called afterwards.
func (m *Manual) Close(context.Context) error {
	m.askToStop()
	select {
	case <-m.stopped:
		return nil
	default:
		return m.finish(nil)
	}
}

// Busy reports whether the loop, the appender or the applier has been given
// something.
func (m *Manual) Busy() (loop, appender, applier bool) {
	return len(m.inbox.wake) > 0, len(m.appender.queue.wake) > 0, len(m.applier.queue.wake) > 0
}

// takeToken takes the token out of a channel that holds one, if it is there.
func takeToken(c chan struct{}) {
	select {
	case <-c:
	default:
	}
}
