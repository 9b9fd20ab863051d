package sim

import (
	"encoding/binary"
	"fmt"

	pb "go.etcd.io/raft/v3/raftpb"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/engine"
	"github.com/incumbent-dev/incumbent/node"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

// found makes the machines and writes the disks with which the cluster begins:
// each member holds the same committed log, in which all of them join one by
// one. What leads there in life (an empty member that joins) is a change of
// membership like those that happen during the run.
func (w *world) found() {
	binary.BigEndian.PutUint64(w.cluster[:], w.rng.Uint64())
	for i := range w.cfg.Voters + w.cfg.Learners {
		m := newMember(w, i)
		m.learner = i >= w.cfg.Voters
		w.members = append(w.members, m)
	}
	if len(w.members) == 1 {
		return // an empty disk becomes a cluster of one by itself
	}
	var entries []wal.Entry
	for _, m := range w.members {
		kind := pb.ConfChangeAddNode
		if m.learner {
			kind = pb.ConfChangeAddLearnerNode
		}
		m.newID()
		data, err := proto.Marshal(&pb.ConfChange{Type: kind.Enum(), NodeId: new(m.id)})
		w.must(err)
		entries = append(entries, wal.Entry{
			Index: firstIndex + uint64(len(entries)), Term: 1, Type: uint8(pb.EntryConfChange), Data: data,
		})
	}
	for _, m := range w.members {
		w.must(m.format(w.cluster, entries))
	}
}

// firstIndex is that of the first entry behind the snapshot that a log begins
// with.
const firstIndex = 2

// format writes a member's first log.
func (m *member) format(cluster [16]byte, entries []wal.Entry) error {
	opts := wal.Options{SegmentBytes: node.MinSegmentBytes, Cluster: cluster, Member: m.id}
	if err := vfs.MkdirAll(m.disk, "data"); err != nil {
		return err
	}
	log, _, err := wal.Open(m.disk, "data/log", opts)
	if err != nil {
		return err
	}
	if err := log.Close(); err != nil {
		return err
	}
	// The node itself writes the snapshot of nothing that a log begins with.
	_, err = engine.OpenManual(engine.Config{}, node.Config{
		FS: m.disk, Dir: "data", Schema: core.SchemaVersion, SegmentBytes: node.MinSegmentBytes,
		Transport: discard{}, Clock: nodeClock{m},
	})
	if err != nil {
		return err
	}
	m.disk = m.disk.Clone()
	if log, _, err = wal.Open(m.disk, "data/log", opts); err != nil {
		return err
	}
	commit := entries[len(entries)-1].Index
	if err := log.Append(wal.Batch{Entries: entries, HardState: wal.HardState{Term: 1, Commit: commit}}); err != nil {
		return fmt.Errorf("the first log: %w", err)
	}
	return log.Close()
}

// discard is the transport of a node that is only there to make files.
type discard struct{}

// Send implements node.Transport.
func (discard) Send([]node.Message) {}
