package parts

import (
	"bytes"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// retryAfter is when a member may try again whose command finds no room.
const retryAfter = time.Second

// Apply implements [core.Tables]. A part that is not the last answers nothing but
// its index; the last one what the whole answers, or Invalid if that is no command
// that may travel so. A part whose predecessors are not there answers Unavailable,
// a first one for whose whole there is no room Overloaded, and nothing of it waits;
// a Drop of what has gone on, or is over, Conflict.
func (t *tables) Apply(x *core.Exec, b []byte) core.Result {
	var p part
	switch {
	case !p.decode(b):
		return refused(incumbent.Invalid, "malformed command")
	case p.newest != 0:
		return t.drop(x, &p)
	case !t.fits(&p):
		return refused(incumbent.Invalid, "a part of the wrong size")
	case p.began == 0:
		return t.begin(x, &p)
	}
	o := t.of(p.member)
	if o == nil || o.Began != p.began || o.Total != p.total || o.Bytes() != p.offset {
		return refused(incumbent.Unavailable, "the parts before it have been discarded")
	}
	return t.take(x, o, &p)
}

func refused(k incumbent.Kind, message string) core.Result {
	return core.Result{Err: &incumbent.Error{Kind: k, Message: message}}
}

// fits reports whether the part is as long as its place in the whole says.
func (t *tables) fits(p *part) bool {
	return p.total <= t.limits.total && p.offset < p.total && p.offset%t.limits.part == 0 &&
		len(p.data) == min(t.limits.part, p.total-p.offset)
}

// begin takes a first part, in the place of what its member had begun before.
func (t *tables) begin(x *core.Exec, p *part) core.Result {
	if o := t.of(p.member); o != nil {
		t.end(x, o)
	}
	if len(t.list) >= t.limits.commands || t.total+p.total > t.limits.waiting {
		return core.Result{Err: &incumbent.Error{
			Kind: incumbent.Overloaded, Message: "too many large commands are under way: limit MaxWaiting", RetryAfter: retryAfter,
		}}
	}
	return t.take(x, &Waiting{Member: p.member, Began: x.Index(), Total: p.total}, p)
}

// take adds a part to those before it, and executes the whole if it was the last.
func (t *tables) take(x *core.Exec, o *Waiting, p *part) core.Result {
	if p.last() {
		whole := slices.Concat(append(slices.Clone(o.parts), p.data)...)
		if p.offset > 0 {
			t.end(x, o)
		}
		if p.commutes && !x.Commutes(whole) {
			return refused(incumbent.Invalid, "the command does not commute with extensions, as its last part says")
		}
		return x.Execute(whole, MaxBytes)
	}
	n := *o
	n.Newest = x.Index()
	n.parts = append(slices.Clone(o.parts), bytes.Clone(p.data))
	t.put(n.Member, &n)
	x.Tell(Family{}, core.FamilyChange{Deadline: n.deadline()})
	return core.Result{}
}

// drop is void if another part has come, or the command is over.
func (t *tables) drop(x *core.Exec, p *part) core.Result {
	o := t.of(p.member)
	if o == nil || o.Newest != p.newest {
		return refused(incumbent.Conflict, "the command has gone on, or is over")
	}
	t.end(x, o)
	return core.Result{}
}

// end forgets what waits of a command, and its deadline.
func (t *tables) end(x *core.Exec, o *Waiting) {
	t.put(o.Member, nil)
	x.Tell(Family{}, core.FamilyChange{Deadline: &core.Deadline{Family: Number, ID: id(o.Member)}})
}
