package node

import (
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/vfs"
	"github.com/incumbent-dev/incumbent/wal"
)

// How a snapshot reaches a member that is behind:
//
//	raft      has no entries for the peer any more and emits a snapshot message
//	loop      keeps the message and holds the file that the log's mark names
//	files     reads a piece                           ◀─┐
//	loop      sends it; at most sendWindow unanswered ──┘
//	peer      answers how much of the file it has: the next piece begins there
//	loop      at the end, and in every other outcome, tells raft
//
// All transfers share Config.SnapshotRate. The first piece is sent alone: a peer
// that has the beginning of this very file answers with where to go on. The same
// happens after a silence, which is how a lost connection is got over.

// sender is the loop's part of sending snapshots.
type sender struct {
	peers     map[uint64]*transfer
	reports   map[uint64]uint64 // peer → tick at which raft is told that sending failed
	tick      uint64
	rate      float64 // bytes per second
	most      float64 // budget that may gather
	budget    float64 // bytes that may be read now; negative: read ahead of it
	refilled  time.Time
	resend    uint64 // ticks
	giveUp    uint64
	tickEvery time.Duration
}

func newSender(cfg *Config) sender {
	s := sender{
		peers: map[uint64]*transfer{}, reports: map[uint64]uint64{},
		rate: float64(cfg.SnapshotRate), refilled: cfg.Clock.Now(), tickEvery: cfg.Tick,
	}
	s.most = max(s.rate*cfg.Tick.Seconds(), MaxChunkBytes)
	s.budget = s.most
	s.resend, s.giveUp = s.ticks(resendAfter), s.ticks(giveUpAfter)
	return s
}

// ticks returns how many ticks make d, at least one.
func (s *sender) ticks(d time.Duration) uint64 { return max(1, uint64(d/s.tickEvery)) }

// transfer is a snapshot on its way to a peer.
type transfer struct {
	to       uint64
	mark     wal.SnapshotMark
	raft     *pb.Message
	file     *sentFile
	began    time.Time
	next     int64  // where the next piece to read begins
	taken    int64  // what the peer has, as it said last
	best     int64  // the most it ever had
	rewound  int64  // taken when we last went back for a lost piece; -1: not since the last silence
	probing  bool   // nothing was heard: one piece at a time
	heard    uint64 // tick of the last answer, or of what stands for it
	progress uint64 // tick at which best last grew
}

// sentFile is the file behind a transfer. The file worker owns it.
type sentFile struct {
	path string
	file vfs.File
}

// send hands messages to the transport, except those about snapshots: they
// begin transfers.
func (n *Node) send(ms []Message) {
	if len(ms) == 0 || n.cfg.Transport == nil {
		return
	}
	snapshots := slices.ContainsFunc(ms, isSnapshot)
	if !snapshots {
		n.cfg.Transport.Send(ms)
		return
	}
	var rest []Message
	for i := range ms {
		if isSnapshot(ms[i]) {
			n.sendSnapshot(ms[i].Raft)
		} else {
			rest = append(rest, ms[i])
		}
	}
	if len(rest) > 0 {
		n.cfg.Transport.Send(rest)
	}
}

func isSnapshot(m Message) bool { return m.Raft != nil && m.Raft.GetType() == pb.MsgSnap }

// sendSnapshot begins to send what the log's mark names, if that is what raft
// means. Raft's view and the mark change together on the loop, but a message may
// have been made just before.
func (n *Node) sendSnapshot(m *pb.Message) {
	s := &n.sending
	to, md, mark := m.GetTo(), m.GetSnapshot().GetMetadata(), n.snap.mark
	delete(s.reports, to)
	if old := s.peers[to]; old != nil {
		n.endTransfer(old, incumbent.Errorf(incumbent.Unavailable, "a newer snapshot is to be sent"))
	}
	if mark.Index != md.GetIndex() || mark.Term != md.GetTerm() {
		s.reports[to] = s.tick + 1
		return
	}
	if n.snap.wanted || !hasMember(md.GetConfState(), to) {
		// It is damaged; or the peer joined after it, and raft refuses a snapshot
		// that does not know it.
		n.askSnapshot()
		s.reports[to] = s.tick + s.ticks(sendNewerAfter)
		return
	}
	n.snapshots.kept.hold(mark.File)
	t := &transfer{
		to: to, mark: mark, raft: m, file: &sentFile{path: n.snapshots.path(mark.File)}, began: n.cfg.Clock.Now(),
		rewound: -1, probing: true, heard: s.tick, progress: s.tick,
	}
	s.peers[to] = t
	n.advance(t)
}

