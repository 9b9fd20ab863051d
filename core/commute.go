package core

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"
)

// Commuting is a family some of whose commands commute with extensions.
type Commuting interface {
	Family
	// Commutes reports that a command of the family, whatever the state it meets, leaves
	// alone all that extensions and expiries are judged by: sessions, leases, and
	// deadlines that something may extend.
	Commutes(command []byte) bool
}

// Commutes reports that an encoded command, whatever the state it meets, leaves alone
// all that extensions and expiries are judged by, so that the leader's clock need not
// wait for it to be applied: keys are stored while leases are extended, however much
// that is. families are those of the state, in any order. It does not decode more than
// it must, and says no where it is not certain.
func Commutes(families []Family, cmd []byte) bool {
	found := false
	for len(cmd) > 0 {
		num, typ, n := protowire.ConsumeTag(cmd)
		if n < 0 {
			return false
		}
		size := protowire.ConsumeFieldValue(num, typ, cmd[n:])
		if size < 0 {
			return false
		}
		if num > 3 { // before it: schema, origin and key
			says, _ := protowire.ConsumeBytes(cmd[n:])
			if found || typ != protowire.BytesType || !operationCommutes(families, num, says) {
				return false
			}
			found = true
		}
		cmd = cmd[n+size:]
	}
	return found
}

func operationCommutes(families []Family, num protowire.Number, says []byte) bool {
	if num == txnNumber {
		return txnCommutes(families, says)
	}
	i := slices.IndexFunc(families, func(f Family) bool { return f.Number() == num })
	if i < 0 {
		return false
	}
	f, ok := families[i].(Commuting)
	return ok && f.Commutes(says)
}

// txnCommutes looks at the operations: conditions change nothing.
func txnCommutes(families []Family, b []byte) bool {
	t, err := decodeTxn(b)
	if err != nil {
		return false
	}
	for _, ops := range []steps{t.then, t.otherwise} {
		for {
			num, says, more := ops.next()
			if !more {
				break
			}
			if num == txnNumber || !operationCommutes(families, num, says) {
				return false
			}
		}
	}
	return true
}

// Commutes is [Commutes] of an encoded command, by the families of this state.
func (x *Exec) Commutes(cmd []byte) bool {
	return Commutes(x.s.kinds, cmd)
}
