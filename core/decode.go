package core

import (
	"encoding/binary"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
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

	namespace, model, lease []byte
	holder                  []byte // of Transfer: the present holder
	toHolder                []byte
	text                    []byte // pinning entity, revoker, reason or version
	absent                  []byte // sessions passed over in hand-overs, one behind the other
	peerAddress, clientURL  []byte
	session                 incumbent.SessionID
	other                   incumbent.SessionID // preferred waiter, or target of a transfer
	ttl, late               int64               // milliseconds
	token, renewal          uint64              // of members: token is the id
	index                   uint64              // of members: the schema
	wait, critical, atEnd   bool
	epoch, learner          bool

	origin    *Origin               // see State.origin
	absentIDs []incumbent.SessionID // see State.absent
}

// slot says into which field of a command a protobuf field goes.
type slot uint8

const (
	slotNone slot = iota
	slotName
	slotHolder
	slotToHolder
	slotText
	slotSession
	slotOther
	slotTTL
	slotLate
	slotFixedToken
	slotToken
	slotRenewal
	slotIndex
	slotWait
	slotCritical
	slotAtEnd

	slotsOfSchema2 // what follows, a member of schema 1 does not know
	slotExpected
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
	opClaim:         {slotName, slotHolder, slotSession, slotTTL, slotWait, slotCritical, slotExpected},
	opAccept:        {slotFixedToken},
	opRelease:       {slotName, slotHolder, slotSession, slotToken, slotOther, slotAbsent},
	opRevoke:        {slotName, slotToken, slotText, slotOther, slotAtEnd, slotAbsent},
	opTransfer:      {slotName, slotHolder, slotSession, slotToken, slotOther, slotToHolder},
	opExpire:        {slotFixedToken, slotRenewal, slotLate, slotOther, slotAbsent},
	opPin:           {slotName, slotText},
	opUnpin:         {slotName, slotText},
	opLeaveQueue:    {slotName, slotSession, slotHolder, slotAbsent},
	opOpenSession:   {slotSession, slotTTL},
	opCloseSession:  {slotSession, slotText, slotAbsent},
	opExpireSession: {slotSession, slotRenewal, slotLate, slotAbsent},
	opExtendSession: {slotSession, slotTTL},
	opTrimKeys:      {slotIndex},
	opRaiseIndex:    {slotIndex, slotEpoch},
	opCheckpoint:    {},
	opPutMember:     {slotFixedToken, slotHolder, slotPeerAddress, slotClientURL, slotMemberSchema, slotLearner, slotText},
	opRemoveMember:  {slotFixedToken},
}

// field is one field of a message: its value is n or b.
type field struct {
	num protowire.Number
	typ protowire.Type
	n   uint64
	b   []byte
}

// reader takes a message apart. Each field may come once, and only the wire
// types that core.proto uses are known, so that bytes mean one thing or nothing.
type reader struct {
	rest []byte
	seen uint64
	bad  bool
}

// next returns the next field, false at the end or where the bytes are bad.
func (r *reader) next() (f field, ok bool) {
	if len(r.rest) == 0 || r.bad {
		return f, false
	}
	num, typ, n := protowire.ConsumeTag(r.rest)
	if n < 0 || num >= 64 || r.seen&(1<<num) != 0 {
		r.bad = true
		return f, false
	}
	r.seen |= 1 << num
	f.num, f.typ, r.rest = num, typ, r.rest[n:]
	switch typ {
	case protowire.VarintType:
		f.n, n = protowire.ConsumeVarint(r.rest)
	case protowire.BytesType:
		f.b, n = protowire.ConsumeBytes(r.rest)
	case protowire.Fixed64Type:
		n = -1
		if len(r.rest) >= 8 {
			f.n, n = binary.LittleEndian.Uint64(r.rest), 8
		}
	default:
		n = -1
	}
	if n < 0 {
		r.bad = true
		return f, false
	}
	r.rest = r.rest[n:]
	return f, true
}

