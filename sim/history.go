package sim

import (
	"github.com/anishathalye/porcupine"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// keyCall is a call about keys, from its first attempt to its answer.
type keyCall struct {
	client int
	cmd    kv.Command
	called int64 // moments
	heard  int64 // 0: no answer
	lost   bool  // it was made to a cluster that was lost
	result core.Result

	executed int64       // when the first member applied it; 0: nobody has
	outcome  core.Result // of that
	effect   incumbent.Index
}

func (c *keyCall) answered() bool { return c.heard != 0 }

// now is the next moment.
func (c *keyChecker) now() int64 {
	c.moment++
	return c.moment
}

// called takes note of a call that begins.
func (c *keyChecker) called(a *agent, cmd kv.Command) *keyCall {
	call := &keyCall{client: a.id, cmd: cmd, called: c.now()}
	c.calls = append(c.calls, call)
	return call
}

func (c *keyChecker) numbered(n uint64, call *keyCall) { c.numbers[n] = call }

// executed takes note of what became of a call in the log.
func (c *keyChecker) executed(n uint64, r *core.Result) {
	if call := c.numbers[n]; call != nil && (call.executed == 0 || !says(&call.outcome)) {
		call.executed, call.outcome = c.now(), transacted(*r)
	}
}

// says reports whether a result says something of a key. One that does not may be
// followed by another attempt under the same idempotency key, which is executed anew: a
// policy had changed, or there was no room.
func says(r *core.Result) bool { return r.Err == nil || r.Err.Kind == incumbent.Conflict }

// returned takes note of the answer that a client hears, which says what has become
// of its call in the log (G5, G25).
func (c *keyChecker) returned(call *keyCall, r core.Result) {
	call.heard, call.result = c.now(), r
	switch verb := call.cmd.Verb; {
	case call.lost:
	case r.Err != nil && call.effect != 0:
		c.w.violate("client %d is told %v of %+v, which changed something at index %d (G25)", call.client, r.Err, &call.cmd, call.effect)
	case r.Err == nil && r.Index != call.effect && (call.effect != 0 || verb != kv.Remove && verb != kv.RemoveTree):
		c.w.violate("client %d is told of index %d of %+v, which changed something at index %d (G5)", call.client, r.Index, &call.cmd, call.effect)
	}
	c.count(&r)
}

func (c *keyChecker) count(r *core.Result) {
	switch {
	case r.Err == nil:
		c.w.res.Writes++
	case r.Err.Kind == incumbent.Conflict:
		c.w.res.Conflicts++
	case r.Err.Kind == incumbent.TooLarge:
		c.w.res.Full++
	}
}

// read takes note of what a client read.
func (c *keyChecker) read(a *agent, k kv.Key, called int64, e *kv.Entry) {
	c.w.res.Gets++
	c.reads = append(c.reads, registerOperation{k, porcupine.Operation{
		ClientId: a.id, Input: registerInput{}, Call: called, Output: registerOutput{found: registerOf(e)}, Return: c.now(),
	}})
}

// explain fails unless some order of all that was done to each register explains all
// answers, each call taking effect at one moment between its beginning and its end
// (G22). A call without an answer ends when the first member has applied it, for then
// anybody may see it; one that nobody applied was none.
func (c *keyChecker) explain() {
	histories := map[kv.Key][]porcupine.Operation{}
	for _, r := range c.reads {
		histories[r.key] = append(histories[r.key], r.Operation)
	}
	for _, call := range c.calls {
		op, is := call.operation()
		for _, k := range c.w.keys {
			if is && call.about(k) {
				histories[k] = append(histories[k], op)
			}
		}
	}
	for _, k := range c.w.keys {
		if isRegister(k) && !porcupine.CheckOperations(registerModel, histories[k]) {
			c.w.violate("no order of the %d calls about key %s explains what they were answered (G22)", len(histories[k]), k.Name)
		}
	}
}

// operation is the call as part of a history; false: it did nothing and says nothing.
func (c *keyCall) operation() (op porcupine.Operation, is bool) {
	r, end := c.result, c.heard
	switch {
	case !c.answered():
		r, end = c.outcome, c.executed
	case r.Replayed:
		r = c.outcome // of an answer that is given again not all is kept
	}
	if end == 0 || !says(&r) {
		return op, false
	}
	cmd := &c.cmd
	in := registerInput{verb: cmd.Verb, value: string(cmd.Value), cond: cmd.If, index: cmd.Index, was: string(cmd.Was)}
	e, _ := r.Record.(*kv.Entry)
	return porcupine.Operation{
		ClientId: c.client, Input: in, Call: c.called, Return: end,
		Output: registerOutput{refused: r.Err != nil, found: registerOf(e), index: c.effect},
	}, true
}
