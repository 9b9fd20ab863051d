package node

import (
	"errors"
	"path/filepath"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/wal"
)

// Survivor is what a member has that is left alone.
type Survivor struct {
	Identity
	LastTerm  uint64 // of the last entry of the log
	Committed uint64 // index that is known to be committed
	Durable   uint64 // index of the last entry of the log
}

// Recover is for a member whose cluster has lost its majority for good. It reads
// all of the log in cfg.Dir, what is not known to be committed too, into
// cfg.Machine and calls then. If then is nil that is all, and every file stays as it is.
// Else then may change the machine, and the member becomes the only voter of its
// cluster: the next Open goes on from there. What then returns ends it before that.
//
// Everything in the log counts from then on as committed, whether or not anybody
// was told so. What the others had acknowledged and this member does not have is
// lost. The others must never run again.
//
// It may be cut short anywhere: either nothing has happened, or all. The error is
// Unavailable while somebody uses the folder, and NotFound if it holds no member
// or one that has heard nothing yet.
func Recover(cfg Config, then func(Survivor) error) (Survivor, error) {
	if err := cfg.Validate(); err != nil {
		return Survivor{}, err
	}
	cfg.withDefaults()
	dir := logDir(cfg.Dir)
	found, err := HasLog(cfg.FS, cfg.Dir)
	if err != nil {
		return Survivor{}, err
	}
	if !found {
		return Survivor{}, incumbent.Errorf(incumbent.NotFound, "%s holds no log", cfg.Dir)
	}
	if then == nil {
		rec, err := wal.Read(cfg.FS, dir)
		if err != nil {
			return Survivor{}, err
		}
		return survive(cfg, nil, recoveredFrom(&rec, cfg.Group), nil)
	}
	log, rec, err := openSegments(cfg.FS, dir, &cfg)
	if err != nil {
		return Survivor{}, err
	}
	out, err := survive(cfg, log, rec, then)
	return out, errors.Join(err, log.Close())
}

func survive(cfg Config, log *segments, rec recovered, then func(Survivor) error) (Survivor, error) {
	snapshots := newSnapshotFolder(cfg.FS, filepath.Join(cfg.Dir, "snap"))
	if rec.mark.Index == 0 {
		return Survivor{}, incumbent.Errorf(incumbent.NotFound, "%s: the member has heard nothing of its cluster yet", cfg.Dir)
	}
	meta, err := restore(cfg, snapshots, rec.mark)
	if err != nil {
		return Survivor{}, err
	}
	out := Survivor{
		Identity: rec.Identity, LastTerm: meta.Term, Durable: meta.Index, Committed: max(meta.Index, rec.hard.GetCommit()),
	}
	for _, e := range rec.entries {
		if err := replay(cfg.Machine, e); err != nil {
			return out, err
		}
		out.LastTerm, out.Durable = e.GetTerm(), e.GetIndex()
	}
	if then == nil {
		return out, nil
	}
	if err := then(out); err != nil {
		return out, err
	}
	// One index and one term further than anything in the log: no member that is
	// left behind can have an entry that looks the same.
	alone := snapshotHeader{Schema: cfg.Schema, Group: cfg.Group, Meta: SnapshotMeta{
		Index: out.Durable + 1, Term: max(out.LastTerm, rec.hard.GetTerm()) + 1,
		ConfState: pb.EnsureConfState(&pb.ConfState{Voters: []uint64{rec.Member}}),
	}}
	mark, err := snapshots.writeNow(cfg.Clock, alone, cfg.Machine.Snapshot())
	if err != nil {
		return out, err
	}
	return out, log.installSnapshot(mark)
}

// replay gives an entry's commands to the machine. Changes of members have none.
func replay(m Machine, e *pb.Entry) error {
	if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
		return nil
	}
	cmds, err := decodeEntry(e.GetData(), nil)
	if err != nil {
		return err
	}
	m.Apply(cmds, make([]any, len(cmds)))
	return nil
}
