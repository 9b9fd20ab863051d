package node

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"log/slog"
	"path/filepath"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

// recovered is what the log held when it was opened.
type recovered struct {
	Identity
	incarnation uint64
	hard        *pb.HardState
	mark        wal.SnapshotMark // of the last snapshot; Index 0: none
	entries     []*pb.Entry      // after the mark
}

// logDir is where in the folder of a member its log is.
func logDir(dir string) string { return filepath.Join(dir, "log") }

// HasLog reports whether the folder of a member holds its log.
func HasLog(fs vfs.FS, dir string) (bool, error) { return wal.Exists(fs, logDir(dir)) }

// openSegments opens the log of a group, making it if it is not there. Each
// opening is counted durably: that is the incarnation.
func openSegments(fs vfs.FS, dir string, cfg *Config) (*segments, recovered, error) {
	opts := wal.Options{SegmentBytes: cfg.SegmentBytes, KeepLength: cfg.KeepSegmentBytes, Logger: cfg.Logger}
	log, rec, err := wal.Open(fs, dir, opts)
	if incumbent.KindOf(err) == incumbent.NotFound {
		if cfg.Join != nil {
			opts.Cluster, opts.Member = cfg.Join.Cluster, cfg.Join.Member
		} else {
			rand.Read(opts.Cluster[:]) // never fails: crypto/rand stops the process instead
			opts.Member = newID()
		}
		log, rec, err = wal.Open(fs, dir, opts)
	}
	if err != nil {
		return nil, recovered{}, err
	}
	if found := (Identity{Cluster: rec.Meta.Cluster, Member: rec.Meta.Member}); cfg.Join != nil && found != *cfg.Join {
		err := incumbent.Errorf(incumbent.Invalid, "%s belongs to %v, it cannot become %v", dir, found, cfg.Join)
		return nil, recovered{}, errors.Join(err, log.Close())
	}
	if rec.Cut > 0 {
		cfg.Logger.Info("unfinished write cut off", slog.String("file", rec.CutFile), slog.Int64("offset", rec.CutOffset), slog.Int64("bytes", rec.Cut))
	}
	return &segments{Log: log, group: cfg.Group}, recoveredFrom(&rec, cfg.Group), nil
}

// recoveredFrom returns what a log says of a group, in raft's types.
func recoveredFrom(rec *wal.Recovered, group uint64) recovered {
	g := rec.Groups[group]
	out := recovered{
		Identity:    Identity{Cluster: rec.Meta.Cluster, Member: rec.Meta.Member},
		incarnation: rec.Meta.Incarnation,
		hard:        &pb.HardState{Term: &g.HardState.Term, Vote: &g.HardState.Vote, Commit: &g.HardState.Commit},
		mark:        g.Snapshot,
		entries:     make([]*pb.Entry, len(g.Entries)),
	}
	for i := range g.Entries {
		e := &g.Entries[i]
		out.entries[i] = &pb.Entry{Index: &e.Index, Term: &e.Term, Type: pb.EntryType(e.Type).Enum(), Data: e.Data}
	}
	return out
}

// newID returns a random id that raft can use.
func newID() uint64 {
	var b [8]byte
	for {
		rand.Read(b[:])
		if id := binary.LittleEndian.Uint64(b[:]); validID(id) {
			return id
		}
	}
}

// segments is the log of one group in raft's types. Everything else about it is
// wal.Log's own: one goroutine at a time owns it, save for Prepare and Status.
type segments struct {
	*wal.Log
	group uint64
	buf   []wal.Entry // reused
}

// Append writes the hard state, if there is one, and the entries.
func (s *segments) Append(hard *pb.HardState, entries []*pb.Entry) error {
	s.buf = s.buf[:0]
	for _, e := range entries {
		s.buf = append(s.buf, wal.Entry{Index: e.GetIndex(), Term: e.GetTerm(), Type: uint8(e.GetType()), Data: e.GetData()})
	}
	b := wal.Batch{Group: s.group, Entries: s.buf}
	if hard != nil {
		b.HardState = wal.HardState{Term: hard.GetTerm(), Vote: hard.GetVote(), Commit: hard.GetCommit()}
	}
	err := s.Log.Append(b)
	clear(s.buf)
	return err
}

func (s *segments) markSnapshot(m wal.SnapshotMark) error    { return s.MarkSnapshot(s.group, m) }
func (s *segments) installSnapshot(m wal.SnapshotMark) error { return s.InstallSnapshot(s.group, m) }
func (s *segments) release(index uint64) error               { return s.Release(s.group, index) }
func (s *segments) oldest() uint64                           { return s.Oldest(s.group) }
