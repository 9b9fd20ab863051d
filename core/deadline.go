package core

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Deadline is how long something of a family lasts unless a command says
// otherwise. State knows no time: the leader's clock counts it from when the
// command that began it was applied, a new leader's anew from when that leads, and
// then proposes the command that ends it. A Deadline never changes: one that
// begins again is another.
type Deadline struct {
	Family     wire.Number
	ID         string          // what it is of: one at a time. The family's to choose
	Generation incumbent.Index // of the command that began it. The one that ends it names it, and is void for any other
	After      time.Duration   // at least; > 0
	Extended   bool            // it may be extended without the log: it begins anew, under the same generation
}

// Timed is a FamilyView that has deadlines. Those it has are those that its
// changes have told of and not ended.
type Timed interface {
	// Deadlines calls fn with each deadline, until it returns false.
	Deadlines(fn func(*Deadline) bool)
	// EndDeadline is the command that ends a deadline of this or an earlier view.
	EndDeadline(d *Deadline) Command
}

// Deadlines calls fn with the deadlines of all families, until it returns false.
func (v *View) Deadlines(fn func(*Deadline) bool) {
	more := true
	for i := range v.families {
		if t, ok := v.families[i].(Timed); ok && more {
			t.Deadlines(func(d *Deadline) bool {
				more = fn(d)
				return more
			})
		}
	}
}

// EndDeadline is the command that ends a deadline that a family has told of.
func (v *View) EndDeadline(d *Deadline) Command { return v.Family(d.Family).(Timed).EndDeadline(d) }
