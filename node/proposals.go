package node

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
)

// Proposal is one command to be replicated and applied.
type Proposal struct {
	Command  []byte    // opaque to the node; not changed by anybody from here on
	Deadline time.Time // zero: none. Past it the command is dropped if it has not been appended, else Unknown is answered
	Term     uint64    // non-zero: only if this member leads this term; never forwarded
	Reserve  bool      // may use what is kept back when disk or inbox run out: release, expire, close, trim

	// Done is called exactly once, with the machine's result or an error:
	// TooLarge, Overloaded, DeadlineExceeded, NotLeader, Unavailable (certainly
	// not applied, now or ever), or Unknown.
	Done func(result any, err error)
}

// waitingProposal is a proposal without a place in an entry yet.
type waitingProposal struct {
	Proposal
	tick uint64 // when it came
}

// batch is the proposals of one entry that was handed to raft or to the leader.
type batch struct {
	first     uint64 // sequence of the first
	proposals []waitingProposal
	index     uint64 // where this member saw the entry appended; 0: not yet
	forwarded uint64 // tick at which it was sent to the leader; 0: we appended it
	holds     bool   // counts as in flight
	deadlines bool   // some proposal has one
}

// proposals is the replica's book of who waits for what.
//
// A proposal is in exactly one place: waiting, or in one pending batch. It leaves
// with its answer or, with its entry, to the applier.
type proposals struct {
	waiting      fifo[waitingProposal]
	waitingBytes int
	next         uint64            // sequence of the next command
	pending      map[uint64]*batch // by first sequence
	appended     []*batch          // by index: those pending that this member saw appended
	refused      bool              // the leader refused one: forward no more before the next tick or change of role
	inFlight     int               // pending batches that hold a place
	unanswered   int               // proposals in pending batches
}

// Propose queues proposals. They become entries in Ready.
func (r *Replica) Propose(ps []Proposal) {
	for _, p := range ps {
		if len(p.Command) > MaxCommandBytes {
			r.answer(p.Done, incumbent.Errorf(incumbent.TooLarge, "command has %d bytes, limit is %d", len(p.Command), MaxCommandBytes))
			continue
		}
		r.proposals.waiting.push(waitingProposal{Proposal: p, tick: r.tick})
		r.proposals.waitingBytes += len(p.Command)
	}
}

func (r *Replica) answer(done func(any, error), err error) {
	if done != nil {
		r.eff.Answers = append(r.eff.Answers, Answer{Done: done, Err: err})
	}
}

// propose makes entries of what waits, as long as places in flight are free.
func (r *Replica) propose(now time.Time) {
	for r.proposals.waiting.len() > 0 && r.proposals.inFlight < MaxEntriesInFlight {
		switch {
		case r.role.State == Leader:
		case r.role.Leader == 0:
			return // one is expected shortly; expireProposals bounds the wait
		case !r.cfg.Forward:
			r.refuseWaiting()
			return
		case r.proposals.refused:
			return
		}
		b := r.takeBatch(now)
		if b == nil {
			return
		}
		if !r.proposeBatch(b) {
			return
		}
	}
}

// refuseWaiting answers NotLeader to all that wait.
func (r *Replica) refuseWaiting() {
	for r.proposals.waiting.len() > 0 {
		r.answer(r.popWaiting().Done, r.notLeader())
	}
}

func (r *Replica) notLeader() error {
	return incumbent.Errorf(incumbent.NotLeader, "member %x leads term %d", r.role.Leader, r.role.Term)
}

func (r *Replica) popWaiting() waitingProposal {
	p := r.proposals.waiting.pop()
	r.proposals.waitingBytes -= len(p.Command)
	return p
}

// takeBatch takes what fits into one entry, dropping what may not be appended
// any more. It returns nil if nothing is left.
func (r *Replica) takeBatch(now time.Time) *batch {
	b := &batch{}
	size := 0
	for r.proposals.waiting.len() > 0 && len(b.proposals) < MaxEntryCommands {
		p := r.proposals.waiting.front()
		if len(b.proposals) > 0 && size+len(p.Command) > MaxBatchBytes {
			break
		}
		w := r.popWaiting()
		if err := r.refusal(&w.Proposal, now); err != nil {
			r.answer(w.Done, err)
			continue
		}
		size += len(w.Command)
		b.deadlines = b.deadlines || !w.Deadline.IsZero()
		b.proposals = append(b.proposals, w)
	}
	if len(b.proposals) == 0 {
		return nil
	}
	return b
}

