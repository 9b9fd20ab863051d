package node

import (
	"encoding/binary"
	"slices"

	"go.etcd.io/raft/v3"
	pb "go.etcd.io/raft/v3/raftpb"

	"github.com/incumbent-dev/incumbent"
)

// waitingRead is a confirmation for which no round has begun.
type waitingRead struct {
	done      func(term uint64, err error)
	tick      uint64
	commuting bool
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
	strict    []func(uint64, error) // answered once everything up to the index is applied
	commuting []func(uint64, error) // answered even where something is not that commutes with what they ask
}

func (a *asked) add(w *waitingRead) {
	to := &a.strict
	if w.commuting {
		to = &a.commuting
	}
	*to = append(*to, w.done)
}

func (a *asked) all() []func(uint64, error) { return append(a.strict, a.commuting...) }

func (a *asked) count() int { return len(a.strict) + len(a.commuting) }

// confirmedRead waits for the machine to reach its index.
type confirmedRead struct {
	index uint64
	term  uint64
	done  []func(uint64, error)
}

// reads is the replica's book of confirmations.
type reads struct {
	waiting   []waitingRead
	round     round
	nextID    uint64
	applying  []confirmedRead // by index, which only grows
	commuting []confirmedRead // the same of those that wait for what does not commute
	reached   uint64          // up to here everything is applied, or commutes
}

// Confirm asks for a read confirmation. Done runs once a quorum has confirmed,
// in a round begun after this call, that nothing newer than the round's read
// index was committed by then, and the machine has reached that index.
func (r *Replica) Confirm(done func(term uint64, err error)) {
	r.reads.waiting = append(r.reads.waiting, waitingRead{done: done, tick: r.tick})
}

// ConfirmCommuting is Confirm for what commutes with the commands of which
// [ReplicaConfig] says so: done does not wait for those to be applied.
func (r *Replica) ConfirmCommuting(done func(term uint64, err error)) {
	r.reads.waiting = append(r.reads.waiting, waitingRead{done: done, tick: r.tick, commuting: true})
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
		rd.round.asked.add(&rd.waiting[i])
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
	r.confirmed(&rd.applying, rs.Index, rd.round.asked.strict)
	r.confirmed(&rd.commuting, rs.Index, rd.round.asked.commuting)
	rd.round = round{}
}

// confirmed lets confirmations wait for their index: in the order in which they were
// confirmed, for a later one may have begun with an older index.
func (r *Replica) confirmed(list *[]confirmedRead, index uint64, done []func(uint64, error)) {
	if len(done) == 0 {
		return
	}
	if n := len(*list); n > 0 {
		index = max(index, (*list)[n-1].index)
	}
	*list = append(*list, confirmedRead{index: index, term: r.role.Term, done: done})
}

// releaseReads answers those whose index the machine has reached, or would without
// what commutes with what they ask.
func (r *Replica) releaseReads() {
	rd := &r.reads
	for len(rd.applying) > 0 && rd.applying[0].index <= r.applied {
		r.release(&rd.applying)
	}
	for len(rd.commuting) > 0 && r.reaches(rd.commuting[0].index) {
		r.release(&rd.commuting)
	}
}

func (r *Replica) release(list *[]confirmedRead) {
	c := (*list)[0]
	*list = (*list)[1:]
	r.eff.Confirmed = append(r.eff.Confirmed, Confirmed{Term: c.term, Done: c.done})
}

// reaches reports whether everything up to an index is applied, or commutes. What is
// committed never changes: what was looked at once need not be again.
func (r *Replica) reaches(index uint64) bool {
	rd := &r.reads
	rd.reached = max(rd.reached, r.applied)
	for rd.reached < index && r.commutes(rd.reached+1) {
		rd.reached++
	}
	return rd.reached >= index
}

// commutes reports whether it is known of an entry that all its commands commute
// with what is asked by [Replica.ConfirmCommuting]: it is committed, here, and no
// snapshot is about to take the state's place.
func (r *Replica) commutes(index uint64) bool {
	if r.cfg.Commutes == nil || index > min(r.commit, r.log.last()) || index < r.log.first || r.restoring > r.applied {
		return false
	}
	e := r.log.entries[index-r.log.first]
	if e.GetType() != pb.EntryNormal || len(e.GetData()) == 0 {
		return false // a change of members, or the beginning of a term
	}
	cmds, err := decodeEntry(e.GetData(), nil)
	return err == nil && !slices.ContainsFunc(cmds, func(cmd []byte) bool { return !r.cfg.Commutes(cmd) })
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
	r.eff.Confirmed = append(r.eff.Confirmed, Confirmed{Err: err, Done: r.reads.round.asked.all()})
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
	for _, c := range append(rd.applying, rd.commuting...) {
		r.eff.Confirmed = append(r.eff.Confirmed, Confirmed{Err: err, Done: c.done})
	}
	for _, w := range rd.waiting {
		r.eff.Confirmed = append(r.eff.Confirmed, Confirmed{Err: err, Done: []func(uint64, error){w.done}})
	}
	*rd = reads{}
}

func (r *Replica) confirming() int {
	rd := &r.reads
	n := len(rd.waiting) + rd.round.asked.count()
	for _, list := range [][]confirmedRead{rd.applying, rd.commuting} {
		for i := range list {
			n += len(list[i].done)
		}
	}
	return n
}
