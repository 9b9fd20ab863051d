package lease

import (
	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// Applied takes in what commands did, in log order.
func (b *Book) Applied(changes []core.Change) {
	for i := range changes {
		c := &changes[i]
		if c.Session != nil {
			b.sessionChanged(c)
		}
		if l, ok := leases.ChangeOf(c); ok {
			b.leaseChanged(&l)
		}
		if c.Session == nil && c.SessionBefore != nil {
			b.dropSession(c.SessionBefore.ID)
		}
		if c.Family != nil && c.Family.Deadline != nil {
			b.deadlineChanged(c.Family.Deadline)
		}
	}
}

func (b *Book) sessionChanged(c *core.Change) {
	i := b.putSession(c.Session)
	s := &b.sessions[i]
	switch c.What {
	case core.SessionOpen:
		s.heard = b.now
	case core.SessionTTL:
		s.heard = b.now
		s.deadline = max(s.deadline, b.now+b.hold(nanos(s.ttl)))
		b.settle(sessionRef(i))
	}
}

func (b *Book) leaseChanged(c *leases.Change) {
	before := c.LeaseBefore
	if before != nil && before.Token != 0 && (c.Lease == nil || c.Lease.Token != before.Token) {
		b.dropLease(before.Token)
	}
	if c.Lease == nil || c.Lease.Token == 0 {
		return
	}
	i := b.putLease(c.Lease)
	switch c.What {
	case leases.Offered:
		b.offer(i)
	case leases.Accepted:
		if c.Session != nil { // by a claim; else it is the leader that says so
			b.restart(i)
			b.hear(c.Session.ID)
		}
	case leases.Granted, leases.Extended:
		b.restart(i)
		b.hear(c.Lease.Session)
	case leases.Queued:
		b.hear(c.Session.ID)
	case leases.Unpinned:
		if len(c.Lease.Pins) == 0 && !c.Lease.Revoking && b.leases[i].flags&offered == 0 {
			b.restart(i)
		}
	}
}

// offer begins the window in which an offer is to be accepted: until then its
// session does not keep it.
func (b *Book) offer(i int32) {
	l := &b.leases[i]
	l.flags |= offered
	l.deadline = b.now + b.offerWindow
	b.arm(leaseRef(i))
}

// hear remembers a sign of life of a session's client.
func (b *Book) hear(id incumbent.SessionID) {
	if i, ok := b.byID[id]; ok {
		b.sessions[i].heard = b.now
	}
}

// restart gives a lease, or the session that owns it, a full ttl from now: the
// command counts as an extension.
func (b *Book) restart(i int32) {
	l := &b.leases[i]
	if l.owner != noSlot {
		s := &b.sessions[l.owner]
		s.deadline = max(s.deadline, b.now+b.hold(nanos(s.ttl)))
		return
	}
	l.deadline = max(l.deadline, b.now+b.hold(nanos(l.ttl)))
}

// putSession makes a slot say what a session is.
func (b *Book) putSession(n *core.Session) int32 {
	i, ok := b.byID[n.ID]
	if !ok {
		i = takeSlot(&b.freeSessions, &b.sessions)
		b.byID[n.ID] = i
		b.sessions[i] = sessionSlot{id: n.ID, heard: never, timer: timer{flags: used}}
	}
	s := &b.sessions[i]
	moved := s.renewal != n.Renewal
	s.renewal, s.ttl = n.Renewal, millis(n.TTL)
	if !ok {
		s.deadline = b.now + b.hold(nanos(s.ttl))
	}
	if moved {
		b.settle(sessionRef(i))
	}
	return i
}

// settle ends a proposed expiry that a command has made void. One that was
// handed out by Due stays so: whoever has it looks again before it proposes.
func (b *Book) settle(r ref) {
	b.timer(r).flags &^= expiring
	b.arm(r)
}

func (b *Book) dropSession(id incumbent.SessionID) {
	i, ok := b.byID[id]
	if !ok {
		return
	}
	delete(b.byID, id)
	s := &b.sessions[i]
	s.flags |= dead
	b.freeSession(i)
}

// freeSession gives a slot back once nothing refers to it.
func (b *Book) freeSession(i int32) {
	if s := &b.sessions[i]; s.flags&dead != 0 && s.leases == 0 {
		*s = sessionSlot{}
		b.freeSessions = append(b.freeSessions, i)
	}
}

// putLease makes a slot say what a held lease is.
func (b *Book) putLease(n *leases.Lease) int32 {
	i, ok := b.byToken.get(n.Token)
	if !ok {
		i = takeSlot(&b.freeLeases, &b.leases)
		b.byToken.put(n.Token, i)
		b.leases[i] = leaseSlot{token: n.Token, owner: b.ownerOf(n), timer: timer{flags: used}}
		if o := b.leases[i].owner; o != noSlot {
			b.sessions[o].leases++
		}
	}
	l := &b.leases[i]
	moved := l.renewal != n.Renewal
	was := l.flags
	l.renewal, l.ttl = n.Renewal, millis(n.TTL)
	kept := used | inDue | expiring
	if n.Offered {
		kept |= offered // if it is: what was accepted stays so
	}
	l.flags = l.flags&kept | flagsOf(n)
	b.setDeadline(i, was, !ok) // by what its session was promised under the pin that a revocation ends
	b.countOwned(l.owner, was, l.flags)
	if moved {
		b.settle(leaseRef(i))
	}
	return i
}

func (b *Book) ownerOf(n *leases.Lease) int32 {
	if n.Session.IsZero() {
		return noSlot
	}
	o, ok := b.byID[n.Session]
	if !ok {
		panic("lease: a lease is owned by a session that is not open")
	}
	return o
}

func flagsOf(n *leases.Lease) flags {
	var f flags
	if len(n.Pins) > 0 && !n.Revoking { // what is being revoked no pin keeps
		f |= pinned
	}
	if n.Revoking {
		f |= revoking
	}
	if n.Waiting > 0 {
		f |= waited
	}
	return f
}

// setDeadline gives a slot the deadline that its present kind asks for, where
// it had none.
func (b *Book) setDeadline(i int32, was flags, isNew bool) {
	l := &b.leases[i]
	switch {
	case l.owner != noSlot && l.flags&revoking != 0 && (isNew || was&(revoking|offered) == 0):
		// From here on the session's extensions no longer count for the lease.
		l.deadline = b.promised(l.owner)
	case isNew:
		l.deadline = b.now + b.hold(nanos(l.ttl))
	}
}

// promised is until when a session has been told, at the most, that it lives.
// One without ttl was told the longest there is.
func (b *Book) promised(session int32) int64 {
	s := &b.sessions[session]
	if s.ttl == 0 {
		return b.now + b.hold(int64(incumbent.MaxTTL))
	}
	return max(s.deadline, b.now)
}

// countOwned keeps the session's counts of pinned and revoked leases. The clock
// of a session starts anew when a pinned lease of its is unpinned or ends, but not with an
// offer that nobody accepted: its pin kept nothing. It counts once none is pinned.
func (b *Book) countOwned(owner int32, was, is flags) {
	if owner == noSlot {
		return
	}
	s := &b.sessions[owner]
	s.revoked += bit(is, revoking) - bit(was, revoking)
	d := bit(is, pinned) - bit(was, pinned)
	s.pins += d
	if d < 0 && was&offered == 0 {
		s.deadline = max(s.deadline, b.now+b.hold(nanos(s.ttl)))
	}
	if d < 0 && s.pins == 0 {
		b.arm(sessionRef(owner))
	}
}

func bit(f, which flags) int32 {
	if f&which != 0 {
		return 1
	}
	return 0
}

func (b *Book) dropLease(token incumbent.Token) {
	i, ok := b.byToken.get(token)
	if !ok {
		return
	}
	b.byToken.remove(token)
	l := &b.leases[i]
	owner, was := l.owner, l.flags
	*l = leaseSlot{}
	b.freeLeases = append(b.freeLeases, i)
	if owner != noSlot {
		b.countOwned(owner, was, 0)
		b.sessions[owner].leases--
		b.freeSession(owner)
	}
}
