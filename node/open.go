package node

import (
	"errors"
	"path/filepath"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

// bootstrapIndex and bootstrapTerm are where a new log begins: behind a snapshot
// of the empty machine that names the first member. So a log that joins, which
// begins with nothing, is always too short for what its leader still has, and gets
// a snapshot with its members.
const (
	bootstrapIndex = 1
	bootstrapTerm  = 1
)

// Open reads what is durable in cfg.Dir, restores the machine and returns a node
// that [Node.Run] will start. An empty folder becomes a cluster of one or, with
// cfg.Join, a member that waits for its leader. A folder that belongs to somebody
// else than cfg.Join says is Invalid. One that has snapshots and no log is Corrupt, and
// stays as it is.
func Open(cfg Config) (*Node, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg.withDefaults()
	snapshots := newSnapshotFolder(cfg.FS, filepath.Join(cfg.Dir, "snap"))
	if err := vfs.MkdirAll(cfg.FS, snapshots.dir); err != nil {
		return nil, err
	}
	found, err := HasLog(cfg.FS, cfg.Dir)
	if err == nil && !found {
		err = snapshots.refuseOrphans() // before there is another log in the place of that which is gone
	}
	if err != nil {
		return nil, err
	}
	log, rec, err := openSegments(cfg.FS, logDir(cfg.Dir), &cfg)
	if err != nil {
		return nil, err
	}
	n, err := open(cfg, snapshots, log, rec)
	if err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return n, nil
}

func open(cfg Config, snapshots snapshotFolder, log *segments, rec recovered) (*Node, error) {
	meta, err := begin(cfg, snapshots, log, &rec)
	if err != nil {
		return nil, err
	}
	snapshots.kept.setCurrent(rec.mark.File)
	if err := snapshots.removeStale(); err != nil {
		return nil, err
	}
	// A snapshot that was installed vouches for its term and index.
	hard := &pb.HardState{
		Term: new(max(rec.hard.GetTerm(), meta.Term)), Vote: new(rec.hard.GetVote()), Commit: new(max(rec.hard.GetCommit(), meta.Index)),
	}
	replica, err := NewReplica(ReplicaConfig{
		Group: cfg.Group, ID: rec.Member, Incarnation: rec.incarnation,
		HardState: hard, Snapshot: meta, Entries: rec.entries, TailEntries: cfg.TailEntries,
		Forward: cfg.Transport != nil, Admissible: cfg.Admissible, Seed: newID(), Logger: raftLogger{cfg.Logger},
	})
	if err != nil {
		return nil, incumbent.Errorf(incumbent.Corrupt, "%s: %w", cfg.Dir, err)
	}
	n := &Node{
		cfg: cfg, id: rec.Identity, life: rec.incarnation, snapshots: snapshots, replica: replica,
		inbox:   inbox{maxProposals: cfg.MaxInboxProposals, maxBytes: cfg.MaxInboxBytes, wake: make(chan struct{}, 1)},
		ready:   make(chan struct{}),
		quit:    make(chan struct{}),
		stopped: make(chan struct{}),
	}
	n.appender = &appender{log: log, clock: cfg.Clock, events: cfg.Events, queue: newQueue[appendTask](), marks: newQueue[func() error](), done: n.appended, commit: hard.GetCommit()}
	n.appender.oldest.Store(log.oldest())
	n.applier = &applier{
		machine: cfg.Machine, clock: cfg.Clock, events: cfg.Events, queue: newQueue[applyTask](),
		done: n.applied, bound: n.bound, applied: meta.Index,
		restore: func(m wal.SnapshotMark) error {
			_, err := restore(cfg, snapshots, m)
			return err
		},
	}
	n.files = newFileWorker()
	n.sending = newSender(&cfg)
	n.receiver = &receiver{cfg: &n.cfg, folder: snapshots, files: n.files}
	n.snap.mark = rec.mark
	n.status = replica.Status()
	n.shown = n.status
	n.lookAtDisk(false)
	return n, nil
}

// begin brings the machine to where the log begins. A member that waits for its
// leader begins with nothing, and with nobody known.
func begin(cfg Config, snapshots snapshotFolder, log *segments, rec *recovered) (SnapshotMeta, error) {
	switch {
	case rec.mark.Index != 0:
		return restore(cfg, snapshots, rec.mark)
	case cfg.Join != nil || rec.hard.GetTerm() >= joiningTerm:
		return SnapshotMeta{ConfState: &pb.ConfState{}}, join(snapshots, log, rec)
	}
	if err := bootstrap(cfg, snapshots, log, rec); err != nil {
		return SnapshotMeta{}, err
	}
	return restore(cfg, snapshots, rec.mark)
}

// joiningTerm, or a later one, in the hard state of a log without a snapshot marks
// a member that was told to join: it never founds a cluster, also if it is started
// without Config.Join.
const joiningTerm = bootstrapTerm

// join makes it durable that this member joins. It may be begun again.
func join(snapshots snapshotFolder, log *segments, rec *recovered) error {
	if rec.hard.GetTerm() >= joiningTerm {
		return nil
	}
	if err := snapshots.refuseOrphans(); err != nil {
		return err
	}
	rec.hard = &pb.HardState{Term: new(uint64(joiningTerm)), Vote: new(uint64(0)), Commit: new(uint64(0))}
	if err := log.Append(rec.hard, nil); err != nil {
		return err
	}
	return log.Sync()
}

// bootstrap makes a cluster of one. It may be cut short anywhere and begun
// again: nothing has been promised until the mark is durable.
func bootstrap(cfg Config, snapshots snapshotFolder, log *segments, rec *recovered) error {
	if len(rec.entries) > 0 {
		return incumbent.Errorf(incumbent.Corrupt, "%s: the log has entries from %d on, but no snapshot before them", cfg.Dir, rec.entries[0].GetIndex())
	}
	if err := snapshots.refuseOrphans(); err != nil {
		return err
	}
	meta := SnapshotMeta{
		Index: bootstrapIndex, Term: bootstrapTerm,
		ConfState: pb.EnsureConfState(&pb.ConfState{Voters: []uint64{rec.Member}}),
	}
	header := snapshotHeader{Schema: cfg.Schema, Group: cfg.Group, Meta: meta}
	mark, err := snapshots.writeNow(cfg.Clock, header, cfg.Machine.Snapshot())
	if err != nil {
		return err
	}
	if err := log.installSnapshot(mark); err != nil {
		return err
	}
	rec.mark = mark
	return nil
}

// restore reads the snapshot that a mark names into the machine.
func restore(cfg Config, snapshots snapshotFolder, mark wal.SnapshotMark) (SnapshotMeta, error) {
	f, r, err := snapshots.open(mark)
	if err != nil {
		return SnapshotMeta{}, err
	}
	if err = checkHeader(cfg, r); err == nil {
		if err = cfg.Machine.Restore(r); err == nil {
			err = r.finish(mark)
		}
	}
	return r.Header.Meta, errors.Join(err, f.Close())
}

func checkHeader(cfg Config, r *snapshotReader) error {
	h := &r.Header
	if h.Group != cfg.Group {
		return incumbent.Errorf(incumbent.Corrupt, "%s: offset 0: it is a snapshot of group %d, not %d", r.Name(), h.Group, cfg.Group)
	}
	if h.Schema > cfg.Schema {
		return incumbent.Errorf(incumbent.Invalid, "%s: written with schema %d, this binary knows %d", r.Name(), h.Schema, cfg.Schema).
			WithHint("start a newer binary")
	}
	return nil
}
