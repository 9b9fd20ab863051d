package lease

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/settings"
)

// pipeline are the due ones on their way to an expiry. Each stands in one of
// the lists.
type pipeline struct {
	due       []Due // wait for a confirmation and a barrier that begin from now on
	under     []Due // for which both have begun
	asked     bool  // their confirmation is under way
	confirmed bool
	passed    bool  // the barrier
	ready     []Due // may be proposed, if they are still due
	barrier   uint64
	barriers  uint64 // numbered so far
	inFlight  int
	notBefore int64
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

// waits reports whether some that are due wait for a round to begin.
func (p *pipeline) waits() bool { return len(p.due) > 0 && len(p.under) == 0 }

// confirm puts all that are due into the round that begins now, and has a barrier begin
// with it; 0: there are none, or those before them are still under way.
func (p *pipeline) confirm() (barrier uint64) {
	if !p.waits() {
		return 0
	}
	p.barriers++
	p.under, p.due = p.due, p.under
	p.asked, p.confirmed, p.passed, p.barrier = true, false, false, p.barriers
	return p.barrier
}

// back returns those whose round failed: another barrier begins with the next.
func (p *pipeline) back() {
	if p.asked {
		p.asked = false
		p.due, p.under = move(p.due, p.under)
	}
}

// heard takes note that their round succeeded.
func (p *pipeline) heard() {
	if p.asked {
		p.asked, p.confirmed = false, true
		p.settle()
	}
}

// settle has those be proposed for which both are over.
func (p *pipeline) settle() {
	if p.confirmed && p.passed {
		p.ready, p.under = move(p.ready, p.under)
	}
}

func move(to, from []Due) (moved, rest []Due) {
	if len(to) == 0 {
		return from, to
	}
	return append(to, from...), from[:0]
}

func (e *Engine) findDue() { e.expiry.due = e.book.Due(e.expiry.due) }

// BarrierPassed tells that every frame received before Barrier was asked for
// has been handed to Extend.
func (e *Engine) BarrierPassed(id uint64) {
	p := &e.expiry
	if p.barrier != id {
		return // of an earlier term, or of a round that failed
	}
	p.barrier, p.passed = 0, true
	p.settle()
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
	cmd := leases.ExpireCommand{Token: d.Token, Renewal: x.Renewal, Late: x.Late}
	if e.book.timer(d.ref).flags&waited != 0 {
		cmd.Next = e.next(leases.Of(e.view).ByToken(d.Token))
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
