package lease

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// ClaimCommand grants a free lease, extends or accepts the caller's own, or
// (Wait) takes a place in its queue. TTL is given exactly if Session is not.
// Token, unless 0, is the holding it means: the claim then extends or accepts
// that one and answers NotHolder for any other, and never begins one.
type ClaimCommand struct {
	Name     incumbent.Name
	Holder   string
	Session  incumbent.SessionID
	TTL      time.Duration
	Wait     bool // needs a session
	Critical bool // its extensions are refused last
	Token    incumbent.Token
}

// AcceptCommand records that an offer was accepted. Nobody waits for it: the leader
// acknowledges the first extension of an offer like any other.
type AcceptCommand struct{ Token incumbent.Token }

// ReleaseCommand frees a lease. Token, or Holder and Session, or all of them
// say whose.
//
// Next is preferred among the waiters, here and in other commands. Without it,
// or if it does not wait, the first waiter is next whose session is none of
// Absent, at most [core.MaxAbsent] sessions; who is passed over keeps its place, and
// no more than [MaxAbsent] places are. If all that were looked at are absent the
// first one is offered the lease all the same: it may come back, and if it does
// not the offer lapses and the next is tried, whereas a lease that is free while
// somebody waits would wait for a command.
type ReleaseCommand struct {
	Name    incumbent.Name
	Holder  string
	Session incumbent.SessionID
	Token   incumbent.Token
	Next    incumbent.SessionID
	Absent  []incumbent.SessionID
}

// RevokeCommand frees a lease whoever holds it: now, or (AtDeadline) as soon as
// its deadline passes, until which it cannot be extended. Token, unless 0, is
// the holding it means.
type RevokeCommand struct {
	Name       incumbent.Name
	Token      incumbent.Token
	By         string
	Next       incumbent.SessionID
	AtDeadline bool
	Absent     []incumbent.SessionID
}

// TransferCommand offers a lease to a session. Holder, Session and, unless 0,
// Token are the present holder's. ToHolder may be left out for a session in
// the queue; one that does not wait must be the caller's own, unless that is an
// operator, and with Waiting none may be.
type TransferCommand struct {
	Name      incumbent.Name
	Holder    string
	Session   incumbent.SessionID
	Token     incumbent.Token
	ToSession incumbent.SessionID
	ToHolder  string
	Waiting   bool // only who stands in the queue may have it
}

// ExpireCommand frees a lease whose deadline passed, or an offer not accepted.
// It is void if token or renewal have moved on or, save for an offer, a pin is
// there.
type ExpireCommand struct {
	Token   incumbent.Token
	Renewal uint64
	Late    time.Duration // after the deadline
	Next    incumbent.SessionID
	Absent  []incumbent.SessionID
}

// PinCommand keeps a lease from expiring for as long as Entity pins it.
type PinCommand struct {
	Name   incumbent.Name
	Entity string
}

// UnpinCommand takes the pin of Entity away.
type UnpinCommand struct {
	Name   incumbent.Name
	Entity string
}

// LeaveQueueCommand gives up the place of a session in a queue, all its places
// if Holder is "". It ends no holding, and no offer.
type LeaveQueueCommand struct {
	Name    incumbent.Name
	Session incumbent.SessionID
	Holder  string
}

// Encode implements [core.Command].
func (c ClaimCommand) Encode(meta core.Meta) []byte {
	return encode(meta, doClaim, func(e *writer) {
		e.name(c.Name)
		e.Text(2, c.Holder)
		e.Session(3, c.Session)
		e.Millis(4, c.TTL)
		e.Flag(5, c.Wait)
		e.Flag(6, c.Critical)
		e.Uint(7, uint64(c.Token))
	})
}

// Encode implements [core.Command].
func (c AcceptCommand) Encode(meta core.Meta) []byte {
	return encode(meta, doAccept, func(e *writer) { e.Fixed(1, uint64(c.Token)) })
}

// Encode implements [core.Command].
func (c ReleaseCommand) Encode(meta core.Meta) []byte {
	return encode(meta, doRelease, func(e *writer) {
		e.name(c.Name)
		e.Text(2, c.Holder)
		e.Session(3, c.Session)
		e.Uint(4, uint64(c.Token))
		e.Session(5, c.Next)
		e.Sessions(6, c.Absent)
	})
}

// Encode implements [core.Command].
func (c RevokeCommand) Encode(meta core.Meta) []byte {
	return encode(meta, doRevoke, func(e *writer) {
		e.name(c.Name)
		e.Uint(2, uint64(c.Token))
		e.Text(3, c.By)
		e.Session(4, c.Next)
		e.Flag(5, c.AtDeadline)
		e.Sessions(6, c.Absent)
	})
}

// Encode implements [core.Command].
func (c TransferCommand) Encode(meta core.Meta) []byte {
	return encode(meta, doTransfer, func(e *writer) {
		e.name(c.Name)
		e.Text(2, c.Holder)
		e.Session(3, c.Session)
		e.Uint(4, uint64(c.Token))
		e.Session(5, c.ToSession)
		e.Text(6, c.ToHolder)
		e.Flag(7, c.Waiting)
	})
}

// Encode implements [core.Command].
func (c ExpireCommand) Encode(meta core.Meta) []byte {
	return encode(meta, doExpire, func(e *writer) {
		e.Fixed(1, uint64(c.Token))
		e.Uint(2, c.Renewal)
		e.Millis(3, c.Late)
		e.Session(4, c.Next)
		e.Sessions(5, c.Absent)
	})
}

// Encode implements [core.Command].
func (c PinCommand) Encode(meta core.Meta) []byte {
	return encode(meta, doPin, func(e *writer) {
		e.name(c.Name)
		e.Text(2, c.Entity)
	})
}

// Encode implements [core.Command].
func (c UnpinCommand) Encode(meta core.Meta) []byte {
	return encode(meta, doUnpin, func(e *writer) {
		e.name(c.Name)
		e.Text(2, c.Entity)
	})
}

// Encode implements [core.Command].
func (c LeaveQueueCommand) Encode(meta core.Meta) []byte {
	return encode(meta, doLeaveQueue, func(e *writer) {
		e.name(c.Name)
		e.Session(2, c.Session)
		e.Text(3, c.Holder)
	})
}

// verb is the number of a command in LeaseCommand of lease.proto.
type verb = wire.Number

const (
	doClaim verb = iota + 1
	doAccept
	doRelease
	doRevoke
	doTransfer
	doExpire
	doPin
	doUnpin
	doLeaveQueue
	numVerbs
)

// writer writes commands and records.
type writer struct{ wire.Writer }

// encode writes a command: one field, that of its verb.
func encode(meta core.Meta, v verb, body func(*writer)) []byte {
	var buf [256]byte // most commands are smaller
	e := writer{wire.Writer{B: buf[:0]}}
	m := e.Begin(v)
	body(&e)
	e.End(m)
	return core.EncodeFamily(meta, Family{}, e.B)
}

// name is the first field wherever there is one, also when it is empty.
func (e *writer) name(n incumbent.Name) {
	m := e.Begin(1)
	e.Text(1, n.Namespace)
	e.Text(2, n.Model)
	e.Text(3, n.Lease)
	e.End(m)
}
