package node

import (
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Proposal is one command to be replicated and applied.
type Proposal struct {
	Command  []byte    // opaque to the node; not changed by anybody from here on
	Deadline time.Time // zero: none. Past it the command is dropped if it has not been appended, else Unknown is answered
	Term     uint64    // non-zero: only if this member leads this term; never forwarded
	Reserve  bool      // may use what is kept back when disk or inbox run out: release, expire, close, trim, the status of a check

	// Done is called exactly once, with the machine's result or an error:
	// TooLarge, Overloaded, DeadlineExceeded, NotLeader, Unavailable (certainly
	// not applied, now or ever), or Unknown.
	Done func(result any, err error)
}

// waitingProposal is a proposal without a place in an entry yet.
type waitingProposal struct {
	Proposal
	tick     uint64 // when it came, or came back
	answered bool   // with Unknown; what is left of it is its place in an entry
}

// proposals is the replica's book of who waits for what.
//
// A proposal is in exactly one place: waiting, or in one pending batch. It leaves
// with its answer or, with its entry, to the applier.
type proposals struct {
	waiting      fifo[waitingProposal]
	waitingBytes int
	next         uint64            // sequence of the next command, from 1
	pending      map[uint64]*batch // in flight, by first sequence
	chain        uint64            // first sequence of the batch last forwarded in this term; 0: none
	heard        uint64            // tick at which a forwarded batch was last seen appended
	refused      bool              // the leader refused one: forward no more before the next tick or change of role
	unanswered   int               // proposals in pending batches
	last         uint64            // index of the last entry that raft appended, durable or not; set once this member has led
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
	for r.proposals.waiting.len() > 0 && len(r.proposals.pending) < MaxEntriesInFlight && r.mayPropose() {
		b := r.takeBatch(now)
		if b == nil || !r.proposeBatch(b) {
			return
		}
	}
}

// mayPropose reports whether entries can be handed out now. If not, what waits
// goes on waiting; expireWaiting bounds that.
func (r *Replica) mayPropose() bool {
	switch {
	case r.role.Leader == 0, r.unsettled():
		return false
	case r.role.State == Leader:
		return !r.handingOver()
	case !r.cfg.Forward:
		r.refuseWaiting()
		return false
	}
	return !r.proposals.refused
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
	return r.admits(p.Command)
}

// admits says why a command must not enter the log, or nil.
func (r *Replica) admits(cmd []byte) error {
	if r.cfg.Admissible == nil {
		return nil
	}
	return r.cfg.Admissible(cmd)
}

func errDeadline() error {
	return incumbent.Errorf(incumbent.DeadlineExceeded, "deadline passed before the command was appended")
}

// proposeBatch hands a batch to raft or to the leader. It reports false if it
// was not taken; then the batch waits again, in its old place.
func (r *Replica) proposeBatch(b *batch) bool {
	b.first, b.term, b.born = r.proposals.next, r.role.Term, r.tick
	cmds := make([][]byte, len(b.proposals))
	for i := range b.proposals {
		cmds[i] = b.proposals[i].Command
		b.proposals[i].Command = nil // the entry has it
	}
	b.entry = encodeEntry(entryHeader{
		Group: r.cfg.Group, Member: r.cfg.ID, Incarnation: r.cfg.Incarnation, First: b.first, Count: len(cmds),
	}, cmds)
	if r.role.State == Leader {
		// Dropped means certainly not appended: a hand-over of leadership is under
		// way, or the uncommitted tail is full.
		if err := r.raw.Propose(b.entry); err != nil {
			r.requeue(b)
			return false
		}
	} else {
		b.to, b.after = r.role.Leader, r.proposals.chain
		r.proposals.chain = b.first
		r.forward(b)
	}
	r.proposals.next += uint64(len(b.proposals))
	r.proposals.pending[b.first] = b
	r.proposals.unanswered += len(b.proposals)
	return true
}

// expireProposals answers those whose time is up.
func (r *Replica) expireProposals(now time.Time) {
	r.proposals.refused = false
	r.expireWaiting(now)
	r.expireBatches(now)
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

// ProposeNothing appends an empty entry, if this member leads, raft takes it and
// no other entry is under way: the applied index rises, the machine sees nothing.
func (r *Replica) ProposeNothing() {
	if r.role.State == Leader && r.proposals.last <= r.applied {
		_ = r.raw.Propose(nil) // an error means that it was dropped
	}
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
			if p := &b.proposals[i]; !p.answered {
				r.answer(p.Done, errNotSeenApplied())
			}
		}
	}
	r.proposals.pending = nil
	r.stopReads(closed)
	r.stopChanges(closed)
	eff := r.eff
	r.eff = Effects{}
	return eff
}
