package settings

import (
	"slices"
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// Apply implements [core.Tables]. Its Record is the *Entry as the command left it, or
// (Conflict) as it found it, a nil one if the setting has its default.
//
// It answers NotFound and Invalid for what cannot be set, Conflict where the setting
// did not change last when the command says, and TooLarge for the first of more than
// [MaxSet].
func (t *tables) Apply(x *core.Exec, b []byte) core.Result {
	var c Command
	if !c.decode(b) {
		return core.Result{Err: &incumbent.Error{Kind: incumbent.Invalid, Message: "malformed command"}}
	}
	if err := c.validate(); err != nil {
		return core.Result{Err: err}
	}
	o := t.Entry(c.Name)
	var modified incumbent.Index
	if o != nil {
		modified = o.Modified
	}
	switch {
	case c.IfIndex != nil && *c.IfIndex != modified:
		return core.Result{Record: o, Err: incumbent.Errorf(incumbent.Conflict, "setting %s was last set at index %d", c.Name, modified)}
	case c.Unset && o == nil, !c.Unset && o != nil && o.Value == c.Value:
		return core.Result{Record: o}
	case o == nil && len(t.entries) >= MaxSet:
		return core.Result{Err: incumbent.Errorf(incumbent.TooLarge, "settings with a value of their own: limit MaxSet is %d", MaxSet)}
	}
	var n *Entry
	if !c.Unset {
		n = &Entry{Name: c.Name, Value: c.Value, Modified: x.Index()}
	}
	t.change(x, c.Name, o, n)
	return core.Result{Record: n}
}

// change puts n in the place of o, and remembers and tells of it.
func (t *tables) change(x *core.Exec, name string, o, n *Entry) {
	t.put(name, n)
	t.values = valuesOf(t.entries)
	c := &Change{Index: x.Index(), Name: name, Before: valueOf(o), After: valueOf(n), Origin: x.Origin()}
	oldest := max(0, len(t.history)+1-MaxHistory)
	t.history = append(slices.Clone(t.history[oldest:]), c)
	told := core.FamilyChange{Topic: core.Topic{Name: name}, Size: 64 + 2*len(name)}
	if o != nil {
		told.Before = o
	}
	if n != nil {
		told.After = n
	}
	x.Tell(Family{}, told)
}

func valueOf(e *Entry) *int64 {
	if e == nil {
		return nil
	}
	v := e.Value
	return &v
}

func (v *state) find(name string) (int, bool) {
	return slices.BinarySearchFunc(v.entries, name, func(e *Entry, name string) int { return strings.Compare(e.Name, name) })
}

// put stores the entry of a name, nil: it has its default. Older views read the list
// there is.
func (t *tables) put(name string, n *Entry) {
	i, known := t.find(name)
	list := slices.Clone(t.entries)
	switch {
	case n == nil:
		list = slices.Delete(list, i, i+1)
	case known:
		list[i] = n
	default:
		list = slices.Insert(list, i, n)
	}
	t.entries = list
}
