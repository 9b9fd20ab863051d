package lease

import (
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Lead tells that the first entry of our own term has been applied. view is the
// state then.
func (e *Engine) Lead(term uint64, view *core.View) {
	e.view = view
	ws := e.endTerm(0)
	e.leading, e.term, e.silent = true, term, false
	e.courier.announced, e.courier.detached = nil, nil
	e.book.Lead(view)
	e.trim = trimmer{}
	e.endedUnseen()
	e.retouch()
	for _, w := range ws {
		e.ask(w)
	}
	looks := e.courier.looks
	e.courier.looks = nil
	for _, l := range looks {
		e.inspect(&l.q.Items[l.item])
		e.lookedAt(l)
	}
	e.catchUp()
	e.sortEarly()
}

// Follow tells that this member does not lead. leader is 0 while nobody is known
// to; else it leads in term.
func (e *Engine) Follow(leader, term uint64) {
	ws := e.endTerm(leader)
	e.courier.term, e.courier.notBefore = term, 0
	e.retouch()
	if leader != 0 && e.courier.on {
		e.announce()
	}
	for _, w := range ws {
		e.ask(w)
	}
	e.sortEarly()
}

// endTerm ends what only the leader of the old term could have answered, and
// returns what is to be asked again.
func (e *Engine) endTerm(leader uint64) []waiter {
	ws := e.recall()
	e.leader = leader
	if !e.leading {
		return ws
	}
	e.leading = false
	e.book.Follow()
	e.expiry.reset()
	e.silent = false
	e.turnAwayAll()
	if e.courier.on {
		return ws
	}
	kind := incumbent.Unavailable
	if leader != 0 {
		kind = incumbent.NotLeader
	}
	for _, w := range ws {
		e.answer(w.batch, w.item, kind, 0)
	}
	return nil
}

// recall takes back all extensions that wait for something, wherever they do:
// in order of their arrival, without those of other members.
func (e *Engine) recall() []waiter {
	c := &e.courier
	for _, x := range slices.Backward(c.flights) {
		e.unload(x)
	}
	ws := c.queue
	c.queue, c.flights = nil, nil
	ws = whole(ws, e.round.batches)
	ws = whole(ws, e.waiting)
	ws = whole(ws, e.kept)
	ws = append(append(ws, e.round.again...), e.again...)
	for i := range e.behind {
		b := &e.behind[i]
		ws = append(ws, b.waiters...)
		b.waiters, b.due = nil, false
	}
	ws = append(ws, e.takeHeld()...)
	e.vouchedNoMore()
	e.waiting, e.round.batches, e.kept, e.again, e.round.again = nil, nil, nil, nil, nil
	e.round.due = false
	ws = slices.DeleteFunc(ws, func(w waiter) bool { return w.batch.served != nil })
	slices.SortStableFunc(ws, func(a, b waiter) int { return int(min(max(a.batch.arrived-b.batch.arrived, -1), 1)) })
	return ws
}

// whole appends all items of batches of which none has been judged.
func whole(ws []waiter, bs []*Batch) []waiter {
	for _, b := range bs {
		for i := range b.Items {
			ws = append(ws, waiter{b, i})
		}
	}
	return ws
}

// Stop answers everybody who waits: this member is going away. Nothing but End
// may be called afterwards.
func (e *Engine) Stop() {
	e.courier.on = false
	for _, w := range e.endTerm(0) {
		e.answer(w.batch, w.item, incumbent.Unavailable, 0)
	}
	for _, l := range e.courier.looks {
		e.lookedAt(l)
	}
	for _, l := range e.courier.lagging {
		e.answer(l.batch, l.item, incumbent.Unavailable, 0)
	}
	e.courier.looks, e.courier.lagging = nil, nil
	reads := append(slices.Clone(e.round.reads), e.reading...)
	for i := range e.behind {
		reads = append(reads, e.behind[i].reads...)
	}
	for _, c := range reads {
		if c != nil && c.read {
			e.unread(c)
			e.finish(c, core.Result{Err: errStopped()})
		}
	}
	e.round, e.reading, e.behind = round{active: true}, nil, nil
	e.stopCalls()
}
