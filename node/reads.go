package node

import (
	"encoding/binary"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
)

// waitingRead is a confirmation for which no round has begun.
type waitingRead struct {
	confirmation
	tick uint64
}

// round is the one read confirmation under way. Whoever asked before it began
// is in it; whoever asks later waits for the next one.
type round struct {
	active  bool
	first   uint64 // id of the first attempt: whoever is in the round asked before it
	id      uint64 // of the last; fresh for each, so that none answers for another round
	began   uint64 // tick of the first attempt
	started uint64 // tick of the last
	asked   asked
}

// asked are those who ask for confirmations together.
type asked struct {
	ahead []func(Ahead)
	done  []func(uint64, error)
}

func (a *asked) add(c *confirmation) {
	a.done = append(a.done, c.done)
	if c.ahead != nil {
		a.ahead = append(a.ahead, c.ahead)
	}
}

// confirmedRead waits for the machine to reach its index.
type confirmedRead struct {
	index uint64
	term  uint64
	asked asked // of whom ahead has not been told yet
}

// reads is the replica's book of confirmations.
type reads struct {
	waiting  []waitingRead
	round    round
	nextID   uint64
	applying []confirmedRead // by index, which only grows
	knowing  int             // of those: who has been told what is ahead
	told     uint64          // up to here entries have been handed out with Ahead
}

// Ahead says, before everything up to the read index of a confirmation has been applied,
// that leadership was confirmed, and what is committed up to there that the machine has
// not applied.
type Ahead struct {
	Term    uint64
	Applied uint64 // index up to which the machine has applied
	// Entries that no Ahead has told of before, by index: those of before that are
	// beyond Applied belong to what is not applied, too.
	Entries []Unapplied
}

// Unapplied is an entry that is committed and not applied.
type Unapplied struct {
	Index    uint64
	Commands [][]byte // of the log: they must not be changed. nil: it is something else
}

// Confirm asks for a read confirmation. Done runs once a quorum has confirmed,
// in a round begun after this call, that nothing newer than the round's read
// index was committed by then, and the machine has reached that index.
func (r *Replica) Confirm(done func(term uint64, err error)) { r.ConfirmAhead(nil, done) }

// ConfirmAhead is Confirm for those who know which commands concern what they ask: where
// this member leads and the machine has not reached the index when the round is over,
// ahead runs first, once. There may be one who asks so: what it is told, nobody else is.
func (r *Replica) ConfirmAhead(ahead func(Ahead), done func(term uint64, err error)) {
	r.reads.waiting = append(r.reads.waiting, waitingRead{confirmation: confirmation{ahead: ahead, done: done}, tick: r.tick})
}

// startRound begins a round for all that wait, if it can and none is under way.
// A leader that has not committed in its own term does not know yet what its
// predecessors committed, so it begins none. (Raft itself does not check this
// for a single voter.)
func (r *Replica) startRound() {
	rd := &r.reads
	if rd.round.active || len(rd.waiting) == 0 || r.role.Leader == 0 {
		return
	}
	if r.role.State == Leader && (r.leadIndex == 0 || r.commit < r.leadIndex) {
		return
	}
	rd.round = round{active: true, began: r.tick}
	for i := range rd.waiting {
		rd.round.asked.add(&rd.waiting[i].confirmation)
	}
	clear(rd.waiting)
	rd.waiting = rd.waiting[:0]
	r.attemptRound()
}

func (r *Replica) attemptRound() {
	rd := &r.reads
	rd.nextID++
	rd.round.id = rd.nextID
	if rd.round.first == 0 {
		rd.round.first = rd.nextID
	}
	rd.round.started = r.tick
	ctx := make([]byte, 0, 16)
	ctx = binary.LittleEndian.AppendUint64(ctx, r.cfg.Incarnation)
	ctx = binary.LittleEndian.AppendUint64(ctx, rd.round.id)
	r.raw.ReadIndex(ctx)
}

// roundAnswered takes raft's answer. Each attempt of the round proves enough, for
// all asked before the first; where answers take longer than the time between
// attempts, only one to an earlier attempt ever comes. Answers to an earlier
// round, or of an earlier life of this member, are ignored.
func (r *Replica) roundAnswered(rs raft.ReadState) {
	rd := &r.reads
	if len(rs.RequestCtx) != 16 || !rd.round.active ||
		binary.LittleEndian.Uint64(rs.RequestCtx) != r.cfg.Incarnation {
		return
	}
	if id := binary.LittleEndian.Uint64(rs.RequestCtx[8:]); id < rd.round.first || id > rd.round.id {
		return
	}
	r.confirmed(rs.Index, rd.round.asked)
	rd.round = round{}
}

