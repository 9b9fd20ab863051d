// Package settings is the family of the settings of the cluster: what every member
// has to have alike, or an operator wants to change while members run.
//
// table.go declares them: name, unit, bounds, default, what each does. A setting that
// nobody has set has its default, so a state without records has all of them. Some
// are for each principal or namespace; behind an @ such a name says for whom: the
// name of one, or what names begin with and a "*".
//
// Members read [Values] from their view, without a lock, and act by what they say from
// the next moment on. What commands of all kinds may do follows from [core.Terms],
// which are part of them. What is a member's own (addresses, files, what its machine
// has) is no setting of the cluster: it stays in the member's file.
//
// # Invariants
//
//   - No record has a name that is not declared, or a value out of its bounds: a
//     command that says so is refused, whoever proposed it. A declared name is never
//     used for anything else, and its bounds are never narrowed.
//   - [Values] follow from the records.
//   - The history is what changed them, oldest first, the newest [MaxHistory].
//
// # Concurrency
//
// As in package core: tables belong to one goroutine. The records, and what follows
// from them, never change: a change puts others in their place. They are few.
package settings

import (
	"strings"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Number is that of the family.
const Number wire.Number = 46

// Limits of the family. They decide what a command does: changing one is a new
// schema version.
const (
	MaxSet          = 1000 // settings that have a value of their own, those behind an @ each
	MaxHistory      = 500  // changes that are remembered
	MaxPatternBytes = core.MaxOriginBytes
)

// Entry is a setting that somebody has set. It never changes.
type Entry struct {
	Name     string // as declared, and perhaps @ and for whom
	Value    int64  // in the setting's unit
	Modified incumbent.Index
}

// Change is one of the history. It never changes.
type Change struct {
	Index  incumbent.Index
	Name   string
	Before *int64 // nil: the default
	After  *int64
	Origin *core.Origin // who and, for people, when
}

// Family is the family.
type Family struct{}

// Number implements [core.Family].
func (Family) Number() wire.Number { return Number }

// Schema implements [core.Family].
func (Family) Schema() uint32 { return 5 }

// Name implements [core.Family].
func (Family) Name() string { return "settings" }

// New implements [core.Family].
func (Family) New() core.Tables { return &tables{state: state{values: defaults}} }

// Ends implements [core.Ender]: what is set ends nothing that is held, and extensions are
// not judged by it. Operators set while much else waits to be applied.
func (Family) Ends([]byte, func(*core.End)) bool { return true }

var (
	_ core.Governing = (*tables)(nil)
	_ core.Ender     = Family{}
)

type tables struct {
	state
	part uint8 // of the section that is being restored
}

// View is the family after one batch of commands. It never changes and any number of
// goroutines may read it.
type View struct{ state }

// state is replaced by parts, none of which ever changes.
type state struct {
	entries []*Entry  // by name
	history []*Change // oldest first
	values  *Values
}

// Of is the family's view of a state that has it.
func Of(v *core.View) *View {
	f, _ := v.Family(Number).(*View)
	return f
}

// View implements [core.Tables].
func (t *tables) View() core.FamilyView {
	return &View{t.state}
}

// Terms implements [core.Governing].
func (t *tables) Terms() *core.Terms { return &t.values.terms }

// EndSession implements [core.Tables]: settings belong to no session.
func (*tables) EndSession(*core.Exec, *core.Ending) {}

// Values are what all settings say; of a state without the family, their defaults.
func (v *View) Values() *Values {
	if v == nil {
		return defaults
	}
	return v.values
}

// Entries are the settings that somebody has set, by name. Not to be changed.
func (v *View) Entries() []*Entry { return v.entries }

// Entry returns a setting that somebody has set, nil: it has its default.
func (v *state) Entry(name string) *Entry {
	if i, ok := v.find(name); ok {
		return v.entries[i]
	}
	return nil
}

// History is what changed, oldest first. Not to be changed.
func (v *View) History() []*Change { return v.history }

// Split takes a name apart: what is declared, and for whom.
func Split(name string) (declared, pattern string) {
	declared, pattern, _ = strings.Cut(name, "@")
	return declared, pattern
}