// decode reads a command; what it returns is the caller's fault.
func (c *command) decode(b []byte) *incumbent.Error {
	*c = command{}
	if len(b) > MaxFamilyBytes {
		return tooLarge("command", "MaxFamilyBytes", MaxFamilyBytes)
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
	r := reader{rest: b}
	for {
		f, more := r.next()
		if !more {
			return !r.bad
		}
		var ok bool
		switch {
		case f.num == 1:
			ok = f.typ == protowire.VarintType // it is c.schema
		case f.typ != protowire.BytesType:
			return false
		case f.num == 2:
			ok = c.decodeOrigin(f.b)
		case f.num == 3:
			ok = c.decodeKey(f.b)
		default:
			ok = c.decodeOp(f.num, f.b)
		}
		if !ok {
			return false
		}
	}
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
	r := reader{rest: b}
	for {
		f, more := r.next()
		if !more {
			return !r.bad
		}
		ok := false
		switch f.num {
		case 1:
			c.at = int64(f.n)
			ok = f.typ == protowire.VarintType && c.at >= 0 && c.at <= maxAtMillis
		case 2:
			ok = f.textInto(&c.door) && len(f.b) <= MaxOriginBytes
		case 3:
			ok = f.textInto(&c.address) && len(f.b) <= MaxOriginBytes
		case 4:
			ok = f.textInto(&c.principal) && len(f.b) <= MaxOriginBytes
		}
		if !ok {
			return false
		}
	}
}

func (c *command) decodeKey(b []byte) bool {
	r := reader{rest: b}
	for {
		f, more := r.next()
		if !more {
			return !r.bad && len(c.keyID) > 0
		}
		switch {
		case f.num == 1 && f.typ == protowire.BytesType:
			c.keyID = f.b
		case f.num == 2 && f.typ == protowire.VarintType:
			c.keyBase = f.n
		default:
			return false
		}
	}
}

func (c *command) decodeOp(op opcode, b []byte) bool {
	if c.op == 0 && op >= firstFamily {
		c.op, c.body, c.needs = op, b, familySchema
		return true
	}
	if c.op != 0 || op >= numOpcodes || layouts[op] == nil {
		return false
	}
	c.op = op
	if op >= opPutMember {
		c.needs = memberSchema
	}
	layout := layouts[op]
	r := reader{rest: b}
	for {
		f, more := r.next()
		if !more {
			return !r.bad
		}
		if int(f.num) > len(layout) || !c.set(layout[f.num-1], f) {
			return false
		}
		if layout[f.num-1] > slotsOfSchema2 {
			c.needs = 2
		}
	}
}

// set stores one field of an operation, false if its wire type or value
// cannot be.
func (c *command) set(s slot, f field) bool {
	switch s {
	case slotName:
		return f.typ == protowire.BytesType && c.decodeName(f.b)
	case slotHolder:
		return f.textInto(&c.holder)
	case slotToHolder:
		return f.textInto(&c.toHolder)
	case slotText:
		return f.textInto(&c.text)
	case slotSession:
		return f.idInto(&c.session)
	case slotOther:
		return f.idInto(&c.other)
	case slotAbsent:
		c.absent = f.b
		return f.typ == protowire.BytesType && len(f.b)%len(incumbent.SessionID{}) == 0 && len(f.b) <= MaxAbsent*len(incumbent.SessionID{})
	case slotPeerAddress:
		return f.textInto(&c.peerAddress)
	case slotClientURL:
		return f.textInto(&c.clientURL)
	case slotFixedToken:
		c.token = f.n
		return f.typ == protowire.Fixed64Type
	}
	if f.typ != protowire.VarintType {
		return false
	}
	switch s {
	case slotTTL:
		c.ttl = int64(f.n)
	case slotLate:
		c.late = int64(f.n)
	case slotToken, slotExpected:
		c.token = f.n
	case slotRenewal:
		c.renewal = f.n
	case slotIndex:
		c.index = f.n
	case slotMemberSchema:
		c.index = f.n
		return f.n <= 1<<32-1
	case slotWait:
		c.wait = f.n != 0
	case slotCritical:
		c.critical = f.n != 0
	case slotAtEnd:
		c.atEnd = f.n != 0
	case slotEpoch:
		c.epoch = f.n != 0
	case slotLearner:
		c.learner = f.n != 0
	default:
		return false
	}
	return true
}

func (c *command) decodeName(b []byte) bool {
	r := reader{rest: b}
	for {
		f, more := r.next()
		if !more {
			return !r.bad
		}
		ok := false
		switch f.num {
		case 1:
			ok = f.textInto(&c.namespace)
		case 2:
			ok = f.textInto(&c.model)
		case 3:
			ok = f.textInto(&c.lease)
		}
		if !ok {
			return false
		}
	}
}

// textInto stores a text. Not even an error may let invalid UTF-8 through: a
// snapshot that holds it could not be read again.
func (f *field) textInto(to *[]byte) bool {
	*to = f.b
	return f.typ == protowire.BytesType && utf8.Valid(f.b)
}

func (f *field) idInto(to *incumbent.SessionID) bool {
	if f.typ != protowire.BytesType || len(f.b) != 0 && len(f.b) != len(to) {
		return false
	}
	copy(to[:], f.b)
	return true
}
