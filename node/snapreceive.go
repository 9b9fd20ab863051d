package node

import (
	"fmt"
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/wal"
)

// How a snapshot comes from the leader, beside everything else that goes on:
//
//	loop      refuses pieces that make no sense or are not needed any more
//	files     appends the piece to snap/….snap.part, answers how much is there,
//	          or that the header is not one for this member; at the end compares
//	          the checksum of the whole, looks at the header again, syncs the file,
//	          renames it, syncs the folder
//	loop      gives raft its message; raft takes the snapshot, or it is too old
//	appender  marks it in the log, in the place of all entries, and syncs; then
//	          writes the batch whose commit covers it; then old segments go
//	loop      forgets the entries in memory, lets raft's answer leave
//	applier   reads the file into the machine, and goes on with entries behind it
//	files     removes the snapshot before
//
// A crash before the mark is durable leaves the member as it was; afterwards it
// is as if it had always started from this snapshot. One file is received at a
// time. Its beginning survives a restart: the same file goes on from there.

// incoming is the loop's part of receiving.
type incoming struct {
	waiting int        // pieces handed to the file worker
	index   uint64     // of the snapshot whose pieces came last; 0: none
	arrived []received // taken by raft and not yet restored, in order
}

// received is a snapshot file that has arrived whole.
type received struct {
	mark  wal.SnapshotMark
	raft  *pb.Message
	began time.Time
}

// step takes a message of a peer.
func (n *Node) step(m *Message) {
	switch {
	case m.Chunk != nil:
		n.stepChunk(m.From, m.Chunk)
	case m.Taken != nil:
		n.stepTaken(m.From, m.Taken)
	case isSnapshot(*m):
		// Without its file it is of no use.
	default:
		n.replica.Step(*m)
	}
}

// stepChunk hands a piece to the file worker. Pieces of a leader that is
// deposed, or too many, are dropped: the sender finds out, or sends them again.
func (n *Node) stepChunk(from uint64, c *Chunk) {
	if !c.valid(from, n.id.Member) || c.Raft.GetTerm() < n.replica.role.Term || n.incoming.waiting >= maxPiecesWaiting {
		return
	}
	if c.Index <= n.replica.commit {
		n.answerChunk(from, c, Taken{Offset: c.Bytes, Done: true})
		return
	}
	n.incoming.waiting++
	n.incoming.index = c.Index
	n.onFiles(func() error {
		tk, whole, err := n.receiver.take(c)
		n.inbox.call(func() {
			n.incoming.waiting--
			n.pieceTaken(from, c, tk, whole)
		})
		return err
	})
}

// valid reports whether a piece makes sense in itself.
func (c *Chunk) valid(from, self uint64) bool {
	md := c.Raft.GetSnapshot().GetMetadata()
	return c.Raft.GetType() == pb.MsgSnap && c.Raft.GetFrom() == from && c.Raft.GetTo() == self &&
		c.Index > 0 && md.GetIndex() == c.Index && md.GetTerm() == c.Term &&
		len(c.Data) > 0 && len(c.Data) <= MaxChunkBytes && c.Offset >= 0 && c.Bytes > 0 &&
		c.Offset <= c.Bytes-int64(len(c.Data))
}

// answerChunk tells the sender how far its file has come.
func (n *Node) answerChunk(to uint64, c *Chunk, tk Taken) {
	tk.Index, tk.Term, tk.Checksum = c.Index, c.Term, c.Checksum
	if n.cfg.Transport != nil {
		n.cfg.Transport.Send([]Message{{From: n.id.Member, To: to, Taken: &tk}})
	}
}

// pieceTaken goes on, on the loop, with what the file worker made of a piece.
func (n *Node) pieceTaken(from uint64, c *Chunk, tk *Taken, whole *received) {
	if tk == nil {
		return
	}
	if tk.Failed != "" {
		n.cfg.Events.SnapshotReceived(SnapshotDone{
			Index: c.Index, Bytes: tk.Offset, Took: 0, Err: incumbent.Errorf(incumbent.Unavailable, "%s", tk.Failed),
		})
	}
	if whole == nil {
		n.answerChunk(from, c, *tk)
		return
	}
	// Found by arrived when the effects are performed.
	n.incoming.arrived = append(n.incoming.arrived, *whole)
	if n.replica.StepSnapshot(whole.raft) {
		return // answered when the log has it
	}
	n.incoming.arrived = n.incoming.arrived[:len(n.incoming.arrived)-1]
	n.dropReceived(whole.mark.File)
	tk = &Taken{Offset: c.Bytes, Done: true}
	if n.replica.commit < c.Index {
		tk = &Taken{Failed: "it is not what this member needs now"}
	}
	n.answerChunk(from, c, *tk)
}

// dropReceived removes a received file unless the log names it.
func (n *Node) dropReceived(file string) {
	n.onFiles(func() error {
		n.snapshots.kept.letGo(file)
		return n.sweepNow()
	})
}

// arrived returns the file of a snapshot that is to be installed.
func (n *Node) arrived(s *pb.Snapshot) wal.SnapshotMark {
	if s == nil {
		return wal.SnapshotMark{}
	}
	return n.arrivedAt(s.GetMetadata().GetIndex())
}

// restoring returns the file of a snapshot that is to be restored.
func (n *Node) restoring(meta *SnapshotMeta) wal.SnapshotMark {
	if meta == nil {
		return wal.SnapshotMark{}
	}
	return n.arrivedAt(meta.Index)
}

func (n *Node) arrivedAt(index uint64) wal.SnapshotMark {
	for i := range n.incoming.arrived {
		if r := &n.incoming.arrived[i]; r.mark.Index == index {
			return r.mark
		}
	}
	panic(fmt.Sprintf("raft took a snapshot at index %d whose file is not here", index))
}

// snapshotInstalled learns, on the loop, that the log begins with a received
// snapshot now.
func (n *Node) snapshotInstalled(s *pb.Snapshot) {
	index := s.GetMetadata().GetIndex()
	i := slices.IndexFunc(n.incoming.arrived, func(r received) bool { return r.mark.Index == index })
	r := &n.incoming.arrived[i] // arrived saw to it that it is there
	n.snap.mark = r.mark
	n.snapshots.kept.setCurrent(r.mark.File)
	c := &Chunk{Index: r.mark.Index, Term: r.mark.Term, Checksum: r.mark.Checksum}
	n.answerChunk(r.raft.GetFrom(), c, Taken{Offset: r.mark.Bytes, Done: true})
	n.cfg.Events.SnapshotReceived(SnapshotDone{Index: r.mark.Index, Bytes: r.mark.Bytes, Took: n.cfg.Clock.Now().Sub(r.began)})
	n.sweep()
}

// snapshotRestored learns, on the loop, that the machine has a received
// snapshot's state.
func (n *Node) snapshotRestored(meta *SnapshotMeta) {
	for len(n.incoming.arrived) > 0 && n.incoming.arrived[0].mark.Index <= meta.Index {
		file := n.incoming.arrived[0].mark.File
		n.incoming.arrived = slices.Delete(n.incoming.arrived, 0, 1)
		n.dropReceived(file)
	}
}

// tickReceiving gives up a file that is overtaken by entries.
func (n *Node) tickReceiving() {
	index := n.incoming.index
	if index == 0 || index > n.replica.commit {
		return
	}
	n.incoming.index = 0
	n.onFiles(func() error { return n.receiver.giveUp(index) })
}
