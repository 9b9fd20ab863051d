package lease

import (
	"maps"
	"slices"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// guard keeps the order of what one client wants of one lease: no answer from
// memory overtakes a command of the same client, and no command overtakes a
// claim that still waits to be answered from memory.
type guard struct {
	logged []*call // commands on their way through the log
	reads  []*call // claims that wait for a confirmation
}

// maxGuarded is how many commands of one lease are compared. Beyond, any claim
// takes the way through the log: that is always right.
const maxGuarded = 64

func (g *guard) has(c client) bool {
	return g != nil && (len(g.logged) > maxGuarded ||
		slices.ContainsFunc(g.logged, func(o *call) bool { return o.client.sameAs(c) }))
}

func (e *Engine) guard(name incumbent.Name) *guard {
	g := e.names[name]
	if g == nil {
		g = new(guard)
		e.names[name] = g
	}
	return g
}

func (e *Engine) unguard(name incumbent.Name, g *guard) {
	if len(g.logged) == 0 && len(g.reads) == 0 {
		delete(e.names, name)
	}
}

// Submit takes a call.
func (e *Engine) Submit(c *call) {
	e.stats.Calls++
	if e.late(c) {
		return
	}
	m, claim := c.cmd.(core.ClaimCommand)
	if claim && e.leading {
		e.book.claimed(m.Session)
	}
	if claim && len(c.KeyID) == 0 && e.readable(c, m) {
		c.read = true
		g := e.guard(c.name)
		g.reads = append(g.reads, c)
		e.reading = append(e.reading, c)
		return
	}
	e.log(c)
}

// late drops a call whose deadline has passed.
func (e *Engine) late(c *call) bool {
	if c.deadline == 0 || e.now < c.deadline {
		return false
	}
	e.stats.Dropped++
	e.finish(c, core.Result{Err: incumbent.Errorf(incumbent.DeadlineExceeded, "deadline passed before the request was served")})
	return true
}

func (e *Engine) finish(c *call, r core.Result) {
	e.out.Answered = append(e.out.Answered, Answer{c.done, r})
}

// readable reports whether a claim can be answered without the log: it is held
// by another, or it extends the caller's own. The latter is stored.
func (e *Engine) readable(c *call, m core.ClaimCommand) bool {
	l := e.view.Lease(m.Name)
	if l.Free() || e.names[m.Name].has(c.client) {
		return false
	}
	if l.Holder != m.Holder || l.Session != m.Session {
		return !m.Wait
	}
	return e.extendOwn(l, m)
}

// extendOwn stores a claim of the holder as an extension, if it is one that the
// log need not know.
func (e *Engine) extendOwn(l *core.Lease, m core.ClaimCommand) bool {
	if !e.leading || l.Offered || l.Revoking || m.TTL > l.TTL || l.Critical != m.Critical {
		return false
	}
	i, ok := e.book.byToken.get(l.Token)
	if !ok {
		return false
	}
	if _, blocked := e.book.blocked(leaseRef(i)); blocked {
		return false
	}
	e.book.extend(leaseRef(i), 0) // what is answered names the logged ttl
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
	m := c.cmd.(core.ClaimCommand)
	l := e.view.Lease(m.Name)
	own := !l.Free() && l.Holder == m.Holder && l.Session == m.Session
	if own && term != e.term || !e.readable(c, m) {
		e.log(c)
		return
	}
	r := core.Result{Index: e.view.Index(), Lease: l}
	if own {
		e.stats.ClaimsExtended++
		r.Session = e.view.Session(l.Session)
	} else {
		e.stats.ClaimsDenied++
		r.Err = &incumbent.Error{Kind: incumbent.Held, Message: "another holds the lease"}
	}
	e.finish(c, r)
}

func (e *Engine) unread(c *call) {
	c.read = false
	g := e.names[c.name]
	g.reads = remove(g.reads, c)
	e.unguard(c.name, g)
}

// remove takes a call out of a list in which it mostly stands in front.
func remove(list []*call, c *call) []*call {
	if i := slices.Index(list, c); i >= 0 {
		return slices.Delete(list, i, i+1)
	}
	return list
}

// log makes a command of a call.
func (e *Engine) log(c *call) {
	if c.named {
		e.identify(c)
		e.pushReads(c)
	}
	e.send(c)
}

// identify finds out whose release it is that names only a token.
func (e *Engine) identify(c *call) {
	m, ok := c.cmd.(core.ReleaseCommand)
	if !ok || m.Holder != "" {
		return
	}
	if l := e.view.LeaseByToken(m.Token); l != nil && l.Name == m.Name {
		c.client = client{l.Holder, l.Session}
	}
}

// pushReads sends claims into the log that the same client has sent before c:
// their answer would come from a state after it.
func (e *Engine) pushReads(c *call) {
	g := e.names[c.name]
	if g == nil || len(g.reads) == 0 {
		return
	}
	for _, r := range slices.Clone(g.reads) {
		if r.client.sameAs(c.client) {
			e.unread(r)
			e.send(r)
		}
	}
}

func (e *Engine) send(c *call) {
	if c.named {
		g := e.guard(c.name)
		g.logged = append(g.logged, c)
	} else {
		e.unnamed = append(e.unnamed, c)
	}
	e.touch(c)
	e.stats.Commands++
	e.out.Proposals = append(e.out.Proposals, Proposal{
		Command: e.command(c).Encode(c.meta()), Deadline: c.Deadline, Reserve: reserve(c.cmd), Ticket: Ticket{call: c},
	})
}

// command names the next waiter where a command may free a lease.
func (e *Engine) command(c *call) core.Command {
	switch m := c.cmd.(type) {
	case core.ReleaseCommand:
		m.Next = e.next(e.view.Lease(m.Name))
		return m
	case core.RevokeCommand:
		m.Next = e.next(e.view.Lease(m.Name))
		return m
	}
	return c.cmd
}

// touch marks what a command may end: extensions of it wait for the outcome.
// Only commands of the holder or of an operator do; others must not be able to
// delay a holder.
func (e *Engine) touch(c *call) {
	c.mark = mark{}
	if !e.leading {
		return
	}
	if m, ok := c.cmd.(core.CloseSessionCommand); ok {
		if i, ok := e.book.byID[m.ID]; ok {
			c.mark.session = m.ID
			e.book.sessions[i].touched++
		}
		return
	}
	l := e.view.Lease(c.name)
	if l.Free() || !ends(c.cmd, l) {
		return
	}
	if i, ok := e.book.byToken.get(l.Token); ok {
		c.mark.token = l.Token
		e.book.leases[i].touched++
	}
}

// ends reports whether a command may end a holding.
func ends(cmd core.Command, l *core.Lease) bool {
	switch m := cmd.(type) {
	case core.ReleaseCommand:
		return m.Token == l.Token || m.Holder == l.Holder && m.Session == l.Session
	case core.TransferCommand:
		return m.Holder == l.Holder && m.Session == l.Session
	case core.LeaveQueueCommand:
		return l.Offered && m.Session == l.Session
	case core.RevokeCommand:
		return true
	}
	return false
}

// untouch takes the mark away. It may be gone with what it marked, or with the
// term.
func (e *Engine) untouch(c *call) {
	m := c.mark
	if m == (mark{}) || !e.leading {
		return
	}
	if i, ok := e.book.byToken.get(m.token); ok && e.book.leases[i].touched > 0 {
		e.book.leases[i].touched--
	}
	if i, ok := e.book.byID[m.session]; ok && e.book.sessions[i].touched > 0 {
		e.book.sessions[i].touched--
	}
	e.release(key(m))
}

// Proposed takes the outcome of a proposal. Applied has told of its changes.
func (e *Engine) Proposed(t Ticket, r core.Result, err error) {
	switch {
	case t.call != nil:
		e.callDone(t.call, r, err)
	case t.expiry != nil:
		e.expiryDone(t.expiry, err)
	case t.logged != nil:
		e.loggedDone(t.logged, r, err)
	}
}

func (e *Engine) callDone(c *call, r core.Result, err error) {
	if c.named {
		g := e.names[c.name]
		g.logged = remove(g.logged, c)
		e.unguard(c.name, g)
	} else {
		e.unnamed = remove(e.unnamed, c)
	}
	e.untouch(c)
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
		e.finish(c, core.Result{Err: &incumbent.Error{Kind: incumbent.Unknown, Message: "the member stopped before the command was seen applied"}})
	}
	e.unnamed = nil
	clear(e.names)
}
