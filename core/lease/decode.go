package lease

import (
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// command is a decoded command. Tables keep one and decode every command
// into it: byte slices alias the log entry and are copied or interned only if
// they stay. Which fields mean something is up to verb.
type command struct {
	verb verb

	namespace, model, lease []byte
	holder                  []byte // of Transfer: the present holder
	toHolder                []byte
	text                    []byte // pinning entity or revoker
	absent                  []byte // sessions passed over in hand-overs, one behind the other
	session                 incumbent.SessionID
	other                   incumbent.SessionID // preferred waiter, or target of a transfer
	ttl, late               int64               // milliseconds
	token, renewal          uint64
	wait, critical, atEnd   bool
}

// slot says into which field of a command a protobuf field goes.
type slot uint8

const (
	slotName slot = iota + 1
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
	slotWait
	slotCritical
	slotAtEnd
	slotAbsent
)

// layouts gives, for each command, the slots of its fields from number 1.
var layouts = [numVerbs][]slot{
	doClaim:      {slotName, slotHolder, slotSession, slotTTL, slotWait, slotCritical, slotToken},
	doAccept:     {slotFixedToken},
	doRelease:    {slotName, slotHolder, slotSession, slotToken, slotOther, slotAbsent},
	doRevoke:     {slotName, slotToken, slotText, slotOther, slotAtEnd, slotAbsent},
	doTransfer:   {slotName, slotHolder, slotSession, slotToken, slotOther, slotToHolder, slotWait},
	doExpire:     {slotFixedToken, slotRenewal, slotLate, slotOther, slotAbsent},
	doPin:        {slotName, slotText},
	doUnpin:      {slotName, slotText},
	doLeaveQueue: {slotName, slotSession, slotHolder},
}

// decode reads a command; what it returns is the caller's fault.
func (c *command) decode(b []byte) *incumbent.Error {
	*c = command{}
	if len(b) > core.MaxCommandBytes {
		return tooLarge("command", "MaxCommandBytes", core.MaxCommandBytes)
	}
	r := wire.Read(b)
	f, some := r.Next()
	if _, more := r.Next(); !some || more || r.Bad() || f.Type != protowire.BytesType || f.Num >= numVerbs || !c.decodeBody(f.Num, f.B) {
		return fail(incumbent.Invalid, "malformed command")
	}
	return nil
}

func (c *command) decodeBody(v verb, b []byte) bool {
	c.verb = v
	layout := layouts[v]
	r := wire.Read(b)
	for {
		f, more := r.Next()
		if !more {
			return !r.Bad()
		}
		if int(f.Num) > len(layout) || !c.set(layout[f.Num-1], f) {
			return false
		}
	}
}

// set stores one field of a command, false if its wire type or value
// cannot be.
func (c *command) set(s slot, f wire.Field) bool {
	switch s {
	case slotName:
		return f.Type == protowire.BytesType && c.decodeName(f.B)
	case slotHolder:
		return f.Text(&c.holder)
	case slotToHolder:
		return f.Text(&c.toHolder)
	case slotText:
		return f.Text(&c.text)
	case slotSession:
		return f.Session(&c.session)
	case slotOther:
		return f.Session(&c.other)
	case slotAbsent:
		return f.Sessions(&c.absent, core.MaxAbsent)
	case slotFixedToken:
		return f.Fixed(&c.token)
	}
	if f.Type != protowire.VarintType {
		return false
	}
	switch s {
	case slotTTL:
		c.ttl = int64(f.N)
	case slotLate:
		c.late = int64(f.N)
	case slotToken:
		c.token = f.N
	case slotRenewal:
		c.renewal = f.N
	case slotWait:
		c.wait = f.N != 0
	case slotCritical:
		c.critical = f.N != 0
	case slotAtEnd:
		c.atEnd = f.N != 0
	default:
		return false
	}
	return true
}

func (c *command) decodeName(b []byte) bool {
	r := wire.Read(b)
	for {
		f, more := r.Next()
		if !more {
			return !r.Bad()
		}
		ok := false
		switch f.Num {
		case 1:
			ok = f.Text(&c.namespace)
		case 2:
			ok = f.Text(&c.model)
		case 3:
			ok = f.Text(&c.lease)
		}
		if !ok {
			return false
		}
	}
}

func (c *command) lateness() time.Duration {
	return time.Duration(min(max(c.late, 0), maxLateMillis)) * time.Millisecond
}
