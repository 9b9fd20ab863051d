package core

import (
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Family is a kind of replicated state that stands beside sessions and members.
// It is a folder of its own: its commands with their encoding, its tables, its
// view, its section of a snapshot, what the end of a session means to it, and
// what watchers are told. State knows it by this interface alone.
type Family interface {
	// Number is the field of its commands in a Command, and tells its changes and
	// topics apart: from 39 on, never used for another family.
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

// Plural is a family whose changes are each about several records: Before and After of one
// are the same, and say what became of all of them.
type Plural interface {
	Parted
	// Texts appends to a list what a field says of each record of a change.
	Texts(list []string, change any, field int) []string
	// PartsChangedOf is [Parted.PartsChanged] for those records of a change of which a field
	// says a text.
	PartsChangedOf(change any, parts []Part, field int, text string) bool
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
	// EndSession is told that a session is over, to let go of what the session had:
	// families are, in the order of their numbers. Whatever it changes it tells of.
	EndSession(x *Exec, e *Ending)
	// View returns the records as they are, in constant time but for what many changes since
	// the last one ask for and is done once. It never changes.
	View() FamilyView
	// ReadRecord takes a record of a snapshot, in the order in which they were
	// written, and reports whether it can be one. What stays of its bytes is copied.
	ReadRecord(record []byte) bool
	// Check verifies the invariants, once all records are read and in tests.
	Check(open func(incumbent.SessionID) bool, index incumbent.Index) error
}

// Agreeing are tables that check, besides, what need not be asked of those that have
// just been made from their records: that they agree with one another. It is for tests.
type Agreeing interface {
	Tables
	Agree() error
	// Indexed is how many entries that are no records of their own it looks at besides.
	Indexed() int
}

// Keeping are tables whose records may keep a session from expiring.
type Keeping interface {
	Tables
	Keeps(id incumbent.SessionID) bool
}

// Holding is what the tables and the view of the family of leases tell others.
type Holding interface {
	// Held reports whether a lease is held under a token, or offered.
	Held(name incumbent.Name, token incumbent.Token) bool
}

// Remembering is a family whose answers are kept with idempotency keys.
type Remembering interface {
	Family
	// Keep returns the bytes that a Record is kept as; none: nothing of it is.
	Keep(record any) []byte
	// Kept returns the Record that such bytes stand for. false: they cannot be any, or
	// have not the one form that Keep gives them.
	Kept(b []byte) (record any, ok bool)
}

// Ending is how a session ends.
type Ending struct {
	*Session
	Expired bool          // its deadline passed; else it was closed
	Late    time.Duration // after the deadline
	Reason  string        // why it was closed
	Absent  []byte        // the ids of sessions that are passed over where something is handed on, one behind the other
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

// ActiveSchema is that of [View]. What a later version does with the commands of an
// earlier one it does from when this says so: a member that does not know it would do
// something else. What was done is said by the records, which are not gone through when
// this rises.
func (x *Exec) ActiveSchema() uint32 { return x.s.activeSchema() }

// Terms are what the settings of the cluster say; never nil.
func (x *Exec) Terms() *Terms { return x.s.holding(x.s.terms) }

// OverQuota says why what the command would make a principal and a namespace have is
// over a quota, nil: it is not, or nobody is to be stopped by it.
func (x *Exec) OverQuota(owner, namespace string, owners, namespaces Growth) *incumbent.Error {
	return x.s.overQuota(&request{owner: owner, namespace: namespace, owners: owners, namespaces: namespaces})
}

// Session returns an open session, nil if it is not open.
func (x *Exec) Session(id incumbent.SessionID) *Session { return x.s.sessionOf(id) }

// Held reports whether a lease is held under a token, or offered.
func (x *Exec) Held(name incumbent.Name, token incumbent.Token) bool {
	return x.s.holds != nil && x.s.holds.Held(name, token)
}

// Use returns an open session that the command names: Expired if it is not open,
// Denied if it is another's.
func (x *Exec) Use(id incumbent.SessionID) (*Session, *incumbent.Error) { return x.s.use(&x.s.cmd, id) }

// Token returns a token that no other grant has: the index of the command for its
// first grant, and a further one for each further grant. What the command changes and
// tells from then on has that index; in a transaction the last one that it has taken.
// In a transaction there are no more of them than [Granting] has said.
func (x *Exec) Token() incumbent.Token { return x.s.nextToken() }

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
func (x *Exec) Tell(f Family, c FamilyChange) { x.TellAlive(f, incumbent.SessionID{}, c) }

// TellAlive tells of a change by which the client of a session, unless its id is zero,
// is known to live: the session is renewed, which is part of the change. An expiry of
// it that was proposed before is void, for the client counts on its ttl from here on.
func (x *Exec) TellAlive(f Family, id incumbent.SessionID, c FamilyChange) {
	s := x.s
	c.Family = f.Number()
	s.touched(c.Family)
	s.records += one(c.Before == nil) - one(c.After == nil)
	ch := Change{What: FamilyChanged, Family: s.newFamilyChange()}
	*ch.Family = c
	s.renew(&ch, id)
	s.emit(ch)
}

// newFamilyChange makes those of a batch together: they are read, and dropped, with its
// changes.
func (s *State) newFamilyChange() *FamilyChange {
	if len(s.familyChanges) == cap(s.familyChanges) {
		s.familyChanges = make([]FamilyChange, 0, max(1, cap(s.changes)-len(s.changes)))
	}
	n := len(s.familyChanges)
	s.familyChanges = s.familyChanges[:n+1]
	return &s.familyChanges[n]
}

// FamilyChange is a change of a record of a family, of a deadline, or of both.
// Watchers are told of it under its topic if it has one.
type FamilyChange struct {
	Family   wire.Number
	What     uint8 // how it changed, as the family's package says; 0: it says no more
	Quiet    bool  // watchers are not told
	Topic    Topic
	Also     []Topic   // under which it is told, too: of what is another because of it. Not to be changed: very many topics of changes that have the same slice cost as much as those of one
	Before   any       // what was, of a type that the family's package says; nil: nothing
	After    any       // what is
	With     any       // what comes with it for those who watch the topic, and did not change itself, of a type that the family's package says; nil: nothing
	Size     int       // bytes that keeping the change costs
	Deadline *Deadline // that begins, in the place of the one with its ID; with After 0: that is over. nil: none
}

// Told reports whether watchers are to be told of it.
func (c *FamilyChange) Told() bool {
	return !c.Quiet && (c.Before != nil || c.After != nil || c.Topic != (Topic{}))
}

// Topic is what watchers select changes by, within a family.
type Topic struct {
	Scope [2]string
	Name  string
}

// firstFamily is where the numbers of families begin.
const firstFamily = 39

// EncodeFamily encodes a command of a family.
func EncodeFamily(meta Meta, f Family, command []byte) []byte {
	return EncodeSince(f.Schema(), meta, f, command)
}

// EncodeSince is [EncodeFamily] for a command that says what a later version than the
// family's has brought.
func EncodeSince(schema uint32, meta Meta, f Family, command []byte) []byte {
	return encodeBytes(uint64(schema), meta, f.Number(), command)
}

// family is one family as a State keeps it.
type family struct {
	Family
	tables  Tables
	changed bool // since its view was made
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
		list[i] = family{Family: f, tables: f.New()}
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

// kind returns the family of a number, nil: it is not kept here.
func (s *State) kind(n wire.Number) Family {
	for _, f := range s.kinds {
		if f.Number() == n {
			return f
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
	s.touched(c.op)
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
func (v *View) Family(n wire.Number) FamilyView { return v.known(n, ^uint64(0)) }

// known returns the view of the family of a number if a schema has it, else nil: what
// [State.family] is for the state.
func (v *View) known(n wire.Number, schema uint64) FamilyView {
	for i := range v.kinds {
		if v.kinds[i].Number() == n && schema >= uint64(v.kinds[i].Schema()) {
			return v.families[i]
		}
	}
	return nil
}

// touched has the view of a family made anew.
func (s *State) touched(n wire.Number) {
	for i := range s.families {
		if s.families[i].Number() == n {
			s.families[i].changed, s.changed = true, true
			return
		}
	}
}

// familyViews are made anew of the families that have changed: most batches are about
// one.
func (s *State) familyViews() []FamilyView {
	if !s.changed && s.views != nil {
		return s.views
	}
	views := make([]FamilyView, len(s.families)) // older states have the list there is
	for i := range s.families {
		if f := &s.families[i]; f.changed || s.views == nil {
			views[i], f.changed = f.tables.View(), false
		} else {
			views[i] = s.views[i]
		}
	}
	s.views, s.changed = views, false
	return views
}
