package sim

import (
	"bytes"
	"slices"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
	"github.com/incumbent-dev/incumbent/core/parts"
	"github.com/incumbent-dev/incumbent/node"
)

// markPrefix begins what makes a call known in the log; markDigits follow.
const (
	markPrefix = "call-"
	markDigits = 8
)

// never are the kinds that say of a call that it was not applied and never will
// be, unless the answer has an index, which is that of its application.
var never = []incumbent.Kind{
	incumbent.Overloaded, incumbent.Unavailable, incumbent.NotLeader, incumbent.TooLarge, incumbent.DeadlineExceeded,
}

// answered checks an answer at the moment a member gives it: nothing that is
// older than what somebody was told before the call arrived (G22), and honest
// about what is not known (G25).
func (c *checker) answered(p *process, s *submission, r core.Result, bound incumbent.Index) {
	if p.gone {
		return // nobody hears it
	}
	if r.Err != nil && r.Err.Kind == incumbent.Unknown {
		c.w.res.Unknown++
		return
	}
	if r.Err != nil && r.Index == 0 && slices.Contains(never, r.Err.Kind) {
		c.refused[s.number] = r.Err.Kind
		if at, applied := c.calls[s.number]; applied && !s.keyed {
			c.w.violate("call %d was answered %v although it was applied at %d (G25)", s.number, r.Err.Kind, at)
		}
		return
	}
	if r.Index < bound && !r.Replayed {
		c.w.violate("member %d answered call %d (%T) from index %d, %d had been acknowledged before it arrived (G22)", p.m.at, s.number, s.cmd, r.Index, bound)
	}
	c.acked = max(c.acked, r.Index)
}

// executed takes note of which calls a batch executes: each once, unless a key
// makes the second have no effect, and none that was reported as not applied.
func (c *checker) executed(e *entry, results []core.Result, changes []core.Change) {
	for i, cmd := range e.cmds {
		n, ok := markIn(cmd)
		// What travels in parts is one of the listers': their history tells of it.
		if !ok || c.raises[string(cmd)] || isPart(cmd) {
			continue
		}
		if kind, refused := c.refused[n]; refused && c.calls[n] == 0 && !c.keyed(cmd, n) {
			c.w.violate("call %d was answered %v and is applied at %d (G25)", n, kind, e.after)
		}
		if at, twice := c.calls[n]; twice && !c.keyed(cmd, n) {
			c.w.violate("call %d was applied after %d and again after %d (G25)", n, at, e.before)
		}
		c.calls[n] = max(1, e.after)
		c.keys.executed(n, &results[i])
		c.load.executed(n)
	}
	for i := range changes {
		c.effect(&changes[i])
	}
}

// effect checks that a call grants at most once, whatever the number of its
// attempts (G25).
func (c *checker) effect(x *core.Change) {
	if l, _ := leases.ChangeOf(x); l.What != leases.Granted {
		return
	}
	n, ok := markIn([]byte(x.Origin.Address))
	if !ok {
		return
	}
	if at, twice := c.effects[n]; twice && at != x.Index { // a transaction may grant more than one lease
		c.w.violate("call %d granted at %d and again at %d (G25)", n, at, x.Index)
	}
	c.effects[n] = x.Index
}

// raised takes note of commands by which a leader raises a logged ttl: they have
// the origin of the grant, and are no attempt of its call.
func (c *checker) raised(ps []node.Proposal) {
	for i := range ps {
		if _, ok := markIn(ps[i].Command); ok && ps[i].Term != 0 {
			c.raises[string(ps[i].Command)] = true
		}
	}
}

// keyed reports whether a command carries the idempotency key of its call.
func (c *checker) keyed(cmd []byte, n uint64) bool {
	return bytes.Contains(cmd, []byte{byte(n >> 56), byte(n >> 48), byte(n >> 40), byte(n >> 32), byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)})
}

// markIn finds the number of a call.
func markIn(b []byte) (uint64, bool) {
	i := bytes.Index(b, []byte(markPrefix))
	if i < 0 || len(b) < i+len(markPrefix)+markDigits {
		return 0, false
	}
	n, err := strconv.ParseUint(string(b[i+len(markPrefix):i+len(markPrefix)+markDigits]), 10, 64)
	return n, err == nil
}

// read checks a linearizable read: it shows everything that was acknowledged
// before it began (G22), whoever was paused or deposed meanwhile (G36).
func (c *checker) read(p *process, v *core.View, bound incumbent.Index) {
	c.w.res.Reads++
	if v.Index() < bound {
		c.w.violate("member %d read index %d, %d had been acknowledged before (G22)", p.m.at, v.Index(), bound)
	}
	c.acked = max(c.acked, v.Index())
}

// isPart reports whether a command is a part of a larger one.
func isPart(cmd []byte) bool {
	for len(cmd) > 0 {
		num, _, n := protowire.ConsumeField(cmd)
		if n < 0 {
			return false
		}
		if num == parts.Number {
			return true
		}
		cmd = cmd[n:]
	}
	return false
}
