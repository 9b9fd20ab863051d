package core

import (
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Family is a kind of replicated state that stands beside sessions and leases.
// It is a folder of its own: its commands with their encoding, its tables, its
// view, its section of a snapshot, what the end of a session means to it, and
// what watchers are told. State knows it by this interface alone.
type Family interface {
	// Number is the field of its commands in a Command, and tells its changes and
	// topics apart: from 40 on, never used for another family.
	Number() wire.Number
	// Schema is the [SchemaVersion] that brought it, 3 or later. Its commands name it,
	// so that members that know no such version refuse them; one that names an
	// earlier version is refused by all alike.
	Schema() uint32
	// Name is that of its section in snapshots.
	Name() string
	// New returns its tables without a record.
	New() Tables
}

// Fielded is a family of whose records watchers may select the changes by field.
// Records are those of its changes, before and after; nil: there is none.
type Fielded interface {
	Family
	// Fields are the names, in the order of their numbers: at most 64.
	Fields() []string
	// Changed has a bit for each field in which two records differ; all if one of them
	// is none.
	Changed(before, after any) uint64
	// Text is what a field of a record says, if there is a record.
	Text(record any, field int) (text string, there bool)
}

// Parted is a family some of whose fields have parts, by which watchers may select
// changes as well.
type Parted interface {
	Fielded
	// ValidatePart returns an Invalid error unless a field may have a part of a name.
	ValidatePart(field int, name string) error
	// PartsChanged reports whether in one of the parts two records differ, either of
	// which may be none. A part that is not there says nothing, as that of a record that
	// is not there.
	PartsChanged(before, after any, parts []Part) bool
}

// Part is a part of a field.
type Part struct {
	Field int
	Name  string
}

// Tables are the records of one family. They belong to the goroutine of their
// State, and follow its rules: no clock, goroutine, randomness, map order; no
// panic whatever a command says; work bounded by the command and stated limits.
type Tables interface {
	// Apply executes a command. The bytes alias the log: what stays is copied.
	Apply(x *Exec, command []byte) Result
	// EndSession is told that a session is over, to let go of what the session had.
	// It is told after leases, and before families of greater numbers. Whatever it
	// changes it tells of.
	EndSession(x *Exec, s *Session)
	// View returns the records as they are, in constant time. It never changes.
	View() FamilyView
	// ReadRecord takes a record of a snapshot, in the order in which they were
	// written, and reports whether it can be one. What stays of its bytes is copied.
	ReadRecord(record []byte) bool
	// Check verifies the invariants, once all records are read and in tests.
	Check(open func(incumbent.SessionID) bool, index incumbent.Index) error
}

// FamilyView is one state of a family. Any number of goroutines may read it.
type FamilyView interface {
	// Records is how many records Write writes.
	Records() int
	// Write calls record with each record, in an order that follows from what they
	// say, until it returns false. Equal states give equal records.
	Write(record func([]byte) bool)
}

// Exec is the command under way, as a family sees it.
type Exec struct{ s *State }

// Index is the command's: what it changes is told, and modified, under it.
func (x *Exec) Index() incumbent.Index { return x.s.at }

// Origin is where the command came from. It never changes.
func (x *Exec) Origin() *Origin { return x.s.origin() }

// Principal is who asked for the command: kind and name ("agent:db-1"), as the
// door that took it has found out, whichever member proposed it. "": nobody did,
// but the leader's clock or a member itself. A rule that depends on what apply
// finds (who owns a record) may ask for it: the door cannot know what the log
// holds before the command.
func (x *Exec) Principal() string { return x.s.origin().Principal }

// Terms are what the settings of the cluster say; never nil.
func (x *Exec) Terms() *Terms { return x.s.holding(x.s.terms) }

// OverQuota says why what the command would make a principal and a namespace have is
// over a quota, nil: it is not, or nobody is to be stopped by it.
func (x *Exec) OverQuota(owner, namespace string, owners, namespaces Growth) *incumbent.Error {
	return x.s.overQuota(&request{owner: owner, namespace: namespace, owners: owners, namespaces: namespaces})
}

// Session returns an open session, nil if it is not open.
func (x *Exec) Session(id incumbent.SessionID) *Session { return x.s.counts[id].session }

// Held reports whether a lease is held under a token, or offered, as [IfHeld] says.
func (x *Exec) Held(name incumbent.Name, token incumbent.Token) bool { return x.s.Held(name, token) }

// OpenSession opens a session of an id, with a ttl (0: none), as an
// [OpenSessionCommand] does that whoever asked for the command under way sends: the
// Session of the result is the one that is open then. It is no part of a transaction.
func (x *Exec) OpenSession(id incumbent.SessionID, ttl time.Duration) Result {
	if x.s.running != nil {
		return Result{Err: fail(incumbent.Invalid, "no session is opened in a transaction")}
	}
	c := &x.s.cmd
	c.session, c.ttl = id, ttl.Milliseconds()
	return x.s.openSession(c)
}

// CloseSession closes a session for a reason, behind the command under way: once it has
// succeeded as a whole, and with all that follows for leases and families.
func (x *Exec) CloseSession(id incumbent.SessionID, reason string) {
	x.s.closing = append(x.s.closing, closing{id, reason})
}

// Execute executes another command in the place of the one under way, of which it
// may be the result: under its index, with the origin and the key of its own, of
// which the one under way must have none. limit is how many bytes it may have. It
// is refused as Invalid if it needs a newer schema than the one under way, or is of
// the same family. Nothing of the command under way may be asked for afterwards.
func (x *Exec) Execute(cmd []byte, limit int) Result {
	s := x.s
	op, schema := s.cmd.op, s.cmd.schema
	if s.cmd.keyID != nil {
		return Result{Err: fail(incumbent.Invalid, "the key belongs to the command that is carried")}
	}
	err := s.cmd.decode(cmd, limit)
	switch {
	case err != nil:
		return Result{Err: err}
	case s.cmd.schema > schema || s.cmd.op == op:
		return Result{Err: fail(incumbent.Invalid, "a command that cannot be carried by another")}
	}
	return s.admit(&s.cmd)
}

// Tell tells of a change. Its index and origin are the command's.
func (x *Exec) Tell(f Family, c FamilyChange) {
	c.Family = f.Number()
	x.s.views = nil
	x.s.records += one(c.Before == nil) - one(c.After == nil)
	x.s.emit(Change{What: FamilyChanged, Family: &c})
}

// FamilyChange is a change of a record of a family, of a deadline, or of both.
// Watchers are told of it under its topic if it has one.
type FamilyChange struct {
	Family   wire.Number
	Topic    Topic
	Also     []Topic   // under which it is told, too: of what is another because of it
	Before   any       // what was, of a type that the family's package says; nil: nothing
	After    any       // what is
	Size     int       // bytes that keeping the change costs
	Deadline *Deadline // that begins, in the place of the one with its ID; with After 0: that is over. nil: none
}

// Told reports whether watchers are to be told of it.
func (c *FamilyChange) Told() bool { return c.Before != nil || c.After != nil || c.Topic != (Topic{}) }

// Topic is what watchers select changes by, within a family.
type Topic struct {
	Scope [2]string
	Name  string
}

// firstFamily is where the numbers of families begin.
const firstFamily = 40

// EncodeFamily encodes a command of a family.
func EncodeFamily(meta Meta, f Family, command []byte) []byte {
	return encode(uint64(f.Schema()), meta, f.Number(), func(e *encoder) { e.B = append(e.B, command...) })
}

// family is one family as a State keeps it.
type family struct {
	Family
	tables Tables
}

func newFamilies(fs []Family) []family {
	list := make([]family, len(fs))
	for i, f := range fs {
		if f.Number() < firstFamily || i > 0 && f.Number() <= fs[i-1].Number() {
			panic(fmt.Sprintf("core: family %s has number %d: they ascend from %d on", f.Name(), f.Number(), firstFamily))
		}
		if f.Schema() < familySchema {
			panic(fmt.Sprintf("core: family %s has schema %d: families came with %d", f.Name(), f.Schema(), familySchema))
		}
		list[i] = family{f, f.New()}
	}
	return list
}

// family returns the tables of the family of a number if a schema has it, else nil.
func (s *State) family(n wire.Number, schema uint64) Tables {
	for _, f := range s.families {
		if f.Number() == n && schema >= uint64(f.Schema()) {
			return f.tables
		}
	}
	return nil
}

// applyFamily executes a command of a family. One that this member does not have
// is refused: which ones there are follows from the version of the program. So one
// that names a schema without its family is refused here and not where it is
// decoded: members whose program has no such family come to this point, too, and
// keep the same result for its key.
func (s *State) applyFamily(c *command) Result {
	t := s.family(c.op, c.schema)
	if t == nil {
		return Result{Err: fail(incumbent.Invalid, "command of a kind that is not kept here")}
	}
	s.views = nil
	r := t.Apply(s.exec(), c.body)
	s.govern()
	return r
}

// exec is the command under way, as families see it: one for all, made once.
func (s *State) exec() *Exec {
	if s.seen == nil {
		s.seen = &Exec{s}
	}
	return s.seen
}

// Family returns the view of the family of a number; nil: it is not kept here.
func (v *View) Family(n wire.Number) FamilyView {
	for i := range v.families {
		if v.families[i].number == n {
			return v.families[i].FamilyView
		}
	}
	return nil
}

// namedView is the view of a family.
type namedView struct {
	FamilyView
	number wire.Number
	schema uint64
	name   string
}

// familyViews are made anew only when a family has changed: most batches are
// about leases.
func (s *State) familyViews() []namedView {
	if s.views == nil {
		s.views = make([]namedView, len(s.families))
		for i, f := range s.families {
			s.views[i] = namedView{f.tables.View(), f.Number(), uint64(f.Schema()), f.Name()}
		}
	}
	return s.views
}
