package lease

import (
	"maps"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// Submit takes a call.
func (e *Engine) Submit(c *call) {
	e.stats.Calls++
	if e.late(c) {
		return
	}
	m, claim := c.cmd.(leases.ClaimCommand)
	if claim && e.leading {
		e.book.claimed(m.Session)
	}
	e.submitted++
	c.order = e.submitted
	var l *leases.Lease
	if c.named {
		l = leases.Of(e.view).Lease(c.name)
	}
	if claim && len(c.KeyID) == 0 {
		w := e.way(c, m, l)
		if w != byLog {
			c.read = true
			e.guard(c.name).addRead(c)
		}
		switch w {
		case byRead:
			e.reading = append(e.reading, c)
			return
		case byLeader:
			c.token = l.Token
			e.Extend(&Batch{Items: []Extension{{Token: l.Token, Session: l.Session}}, call: c})
			return
		}
	}
	e.log(c, l)
}

// late drops a call whose deadline has passed.
func (e *Engine) late(c *call) bool {
	if c.deadline == 0 || e.now < c.deadline {
		return false
	}
	e.finish(c, core.Result{Err: incumbent.Errorf(incumbent.DeadlineExceeded, "deadline passed before the request was served")})
	return true
}

func (e *Engine) finish(c *call, r core.Result) {
	e.out.Answered = append(e.out.Answered, Answer{Done: c.done, Result: r})
}

// way is how a claim is answered.
type way uint8

const (
	byLog    way = iota
	byRead       // from a confirmed read: another holds the lease, or it is the caller's and is extended here
	byLeader     // the leader extends it under the token that this member knows
)

// way finds out whether a claim can be answered without the log. One that
// extends the caller's own is stored.
func (e *Engine) way(c *call, m leases.ClaimCommand, l *leases.Lease) way {
	switch {
	case l.Free() || e.names[c.name].has(c.client, c.Sequence):
		return byLog
	case l.Holder != m.Holder || l.Session != m.Session:
		if m.Wait {
			return byLog
		}
		return byRead
	case l.Revoking || m.TTL > l.TTL || l.Critical != m.Critical:
		return byLog
	case !e.leading && e.courier.on && e.leader != 0:
		return byLeader
	case e.leading && e.extendOwn(l):
		return byRead
	}
	return byLog
}

// extendOwn stores a claim of the holder as an extension. What is answered names
// the logged ttl.
func (e *Engine) extendOwn(l *leases.Lease) bool {
	i, ok := e.book.byToken.get(l.Token)
	if !ok {
		return false
	}
	if _, blocked := e.book.blocked(leaseRef(i)); blocked {
		return false
	}
	e.book.extend(leaseRef(i), 0)
	return true
}

// judgeRead answers a claim from the confirmed state, or sends it to the log if
// that no longer answers it.
func (e *Engine) judgeRead(c *call, term uint64, err error) {
	if !c.read {
		return // a later command of its client has pushed it into the log
	}
	e.unread(c)
	if e.late(c) {
		return
	}
	if err != nil {
		e.finish(c, core.Result{Err: errorOf(err)})
		return
	}
	m := c.cmd.(leases.ClaimCommand)
	l := leases.Of(e.view).Lease(c.name)
	own := !l.Free() && l.Holder == m.Holder && l.Session == m.Session
	switch {
	case own && term != e.term || e.way(c, m, l) != byRead:
		e.log(c, l)
	case own:
		e.ownExtended(c, l)
	default:
		e.stats.ClaimsDenied++
		e.finish(c, core.Result{
			Index: e.view.Index(), Record: leases.Answer{Lease: l}.Record(), Err: &incumbent.Error{Kind: incumbent.Held, Message: "another holds the lease"},
		})
	}
}

// ownExtended answers the claim of a holder that was extended.
func (e *Engine) ownExtended(c *call, l *leases.Lease) {
	e.stats.Extensions++
	e.finish(c, core.Result{Index: e.view.Index(), Record: l, Session: e.view.Session(l.Session)})
}

// claimAnswered takes what the leader says of an extension that stands for a
// claim.
func (e *Engine) claimAnswered(b *Batch) {
	c, it := b.call, &b.Items[0]
	if !c.read {
		return // a later command of its client has pushed it into the log
	}
	e.unread(c)
	if e.late(c) {
		return
	}
	l := leases.Of(e.view).Lease(c.name)
	switch {
	case it.Kind == incumbent.OK && !l.Free() && l.Token == c.token:
		e.ownExtended(c, l)
	case it.Kind.Transient():
		e.finish(c, core.Result{Err: &incumbent.Error{Kind: it.Kind, Message: explain(it.Kind), RetryAfter: b.RetryAfter}})
	default:
		e.log(c, l)
	}
}

func (e *Engine) unread(c *call) {
	c.read = false
	g := e.names[c.name]
	g.dropRead(c)
	e.unguard(c.name, g)
}

// remove takes something out of a list in which it mostly stands in front.
func remove[T comparable](list []T, x T) []T {
	if i := slices.Index(list, x); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// log makes a command of a call. l is the lease it names. Claims that the same
// client has sent before go first: their answer would come from a state after it.
func (e *Engine) log(c *call, l *leases.Lease) {
	if e.tooManyUndecided(c) || e.overQuota(c) {
		return
	}
	if c.named {
		identify(c, l)
		for _, r := range e.names[c.name].takeReads(c) {
			e.send(r, l)
		}
	}
	e.send(c, l)
}

// overQuota refuses a call that the quotas of this view stop, at no cost for the log.
// One with a key may have been executed before, and one of a sequence comes after others
// that may let go of something: what becomes of those only the log says.
func (e *Engine) overQuota(c *call) bool {
	if len(c.KeyID) > 0 || c.Sequence != nil {
		return false
	}
	err := e.view.OverQuota(c.Origin.Principal, c.cmd)
	if err != nil {
		e.finish(c, core.Result{Err: err}) // as of no index: the view may be behind
	}
	return err != nil
}

// identify finds out whose release it is that names only a token.
func identify(c *call, l *leases.Lease) {
	if m, ok := c.cmd.(leases.ReleaseCommand); ok && m.Holder == "" && !l.Free() && l.Token == m.Token {
		c.client = client{l.Holder, l.Session}
	}
}

func (e *Engine) send(c *call, l *leases.Lease) {
	if c.named {
		g := e.guard(c.name)
		g.logged = append(g.logged, c)
	} else {
		e.unnamed = append(e.unnamed, c)
	}
	e.touch(c, l)
	e.out.Proposals = append(e.out.Proposals, Proposal{
		Command: e.command(c, l).Encode(c.Meta()), Deadline: c.Deadline, Reserve: reserve(c.cmd), Ticket: Ticket{call: c},
	})
}

// command names the next waiter where a command may free a lease.
func (e *Engine) command(c *call, l *leases.Lease) core.Command {
	switch m := c.cmd.(type) {
	case leases.ReleaseCommand:
		m.Next = e.next(l)
		return m
	case leases.RevokeCommand:
		m.Next = e.next(l)
		return m
	case core.CloseSessionCommand:
		m.Absent = e.absentBehind(m.ID)
		return m
	}
	return c.cmd
}

// touch marks what a command may end: extensions of it wait for the outcome.
// Only commands of the holder or of an operator do; others must not be able to
// delay a holder.
func (e *Engine) touch(c *call, l *leases.Lease) {
	c.mark = key{}
	if m, ok := c.cmd.(core.CloseSessionCommand); ok {
		e.touchSession(c, m.ID)
		return
	}
	var token incumbent.Token
	if m, ok := c.cmd.(leases.ReleaseCommand); ok && incumbent.Index(m.Token) > e.view.Index() {
		token = m.Token // of a grant that this member has not applied yet
	}
	if !l.Free() && ends(c.cmd, l) {
		token = l.Token
	}
	if token == 0 {
		return
	}
	if !e.leading {
		c.mark.token = token
		e.marks[c.mark]++
		return
	}
	if i, ok := e.book.byToken.get(token); ok {
		c.mark.token = token
		e.book.leases[i].touched++
	}
}

func (e *Engine) touchSession(c *call, id incumbent.SessionID) {
	if !e.leading {
		c.mark.session = id
		e.marks[c.mark]++
		return
	}
	if i, ok := e.book.byID[id]; ok {
		c.mark.session = id
		e.book.sessions[i].touched++
	}
}

// retouch marks anew in a new role what is on its way through the log.
func (e *Engine) retouch() {
	clear(e.marks)
	for name, g := range e.names {
		l := leases.Of(e.view).Lease(name)
		for _, c := range g.logged {
			e.touch(c, l)
		}
	}
	for _, c := range e.unnamed {
		e.touch(c, nil)
	}
}

// ends reports whether a command may end a holding.
func ends(cmd core.Command, l *leases.Lease) bool {
	switch m := cmd.(type) {
	case leases.ReleaseCommand:
		return m.Token == l.Token || m.Holder == l.Holder && m.Session == l.Session
	case leases.TransferCommand:
		return m.Holder == l.Holder && m.Session == l.Session
	case leases.RevokeCommand:
		return true
	}
	return false
}

// untouch takes the mark away and looks again at what waited for it.
func (e *Engine) untouch(c *call) {
	if c.mark != (key{}) {
		e.unmark(c)
		e.release(c.mark)
	}
}

// unmark takes the mark away. It may be gone with what it marked, or with the
// term.
func (e *Engine) unmark(c *call) {
	m := c.mark
	switch {
	case m == key{}:
	case !e.leading:
		if e.marks[m]--; e.marks[m] <= 0 {
			delete(e.marks, m)
		}
	case m.token != 0:
		if i, ok := e.book.byToken.get(m.token); ok && e.book.leases[i].touched > 0 {
			e.book.leases[i].touched--
		}
	default:
		if i, ok := e.book.byID[m.session]; ok && e.book.sessions[i].touched > 0 {
			e.book.sessions[i].touched--
		}
	}
}

// Proposed takes the outcome of a proposal. Applied has told of its changes.
func (e *Engine) Proposed(t Ticket, r core.Result, err error) {
	switch {
	case t.call != nil:
		e.callDone(t.call, r, err)
	case t.expiry != nil:
		e.expiryDone(t.expiry, err)
	case t.logged != nil:
		e.loggedDone(*t.logged, r, err)
	case t.accepted != 0:
		e.acceptanceDone(t.accepted, err)
	case t.probe:
		e.probed(err)
	}
}

func (e *Engine) callDone(c *call, r core.Result, err error) {
	if incumbent.KindOf(err) == incumbent.Unknown {
		e.undecide(c, err)
		return
	}
	if c.named {
		g := e.names[c.name]
		g.logged = remove(g.logged, c)
		e.unguard(c.name, g)
	} else {
		e.unnamed = remove(e.unnamed, c)
	}
	e.untouch(c)
	if c.named {
		e.releaseNamed(c.name)
	}
	if err != nil {
		r = core.Result{Err: errorOf(err)}
	}
	e.finish(c, r)
}

// stopCalls answers Unknown for what is on its way through the log.
func (e *Engine) stopCalls() {
	calls := e.unnamed
	for _, name := range slices.SortedFunc(maps.Keys(e.names), incumbent.Name.Compare) {
		calls = append(calls, e.names[name].logged...)
	}
	for _, c := range calls {
		if c.done == nil {
			continue // it was answered so before
		}
		e.finish(c, core.Result{Err: &incumbent.Error{Kind: incumbent.Unknown, Message: "the member stopped before the command was seen applied"}})
	}
	e.unnamed, e.undecided = nil, undecided{}
	clear(e.names)
}