// confirmed lets confirmations wait for their index: in the order in which they were
// confirmed, for a later one may have begun with an older index.
func (r *Replica) confirmed(index uint64, a asked) {
	rd := &r.reads
	if n := len(rd.applying); n > 0 {
		index = max(index, rd.applying[n-1].index)
	}
	rd.applying = append(rd.applying, confirmedRead{index: index, term: r.role.Term, asked: a})
}

// releaseReads answers those whose index the machine has reached, and tells others what
// it has not.
func (r *Replica) releaseReads() {
	rd := &r.reads
	for len(rd.applying) > 0 && rd.applying[0].index <= r.applied {
		c := rd.applying[0]
		rd.applying, rd.knowing = rd.applying[1:], max(0, rd.knowing-1)
		r.eff.Confirmed = append(r.eff.Confirmed, Confirmed{Term: c.term, Done: c.asked.done})
	}
	if r.role.State != Leader || r.restoring > r.applied {
		return
	}
	// Raft may know more by now than is here, and a tail that it has given up may be.
	for here := r.stale.below(min(r.commit, r.log.last())); rd.knowing < len(rd.applying); rd.knowing++ {
		c := &rd.applying[rd.knowing]
		if c.index > here {
			return
		}
		for _, f := range c.asked.ahead {
			r.eff.Ahead = append(r.eff.Ahead, ToldAhead{r.ahead(c), f})
		}
		c.asked.ahead = nil
	}
}

// ahead is what is ahead of the machine up to a confirmation's index.
func (r *Replica) ahead(c *confirmedRead) Ahead {
	a := Ahead{Term: c.term, Applied: r.applied}
	for rd := &r.reads; ; {
		if rd.told = max(rd.told, r.applied); rd.told >= c.index {
			return a
		}
		rd.told++
		a.Entries = append(a.Entries, Unapplied{rd.told, r.commandsAt(rd.told)})
	}
}

// commandsAt returns the commands of an entry, nil if it is something else.
func (r *Replica) commandsAt(index uint64) [][]byte {
	e := r.log.entries[index-r.log.first]
	if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
		return nil // a change of members, or the beginning of a term
	}
	cmds, err := decodeEntry(e.GetData(), nil)
	if err != nil {
		return nil
	}
	return cmds
}

// failRound answers those in the round: who leads has changed, and raft forgets
// its unconfirmed reads then without a word.
func (r *Replica) failRound() {
	if !r.reads.round.active {
		return
	}
	err := error(incumbent.Errorf(incumbent.Unavailable, "the leader changed before leadership was confirmed"))
	if r.role.Leader != 0 && r.role.Leader != r.cfg.ID {
		err = r.notLeader()
	}
	r.endRound(err)
}

func (r *Replica) endRound(err error) {
	r.eff.Confirmed = append(r.eff.Confirmed, Confirmed{Err: err, Done: r.reads.round.asked.done})
	r.reads.round = round{}
}

// tickReads tries a round again that is not answered, and gives up on what
// waited too long.
func (r *Replica) tickReads() {
	rd := &r.reads
	again := uint64(roundTicks)
	if r.role.State == Leader {
		again = leaderRoundTicks
	}
	switch {
	case !rd.round.active:
	case r.tick-rd.round.began >= roundGiveUpTicks:
		r.endRound(incumbent.Errorf(incumbent.Unavailable, "no quorum confirmed leadership in %d ticks", roundGiveUpTicks))
	case r.tick-rd.round.started >= again:
		r.attemptRound()
	}
	r.expireReads()
}

// expireReads relies on waiting being in the order of arrival.
func (r *Replica) expireReads() {
	rd := &r.reads
	n := 0
	for n < len(rd.waiting) && r.tick-rd.waiting[n].tick > confirmWaitTicks {
		n++
	}
	if n == 0 {
		return
	}
	done := make([]func(uint64, error), n)
	for i := range done {
		done[i] = rd.waiting[i].done
	}
	m := copy(rd.waiting, rd.waiting[n:])
	clear(rd.waiting[m:])
	rd.waiting = rd.waiting[:m]
	r.eff.Confirmed = append(r.eff.Confirmed, Confirmed{
		Err: incumbent.Errorf(incumbent.Unavailable, "no leader that could confirm a read"), Done: done,
	})
}

func (r *Replica) stopReads(err error) {
	rd := &r.reads
	if rd.round.active {
		r.endRound(err)
	}
	for i := range rd.applying {
		r.eff.Confirmed = append(r.eff.Confirmed, Confirmed{Err: err, Done: rd.applying[i].asked.done})
	}
	for _, w := range rd.waiting {
		r.eff.Confirmed = append(r.eff.Confirmed, Confirmed{Err: err, Done: []func(uint64, error){w.done}})
	}
	*rd = reads{told: rd.told}
}

func (r *Replica) confirming() int {
	rd := &r.reads
	n := len(rd.waiting) + len(rd.round.asked.done)
	for i := range rd.applying {
		n += len(rd.applying[i].asked.done)
	}
	return n
}
