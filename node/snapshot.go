package node

import (
	"context"
	"io"
	"runtime"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

// How a snapshot is taken, and on which goroutine:
//
//	loop      enough log since the last one, no place on the disk for more of it, or somebody asked
//	applier   binds the machine's state after the entry applied last, index i
//	loop      learns i's term and members
//	appender  makes durable what is written: entries to i, a hard state with commit ≥ i
//	writer    writes snap/….snap.tmp, syncs it, renames it, syncs the folder
//	appender  marks i in the log, also while an append waits for space, and syncs the mark; only now releases segments
//	writer    removes older files
//	loop      gives up the entries in memory, save for a tail
//
// A crash between any two of these leaves either the old mark with the old file
// and all of the log behind it, or the new mark with the new file. Files that no
// mark names are removed at the next start. A snapshot that another member sent
// may arrive in between: then ours is given up, for its state is older. One file is kept: an older one is of
// no use without the log between the two, which would have to be kept as well;
// another copy is what backups and peers are for.

// snapshotRetryAfter is how long a snapshot that failed for lack of space is not
// tried again unasked.
const snapshotRetryAfter = 10 * time.Second

// snapshotWork is the loop's part.
type snapshotWork struct {
	running   bool
	bound     *boundSnapshot // waits for the end of the turn; nil: none
	asked     []func(error)  // wait for a snapshot that begins from now on
	serving   []func(error)  // wait for the one under way
	notBefore time.Time
	wanted    bool             // one newer than the last: that one cannot be sent
	mark      wal.SnapshotMark // of the last one that the log names
	failed    int              // attempts since that came to nothing
}

// boundSnapshot is a state that is bound and not yet written.
type boundSnapshot struct {
	meta  SnapshotMeta
	write func(io.Writer) error
	least int64 // bytes that it is expected to take: those of the last one, half as many after each attempt that came to nothing, for the state may have shrunk
}

// Snapshot takes a snapshot of at least everything applied now, and waits until
// it is durable. It returns the last one, which may be older than the call where
// nothing was applied since.
func (n *Node) Snapshot(ctx context.Context) (SnapshotDone, error) {
	done := make(chan SnapshotDone, 1)
	asked := n.inbox.call(func() {
		n.snap.asked = append(n.snap.asked, func(err error) {
			done <- SnapshotDone{Index: n.snap.mark.Index, Bytes: n.snap.mark.Bytes, Err: err}
		})
	})
	if !asked {
		return SnapshotDone{}, errStopped()
	}
	select {
	case last := <-done:
		return last, last.Err
	case <-n.stopped:
		return SnapshotDone{}, errStopped()
	case <-ctx.Done():
		return SnapshotDone{}, incumbent.Errorf(incumbent.DeadlineExceeded, "the snapshot goes on: %w", ctx.Err())
	}
}

// maybeSnapshot begins a snapshot if one is due and none is under way.
func (n *Node) maybeSnapshot(now time.Time) {
	st := &n.status
	if n.files.inline || n.snap.running || n.replica.restoring > st.Applied {
		return // a Manual's driver takes them
	}
	due := st.SinceSnapshot >= n.snapshotAfter() || st.Applied-st.Snapshot >= n.cfg.SnapshotEntries ||
		st.SnapshotWanted || n.snap.wanted && st.Applied > st.Snapshot || n.makesRoom(st)
	if len(n.snap.asked) == 0 && (!due || now.Before(n.snap.notBefore)) {
		return
	}
	n.snap.serving, n.snap.asked = n.snap.asked, nil
	if st.Applied == st.Snapshot {
		n.answerSnapshot(nil)
		return
	}
	n.snap.running = true
	n.applier.queue.push(applyTask{snapshot: true})
}

// snapshotAfter is how much log makes a snapshot due: half of what the last one took,
// so that reading the log again at a start takes no longer than reading the snapshot,
// and writing snapshots no more of the disk than twice the log; between
// Config.SnapshotBytes and a part of it.
func (n *Node) snapshotAfter() int64 {
	return min(max(n.snap.mark.Bytes/2, n.cfg.SnapshotBytes/minSnapshotShare), n.cfg.SnapshotBytes)
}

// makesRoom reports whether the disk has no place for a spare file of the log, and a
// snapshot would let a file go that the log has. It is due then, however little was
// written since the last one: once an append waits for space, the hard state that
// covers a snapshot would wait behind it.
func (n *Node) makesRoom(st *ReplicaStatus) bool {
	oldest := n.appender.oldest.Load()
	return n.short.Load() && oldest > 0 && oldest <= st.Applied && st.Snapshot < st.Applied
}

func (n *Node) answerSnapshot(err error) {
	for _, f := range n.snap.serving {
		f(err)
	}
	n.snap.serving = nil
}

// snapshotBound goes on with a snapshot whose state is bound at index, which is
// the applied index: the applier's acknowledgements come in order.
func (n *Node) snapshotBound(index uint64, write func(io.Writer) error) {
	if n.replica.restoring > index {
		n.snap.running = false
		n.snap.asked = append(n.snap.serving, n.snap.asked...)
		n.snap.serving = nil
		return
	}
	n.snap.bound = &boundSnapshot{meta: n.replica.MetaAt(index), write: write, least: n.snap.mark.Bytes >> min(n.snap.failed, 63)}
}

// writeBound has what was bound in this turn written. What the replica wants done must
// have been performed: the hard state that covers the snapshot may be among it, and goes
// before it.
func (n *Node) writeBound() {
	b := n.snap.bound
	if b == nil {
		return
	}
	n.snap.bound = nil
	n.writeCommit()
	n.appender.queue.push(appendTask{then: func() error {
		if n.appender.commit < b.meta.Index {
			return incumbent.Errorf(incumbent.Internal, "snapshot bound at %d, but the log knows commit %d", b.meta.Index, n.appender.commit)
		}
		n.goRun(n.run, "snapshot", func(ctx context.Context) error { return n.takeSnapshot(ctx, b) })
		return nil
	}})
}

// writeCommit has the log say how much is committed, and reports whether it did not
// before.
func (n *Node) writeCommit() bool {
	a := n.replica.WriteCommit()
	if a != nil {
		n.append(a)
	}
	return a != nil
}

// takeSnapshot writes the file, has it marked, and removes older ones.
func (n *Node) takeSnapshot(ctx context.Context, b *boundSnapshot) error {
	began := n.cfg.Clock.Now()
	name := n.snapshots.name(b.meta)
	n.snapshots.kept.hold(name, name+temporarySuffix)
	mark, err := n.writeSnapshot(ctx, b)
	n.snapshots.kept.letGo(name, name+temporarySuffix)
	if ctx.Err() != nil {
		return nil // the next start removes what was left
	}
	done := SnapshotDone{Index: b.meta.Index, Bytes: mark.Bytes, Err: err}
	if err == nil {
		swept := make(chan struct{})
		n.onFiles(func() error {
			defer close(swept)
			return n.sweepNow()
		})
		select {
		case <-ctx.Done():
			return nil
		case <-swept:
		}
	}
	done.Took = n.cfg.Clock.Now().Sub(began)
	n.snapshotEnded(done)
	if err != nil && !vfs.IsNoSpace(err) {
		return fatal("write snapshot", err)
	}
	return nil // without space nothing is lost: the log is whole
}

// writeSnapshot returns once the log names the file, or gave it up.
func (n *Node) writeSnapshot(ctx context.Context, b *boundSnapshot) (wal.SnapshotMark, error) {
	mark, err := n.writeFile(ctx, n.cfg.SnapshotRate, b)
	if err != nil || ctx.Err() != nil {
		return mark, err
	}
	marked := make(chan struct{})
	n.markSnapshot(b.meta, mark, marked)
	select {
	case <-ctx.Done():
	case <-marked:
	}
	return mark, nil
}

// writeFile writes a snapshot's file, if there is room for one as large as the last. That
// one which turns out larger ends where the room does.
func (n *Node) writeFile(ctx context.Context, rate int64, b *boundSnapshot) (wal.SnapshotMark, error) {
	room, err := n.cfg.roomForSnapshot(n.snapshots.dir, b.least)
	if err != nil {
		return wal.SnapshotMark{}, err
	}
	header := snapshotHeader{Schema: n.cfg.Schema, Group: n.cfg.Group, Meta: b.meta}
	return n.snapshots.write(ctx, n.cfg.Clock, rate, room, header, b.write)
}

// markSnapshot records the snapshot in the log and then gives up what it covers.
// If a received one has taken the log's place since, ours is of no use.
func (n *Node) markSnapshot(meta SnapshotMeta, mark wal.SnapshotMark, marked chan struct{}) {
	n.appender.marks.push(func() error {
		if meta.Index <= n.appender.installed {
			close(marked)
			return nil
		}
		if err := n.appender.mark(n.run, mark); err != nil {
			return err
		}
		n.inbox.call(func() {
			n.snapshotMarked(meta, mark)
			close(marked)
		})
		return nil
	})
}

// snapshotMarked learns, on the loop, that the log names a new snapshot.
func (n *Node) snapshotMarked(meta SnapshotMeta, mark wal.SnapshotMark) {
	if meta.Index < n.snap.mark.Index {
		return
	}
	n.replica.SnapshotTaken(meta)
	n.snap.wanted = n.snap.wanted && meta.Index == n.snap.mark.Index
	n.snap.mark, n.snap.failed = mark, 0
	n.snapshots.kept.setCurrent(mark.File)
}

// askSnapshot wants a snapshot newer than the last one: that one cannot be sent.
// If nothing has been applied since, an empty entry makes a newer one possible. It
// may be dropped; then the next attempt to send asks again.
func (n *Node) askSnapshot() {
	n.snap.wanted = true
	if n.replica.Status().Applied == n.snap.mark.Index {
		n.replica.ProposeNothing()
	}
}

// snapshotEnded tells the loop.
func (n *Node) snapshotEnded(done SnapshotDone) {
	n.cfg.Events.Snapshot(done)
	n.inbox.call(func() {
		n.snap.running = false
		if done.Err != nil {
			n.snap.failed++
			n.snap.notBefore = n.cfg.Clock.Now().Add(snapshotRetryAfter)
		}
		n.answerSnapshot(done.Err)
	})
}

// throttle spreads the writing of a snapshot over time, so that the log's syncs
// find the disk free: at most rate bytes a second, and a sync of its own every
// few megabytes instead of one large one at the end. The processor, too, is given to
// whoever else can run after each write. It also ends a snapshot that is larger than there
// is room for.
type throttle struct {
	ctx      context.Context
	file     vfs.File
	clock    Clock
	rate     int64
	room     int64 // bytes that may be written
	began    time.Time
	written  int64
	unsynced int64
}

// Write implements io.Writer.
func (t *throttle) Write(p []byte) (int, error) {
	if err := t.ctx.Err(); err != nil {
		return 0, err
	}
	if t.written+int64(len(p)) > t.room {
		return 0, errRoom(t.written+int64(len(p)), t.room)
	}
	n, err := t.file.Write(p)
	if err != nil {
		return n, err
	}
	t.written += int64(n)
	t.unsynced += int64(n)
	if t.unsynced >= snapshotSyncBytes {
		t.unsynced = 0
		if err := t.file.Sync(); err != nil {
			return n, err
		}
	}
	due := time.Duration(float64(t.written) / float64(t.rate) * float64(time.Second))
	// Shorter waits cost more than they spread.
	if ahead := due - t.clock.Now().Sub(t.began); ahead > time.Millisecond {
		t.clock.Sleep(t.ctx, ahead)
	} else {
		runtime.Gosched()
	}
	return n, nil
}