func hasMember(cs *pb.ConfState, id uint64) bool {
	return slices.Contains(cs.GetVoters(), id) || slices.Contains(cs.GetLearners(), id) || slices.Contains(cs.GetVotersOutgoing(), id)
}

// advance asks for pieces as long as window and budget allow.
func (n *Node) advance(t *transfer) {
	for n.readPiece(t) {
	}
}

// advanceAll lets transfers take turns, so that one does not eat the budget of
// all.
func (n *Node) advanceAll() {
	for busy := true; busy; {
		busy = false
		for _, to := range slices.Sorted(maps.Keys(n.sending.peers)) {
			busy = n.readPiece(n.sending.peers[to]) || busy
		}
	}
}

// readPiece asks the file worker for one piece, if it may be sent now.
func (n *Node) readPiece(t *transfer) bool {
	window := int64(sendWindow * MaxChunkBytes)
	if t.probing {
		window = 1
	}
	if t.next >= t.mark.Bytes || t.next-t.taken >= window || n.sending.budget <= 0 {
		return false
	}
	offset := t.next
	size := min(MaxChunkBytes, t.mark.Bytes-offset)
	t.next += size
	n.sending.budget -= float64(size)
	n.onFiles(func() error {
		data, err := n.files.read(n.cfg.FS, t.file, offset, size)
		n.inbox.call(func() { n.sendPiece(t, offset, data, err) })
		return nil
	})
	return true
}

// read reads a piece of a file that is being sent, opening it for the first.
func (w *fileWorker) read(fs vfs.FS, s *sentFile, offset, size int64) ([]byte, error) {
	if s.file == nil {
		f, err := fs.Open(s.path)
		if err != nil {
			return nil, err
		}
		w.opened(f)
		s.file = f
	}
	data := make([]byte, size)
	n, err := s.file.ReadAt(data, offset)
	if int64(n) == size {
		return data, nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		err = incumbent.Errorf(incumbent.Corrupt, "%s: offset %d: file ends early", s.path, offset+int64(n))
	}
	return nil, err
}

// askNewerThan wants a snapshot in the place of one that is damaged, unless the
// log names another by now.
func (n *Node) askNewerThan(m wal.SnapshotMark) {
	if n.snap.mark.Index == m.Index {
		n.askSnapshot()
	}
}

// verifyOwn reads the file again that a peer could not take. Should it be
// damaged, a newer one is needed: this member's next start depends on it too.
func (n *Node) verifyOwn(m wal.SnapshotMark) {
	n.snapshots.kept.hold(m.File)
	n.onFiles(func() error {
		defer n.snapshots.kept.letGo(m.File)
		err := n.verifyFile(m)
		if err != nil {
			n.cfg.Logger.Error("own snapshot is damaged", slog.String("file", m.File), slog.Any("error", err))
			n.inbox.call(func() { n.askNewerThan(m) })
		}
		return nil
	})
}

func (n *Node) verifyFile(m wal.SnapshotMark) error {
	f, r, err := n.snapshots.open(m)
	if err != nil {
		return err
	}
	return errors.Join(r.finish(m), f.Close())
}

// sendPiece sends what was read, unless the transfer has ended by now.
func (n *Node) sendPiece(t *transfer, offset int64, data []byte, err error) {
	if n.sending.peers[t.to] != t {
		return
	}
	if err != nil {
		// The file is of no use, here and at the next start: a newer one is needed.
		n.askNewerThan(t.mark)
		n.failTransfer(t, err, sendAgainAfter)
		return
	}
	n.cfg.Transport.Send([]Message{{From: n.id.Member, To: t.to, Chunk: &Chunk{
		Index: t.mark.Index, Term: t.mark.Term, Bytes: t.mark.Bytes, Checksum: t.mark.Checksum,
		Offset: offset, Data: data, Raft: t.raft,
	}}})
}