// refusal says why p may not be appended now, or nil.
func (r *Replica) refusal(p *Proposal, now time.Time) error {
	switch {
	case !p.Deadline.IsZero() && !now.Before(p.Deadline):
		return errDeadline()
	case p.Term != 0 && (r.role.State != Leader || r.role.Term != p.Term):
		return incumbent.Errorf(incumbent.NotLeader, "proposed for term %d, this member is %v of term %d", p.Term, r.role.State, r.role.Term)
	}
	return nil
}

func errDeadline() error {
	return incumbent.Errorf(incumbent.DeadlineExceeded, "deadline passed before the command was appended")
}

// proposeBatch hands a batch to raft or to the leader. It reports false if it
// was not taken; then the batch waits again, in its old place.
func (r *Replica) proposeBatch(b *batch) bool {
	b.first = r.proposals.next
	cmds := make([][]byte, len(b.proposals))
	for i := range b.proposals {
		cmds[i] = b.proposals[i].Command
	}
	data := encodeEntry(entryHeader{
		Group: r.cfg.Group, Member: r.cfg.ID, Incarnation: r.cfg.Incarnation, First: b.first, Count: len(cmds),
	}, cmds)
	if r.role.State == Leader {
		// Dropped means certainly not appended: a hand-over of leadership is under
		// way, or the uncommitted tail is full.
		if err := r.raw.Propose(data); err != nil {
			r.requeue(b)
			return false
		}
	} else {
		b.forwarded = max(r.tick, 1)
		r.eff.Messages = append(r.eff.Messages, Message{
			From: r.cfg.ID, To: r.role.Leader, Forward: &Forward{Term: r.role.Term, First: b.first, Entry: data},
		})
	}
	if b.forwarded == 0 {
		for i := range b.proposals {
			b.proposals[i].Command = nil // the entry has it; a forwarded one may come back
		}
	}
	r.proposals.next += uint64(len(b.proposals))
	r.proposals.pending[b.first] = b
	r.proposals.unanswered += len(b.proposals)
	b.holds = true
	r.proposals.inFlight++
	return true
}

// requeue puts a batch that was certainly not appended back to the front.
func (r *Replica) requeue(b *batch) {
	r.proposals.waiting.pushFront(b.proposals)
	for i := range b.proposals {
		r.proposals.waitingBytes += len(b.proposals[i].Command)
	}
}

// forget takes a batch out of the book.
func (r *Replica) forget(b *batch) {
	delete(r.proposals.pending, b.first)
	r.proposals.unanswered -= len(b.proposals)
	r.releasePlace(b)
}

func (r *Replica) releasePlace(b *batch) {
	if b.holds {
		b.holds = false
		r.proposals.inFlight--
	}
}

// stepForward appends an entry of another member, if we lead the term it names.
func (r *Replica) stepForward(m Message) {
	st := r.raw.BasicStatus()
	if st.RaftState == raft.StateLeader && st.HardState.GetTerm() == m.Forward.Term && r.raw.Propose(m.Forward.Entry) == nil {
		return
	}
	r.eff.Messages = append(r.eff.Messages, Message{
		From: r.cfg.ID, To: m.From, Refuse: &Refuse{Term: m.Forward.Term, First: m.Forward.First},
	})
}

// stepRefuse queues a forwarded batch again that the leader did not append.
func (r *Replica) stepRefuse(m Message) {
	b := r.proposals.pending[m.Refuse.First]
	if b == nil || b.forwarded == 0 || b.index != 0 {
		return
	}
	r.forget(b)
	r.requeue(b)
	r.proposals.refused = true
}

