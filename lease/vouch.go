package lease

import (
	"slices"
	"time"
)

// vouchAgainAfter is how long the frames of other members wait for rounds like any
// other extensions, once what their senders vouch for was not enough.
const vouchAgainAfter = time.Second

// vouched is the confirmation of extensions whose senders vouch for the leader: a
// member that forwards a frame says with it that when all in it had arrived it
// knew of no newer term. That is as much as its answer to a heartbeat would say,
// so where the leader and one more member are a quorum no round is needed, and
// such frames do not wait for the one under way. See [node.Node.ConfirmFor].
type vouched struct {
	waiting   []*Batch
	active    bool // a confirmation is under way
	id        uint64
	batches   []*Batch // in it
	notBefore int64    // vouching was not enough: not again before this
}

func (v *vouched) wait(b *Batch) { v.waiting = append(v.waiting, b) }

// Vouch tells who leads and in which term, as the node has it now: after all that
// this turn was told of had arrived. It holds for the frames of this turn. The
// engine's own knowledge comes by way of the applied entries, and is older.
func (e *Engine) Vouch(leader, term uint64) {
	e.courier.vouches = !e.leading && leader != 0 && leader == e.leader && term == e.courier.term
}

// startVouched asks for the confirmation of what waits.
func (e *Engine) startVouched() {
	v := &e.vouched
	if v.active || len(v.waiting) == 0 {
		return
	}
	e.nextRound++
	v.active, v.id = true, e.nextRound
	v.batches, v.waiting = v.waiting, v.batches[:0]
	members := make([]uint64, 0, 2)
	for _, b := range v.batches {
		if !slices.Contains(members, b.served.from) {
			members = append(members, b.served.from)
		}
	}
	e.out.Vouched, e.out.Vouchers = v.id, members
}

// vouchedConfirmed judges the extensions in it. Those that were not confirmed wait
// for a round.
func (e *Engine) vouchedConfirmed(term uint64, err error) {
	v := &e.vouched
	v.active = false
	batches := v.batches
	switch {
	case !e.leading: // their end was that of the term
	case err != nil || term != e.term:
		v.notBefore = e.now + int64(vouchAgainAfter)
		e.waiting = append(e.waiting, batches...)
	default:
		e.stats.Vouched++
		for _, b := range batches {
			e.judge(b)
		}
	}
	clear(batches)
	v.batches = batches[:0]
}
