package core

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// command is a decoded Command. The state keeps one and decodes every command
// into it: byte slices alias the log entry and are copied or interned only if
// they stay. Which fields mean something is up to op.
type command struct {
	schema uint64 // 0: it names none
	needs  uint64 // the schema that what it says needs
	op     opcode

	at                       int64
	door, address, principal []byte

	body    []byte // of a command of a family
	keyID   []byte // nil: no key
	keyBase uint64
	judged  uint64 // first index at which no policy may have changed; 0: any may

	name                   []byte // of a member
	text                   []byte // reason or version
	absent                 []byte // sessions passed over in hand-overs, one behind the other
	peerAddress, clientURL []byte
	session                incumbent.SessionID
	ttl, late              int64  // milliseconds
	id                     uint64 // of a member
	renewal                uint64
	index                  uint64 // of members: the schema
	epoch, learner         bool
	others                 bool // another's session may be closed

	origin *Origin // see State.origin
}

// slot says into which field of a command a protobuf field goes.
type slot uint8

const (
	slotNone slot = iota
	slotName
	slotText
	slotSession
	slotTTL
	slotLate
	slotID
	slotRenewal
	slotIndex
	slotOthers

	slotsOfSchema2 // what follows, a member of schema 1 does not know
	slotAbsent
	slotEpoch
	slotPeerAddress
	slotClientURL
	slotMemberSchema
	slotLearner
)

// layouts gives, for each command, the slots of its fields from number 1.
// A nil layout is a command that this code does not know.
var layouts = [numOpcodes][]slot{
	opOpenSession:   {slotSession, slotTTL},
	opCloseSession:  {slotSession, slotText, slotAbsent, slotOthers},
	opExpireSession: {slotSession, slotRenewal, slotLate, slotAbsent},
	opExtendSession: {slotSession, slotTTL},
	opTrimKeys:      {slotIndex},
	opRaiseIndex:    {slotIndex, slotEpoch},
	opCheckpoint:    {},
	opPutMember:     {slotID, slotName, slotPeerAddress, slotClientURL, slotMemberSchema, slotLearner, slotText},
	opRemoveMember:  {slotID},
}

// decode reads a command of at most limit bytes; what it returns is the caller's
// fault.
func (c *command) decode(b []byte, limit int) *incumbent.Error {
	*c = command{}
	if len(b) > limit {
		return incumbent.Errorf(incumbent.TooLarge, "command has %d bytes, limit is %d", len(b), limit)
	}
	c.schema = uint64(RequiredSchema(b))
	if c.schema == 0 {
		return fail(incumbent.Invalid, "command names no schema")
	}
	if c.schema > SchemaVersion {
		// Other members may know it and do what it says, so that this one must not go
		// on: see checkSchema.
		return nil
	}
	switch ok := c.decodeFields(b); {
	case !ok:
		return fail(incumbent.Invalid, "malformed command")
	case c.op < firstFamily && len(b) > MaxCommandBytes:
		return tooLarge("command", "MaxCommandBytes", MaxCommandBytes)
	case c.schema < c.needs:
		// A member that knows no later schema takes it for malformed.
		return fail(incumbent.Invalid, "malformed command")
	case c.op == 0:
		return fail(incumbent.Invalid, "command says nothing to do")
	}
	return nil
}

func (c *command) decodeFields(b []byte) bool {
	return wire.Fields(b, func(f wire.Field) bool {
		switch {
		case f.Num == 1:
			return f.Type == protowire.VarintType // it is c.schema
		case f.Num == 4:
			c.needs = JudgedSchema
			return f.Uint(&c.judged)
		case f.Type != protowire.BytesType:
			return false
		case f.Num == 2:
			return c.decodeOrigin(f.B)
		case f.Num == 3:
			return c.decodeKey(f.B)
		default:
			return c.decodeOp(f.Num, f.B)
		}
	})
}

// RequiredSchema returns the schema version that a member must know to apply an
// encoded command: the lowest that has all it says, which stands first in every
// command. 0: the bytes are no command.
func RequiredSchema(cmd []byte) uint32 {
	if len(cmd) < 2 || cmd[0] != 1<<3|byte(protowire.VarintType) {
		return 0
	}
	v, n := protowire.ConsumeVarint(cmd[1:])
	if n < 0 || v > 1<<32-1 {
		return 0
	}
	return uint32(v)
}

func (c *command) decodeOrigin(b []byte) bool {
	return wire.Fields(b, func(f wire.Field) bool {
		switch f.Num {
		case 1:
			c.at = int64(f.N)
			return f.Type == protowire.VarintType && c.at >= 0 && c.at <= maxAtMillis
		case 2:
			return f.Text(&c.door) && len(f.B) <= MaxOriginBytes
		case 3:
			return f.Text(&c.address) && len(f.B) <= MaxOriginBytes
		case 4:
			return f.Text(&c.principal) && len(f.B) <= MaxOriginBytes
		}
		return false
	})
}

func (c *command) decodeKey(b []byte) bool {
	return wire.Fields(b, func(f wire.Field) bool {
		switch f.Num {
		case 1:
			return f.Bytes(&c.keyID)
		case 2:
			return f.Uint(&c.keyBase)
		}
		return false
	}) && len(c.keyID) > 0
}

func (c *command) decodeOp(op opcode, b []byte) bool {
	if c.op == 0 && op >= firstFamily {
		c.op, c.body, c.needs = op, b, max(c.needs, familySchema)
		return true
	}
	if c.op != 0 || op >= numOpcodes || layouts[op] == nil {
		return false
	}
	c.op = op
	if op >= opPutMember {
		c.needs = max(c.needs, memberSchema)
	}
	layout := layouts[op]
	return wire.Fields(b, func(f wire.Field) bool {
		if int(f.Num) > len(layout) {
			return false
		}
		if layout[f.Num-1] > slotsOfSchema2 {
			c.needs = max(c.needs, 2)
		}
		return c.set(layout[f.Num-1], f)
	})
}

// set stores one field of an operation, false if its wire type or value
// cannot be.
func (c *command) set(s slot, f wire.Field) bool {
	switch s {
	case slotName:
		return f.Text(&c.name)
	case slotText:
		return f.Text(&c.text)
	case slotSession:
		return f.Session(&c.session)
	case slotAbsent:
		return f.Sessions(&c.absent, MaxAbsent)
	case slotPeerAddress:
		return f.Text(&c.peerAddress)
	case slotClientURL:
		return f.Text(&c.clientURL)
	case slotID:
		return f.Fixed(&c.id)
	}
	if f.Type != protowire.VarintType {
		return false
	}
	switch s {
	case slotTTL:
		c.ttl = int64(f.N)
	case slotLate:
		c.late = int64(f.N)
	case slotRenewal:
		c.renewal = f.N
	case slotIndex:
		c.index = f.N
	case slotMemberSchema:
		c.index = f.N
		return f.N <= 1<<32-1
	case slotOthers:
		c.others = f.N != 0
	case slotEpoch:
		c.epoch = f.N != 0
	case slotLearner:
		c.learner = f.N != 0
	default:
		return false
	}
	return true
}
