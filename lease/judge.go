package lease

import (
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// Extend takes a batch: each extension is stored now and judged later.
func (e *Engine) Extend(b *Batch) {
	b.arrived, b.left = e.now, len(b.Items)
	b.RetryAfter, b.Leader = 0, 0
	if len(b.Items) == 0 {
		e.out.Extended = append(e.out.Extended, b)
		return
	}
	for i := range b.Items {
		it := &b.Items[i]
		it.Kind, it.Held, it.Revoking, it.RevokingTokens = incumbent.OK, 0, false, nil
		it.stored, it.alien, it.ref, it.found = false, false, none, 0
	}
	if e.leading {
		e.extend(b)
		return
	}
	for i := range b.Items {
		e.ask(waiter{b, i})
	}
}

func (e *Engine) extend(b *Batch) {
	for i := range b.Items {
		if it := &b.Items[i]; it.valid() {
			e.store(it)
		}
	}
	if e.vouched(b) {
		return
	}
	e.waiting = append(e.waiting, b)
}

// fail answers all items of a batch alike.
func (e *Engine) fail(b *Batch, kind incumbent.Kind) {
	for i := range b.Items {
		e.answer(b, i, kind, 0)
	}
}

// answer answers one extension; with the last one the batch is done.
func (e *Engine) answer(b *Batch, i int, kind incumbent.Kind, held time.Duration) {
	it := &b.Items[i]
	it.Kind, it.Held = kind, held
	switch kind {
	case incumbent.OK:
		if b.call == nil { // a claim is counted when it is certain that it was extended
			e.stats.Extensions++
		}
	case incumbent.NotLeader:
		b.Leader = e.leader
		b.RetryAfter = unavailableRetry
	case incumbent.Unavailable:
		b.RetryAfter = unavailableRetry
	case incumbent.Overloaded:
		b.RetryAfter = overloadRetry
	}
	b.left--
	switch {
	case b.served != nil:
		e.judged(b.served, i)
	case b.left > 0:
	case b.attach != nil:
		e.attached(b)
	case b.call != nil:
		e.claimAnswered(b)
	default:
		e.out.Extended = append(e.out.Extended, b)
	}
}

// store stores an extension if what it names is in the book and is the
// caller's.
func (e *Engine) store(it *Extension) {
	if it.stored || !e.find(it) || it.alien {
		return
	}
	it.stored = true
	e.book.extend(it.ref, it.TTL)
}

// find looks up what an extension names, unless it was found before and is
// still there. The holder and session of a token never change, so neither does
// the answer to whose it is.
func (e *Engine) find(it *Extension) bool {
	if it.ref != none && e.book.still(it) {
		return true
	}
	it.ref, it.stored = e.lookup(it), false
	if it.ref == none {
		return false
	}
	if it.ref.kind() == ofLease {
		it.found = e.book.leases[it.ref.slot()].token
		it.alien = e.foreign(it)
	}
	return true
}

func (e *Engine) lookup(it *Extension) ref {
	token := it.Token
	switch {
	case it.Lasting != nil:
		return e.book.lasting(it.Lasting)
	case token != 0:
	case it.Named != nil:
		l := leases.Of(e.view).Lease(it.Named.Name)
		if l.Free() {
			return none
		}
		token = l.Token
	default:
		if i, ok := e.book.byID[it.Session]; ok {
			return sessionRef(i)
		}
		return none
	}
	if i, ok := e.book.byToken.get(token); ok {
		return leaseRef(i)
	}
	return none
}

// still reports whether the slot that an extension was found in is still the
// one it meant.
func (b *Book) still(it *Extension) bool {
	switch it.ref.kind() {
	case ofDeadline:
		return b.lasting(it.Lasting) == it.ref
	case ofSession:
		s := &b.sessions[it.ref.slot()]
		return s.flags&(used|dead) == used && s.id == it.Session
	}
	return b.leases[it.ref.slot()].token == it.found
}

// foreign reports whether the lease that was found is not the caller's.
func (e *Engine) foreign(it *Extension) bool {
	if it.Named == nil && it.Session.IsZero() {
		return false
	}
	var owner incumbent.SessionID
	if o := e.book.leases[it.ref.slot()].owner; o != noSlot {
		owner = e.book.sessions[o].id
	}
	if it.Session != owner {
		return true
	}
	if it.Named == nil {
		return false
	}
	l := leases.Of(e.view).ByToken(it.found)
	return l == nil || l.Holder != it.Named.Holder || l.Name != it.Named.Name
}

func (e *Engine) judge(b *Batch) {
	for i := range b.Items {
		e.judgeItem(b, i)
	}
}

// judgeItem answers an extension that has been confirmed, or lets it wait for
// what is on its way through the log.
func (e *Engine) judgeItem(b *Batch, i int) {
	it := &b.Items[i]
	if !it.valid() {
		e.answer(b, i, it.invalid(), 0)
		return
	}
	if !e.find(it) || it.alien {
		e.judgeAbsent(b, i)
		return
	}
	e.store(it)
	if it.ref.kind() == ofDeadline {
		e.judgeDeadline(b, i)
		return
	}
	if k, blocked := e.book.blocked(it.ref); blocked {
		e.hold(k, waiter{b, i})
		return
	}
	if it.ref.session() {
		e.judgeSession(b, i, it.ref.slot())
		return
	}
	e.judgeLease(b, i)
}

// judgeAbsent answers what names nothing of its client's, unless the client has
// sent a command before that may change this.
func (e *Engine) judgeAbsent(b *Batch, i int) {
	it := &b.Items[i]
	if n := it.Named; n != nil && it.Token == 0 && e.names[n.Name].has(client{n.Holder, it.Session}, nil) {
		e.holdNamed(n.Name, waiter{b, i})
		return
	}
	kind := incumbent.NotHolder
	if !it.alien || it.ref == none {
		kind = e.absent(it)
	}
	e.answer(b, i, kind, 0)
}

// judgeDeadline answers the extension of a family's deadline, or lets it wait for the
// command that ends it.
func (e *Engine) judgeDeadline(b *Batch, i int) {
	d := &e.book.deadlines[b.Items[i].ref.slot()]
	if d.flags&expiring != 0 {
		e.holdDeadline(keyOf(d.of), waiter{b, i})
		return
	}
	e.answer(b, i, incumbent.OK, min(d.of.After, incumbent.MaxTTL))
}

func (e *Engine) judgeLease(b *Batch, i int) {
	it := &b.Items[i]
	l := &e.book.leases[it.ref.slot()]
	switch {
	case l.flags&revoking != 0:
		e.answer(b, i, incumbent.NotHolder, 0)
	case l.owner != noSlot:
		e.judgeSession(b, i, l.owner)
	case int64(it.TTL) > nanos(l.ttl):
		e.raiseLease(l.token, b, i)
	default:
		e.answer(b, i, incumbent.OK, acknowledged(it.TTL, l.ttl))
	}
}

func (e *Engine) judgeSession(b *Batch, i int, slot int32) {
	it := &b.Items[i]
	s := &e.book.sessions[slot]
	it.Revoking, it.RevokingTokens = false, nil
	more := false
	if s.revoked > 0 { // else there is no need to walk over its leases
		more = e.tellRevoking(it, s.id)
	}
	if s.ttl != 0 && int64(it.TTL) > nanos(s.ttl) {
		e.raise(s.id, b, i)
		return
	}
	held := acknowledged(it.TTL, s.ttl)
	if more && it.ofSession() {
		held = 0 // whoever counts on it for all of its leases would count on those, too
	}
	e.answer(b, i, incumbent.OK, held)
}

// ofSession reports whether a session is extended, rather than one of its leases.
func (x *Extension) ofSession() bool { return x.Token == 0 && x.Named == nil }

// tellRevoking says with the extension of a session what is being revoked by now, and reports
// whether that is more than is said.
func (e *Engine) tellRevoking(it *Extension, id incumbent.SessionID) (more bool) {
	ts := e.revokingOf(id)
	if more = len(ts) > MaxRevokingTokens; more {
		ts = ts[:MaxRevokingTokens]
	}
	it.Revoking, it.RevokingTokens = len(ts) > 0, ts
	return more
}

// revokingOf looks through the leases of a session once for each state: in one
// batch all ten thousand of them may be extended, each by its own token.
func (e *Engine) revokingOf(id incumbent.SessionID) []incumbent.Token {
	if e.revoking.view != e.view {
		e.revoking.view = e.view
		clear(e.revoking.tokens)
	}
	ts, known := e.revoking.tokens[id]
	if known {
		return ts
	}
	leases.Of(e.view).OfSession(id, func(l *leases.Lease) bool {
		if l.Revoking {
			ts = append(ts, l.Token)
		}
		return len(ts) <= MaxRevokingTokens
	})
	e.revoking.tokens[id] = ts
	return ts
}

// acknowledged is for how long an extension holds. Without ttl a session lives
// until it is closed, which is no shorter than the longest ttl.
func acknowledged(asked time.Duration, ttl uint32) time.Duration {
	logged := time.Duration(nanos(ttl))
	if ttl == 0 {
		logged = incumbent.MaxTTL
	}
	if asked > 0 {
		return min(asked, logged)
	}
	return logged
}

// absent says why nothing was found. That a lease is lost is said only of a
// token that the applied state has reached.
func (e *Engine) absent(it *Extension) incumbent.Kind {
	switch {
	case it.Lasting != nil && it.Lasting.Generation > e.view.Index():
		return incumbent.Unavailable
	case it.Lasting != nil:
		return incumbent.NotFound
	case it.Token != 0 && incumbent.Index(it.Token) > e.view.Index():
		return incumbent.Unavailable
	case it.Token == 0 && it.Named == nil:
		return incumbent.Expired
	}
	return incumbent.NotHolder
}

// blocked reports whether an unapplied command touches a slot or its owner: an
// expiry, or a command of this member.
func (b *Book) blocked(r ref) (key, bool) {
	owner := r.slot()
	if !r.session() {
		l := &b.leases[r.slot()]
		if l.flags&expiring != 0 || l.touched > 0 {
			return key{token: l.token}, true
		}
		if owner = l.owner; owner == noSlot {
			return key{}, false
		}
	}
	s := &b.sessions[owner]
	return key{session: s.id}, s.flags&expiring != 0 || s.touched > 0
}

// raiseLease makes an extension that is longer than the logged ttl a command.
func (e *Engine) raiseLease(token incumbent.Token, b *Batch, i int) {
	l := leases.Of(e.view).ByToken(token)
	if l == nil {
		panic("lease: the book has a lease that nobody holds")
	}
	// Naming the token: should the holding end first, none must begin instead.
	claim := leases.ClaimCommand{Name: l.Name, Holder: l.Holder, TTL: b.Items[i].TTL, Critical: l.Critical, Token: token}
	e.propose(claim.Encode(core.Meta{Origin: *l.Origin}), waiter{b, i})
}

// raise does so for a session.
func (e *Engine) raise(id incumbent.SessionID, b *Batch, i int) {
	cmd := core.ExtendSessionCommand{ID: id, TTL: b.Items[i].TTL}
	e.propose(cmd.Encode(e.own()), waiter{b, i})
}

// propose proposes a command that an extension waits for.
func (e *Engine) propose(cmd []byte, w waiter) {
	e.out.Proposals = append(e.out.Proposals, Proposal{Command: cmd, Term: e.term, Ticket: Ticket{logged: &w}})
}

// refuse answers what waits for a command. Where the term has ended, the next
// leader is asked.
func (e *Engine) refuse(w waiter, kind incumbent.Kind) {
	if kind.Transient() && e.patient(w.batch) && !e.leading {
		e.ask(w)
		return
	}
	e.answer(w.batch, w.item, kind, 0)
}

// patient reports whether a batch may wait on for a leader.
func (e *Engine) patient(b *Batch) bool {
	return e.courier.on && b.served == nil && e.now-b.arrived <= int64(forwardFor)
}

// loggedDone takes the outcome of a command that an extension waited for.
func (e *Engine) loggedDone(w waiter, r core.Result, err error) {
	if err != nil {
		e.refuse(w, transientKind(err))
		return
	}
	it := &w.batch.Items[w.item]
	if r.Err != nil {
		e.answer(w.batch, w.item, lossKind(r.Err.Kind), 0)
		return
	}
	ttl := incumbent.MaxTTL
	s := r.Session
	switch {
	case leases.AnswerOf(r).Lease != nil:
		ttl = leases.AnswerOf(r).Lease.TTL
	case e.overtaken(it):
		e.answer(w.batch, w.item, incumbent.NotHolder, 0)
		return
	}
	more := s != nil && e.tellRevoking(it, s.ID)
	if s != nil && s.TTL != 0 {
		ttl = s.TTL
	}
	if asked := it.TTL; asked > 0 {
		ttl = min(ttl, asked)
	}
	if more && it.ofSession() {
		ttl = 0 // as in judgeSession
	}
	e.answer(w.batch, w.item, incumbent.OK, ttl)
}

// overtaken reports whether a command of another member, in front of the one that
// raised the ttl of a session, has ended the lease that an extension names, or is
// about to: a revoked lease has the deadline that its session had, however long
// the session lives now.
func (e *Engine) overtaken(it *Extension) bool {
	if it.ofSession() {
		return false
	}
	l := leases.Of(e.view).ByToken(it.found)
	return l.Free() || l.Revoking
}

// transientKind is the kind of an extension whose command was not applied as
// far as is known: asking again is safe.
func transientKind(err error) incumbent.Kind {
	k := incumbent.KindOf(err)
	if slices.Contains([]incumbent.Kind{incumbent.NotLeader, incumbent.Overloaded, incumbent.TooLarge}, k) {
		return k
	}
	return incumbent.Unavailable
}

// lossKind is what a refused command says of an extension.
func lossKind(k incumbent.Kind) incumbent.Kind {
	if k == incumbent.Held {
		return incumbent.NotHolder
	}
	return k
}