// stepTaken goes on from where the peer says it is.
func (n *Node) stepTaken(from uint64, tk *Taken) {
	t := n.sending.peers[from]
	if t == nil || tk.Index != t.mark.Index || tk.Term != t.mark.Term || tk.Checksum != t.mark.Checksum ||
		tk.Offset < 0 || tk.Offset > t.mark.Bytes {
		return // of a transfer that is over
	}
	switch {
	case tk.Done:
		n.endTransfer(t, nil)
		n.replica.ReportSnapshot(t.to, true)
		return
	case tk.Failed != "":
		// A peer that does not have all of it has no space, or refuses what the header says:
		// nothing is wrong with the file. Older ones answer with 0 at the end, too.
		if tk.Offset == t.mark.Bytes || tk.Offset == 0 && t.next == t.mark.Bytes {
			n.verifyOwn(t.mark)
		}
		n.failTransfer(t, incumbent.Errorf(incumbent.Unavailable, "the peer cannot take it: %s", tk.Failed), sendAgainAfter)
		return
	}
	n.moveWindow(t, tk.Offset)
	n.advance(t)
}

func (n *Node) moveWindow(t *transfer, offset int64) {
	tick := n.sending.tick
	t.heard = tick
	again, less := offset == t.taken && !t.probing, offset < t.taken
	t.probing = false
	t.taken = offset
	if offset > t.best {
		t.best, t.progress = offset, tick
	}
	switch {
	case offset > t.next || less:
		t.next = offset // it has more, or less, than we knew
	case again && t.rewound != offset:
		// A piece was lost and those behind it came: go back, but once, for each
		// of them is answered like this.
		t.rewound, t.next = offset, offset
	}
}

// tickSending refills the budget and looks at who has been silent.
func (n *Node) tickSending(now time.Time) {
	s := &n.sending
	s.tick++
	s.budget = min(s.most, s.budget+s.rate*max(0, now.Sub(s.refilled)).Seconds())
	s.refilled = now
	for _, to := range slices.Sorted(maps.Keys(s.reports)) {
		if s.tick >= s.reports[to] {
			delete(s.reports, to)
			n.replica.ReportSnapshot(to, false)
		}
	}
	for _, to := range slices.Sorted(maps.Keys(s.peers)) {
		n.tickTransfer(s.peers[to])
	}
	n.advanceAll()
}

func (n *Node) tickTransfer(t *transfer) {
	s := &n.sending
	switch {
	case s.tick-t.progress >= s.giveUp:
		n.failTransfer(t, incumbent.Errorf(incumbent.Unavailable, "no progress at %d of %d bytes in %v", t.best, t.mark.Bytes, giveUpAfter), 0)
	case s.tick-t.heard >= s.resend:
		// The last piece stands for all when the peer has them and says no more.
		t.heard, t.probing, t.rewound = s.tick, true, -1
		t.taken = min(t.taken, (t.mark.Bytes-1)/MaxChunkBytes*MaxChunkBytes)
		t.next = t.taken
	}
}

// failTransfer ends a transfer and tells raft after wait: until then it keeps
// the peer paused.
func (n *Node) failTransfer(t *transfer, err error, wait time.Duration) {
	n.endTransfer(t, err)
	if wait == 0 {
		n.replica.ReportSnapshot(t.to, false)
		return
	}
	n.sending.reports[t.to] = n.sending.tick + n.sending.ticks(wait)
}

// endTransfer lets go of everything that belongs to a transfer.
func (n *Node) endTransfer(t *transfer, err error) {
	delete(n.sending.peers, t.to)
	n.onFiles(func() error {
		n.snapshots.kept.letGo(t.mark.File)
		if t.file.file != nil {
			// It was only read: nothing depends on how closing it ends.
			_ = n.files.closed(t.file.file)
		}
		return n.sweepNow()
	})
	n.cfg.Events.SnapshotSent(SnapshotSent{
		To: t.to, Index: t.mark.Index, Bytes: t.mark.Bytes, Took: n.cfg.Clock.Now().Sub(t.began), Err: err,
	})
}

// stopSending ends all transfers: they belong to a term of leadership, and raft
// forgets with it whom it has sent a snapshot.
func (n *Node) stopSending() {
	for _, to := range slices.Sorted(maps.Keys(n.sending.peers)) {
		n.endTransfer(n.sending.peers[to], incumbent.Errorf(incumbent.Unavailable, "the term of leadership is over"))
	}
	clear(n.sending.reports)
}
