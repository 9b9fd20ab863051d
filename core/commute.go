package core

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
)

// Commuting is a family some of whose commands commute with extensions.
type Commuting interface {
	Family
	// Commutes reports that a command of the family, whatever the state it meets, leaves
	// alone all that extensions and expiries are judged by: sessions, leases, and
	// deadlines that something may extend.
	Commutes(command []byte) bool
}

// Ender is a family whose commands say what they may end.
type Ender interface {
	Family
	// Ends calls tell with whatever held lease or open session a command may end or
	// keep from being extended, whatever the state it meets; of what ends with a session
	// only the session (see [View.MayFollow]). It reports whether that is known; if not, it
	// may be any.
	Ends(command []byte, tell func(*End)) bool
}

// Chaining is a FamilyView by whose records the end of a session may end others.
type Chaining interface {
	FamilyView
	// MayFollow reports whether a session may end because another does, now or after
	// further commands.
	MayFollow(id incumbent.SessionID) bool
}

// MayFollow reports whether an open session may end because another does: what a command
// tells that it ends is then not all that it may end.
func (v *View) MayFollow(id incumbent.SessionID) bool {
	return slices.ContainsFunc(v.families, func(f FamilyView) bool {
		c, ok := f.(Chaining)
		return ok && c.MayFollow(id)
	})
}

// End is a lease by its name, the holder of one by its token, or a session: what is set.
type End struct {
	Namespace, Model, Lease []byte // of the command: not to be changed
	Token                   incumbent.Token
	Session                 incumbent.SessionID
}

// Effect is what a command may do to that which extensions and expiries are judged by:
// see [View.Effect].
type Effect uint8

// The effects, each including those before it.
const (
	Nothing  Effect = iota // it commutes with them: keys are stored while leases are extended
	Named                  // it may end what it says; others it leaves alone
	Anything               // and whatever is not certain
)

// Effect says what an encoded command may do, whatever the state it meets, to sessions,
// leases and deadlines that something may extend, and calls tell with what it may end. It
// does not decode more than it must.
func (v *View) Effect(cmd []byte, tell func(*End)) Effect {
	return effectOf(v.kinds, cmd, lastCommon, tell)
}

// Commutes reports that the effect of an encoded command is [Nothing]; of one that is bound
// to policies it says no. Families are those of the state, in any order. Members refuse or
// execute a command in parts by it, all alike: to make it say yes more often takes a new
// schema.
func Commutes(families []Family, cmd []byte) bool {
	return effectOf(families, cmd, lastCommon-1, func(*End) {}) == Nothing
}

// Commutes is [Commutes] by the families of this state.
func (x *Exec) Commutes(cmd []byte) bool { return Commutes(x.s.kinds, cmd) }

// lastCommon is the last field of a command that says nothing of what is to be done:
// behind schema, origin and key, by when no policy may have changed.
const lastCommon = 4

// effectOf reads a command whose fields up to common say nothing of what is to be done.
func effectOf(families []Family, cmd []byte, common protowire.Number, tell func(*End)) (e Effect) {
	found := false
	for len(cmd) > 0 {
		num, typ, n := protowire.ConsumeTag(cmd)
		if n < 0 {
			return Anything
		}
		size := protowire.ConsumeFieldValue(num, typ, cmd[n:])
		if size < 0 {
			return Anything
		}
		if num > common {
			says, _ := protowire.ConsumeBytes(cmd[n:])
			if found || typ != protowire.BytesType {
				return Anything
			}
			found, e = true, operationEffect(families, num, says, tell)
		}
		cmd = cmd[n+size:]
	}
	if !found {
		return Anything
	}
	return e
}

func operationEffect(families []Family, num protowire.Number, says []byte, tell func(*End)) Effect {
	switch num {
	case txnNumber:
		return txnEffect(families, says, tell)
	case opOpenSession, opExtendSession, opTrimKeys, opCheckpoint:
		return Named
	case opCloseSession, opExpireSession:
		var c command
		if !c.decodeOp(num, says) {
			return Anything
		}
		tell(&End{Session: c.session})
		return Named
	}
	i := slices.IndexFunc(families, func(f Family) bool { return f.Number() == num })
	if i < 0 {
		return Anything
	}
	if f, ok := families[i].(Commuting); ok && f.Commutes(says) {
		return Nothing
	}
	if f, ok := families[i].(Ender); ok && f.Ends(says, tell) {
		return Named
	}
	return Anything
}

// txnEffect looks at the operations: conditions change nothing.
func txnEffect(families []Family, b []byte, tell func(*End)) (e Effect) {
	t, err := decodeTxn(b)
	if err != nil {
		return Anything
	}
	for _, ops := range []steps{t.then, t.otherwise} {
		for {
			num, says, more := ops.next()
			if !more {
				break
			}
			if num == txnNumber {
				return Anything
			}
			e = max(e, operationEffect(families, num, says, tell))
		}
	}
	return e
}
