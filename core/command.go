package core

import (
	"strings"
	"time"
	"unicode/utf8"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// opcode is the number of a command in Command.op of core.proto.
type opcode = wire.Number

const (
	opClaim         opcode = 10
	opAccept        opcode = 11
	opRelease       opcode = 12
	opRevoke        opcode = 13
	opTransfer      opcode = 14
	opExpire        opcode = 15
	opPin           opcode = 16
	opUnpin         opcode = 17
	opLeaveQueue    opcode = 18
	opOpenSession   opcode = 20
	opCloseSession  opcode = 21
	opExpireSession opcode = 22
	opExtendSession opcode = 23
	opTrimKeys      opcode = 30
	opRaiseIndex    opcode = 31
	opCheckpoint    opcode = 32
	opPutMember     opcode = 33
	opRemoveMember  opcode = 34
	numOpcodes             = 35
)

// Meta goes with any command. Texts of the origin longer than [MaxOriginBytes]
// are cut. KeyID (1 to [MaxKeyBytes] bytes, or none) makes the command apply at
// most once; KeyBase is an index known when the key was chosen.
//
// Judged is the index behind the state by whose policies a door let the caller do it:
// if a policy changes there or later, before the command's place in the log, the
// command does nothing and answers Unavailable, so that whoever repeats it is judged
// anew. 0: it holds whatever the policies say, as for operators and for what the
// cluster does itself. Members of a schema before [JudgedSchema] do not know it.
type Meta struct {
	Origin  Origin
	KeyID   []byte
	KeyBase incumbent.Index
	Judged  incumbent.Index
}

// Command is what can be encoded into the log. The encoded command is not
// checked: that is for [State.Apply], whose answer is the same everywhere.
// Durations are rounded up to a millisecond.
type Command interface {
	Encode(meta Meta) []byte
}

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
// Absent, at most [MaxAbsent] sessions; who is passed over keeps its place, and
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

// OpenSessionCommand opens a session. TTL 0: it lives until closed.
type OpenSessionCommand struct {
	ID  incumbent.SessionID
	TTL time.Duration
}

// CloseSessionCommand closes a session, frees its leases and leaves its queues.
// Others says that the caller may close another's, as a policy lets him.
type CloseSessionCommand struct {
	ID     incumbent.SessionID
	Reason string
	Absent []incumbent.SessionID
	Others bool
}

// ExpireSessionCommand ends a session whose deadline passed. It is void if the
// renewal has moved on or one of its leases is pinned.
type ExpireSessionCommand struct {
	ID      incumbent.SessionID
	Renewal uint64
	Late    time.Duration // after the deadline
	Absent  []incumbent.SessionID
}

// ExtendSessionCommand raises the logged ttl of a session.
type ExtendSessionCommand struct {
	ID  incumbent.SessionID
	TTL time.Duration
}

// TrimKeysCommand forgets the results of keyed commands up to an index.
type TrimKeysCommand struct{ Through incumbent.Index }

// RaiseIndexCommand lifts the index counter to a number, if it is lower.
type RaiseIndexCommand struct{ To incumbent.Index }

// EpochCommand lifts the index counter to [NextEpoch]: the first command after a
// restore or a recovery, which may have lost commands that were answered.
type EpochCommand struct{}

// CheckpointCommand marks an index at which members compare their hash: that of
// the View in its result.
type CheckpointCommand struct{}

// IsCheckpoint reports whether an encoded command is a [CheckpointCommand].
func IsCheckpoint(cmd []byte) bool {
	var c command
	return c.decode(cmd, MaxFamilyBytes) == nil && c.op == opCheckpoint
}

// Encode implements [Command].
func (c ClaimCommand) Encode(meta Meta) []byte {
	return encode(need(c.Token != 0), meta, opClaim, func(e *encoder) {
		e.name(c.Name)
		e.Text(2, c.Holder)
		e.Session(3, c.Session)
		e.Millis(4, c.TTL)
		e.Flag(5, c.Wait)
		e.Flag(6, c.Critical)
		e.Uint(7, uint64(c.Token))
	})
}

// Encode implements [Command].
func (c AcceptCommand) Encode(meta Meta) []byte {
	return encode(1, meta, opAccept, func(e *encoder) { e.Fixed(1, uint64(c.Token)) })
}

// Encode implements [Command].
func (c ReleaseCommand) Encode(meta Meta) []byte {
	return encode(need(len(c.Absent) > 0), meta, opRelease, func(e *encoder) {
		e.name(c.Name)
		e.Text(2, c.Holder)
		e.Session(3, c.Session)
		e.Uint(4, uint64(c.Token))
		e.Session(5, c.Next)
		e.ids(6, c.Absent)
	})
}

// Encode implements [Command].
func (c RevokeCommand) Encode(meta Meta) []byte {
	return encode(need(len(c.Absent) > 0), meta, opRevoke, func(e *encoder) {
		e.name(c.Name)
		e.Uint(2, uint64(c.Token))
		e.Text(3, c.By)
		e.Session(4, c.Next)
		e.Flag(5, c.AtDeadline)
		e.ids(6, c.Absent)
	})
}

// Encode implements [Command].
func (c TransferCommand) Encode(meta Meta) []byte {
	return encode(1, meta, opTransfer, func(e *encoder) {
		e.name(c.Name)
		e.Text(2, c.Holder)
		e.Session(3, c.Session)
		e.Uint(4, uint64(c.Token))
		e.Session(5, c.ToSession)
		e.Text(6, c.ToHolder)
		e.Flag(7, c.Waiting)
	})
}

// Encode implements [Command].
func (c ExpireCommand) Encode(meta Meta) []byte {
	return encode(need(len(c.Absent) > 0), meta, opExpire, func(e *encoder) {
		e.Fixed(1, uint64(c.Token))
		e.Uint(2, c.Renewal)
		e.Millis(3, c.Late)
		e.Session(4, c.Next)
		e.ids(5, c.Absent)
	})
}

// Encode implements [Command].
func (c PinCommand) Encode(meta Meta) []byte {
	return encode(1, meta, opPin, func(e *encoder) {
		e.name(c.Name)
		e.Text(2, c.Entity)
	})
}

// Encode implements [Command].
func (c UnpinCommand) Encode(meta Meta) []byte {
	return encode(1, meta, opUnpin, func(e *encoder) {
		e.name(c.Name)
		e.Text(2, c.Entity)
	})
}

// Encode implements [Command].
func (c LeaveQueueCommand) Encode(meta Meta) []byte {
	return encode(1, meta, opLeaveQueue, func(e *encoder) {
		e.name(c.Name)
		e.Session(2, c.Session)
		e.Text(3, c.Holder)
	})
}

// Encode implements [Command].
func (c OpenSessionCommand) Encode(meta Meta) []byte {
	return encode(1, meta, opOpenSession, func(e *encoder) {
		e.Session(1, c.ID)
		e.Millis(2, c.TTL)
	})
}

// Encode implements [Command].
func (c CloseSessionCommand) Encode(meta Meta) []byte {
	return encode(need(len(c.Absent) > 0), meta, opCloseSession, func(e *encoder) {
		e.Session(1, c.ID)
		e.Text(2, c.Reason)
		e.ids(3, c.Absent)
		e.Flag(4, c.Others)
	})
}

// Encode implements [Command].
func (c ExpireSessionCommand) Encode(meta Meta) []byte {
	return encode(need(len(c.Absent) > 0), meta, opExpireSession, func(e *encoder) {
		e.Session(1, c.ID)
		e.Uint(2, c.Renewal)
		e.Millis(3, c.Late)
		e.ids(4, c.Absent)
	})
}

// Encode implements [Command].
func (c ExtendSessionCommand) Encode(meta Meta) []byte {
	return encode(1, meta, opExtendSession, func(e *encoder) {
		e.Session(1, c.ID)
		e.Millis(2, c.TTL)
	})
}

// Encode implements [Command].
func (c TrimKeysCommand) Encode(meta Meta) []byte {
	return encode(1, meta, opTrimKeys, func(e *encoder) { e.Uint(1, uint64(c.Through)) })
}

// Encode implements [Command].
func (c RaiseIndexCommand) Encode(meta Meta) []byte {
	return encode(1, meta, opRaiseIndex, func(e *encoder) { e.Uint(1, uint64(c.To)) })
}

// Encode implements [Command].
func (c EpochCommand) Encode(meta Meta) []byte {
	return encode(2, meta, opRaiseIndex, func(e *encoder) { e.Flag(2, true) })
}

// Encode implements [Command].
func (c CheckpointCommand) Encode(meta Meta) []byte {
	return encode(1, meta, opCheckpoint, func(*encoder) {})
}

// need is the schema of a command that says something which version 2 brought,
// or does not.
func need(second bool) uint64 {
	if second {
		return 2
	}
	return 1
}

// encode writes a command whose contents a member of schema knows, and none
// before it.
func encode(schema uint64, meta Meta, op opcode, body func(*encoder)) []byte {
	var buf [256]byte // most commands are smaller; the exact copy is what lives on
	e := encoder{wire.Writer{B: buf[:0]}}
	if meta.Judged != 0 {
		schema = max(schema, JudgedSchema)
	}
	e.Uint(1, schema)
	o := meta.Origin
	e.origin(2, &Origin{At: o.At, Door: cut(o.Door), Address: cut(o.Address), Principal: cut(o.Principal)})
	if len(meta.KeyID) > 0 {
		m := e.Begin(3)
		e.Bytes(1, meta.KeyID)
		e.Uint(2, uint64(meta.KeyBase))
		e.End(m)
	}
	e.Uint(4, uint64(meta.Judged))
	m := e.Begin(op)
	body(&e)
	e.End(m)
	return append(make([]byte, 0, len(e.B)), e.B...)
}

// cut shortens a text to MaxOriginBytes at the boundary of a character.
func cut(s string) string {
	if len(s) > MaxOriginBytes {
		n := MaxOriginBytes
		for n > 0 && !utf8.RuneStart(s[n]) {
			n--
		}
		s = s[:n]
	}
	return strings.ToValidUTF8(s, "")
}
