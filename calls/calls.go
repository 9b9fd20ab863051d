// Package calls is one table over all calls of all doors: what each needs of who
// makes it, when that is judged, and the lane by which it is admitted.
//
// A call has one row, by whichever ways it can be made: as a call of its own, as an
// operation of a batch, as a frame of a stream, as a step of a transaction. Doors
// look up what they serve when they start, and do not start with a call that has no
// row; tests go through the protocol's descriptors, the routes of HTTP and Juju's
// facades, and through the table for what nobody serves. docs/policies.md shows it.
//
// # Invariants
//
// A row is never changed. A way is in one row.
package calls

import (
	"fmt"
	"slices"

	"github.com/incumbent-dev/incumbent/admit"
	"github.com/incumbent-dev/incumbent/auth"
)

// Judged says when and by what it is judged whether a caller may make a call.
type Judged uint8

// The ways of judging. There is no call that is not judged: the zero value is none.
const (
	unjudged Judged = iota
	First           // by the call alone, before its message is read
	Named           // by what its message names; before that, whether a caller like this ever may
	Steps           // step by step, each by the row of its own; the caller must be somebody
	Own             // by nothing but whose connection it comes on: it concerns what is open there
	Token           // by the token that it brings
	Everyone        // it is for everybody
)

var judgedNames = [...]string{"", "by the call", "by what it names", "by each step", "by whose connection it is", "by the token it brings", "for everybody"}

// String says how it is judged, as in the documentation.
func (j Judged) String() string { return judgedNames[j] }

// NoLane is that of calls that are not admitted by lanes: they are few, or cost
// nothing.
const NoLane = admit.NumLanes

// Row is what one call needs.
type Row struct {
	Action auth.Action // of First and Named
	Judged Judged
	Lane   admit.Lane
	Stale  admit.Lane // of a read that asks nobody; else Lane
	// Or are more lanes that what its message says may make it a call of.
	Or   []admit.Lane
	Note string // what the documentation says besides
	// Look: an operator looks by it what is the matter; a call of its own of this kind
	// is not refused for the load.
	Look bool
	Ways []string // in which it is made
}

// Row returns the call's row.
func (c Call) Row() *Row { return &table[c] }

// Lane is that of the call; of a read, one that is confirmed.
func (c Call) Lane() admit.Lane { return table[c].Lane }

// LaneOfRead is that of a read, which may be stale; of what is no read it is its lane.
func (c Call) LaneOfRead(stale bool) admit.Lane {
	if stale {
		return table[c].LaneOfStale()
	}
	return table[c].Lane
}

// Lanes are all that a call may turn out to be of, the one of its row first. There are
// none if one of them is never refused: nothing is known then before its message is read.
func (c Call) Lanes() []admit.Lane { return lanesOf[c] }

// lanesOf has the lanes of each call.
var lanesOf = func() (of [NumCalls][]admit.Lane) {
	for c := range NumCalls {
		r := &table[c]
		list := []admit.Lane{r.Lane}
		for _, l := range append([]admit.Lane{r.LaneOfStale()}, r.Or...) {
			if !slices.Contains(list, l) {
				list = append(list, l)
			}
		}
		if !slices.ContainsFunc(list, func(l admit.Lane) bool { return l >= admit.Critical }) {
			of[c] = list
		}
	}
	return of
}()

// LaneOfStale is the lane of a read that asks nobody, and of all else its lane.
func (r *Row) LaneOfStale() admit.Lane {
	if r.Stale == 0 {
		return r.Lane
	}
	return r.Stale
}

// Action is what the call does to what it names.
func (c Call) Action() auth.Action { return table[c].Action }

// Of returns the call that is made in a way: a procedure of the native API
// ("/incumbent.v1.LeaseService/Claim"), "operation.", "frame.", "step." or
// "condition." with the name of the field, "juju." with facade and method, "consul."
// with method and path, "ovsdb." with the method, a route of HTTP ("GET /metrics").
func Of(way string) (Call, bool) {
	c, ok := byWay[way]
	return c, ok
}

// Must is Of for what a door is built of: it panics where there is no row.
func Must(way string) Call {
	c, ok := byWay[way]
	if !ok {
		panic(fmt.Sprintf("calls: %q has no row in the table", way))
	}
	return c
}

// Allowed returns nil unless it is certain, before a call's message is read, that
// its caller may not make it.
func (c Call) Allowed(g *auth.Rights) error {
	switch r := &table[c]; r.Judged {
	case First:
		return auth.Authorize(g, r.Action, auth.Resource{})
	case Named:
		return auth.Possible(g, r.Action)
	case Steps:
		return auth.Somebody(g)
	}
	return nil
}

var byWay = func() map[string]Call {
	m := map[string]Call{}
	for c := range NumCalls {
		for _, w := range table[c].Ways {
			if _, twice := m[w]; twice {
				panic(fmt.Sprintf("calls: %q has two rows", w))
			}
			m[w] = c
		}
	}
	return m
}()
