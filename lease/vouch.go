package lease

import (
	"slices"
	"time"
)

// vouchAgainAfter is how long the frames of a member wait for rounds like any
// other extensions, once what it vouches for was not enough.
const vouchAgainAfter = time.Second

// voucher is another member that vouches for this leader: with each frame it says
// that when all in it had arrived it knew of no newer term. That is as much as its
// answer to a heartbeat would say, so where the two are a quorum its extensions
// need no round, and do not wait for the one under way. See [node.Node.ConfirmFor].
type voucher struct {
	member    uint64
	waiting   []*Batch
	active    bool // a confirmation is under way
	id        uint64
	batches   []*Batch // in it
	notBefore int64    // its word was not enough: a learner's, or one of many voters
}

// Vouch is a confirmation of what a member vouches for.
type Vouch struct{ ID, Member uint64 }

// Vouch tells who leads and in which term, as the node has it now: after all that
// this turn was told of had arrived. It holds for the frames of this turn. The
// engine's own knowledge comes by way of the applied entries, and is older.
func (e *Engine) Vouch(leader, term uint64) {
	e.courier.vouches = !e.leading && leader != 0 && leader == e.leader && term == e.courier.term
}

// vouched lets a batch of another member wait for the confirmation of what that
// member vouches for, unless it has to wait for a round.
func (e *Engine) vouched(b *Batch) bool {
	if b.served == nil || !b.served.vouched {
		return false
	}
	v := e.voucherOf(b.served.from)
	if e.now < v.notBefore {
		return false
	}
	v.waiting = append(v.waiting, b)
	return true
}

func (e *Engine) voucherOf(member uint64) *voucher {
	i := slices.IndexFunc(e.vouchers, func(v *voucher) bool { return v.member == member })
	if i < 0 {
		i = len(e.vouchers)
		e.vouchers = append(e.vouchers, &voucher{member: member})
	}
	return e.vouchers[i]
}

// startVouched asks for the confirmation of what waits.
func (e *Engine) startVouched() {
	for _, v := range e.vouchers {
		if v.active || len(v.waiting) == 0 {
			continue
		}
		e.nextRound++
		v.active, v.id = true, e.nextRound
		v.batches, v.waiting = v.waiting, v.batches[:0]
		e.out.Vouched = append(e.out.Vouched, Vouch{v.id, v.member})
	}
}

// voucherUnder returns whose confirmation is under way with that number, nil if it is
// nobody's.
func (e *Engine) voucherUnder(id uint64) *voucher {
	for _, v := range e.vouchers {
		if v.active && v.id == id {
			return v
		}
	}
	return nil
}

// confirmedFor judges what a member has vouched for, if that was what was asked.
// What was not confirmed waits for a round.
func (e *Engine) confirmedFor(id, term uint64, err error) bool {
	v := e.voucherUnder(id)
	if v == nil {
		return false
	}
	v.active = false
	batches := v.batches
	switch {
	case !e.leading: // their end was that of the term
	case err != nil:
		v.notBefore = e.now + int64(vouchAgainAfter)
		e.waiting = append(e.waiting, batches...)
	case term != e.term: // of a term before: its batches ended with that
	default:
		e.stats.Vouched++
		e.quorumHeard()
		for _, b := range batches {
			e.judge(b)
		}
	}
	clear(batches)
	v.batches = batches[:0]
	return true
}

// vouchedNoMore forgets what members vouched for in a term that is over: they ask
// the next leader.
func (e *Engine) vouchedNoMore() {
	for _, v := range e.vouchers {
		v.waiting, v.batches = nil, nil
	}
}
