package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"path/filepath"
	"strings"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

// How a snapshot is taken, and on which goroutine:
//
//	loop      enough log since the last one, or somebody asked
//	applier   binds the machine's state after the entry applied last, index i
//	loop      learns i's term and members
//	appender  makes durable what is written: entries to i, a hard state with commit ≥ i
//	writer    writes snap/….snap.tmp, syncs it, renames it, syncs the folder
//	appender  marks i in the log and syncs the mark; only now releases segments
//	writer    removes older files
//	loop      gives up the entries in memory, save for a tail
//
// A crash between any two of these leaves either the old mark with the old file
// and all of the log behind it, or the new mark with the new file. Files that no
// mark names are removed at the next start. One file is kept: an older one is of
// no use without the log between the two, which would have to be kept as well;
// another copy is what backups and peers are for.

const (
	snapshotSuffix  = ".snap"
	temporarySuffix = ".tmp"
)

// snapshotRetryAfter is how long a snapshot that failed for lack of space is not
// tried again unasked.
const snapshotRetryAfter = 10 * time.Second

// snapshotWork is the loop's part.
type snapshotWork struct {
	running   bool
	asked     []func(error) // wait for a snapshot that begins from now on
	serving   []func(error) // wait for the one under way
	notBefore time.Time
}

// Snapshot takes a snapshot of at least everything applied now, and waits until
// it is durable.
func (n *Node) Snapshot(ctx context.Context) error {
	done := make(chan error, 1)
	asked := n.inbox.call(func() {
		n.snap.asked = append(n.snap.asked, func(err error) { done <- err })
	})
	if !asked {
		return errStopped()
	}
	select {
	case err := <-done:
		return err
	case <-n.stopped:
		return errStopped()
	case <-ctx.Done():
		return incumbent.Errorf(incumbent.DeadlineExceeded, "the snapshot goes on: %w", ctx.Err())
	}
}

