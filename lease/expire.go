package lease

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// pipeline are the due ones on their way to an expiry. Each stands in one of
// the lists.
type pipeline struct {
	due        []Due // wait for a confirmation that begins from now on
	confirming []Due // in the round under way
	heard      []Due // confirmed; wait for a barrier that begins from now on
	behind     []Due // behind the barrier under way
	ready      []Due // may be proposed, if they are still due
	barrier    uint64
	barriers   uint64 // numbered so far
	inFlight   int
	notBefore  int64
}

// proposedExpiry is an expiry on its way through the log.
type proposedExpiry struct {
	due     Due
	renewal uint64
	term    uint64
}

func (p *pipeline) reset() {
	*p = pipeline{barriers: p.barriers}
}

// confirm puts all that are due into the round that begins now.
func (p *pipeline) confirm() { p.confirming, p.due = move(p.confirming, p.due) }

// back returns those whose round failed.
func (p *pipeline) back() { p.due, p.confirming = move(p.due, p.confirming) }

func (p *pipeline) confirmed() { p.heard, p.confirming = move(p.heard, p.confirming) }

func move(to, from []Due) (moved, rest []Due) {
	if len(to) == 0 {
		return from, to
	}
	return append(to, from...), from[:0]
}

func (e *Engine) findDue() { e.expiry.due = e.book.Due(e.expiry.due) }

// startBarrier asks to be told once every frame received until now is stored.
func (e *Engine) startBarrier() {
	p := &e.expiry
	if p.barrier != 0 || len(p.heard) == 0 {
		return
	}
	p.barriers++
	p.barrier = p.barriers
	p.behind, p.heard = move(p.behind, p.heard)
	e.out.Barrier = p.barrier
}

// BarrierPassed tells that every frame received before Barrier was asked for
// has been handed to Extend.
func (e *Engine) BarrierPassed(id uint64) {
	p := &e.expiry
	if p.barrier != id {
		return // of an earlier term
	}
	p.barrier = 0
	p.ready, p.behind = move(p.ready, p.behind)
}

// proposeExpiries proposes what is ready and, looked at again, still due.
func (e *Engine) proposeExpiries() {
	p := &e.expiry
	if e.now < p.notBefore {
		return
	}
	n := 0
	for n < len(p.ready) && p.inFlight < MaxExpiriesInFlight {
		d := p.ready[n]
		n++
		if x, ok := e.book.Check(d); ok {
			e.proposeExpiry(d, x)
		}
	}
	p.ready = p.ready[n:]
}

func (e *Engine) proposeExpiry(d Due, x Expiry) {
	cmd := e.expireCommand(d, x)
	e.book.MarkExpiring(d)
	e.expiry.inFlight++
	e.out.Proposals = append(e.out.Proposals, Proposal{
		Command: cmd.Encode(e.own()), Term: e.term, Reserve: true,
		Ticket: Ticket{expiry: &proposedExpiry{d, x.Renewal, e.term}},
	})
}

func (e *Engine) expireCommand(d Due, x Expiry) core.Command {
	switch d.ref.kind() {
	case ofDeadline:
		return e.view.EndDeadline(d.Deadline)
	case ofSession:
		return core.ExpireSessionCommand{ID: d.Session, Renewal: x.Renewal, Late: x.Late, Absent: e.absentBehind(d.Session)}
	}
	cmd := core.ExpireCommand{Token: d.Token, Renewal: x.Renewal, Late: x.Late}
	if e.book.timer(d.ref).flags&waited != 0 {
		cmd.Next = e.next(e.view.LeaseByToken(d.Token))
	}
	return cmd
}

// expiryDone takes the outcome of an expiry. Where it was applied and not void,
// Applied has told of it and nothing is left to do.
func (e *Engine) expiryDone(x *proposedExpiry, err error) {
	if !e.leading || x.term != e.term {
		return
	}
	e.expiry.inFlight--
	if incumbent.KindOf(err) == incumbent.Unknown {
		return // with the term or with this member; the mark stays until then
	}
	if err != nil {
		// Certainly not appended. It is still due, so it takes the whole way again,
		// but not at once.
		e.expiry.notBefore = e.now + int64(retryRoundAfter)
		e.stats.ExpiriesRefused++
	}
	e.book.Unmark(x.due, x.renewal)
	if x.due.Deadline != nil {
		e.releaseDeadline(keyOf(x.due.Deadline))
	} else {
		e.release(key{token: x.due.Token, session: x.due.Session})
	}
}

// trimmer remembers which index was reached when.
type trimmer struct {
	samples []sample // oldest first, trimEvery apart
}

type sample struct {
	at    int64
	index incumbent.Index
}

// trimKeys forgets the results of idempotent commands that have lived for
// as long as the settings say, as far as this leader has seen.
func (e *Engine) trimKeys() {
	t := &e.trim
	keysLiveFor := settings.Of(e.view).Values().Duration(settings.KeyRetention)
	if n := len(t.samples); n == 0 || e.now-t.samples[n-1].at >= int64(trimEvery) {
		t.samples = append(t.samples, sample{e.now, e.view.Index()})
	}
	var through incumbent.Index
	for len(t.samples) > 0 && e.now-t.samples[0].at >= int64(keysLiveFor) {
		through = t.samples[0].index
		t.samples = t.samples[1:]
	}
	if through <= e.view.KeysFloor() || e.view.KeptCount() == 0 {
		return
	}
	e.out.Proposals = append(e.out.Proposals, Proposal{
		Command: core.TrimKeysCommand{Through: through}.Encode(core.Meta{}), Term: e.term, Reserve: true,
	})
}