// noteAppended remembers where our own entries stand in the log.
func (r *Replica) noteAppended(entries []*pb.Entry) {
	if len(r.proposals.pending) == 0 {
		return
	}
	for _, e := range entries {
		b := r.ownBatch(e)
		if b == nil || b.index != 0 {
			continue
		}
		b.index = e.GetIndex()
		r.proposals.appended = append(r.proposals.appended, b)
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
	b.index = e.GetIndex()
	r.forget(b)
	done := make([]func(any, error), len(b.proposals))
	for i := range b.proposals {
		done[i] = b.proposals[i].Done
	}
	return done
}

// dropOverwritten answers those whose entry stood at or before a place in the
// log where now something else is committed. Each entry is appended once, by one
// leader, in one place: what is committed there instead is proof that it is lost.
func (r *Replica) dropOverwritten(committed uint64) {
	ps := &r.proposals
	for len(ps.appended) > 0 && ps.appended[0].index <= committed {
		b := ps.appended[0]
		ps.appended = ps.appended[1:]
		if ps.pending[b.first] != b {
			continue // answered
		}
		r.forget(b)
		for i := range b.proposals {
			r.answer(b.proposals[i].Done, incumbent.Errorf(incumbent.Unavailable, "a new leader discarded the command before it was committed"))
		}
	}
}

// expireProposals answers those whose time is up.
func (r *Replica) expireProposals(now time.Time) {
	r.proposals.refused = false
	r.expireWaiting(now)
	for _, b := range r.pendingInOrder() {
		r.expireBatch(b, now)
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

// restored answers Unknown to those whose commands may be inside a snapshot that
// was received: it has their effects, not their results.
func (r *Replica) restored(index uint64) {
	for _, b := range r.pendingInOrder() {
		if b.index > index {
			continue
		}
		r.forget(b)
		for i := range b.proposals {
			r.answer(b.proposals[i].Done, incumbent.Errorf(incumbent.Unknown, "the state was replaced by the leader's before the command was seen applied"))
		}
	}
}

// expireWaiting looks at all that wait, but only where they cannot become
// entries now: else the next Ready takes them in order and looks anyway.
func (r *Replica) expireWaiting(now time.Time) {
	ps := &r.proposals
	if ps.waiting.len() == 0 {
		return
	}
	leaderless := r.role.Leader == 0
	ps.waiting.filter(func(w *waitingProposal) bool {
		var err error
		switch {
		case !w.Deadline.IsZero() && !now.Before(w.Deadline):
			err = errDeadline()
		case leaderless && r.tick-w.tick > leaderWaitTicks:
			err = incumbent.Errorf(incumbent.Unavailable, "no leader")
		default:
			return true
		}
		ps.waitingBytes -= len(w.Command)
		r.answer(w.Done, err)
		return false
	})
}

// expireBatch answers Unknown to proposals of an appended entry whose deadline
// passed, and to a forwarded one of which nothing was heard.
func (r *Replica) expireBatch(b *batch, now time.Time) {
	lost := b.forwarded != 0 && b.index == 0 && r.tick-b.forwarded > forwardTicks
	if !lost && !b.deadlines {
		return
	}
	for i := range b.proposals {
		p := &b.proposals[i]
		if p.Done == nil || !lost && (p.Deadline.IsZero() || now.Before(p.Deadline)) {
			continue
		}
		r.answer(p.Done, incumbent.Errorf(incumbent.Unknown, "the command was appended but not seen applied in time; it may or may not take effect"))
		p.Done = nil
	}
	if lost {
		r.forget(b)
	}
}

func errNotSeenApplied() error {
	return incumbent.Errorf(incumbent.Unknown, "the node stopped before the command was seen applied")
}

// Stop answers everybody who waits and returns what is to be called. Nothing
// else may be called on the replica afterwards.
func (r *Replica) Stop() Effects {
	closed := incumbent.Errorf(incumbent.Unavailable, "the node is stopped")
	for r.proposals.waiting.len() > 0 {
		r.answer(r.popWaiting().Done, closed)
	}
	for _, b := range r.pendingInOrder() {
		for i := range b.proposals {
			r.answer(b.proposals[i].Done, errNotSeenApplied())
		}
	}
	r.proposals.pending = nil
	r.stopReads(closed)
	eff := r.eff
	r.eff = Effects{}
	return eff
}