// maybeSnapshot begins a snapshot if one is due and none is under way.
func (n *Node) maybeSnapshot(now time.Time) {
	st := &n.status
	if n.snap.running {
		return
	}
	due := st.SinceSnapshot >= n.cfg.SnapshotBytes || st.Applied-st.Snapshot >= n.cfg.SnapshotEntries
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

func (n *Node) answerSnapshot(err error) {
	for _, f := range n.snap.serving {
		f(err)
	}
	n.snap.serving = nil
}

// snapshotBound goes on with a snapshot whose state is bound at index, which is
// the applied index: the applier's acknowledgements come in order.
func (n *Node) snapshotBound(index uint64, write func(io.Writer) error) {
	meta := n.replica.MetaAt(index)
	n.submit(appendTask{then: func() error {
		if n.appender.commit < index {
			return incumbent.Errorf(incumbent.Internal, "snapshot bound at %d, but the log knows commit %d", index, n.appender.commit)
		}
		n.goRun(n.run, "snapshot", func(ctx context.Context) error { return n.takeSnapshot(ctx, meta, write) })
		return nil
	}})
}

// takeSnapshot writes the file, has it marked, and removes older ones.
func (n *Node) takeSnapshot(ctx context.Context, meta SnapshotMeta, write func(io.Writer) error) error {
	began := n.cfg.Clock.Now()
	header := snapshotHeader{Schema: n.cfg.Schema, Group: n.cfg.Group, Meta: meta}
	mark, err := n.snapshots.write(ctx, n.cfg.Clock, n.cfg.SnapshotRate, header, write)
	done := SnapshotDone{Index: meta.Index, Bytes: mark.Bytes, Took: n.cfg.Clock.Now().Sub(began), Err: err}
	if ctx.Err() != nil {
		return nil // the next start removes what was left
	}
	if err != nil {
		n.snapshotEnded(done)
		if vfs.IsNoSpace(err) {
			return nil // nothing depends on it: the log is whole
		}
		return fatal("write snapshot", err)
	}
	marked := make(chan struct{})
	n.markSnapshot(meta, mark, marked)
	select {
	case <-ctx.Done():
		return nil
	case <-marked:
	}
	if err := n.snapshots.removeAllBut(mark.File); err != nil {
		return fatal("remove old snapshots", err)
	}
	done.Took = n.cfg.Clock.Now().Sub(began)
	n.snapshotEnded(done)
	return nil
}

// markSnapshot records the snapshot in the log and then gives up what it covers.
func (n *Node) markSnapshot(meta SnapshotMeta, mark wal.SnapshotMark, marked chan struct{}) {
	task := appendTask{then: func() error {
		if err := n.appender.log.markSnapshot(mark); err != nil {
			return fatal("mark snapshot", err)
		}
		if err := n.appender.log.release(meta.Index); err != nil {
			return fatal("release the log", err)
		}
		n.inbox.call(func() { n.replica.SnapshotTaken(meta) })
		close(marked)
		return nil
	}}
	if n.cfg.InlineAppend {
		n.inbox.call(func() { n.submit(task) })
		return
	}
	n.submit(task)
}

// snapshotEnded tells the loop.
func (n *Node) snapshotEnded(done SnapshotDone) {
	n.cfg.Events.Snapshot(done)
	n.inbox.call(func() {
		n.snap.running = false
		if done.Err != nil {
			n.snap.notBefore = n.cfg.Clock.Now().Add(snapshotRetryAfter)
		}
		n.answerSnapshot(done.Err)
	})
}

// snapshotFolder is where snapshot files live.
type snapshotFolder struct {
	fs  vfs.FS
	dir string
}

func (s snapshotFolder) name(meta SnapshotMeta) string {
	return fmt.Sprintf("%016x-%016x%s", meta.Term, meta.Index, snapshotSuffix)
}

// write makes a snapshot file durable under its name.
func (s snapshotFolder) write(ctx context.Context, clock Clock, rate int64, h snapshotHeader, write func(io.Writer) error) (wal.SnapshotMark, error) {
	name := s.name(h.Meta)
	path := filepath.Join(s.dir, name)
	w, err := s.writeTemporary(ctx, clock, rate, path+temporarySuffix, h, write)
	if err != nil {
		// Nobody knows the file; what cannot be removed now goes at the next start.
		_ = s.fs.Remove(path + temporarySuffix)
		return wal.SnapshotMark{}, err
	}
	if err := s.fs.Rename(path+temporarySuffix, path); err != nil {
		return wal.SnapshotMark{}, err
	}
	return w.mark(h.Meta, name), s.fs.SyncDir(s.dir)
}

// writeNow is write without a limit on its rate: nothing runs yet.
func (s snapshotFolder) writeNow(clock Clock, h snapshotHeader, write func(io.Writer) error) (wal.SnapshotMark, error) {
	return s.write(context.Background(), clock, math.MaxInt64, h, write)
}

func (s snapshotFolder) writeTemporary(ctx context.Context, clock Clock, rate int64, path string, h snapshotHeader, write func(io.Writer) error) (w *snapshotWriter, err error) {
	f, err := s.fs.Create(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w, err = newSnapshotWriter(&throttle{ctx: ctx, file: f, clock: clock, rate: rate, began: clock.Now()}, h)
	if err != nil {
		return nil, err
	}
	if err := write(w); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return w, f.Sync()
}

// open opens the file that the log's mark names and verifies its header.
func (s snapshotFolder) open(m wal.SnapshotMark) (vfs.File, *snapshotReader, error) {
	path := filepath.Join(s.dir, m.File)
	f, err := s.fs.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, incumbent.Errorf(incumbent.Corrupt, "%s: offset 0: the log says that this snapshot exists, the folder has none", path)
	}
	if err != nil {
		return nil, nil, err
	}
	r, err := newSnapshotReader(f, path)
	if err == nil && (r.Header.Meta.Index != m.Index || r.Header.Meta.Term != m.Term) {
		err = r.corrupt(fmt.Sprintf("a snapshot of index %d, the log says %d", r.Header.Meta.Index, m.Index))
	}
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return f, r, nil
}

// refuseOrphans returns Corrupt if there are snapshots of a log that is gone: a
// member that lost its log must not begin a new cluster over what is left.
func (s snapshotFolder) refuseOrphans() error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	first := s.name(SnapshotMeta{Index: bootstrapIndex, Term: bootstrapTerm})
	for _, name := range names {
		if strings.HasSuffix(name, snapshotSuffix) && name != first {
			return incumbent.Errorf(incumbent.Corrupt, "%s: offset 0: a snapshot without the log that it belongs to", filepath.Join(s.dir, name)).
				WithHint("the log was lost or moved: bring it back, or move this folder away to begin anew")
		}
	}
	return nil
}

// removeAllBut removes every snapshot but one, and what crashes left.
func (s snapshotFolder) removeAllBut(keep string) error {
	names, err := s.fs.List(s.dir)
	if err != nil {
		return err
	}
	removed := false
	for _, name := range names {
		if name == keep || !strings.HasSuffix(strings.TrimSuffix(name, temporarySuffix), snapshotSuffix) {
			continue
		}
		if err := s.fs.Remove(filepath.Join(s.dir, name)); err != nil {
			return err
		}
		removed = true
	}
	if !removed {
		return nil
	}
	return s.fs.SyncDir(s.dir)
}

// throttle spreads the writing of a snapshot over time, so that the log's syncs
// find the disk free: at most rate bytes a second, and a sync of its own every
// few megabytes instead of one large one at the end.
type throttle struct {
	ctx      context.Context
	file     vfs.File
	clock    Clock
	rate     int64
	began    time.Time
	written  int64
	unsynced int64
}

// Write implements io.Writer.
func (t *throttle) Write(p []byte) (int, error) {
	if err := t.ctx.Err(); err != nil {
		return 0, err
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
	}
	return n, nil
}
