package node

import (
	"fmt"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"
)

// SnapshotMeta says what a snapshot covers.
type SnapshotMeta struct {
	Index     uint64
	Term      uint64
	ConfState *pb.ConfState // the members as of Index; never changed once here
}

// memoryLog is the durable log as the raft library reads it: the entries since
// the last snapshot and a tail before it, in memory. An entry is added once it
// is durable, never earlier, so that what raft reads here survives a crash.
// It is owned by the replica's caller: no locks.
type memoryLog struct {
	hard     *pb.HardState // as recovered; raft reads it once
	snap     SnapshotMeta
	prevTerm uint64      // term of the entry before entries[0]
	first    uint64      // index of entries[0]
	entries  []*pb.Entry // contiguous
	bytes    int64       // of all entries, with their cost in memory
	since    int64       // of those after the snapshot

	confIndex uint64 // the last applied change of membership; 0: none since the start
	wanted    bool   // raft asked for a snapshot with that change
}

func newMemoryLog(hard *pb.HardState, snap SnapshotMeta, entries []*pb.Entry) (*memoryLog, error) {
	l := &memoryLog{hard: hard, snap: snap, prevTerm: snap.Term, first: snap.Index + 1}
	for i, e := range entries {
		if want := l.first + uint64(i); e.GetIndex() != want {
			return nil, fmt.Errorf("entry %d where %d was expected", e.GetIndex(), want)
		}
	}
	l.append(entries)
	return l, nil
}

func entryCost(e *pb.Entry) int64 { return int64(len(e.GetData())) + entryMemory }

func (l *memoryLog) last() uint64 { return l.first + uint64(len(l.entries)) - 1 }

// append adds durable entries. The last write wins: what was at or behind the
// first of them is gone.
func (l *memoryLog) append(entries []*pb.Entry) {
	if len(entries) == 0 {
		return
	}
	at := entries[0].GetIndex()
	if at < l.first || at > l.last()+1 {
		panic(fmt.Sprintf("append at %d leaves a gap: the log has %d to %d", at, l.first, l.last()))
	}
	if at <= l.snap.Index {
		panic(fmt.Sprintf("append at %d overwrites what snapshot %d covers", at, l.snap.Index))
	}
	if keep := at - l.first; keep < uint64(len(l.entries)) {
		for _, e := range l.entries[keep:] {
			l.account(e, -1)
		}
		// A fresh array: messages under way may still read the old one.
		l.entries = append(make([]*pb.Entry, 0, int(keep)+len(entries)+64), l.entries[:keep]...)
	}
	l.entries = append(l.entries, entries...)
	for _, e := range entries {
		l.account(e, 1)
	}
}

func (l *memoryLog) account(e *pb.Entry, sign int64) {
	l.bytes += sign * entryCost(e)
	if e.GetIndex() > l.snap.Index {
		l.since += sign * entryCost(e)
	}
}

// snapshotTaken records a durable snapshot and gives up all but a tail of the
// entries it covers, and those from an index on that others need.
func (l *memoryLog) snapshotTaken(meta SnapshotMeta, tail, needed uint64) {
	if meta.Index <= l.snap.Index {
		return
	}
	if meta.Index > l.last() {
		panic(fmt.Sprintf("snapshot %d lies beyond the durable log, which ends at %d", meta.Index, l.last()))
	}
	l.snap = meta
	l.wanted = l.wanted && meta.Index < l.confIndex
	l.since = 0
	for _, e := range l.entries[meta.Index+1-l.first:] {
		l.since += entryCost(e)
	}
	cut := l.tailBegins(int(meta.Index+1-l.first), tail, needed)
	if cut == 0 {
		return
	}
	l.prevTerm = l.entries[cut-1].GetTerm()
	for _, e := range l.entries[:cut] {
		l.bytes -= entryCost(e)
	}
	// A copy, so that the array does not keep what was given up.
	l.entries = append(make([]*pb.Entry, 0, len(l.entries)-cut+64), l.entries[cut:]...)
	l.first += uint64(cut)
}

// tailBegins says which of so many entries is the first to be kept: so many are, of
// no more than MaxTailBytes, and those that others need, of no more than MaxNeededBytes.
func (l *memoryLog) tailBegins(covered int, tail, needed uint64) int {
	bytes := int64(0)
	for i := covered - 1; i >= 0; i-- {
		bytes += entryCost(l.entries[i])
		if l.entries[i].GetIndex() >= needed && bytes <= MaxNeededBytes {
			continue
		}
		if uint64(covered-i) > tail || bytes > MaxTailBytes {
			return i + 1
		}
	}
	return 0
}

// restore forgets everything for a snapshot that a leader sent.
func (l *memoryLog) restore(meta SnapshotMeta) {
	*l = memoryLog{hard: l.hard, snap: meta, prevTerm: meta.Term, first: meta.Index + 1}
}

// InitialState implements raft.Storage.
func (l *memoryLog) InitialState() (*pb.HardState, *pb.ConfState, error) {
	return l.hard, proto.Clone(pb.EnsureConfState(l.snap.ConfState)).(*pb.ConfState), nil
}

// Entries implements raft.Storage.
func (l *memoryLog) Entries(lo, hi, maxSize uint64) ([]*pb.Entry, error) {
	if lo < l.first {
		return nil, raft.ErrCompacted
	}
	if hi > l.last()+1 {
		return nil, raft.ErrUnavailable
	}
	es := l.entries[lo-l.first : hi-l.first]
	var size uint64
	for i, e := range es {
		size += uint64(proto.Size(e))
		if i > 0 && size > maxSize {
			es = es[:i]
			break
		}
	}
	return es[:len(es):len(es)], nil
}

// Term implements raft.Storage.
func (l *memoryLog) Term(i uint64) (uint64, error) {
	switch {
	case i == l.first-1:
		return l.prevTerm, nil
	case i < l.first:
		return 0, raft.ErrCompacted
	case i > l.last():
		return 0, raft.ErrUnavailable
	}
	return l.entries[i-l.first].GetTerm(), nil
}

// LastIndex implements raft.Storage.
func (l *memoryLog) LastIndex() (uint64, error) { return l.last(), nil }

// FirstIndex implements raft.Storage.
func (l *memoryLog) FirstIndex() (uint64, error) { return l.first, nil }

// Snapshot implements raft.Storage. It carries no data: the transport streams
// the file that the metadata names. A member takes no snapshot that does not name
// it, so one from before the last change of membership is not offered: raft asks
// again when a newer one may be there.
func (l *memoryLog) Snapshot() (*pb.Snapshot, error) {
	if l.confIndex > l.snap.Index {
		l.wanted = true
		return nil, raft.ErrSnapshotTemporarilyUnavailable
	}
	return &pb.Snapshot{Metadata: &pb.SnapshotMetadata{
		Index: new(l.snap.Index), Term: new(l.snap.Term), ConfState: proto.Clone(pb.EnsureConfState(l.snap.ConfState)).(*pb.ConfState),
	}}, nil
}
