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

// OpenSessionCommand opens a session. TTL 0: it lives until closed.
type OpenSessionCommand struct {
	ID  incumbent.SessionID
	TTL time.Duration
}

// CloseSessionCommand closes a session, with all that families have of it. Others says
// that the caller may close another's, as a policy lets him. Absent, at most
// [MaxAbsent], are sessions that are passed over where something is handed on: see the
// package of leases.
type CloseSessionCommand struct {
	ID     incumbent.SessionID
	Reason string
	Absent []incumbent.SessionID
	Others bool
}

// ExpireSessionCommand ends a session whose deadline passed. It is void if the
// renewal has moved on or a record keeps the session ([Keeping]).
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
		e.Sessions(3, c.Absent)
		e.Flag(4, c.Others)
	})
}

// Encode implements [Command].
func (c ExpireSessionCommand) Encode(meta Meta) []byte {
	return encode(need(len(c.Absent) > 0), meta, opExpireSession, func(e *encoder) {
		e.Session(1, c.ID)
		e.Uint(2, c.Renewal)
		e.Millis(3, c.Late)
		e.Sessions(4, c.Absent)
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
	e.head(schema, meta)
	m := e.Begin(op)
	body(&e)
	e.End(m)
	return append(make([]byte, 0, len(e.B)), e.B...)
}

// encodeBytes is encode for contents that are there: it takes the room it needs at once,
// for a transaction has hundreds of them.
func encodeBytes(schema uint64, meta Meta, op opcode, body []byte) []byte {
	e := encoder{wire.Writer{B: make([]byte, 0, meta.room()+len(body))}}
	e.head(schema, meta)
	m := e.Begin(op)
	e.B = append(e.B, body...)
	e.End(m)
	return e.B
}

// head writes what stands before the contents of a command.
func (e *encoder) head(schema uint64, meta Meta) {
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
}

// room is how many bytes head takes, about, with the tag and length of what follows.
func (m *Meta) room() int {
	const least, most = 8, 48
	texts := len(m.KeyID) + len(m.Origin.Door) + len(m.Origin.Address) + len(m.Origin.Principal)
	if texts == 0 && m.Judged == 0 {
		return least
	}
	return most + texts
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
