// Package parts is the family of commands that are on their way: one that is
// larger than an entry of the log may be travels in parts, each an entry's command
// of its own, and other entries go between them. The parts wait here, outside all
// other tables. The last one puts them together and executes the whole in its own
// place: under its index, with the whole's origin and key. Until then nothing of
// the command has happened.
//
// The member that proposes a command names itself, and in all parts but the first
// the index that the first was given: so no part is taken for one of another
// command, nor of an earlier life of the member. It sends one command at a time and
// a part only when the one before has been applied, so a first part takes the place
// of whatever waits of its member.
//
// What does not go on is discarded by a command that names the newest part: the
// proposer's, when it gives up, or the leader's clock's ([core.Deadline]), when no
// part has come for [Patience]. That is the one rule for a member that has been
// removed, has been restarted, or has lost its connection.
//
// # Invariants
//
//   - All parts but a last one, which never waits, have [PartBytes].
//   - Of each member at most one command waits, and those that wait will not have
//     more than [MaxWaiting] bytes together: room for the whole is found with the
//     first part, so that none is refused in the middle for lack of it.
//
// # Concurrency
//
// As in package core: tables belong to one goroutine, a [View] to nobody.
package parts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Number is that of the family, and schema the version that brought it.
const (
	Number wire.Number = 41
	schema uint32      = 4
)

// Limits of the family. They decide what a command does: changing one is a new
// schema version.
const (
	PartBytes   = 256 << 10        // of a command in one part, save for the last: as much as commands of one entry have
	MaxBytes    = 64 << 20         // one command
	MaxWaiting  = 256 << 20        // commands of which parts wait, as long as they will be
	MaxCommands = core.MaxMembers  // of which parts wait
	Patience    = 10 * time.Second // from one part to the next, on the leader's clock
)

// limits are those that a test needs smaller.
type limits struct{ part, total, waiting, commands int }

// Family is the family.
type Family struct {
	carries uint32 // the schema of a command that is under way; 0: none
}

// Number implements [core.Family].
func (Family) Number() wire.Number { return Number }

// Schema implements [core.Family]. A part needs what the command needs of which it
// is one.
func (f Family) Schema() uint32 { return max(schema, f.carries) }

// Commutes implements [core.Commuting]. Until the last part nothing happens but here.
func (Family) Commutes(command []byte) bool {
	var p part
	return p.decode(command) && (p.newest != 0 || p.commutes || !p.last())
}

// Name implements [core.Family].
func (Family) Name() string { return "parts" }

// New implements [core.Family].
func (Family) New() core.Tables {
	return &tables{limits: limits{PartBytes, MaxBytes, MaxWaiting, MaxCommands}}
}

// Waiting is a command of which parts wait. It never changes.
type Waiting struct {
	Member uint64          // that proposes it
	Began  incumbent.Index // of the first part
	Newest incumbent.Index // of the newest one
	Total  int             // bytes of the whole
	parts  [][]byte
}

// Bytes is what of the command is here.
func (w *Waiting) Bytes() (n int) {
	for _, p := range w.parts {
		n += len(p)
	}
	return n
}

// deadline is when the command is given up.
func (w *Waiting) deadline() *core.Deadline {
	return &core.Deadline{Family: Number, ID: id(w.Member), Generation: w.Newest, After: Patience}
}

func id(member uint64) string { return strconv.FormatUint(member, 16) }

// View is the family after one batch of commands. It never changes and any number
// of goroutines may read it.
type View struct{ shared }

// shared is what a View sees; the list is never changed in place.
type shared struct {
	list []*Waiting // by member
}

var _ core.Timed = (*View)(nil)

// Of is the family's view of a state that has it.
func Of(v *core.View) *View {
	f, _ := v.Family(Number).(*View)
	return f
}

// Waiting returns the commands of which parts wait, by member. It is not to be
// changed.
func (v *View) Waiting() []*Waiting { return v.list }

// Deadlines implements [core.Timed]: one for each command.
func (v *View) Deadlines(fn func(*core.Deadline) bool) {
	for _, w := range v.list {
		if !fn(w.deadline()) {
			return
		}
	}
}

// EndDeadline implements [core.Timed].
func (v *View) EndDeadline(d *core.Deadline) core.Command {
	member, err := strconv.ParseUint(d.ID, 16, 64)
	if err != nil {
		panic("parts: a deadline of another family: " + d.ID)
	}
	return Drop{Member: member, Newest: d.Generation}
}

type tables struct {
	shared
	limits limits
	total  int // of all that wait
}

// View implements [core.Tables].
func (t *tables) View() core.FamilyView { return &View{t.shared} }

// EndSession implements [core.Tables]: a session has nothing here.
func (t *tables) EndSession(*core.Exec, *core.Ending) {}

func (t *tables) place(member uint64) (int, bool) {
	return slices.BinarySearchFunc(t.list, member, func(w *Waiting, id uint64) int { return cmp.Compare(w.Member, id) })
}

func (t *tables) of(member uint64) *Waiting {
	if i, ok := t.place(member); ok {
		return t.list[i]
	}
	return nil
}

// put stores what waits of a member; a nil n: nothing does any more.
func (t *tables) put(member uint64, n *Waiting) {
	i, ok := t.place(member)
	list := slices.Clone(t.list)
	if ok {
		t.total -= list[i].Total
		list = slices.Delete(list, i, i+1)
	}
	if n != nil {
		t.total += n.Total
		list = slices.Insert(list, i, n)
	}
	t.list = list
}

// Check implements [core.Tables].
func (t *tables) Check(_ func(incumbent.SessionID) bool, index incumbent.Index) error {
	total := 0
	for i, w := range t.list {
		if err := t.check(w, index); err != nil {
			return fmt.Errorf("command of member %x: %w", w.Member, err)
		}
		if i > 0 && t.list[i-1].Member >= w.Member {
			return fmt.Errorf("command of member %x is out of order", w.Member)
		}
		total += w.Total
	}
	if total != t.total || total > t.limits.waiting || len(t.list) > t.limits.commands {
		return fmt.Errorf("%d commands wait that will have %d bytes, counted %d: limits are %d and %d", len(t.list), total, t.total, t.limits.commands, t.limits.waiting)
	}
	return nil
}

func (t *tables) check(w *Waiting, index incumbent.Index) error {
	for _, p := range w.parts {
		if len(p) != t.limits.part {
			return fmt.Errorf("a part of %d bytes waits", len(p))
		}
	}
	switch n := w.Bytes(); {
	case w.Member == 0, w.Began == 0, w.Began > w.Newest, w.Newest > index:
		return fmt.Errorf("it began at %d and went on at %d, the state's index is %d", w.Began, w.Newest, index)
	case n == 0, n >= w.Total, w.Total > t.limits.total:
		return fmt.Errorf("%d of %d bytes wait", n, w.Total)
	}
	return nil
}
