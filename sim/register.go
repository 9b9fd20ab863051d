package sim

import (
	"fmt"
	"strings"

	"github.com/anishathalye/porcupine"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// register is one key as clients may see it.
type register struct {
	index incumbent.Index // of the last change of what is there; 0: nothing is
	value string
	last  incumbent.Index // of the last change, or deletion
}

func registerOf(e *kv.Entry) (r register) {
	if e != nil {
		r = register{index: e.Modified, value: string(e.Value)}
	}
	return r
}

// registerOperation is an operation on a register.
type registerOperation struct {
	key kv.Key
	porcupine.Operation
}

// registerInput is what an operation is to do.
type registerInput struct {
	verb  kv.Verb // 0: to read
	value string
	cond  kv.If
	index incumbent.Index
	was   string
}

// registerOutput is what it answered.
type registerOutput struct {
	refused bool            // because of the condition
	found   register        // of a read, or a refusal
	index   incumbent.Index // at which it changed something; 0: it did not
}

// registerModel is what a register answers.
var registerModel = porcupine.Model{
	Init: func() any { return register{} },
	Step: func(state, in, out any) (bool, any) {
		return state.(register).step(in.(registerInput), out.(registerOutput)) //nolint:forcetypeassert // what histories hold
	},
	DescribeOperation: func(in, out any) string { return fmt.Sprintf("%+v -> %+v", in, out) },
}

func isRegister(k kv.Key) bool { return strings.HasPrefix(k.Name, registerDir) }

// about reports whether the call says something of a key.
func (c *keyCall) about(k kv.Key) bool {
	if c.cmd.Verb == kv.RemoveTree {
		return strings.HasPrefix(k.Name, c.cmd.Key.Name)
	}
	return c.cmd.Key == k
}

// step reports whether an operation may be answered so, and what is there after it.
func (r register) step(in registerInput, out registerOutput) (bool, register) {
	same := r.index == out.found.index && r.value == out.found.value
	switch {
	case in.verb == 0:
		return same, r
	case out.refused:
		return same && !r.holds(in), r
	case !r.holds(in):
		return false, r
	case in.verb == kv.Put:
		return out.index > r.last, register{out.index, in.value, out.index}
	case r.index == 0: // a removal, of nothing
		return true, r
	}
	return out.index > r.last, register{last: out.index}
}

func (r register) holds(in registerInput) bool {
	switch in.cond {
	case kv.IfIndex:
		return r.index == in.index
	case kv.IfValue:
		return r.index != 0 && r.value == in.was
	}
	return true
}
