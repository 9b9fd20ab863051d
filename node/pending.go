package node

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
)

// batch is the proposals of one entry that was handed to raft or to the leader.
type batch struct {
	first     uint64            // sequence of the first
	after     uint64            // first of the batch forwarded before it in this term; 0: none
	term      uint64            // in which it was handed out: only that term's leader can append it
	to        uint64            // the leader it was forwarded to; 0: this member appended it
	entry     []byte            // encoded; the log has it too
	proposals []waitingProposal // without their commands, which are in entry
	index     uint64            // where this member saw the entry appended; 0: not yet
	born      uint64            // tick at which it was handed out
	sent      uint64            // tick at which it was last sent to the leader
	deadlines bool              // some proposal has one
}

// What becomes of a batch. It is appended at most once, by the leader of its
// term (a forwarded one too: see forwardBook), so its entry has that term and one
// place in the log. Then one of these ends it:
//
//   - It is committed: the applier answers.
//   - Another entry is committed at its place, or any entry of a later term is
//     committed before it was: terms do not fall along a log, so an entry of its
//     term can be committed only before that one, and all of that has been seen.
//     It is lost for certain, and its proposals wait again.
//   - The leader of its term refused it: certainly not appended. They wait again.
//   - A snapshot replaced the part of the log where it may be: Unknown.
//   - Nothing was heard of a forwarded one for too long: Unknown.
//
// Batches of one term are appended in order or not at all, so what waits again
// is always the tail: it goes back in front, in order. Nothing new is handed out
// before the fate of all batches of earlier terms is known, which the first entry
// of the new term decides. So commands of one member never overtake one another.

// forget takes a batch out of the book.
func (r *Replica) forget(b *batch) {
	delete(r.proposals.pending, b.first)
	r.proposals.unanswered -= len(b.proposals)
}

// requeue puts the proposals of a batch that was certainly not appended, or is
// certainly lost, back to the front. What may not be appended any more, for its
// term or deadline, is answered when its turn comes.
func (r *Replica) requeue(b *batch) {
	cmds, err := decodeEntry(b.entry, nil)
	if err != nil || len(cmds) != len(b.proposals) {
		panic(fmt.Sprintf("entry of this member's own does not decode: %v", err))
	}
	back := b.proposals[:0]
	for i, p := range b.proposals {
		if p.answered {
			continue
		}
		p.Command = cmds[i]
		p.tick = r.tick
		r.proposals.waitingBytes += len(p.Command)
		back = append(back, p)
	}
	r.proposals.waiting.pushFront(back)
}

// requeueAll forgets batches, which are in order, and lets their proposals wait
// again in that order.
func (r *Replica) requeueAll(lost []*batch) {
	for _, b := range slices.Backward(lost) {
		r.forget(b)
		r.requeue(b)
	}
}

// pendingInOrder returns the pending batches by sequence: what a replica does
// must not depend on the order of a map.
func (r *Replica) pendingInOrder() []*batch {
	if len(r.proposals.pending) == 0 {
		return nil
	}
	return slices.SortedFunc(maps.Values(r.proposals.pending), func(a, b *batch) int { return cmp.Compare(a.first, b.first) })
}

// noteAppended remembers where our own entries stand in the log.
func (r *Replica) noteAppended(entries []*pb.Entry) {
	if n := len(entries); n > 0 {
		r.proposals.last = entries[n-1].GetIndex()
	}
	if len(r.proposals.pending) == 0 {
		return
	}
	for _, e := range entries {
		if b := r.ownBatch(e); b != nil {
			b.index = e.GetIndex()
			r.proposals.heard = r.tick
		}
	}
}

// ownBatch returns the batch that waits for e, or nil.
func (r *Replica) ownBatch(e *pb.Entry) *batch {
	if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
		return nil
	}
	h, err := decodeHeader(e.GetData())
	if err != nil || h.Member != r.cfg.ID || h.Incarnation != r.cfg.Incarnation {
		return nil
	}
	b := r.proposals.pending[h.First]
	if b == nil || len(b.proposals) != h.Count {
		return nil
	}
	return b
}

// takeWaiters gives those who wait for e to the applier.
func (r *Replica) takeWaiters(e *pb.Entry) []func(any, error) {
	b := r.ownBatch(e)
	if b == nil {
		return nil
	}
	if b.term != e.GetTerm() {
		panic(fmt.Sprintf("entry %d of term %d was handed out in term %d", e.GetIndex(), e.GetTerm(), b.term))
	}
	r.forget(b)
	done := make([]func(any, error), len(b.proposals))
	for i := range b.proposals {
		done[i] = b.proposals[i].Done
	}
	return done
}

// requeueLost lets wait again what a committed entry proves to be lost: see
// above. The entry's own batch has been taken out before.
func (r *Replica) requeueLost(index, term uint64) {
	lost := false
	for _, b := range r.proposals.pending {
		lost = lost || b.lostBy(index, term)
	}
	if lost {
		r.requeueAll(slices.DeleteFunc(r.pendingInOrder(), func(b *batch) bool { return !b.lostBy(index, term) }))
	}
}

func (b *batch) lostBy(index, term uint64) bool {
	return b.term < term || b.index != 0 && b.index <= index
}

// unsettled reports whether the fate of a batch of an earlier term is open.
func (r *Replica) unsettled() bool {
	for _, b := range r.proposals.pending {
		if b.term != r.role.Term {
			return true
		}
	}
	return false
}

// restored answers Unknown to those whose commands may be inside a snapshot that
// was received: it has their effects, not their results. An entry of a later
// term than the snapshot's, or one seen behind it, is not inside.
func (r *Replica) restored(meta SnapshotMeta) {
	for _, b := range r.pendingInOrder() {
		if b.index > meta.Index || b.term > meta.Term {
			continue
		}
		r.giveUp(b, "the state was replaced by the leader's before the command was seen applied")
	}
}

// giveUp answers Unknown to a batch. Later frames must not wait at the leader for
// this one, which may never have come: they begin a new chain.
func (r *Replica) giveUp(b *batch, why string) {
	r.forget(b)
	for i := range b.proposals {
		r.answerUnknown(&b.proposals[i], why)
	}
	if b.to != 0 && b.term == r.role.Term {
		r.proposals.chain = 0
	}
}

func (r *Replica) answerUnknown(p *waitingProposal, why string) {
	if !p.answered {
		r.answer(p.Done, incumbent.Errorf(incumbent.Unknown, "%s", why))
	}
	p.Done, p.answered = nil, true
}

const notSeenInTime = "the command was appended but not seen applied in time; it may or may not take effect"

// expireBatches answers Unknown to proposals of appended entries whose deadline
// passed, and to forwarded ones of which nothing was heard for too long.
func (r *Replica) expireBatches(now time.Time) {
	var silent *batch
	for _, b := range r.pendingInOrder() {
		if silent == nil && b.to != 0 && b.index == 0 && r.tick-max(b.born, r.proposals.heard) > forwardTicks {
			silent = b
		}
		if silent != nil && b.term == silent.term && b.index == 0 {
			r.giveUp(b, notSeenInTime) // the later ones are appended behind it or not at all
			continue
		}
		if b.deadlines {
			r.expireDeadlines(b, now)
		}
	}
}

func (r *Replica) expireDeadlines(b *batch, now time.Time) {
	for i := range b.proposals {
		if p := &b.proposals[i]; !p.Deadline.IsZero() && !now.Before(p.Deadline) {
			r.answerUnknown(p, notSeenInTime)
		}
	}
}

func errNotSeenApplied() error {
	return incumbent.Errorf(incumbent.Unknown, "the node stopped before the command was seen applied")
}
