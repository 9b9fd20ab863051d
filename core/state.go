// Package core is the replicated state of Incumbent: what all kinds of state share.
// That are the index, sessions, members, the results of idempotent commands, quotas,
// transactions, and the frame of snapshots. The kinds themselves, leases among them,
// are families, of which this package knows an interface: see [Family].
//
// [State.Apply] takes commands in log order and returns what each did and what
// changed. It has no clock, goroutine, I/O, randomness or dependence on map
// order: the same commands give the same bytes on every member. Time decides
// nothing here. What must happen later (an expiry) arrives as a command that
// says what its proposer saw, and is void if that has moved on. No rule asks a
// table of the toolchain: what a text may contain is listed in the root package.
//
// Start reading at session.go and family.go, and go on in core/lease, whose transcripts
// say the same by example. Several things or none are done by a transaction: see txn.go.
//
// # Invariants
//
//   - Every command takes an index, also one that fails or cannot be decoded; a
//     command that grants several leases takes one more for each further grant, a
//     transaction at its beginning for each that may be.
//   - Every change is told under the newest index its command has taken, so that
//     the indexes of changes never fall. A [State] that breaks this stops.
//   - A token is an index that its grant has taken. So it is greater than every token
//     before it: see [Exec.Token].
//   - The renewal of a session is greater than that of every session that had its
//     id before, and no greater than the index.
//   - What principals and namespaces have is counted as the records say. Quotas
//     ([Terms]) stop what would make it more, never what lets go or extends.
//   - Results are kept with kinds and numbers, never with the texts of errors: the
//     hash covers no wording.
//   - What a command costs is bounded by its own size and the limits, and grows
//     with the number of records and results that it ends: TestWorkOfLargeCommandsIsLinear
//     of core/lease counts it.
//   - A command that decodes is answered, if only with an error: apply panics on
//     broken invariants and on a command that needs a newer program, not on what
//     a caller says.
//
// check.go verifies them, and has families verify theirs.
//
// # Concurrency
//
// A [State] belongs to one goroutine. Records are never changed once a table
// has them, so what a [View], a [Result] or a [Change] points to may be read
// from anywhere, for as long as one likes.
package core

import (
	"errors"
	"fmt"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// State is the replicated state. Its zero value is of no use: see [New] and
// [Restore].
type State struct {
	tables
	families []family     // by number
	kinds    []Family     // the same
	views    []FamilyView // of them, as they were when it was asked for last
	changed  bool         // one has, since
	records  int          // of families, as far as changes tell: what checking costs
	limits   Limits
	holds    Holding   // the family that has the leases; nil: there is none
	governs  Governing // the family that has the settings; nil: there is none
	judges   Judging   // the family that has the policies; nil: there is none
	terms    *Terms    // as it says them

	// Of the command under way.
	cmd     command
	first   incumbent.Index // its index
	at      incumbent.Index // the newest it has taken: what it does is told under this one
	granted bool            // at is a token
	changes []Change        // of the batch
	told    incumbent.Index // that of the newest change, of whichever batch
	running *running        // the transaction that it is, while it is played
	seen    *Exec           // see exec
	closing []closing       // sessions that end behind it

	familyChanges []FamilyChange // those of changes: see newFamilyChange

	words      map[string]string // interned texts
	lastOrigin *Origin           // of the newest command that needed one
	batches    uint64
}

// New returns the empty state at index 0, with families in the order of their
// numbers.
func New(families ...Family) *State {
	s := &State{tables: newTables(), families: newFamilies(families), kinds: families, limits: defaultLimits(), words: make(map[string]string), lastOrigin: noOrigin}
	for i := range s.families {
		if c, ok := s.families[i].tables.(Counting); ok {
			c.CountIn(s.usage, s.sessionOf)
		}
		if h, ok := s.families[i].tables.(Holding); ok {
			s.holds = h
		}
		if g, ok := s.families[i].tables.(Governing); ok {
			s.governs = g
		}
		if j, ok := s.families[i].tables.(Judging); ok {
			s.judges = j
		}
	}
	s.govern()
	return s
}

// govern has the settings as they are now hold.
func (s *State) govern() {
	if s.governs != nil {
		s.terms = s.governs.Terms()
	}
}

// View returns the state as the last batch left it, in constant time.
func (s *State) View() *View {
	return &View{s.copyTrees(), s.kinds, s.familyViews(), s.terms, s.usage}
}

// Index is that of the newest command.
func (s *State) Index() incumbent.Index { return s.index }

// Apply executes commands in order. results has the length of cmds and is
// filled in place; the changes are the caller's. One bad command does not touch
// the others.
func (s *State) Apply(cmds [][]byte, results []Result) []Change {
	s.changes = make([]Change, 0, len(cmds))
	for i, b := range cmds {
		results[i] = s.apply(b)
	}
	s.batches++
	s.assertInvariants()
	changes := s.changes
	s.changes, s.familyChanges = nil, nil
	return changes
}

func (s *State) apply(b []byte) Result {
	s.index++
	s.first, s.at, s.granted = s.index, s.index, false
	s.closing = s.closing[:0]
	var r Result
	if err := s.cmd.decode(b, MaxFamilyBytes); err != nil {
		r.Err = err
	} else {
		r = s.admit(&s.cmd)
	}
	if !r.Replayed {
		r.Index = s.indexOf(&r)
	}
	s.closeBehind()
	return r
}

// indexOf is that of the result of the command under way: its own, or that under
// which a transaction was told.
func (s *State) indexOf(r *Result) incumbent.Index {
	if r.Txn != nil {
		return s.at
	}
	return s.first
}

// admit executes a command that was decoded, if all members know its schema.
func (s *State) admit(c *command) Result {
	if err := s.checkSchema(c); err != nil {
		return Result{Err: err}
	}
	if c.keyID != nil {
		return s.once(c)
	}
	if err := s.outlived(c); err != nil {
		return Result{Err: err}
	}
	return s.execute(c)
}

func (s *State) execute(c *command) Result {
	switch c.op {
	case opOpenSession:
		return s.openSession(c)
	case opCloseSession:
		return s.closeSession(c)
	case opExpireSession:
		return s.expireSession(c)
	case opExtendSession:
		return s.extendSession(c)
	case opTrimKeys:
		return s.trimKeys(c)
	case opRaiseIndex:
		return s.raiseIndex(c)
	case opPutMember:
		return s.putMember(c)
	case opRemoveMember:
		return s.removeMember(c)
	case opCheckpoint:
		return Result{View: s.View()}
	case txnNumber:
		return s.txn(c)
	default: // decode lets no other through
		return s.applyFamily(c)
	}
}

// checkSchema refuses, on all members alike, what one of them does not know. A
// command that gets past this and that this member does not know is no command
// to skip: the others do what it says. So this one stops.
func (s *State) checkSchema(c *command) *incumbent.Error {
	active := uint64(s.activeSchema())
	if len(s.members) > 0 && c.schema > active {
		return incumbent.Errorf(incumbent.Invalid, "command has schema %d, a member knows 1 to %d", c.schema, active)
	}
	if c.schema > SchemaVersion {
		panic(fmt.Sprintf("core: command %d has schema %d, this member knows 1 to %d: it needs a newer version of the program",
			s.first, c.schema, SchemaVersion))
	}
	return nil
}

// Indexes are an epoch in the high bits and a count in the low ones, so that one
// number orders both. An epoch is good for 10^12 commands; a count that fills it
// just goes on into the next. 2^13 epochs stay below 2^53, up to which numbers
// are exact in every JSON reader.
const epochBits = 40

// NextEpoch returns the first index of the epoch but one behind that of i. So at
// least 2^40 commands lie between: more than the source of a restored state can
// have executed behind i.
func NextEpoch(i incumbent.Index) incumbent.Index { return (i>>epochBits + 2) << epochBits }

// SameHistory reports whether no state was restored or recovered between two indexes. Across
// that, what had one of them may have been lost: that one is below the other proves nothing.
func SameHistory(a, b incumbent.Index) bool { return a>>epochBits == b>>epochBits }

// raiseIndex makes sure that nothing a group issues from now on is smaller than
// what the source of a restored snapshot can have issued.
func (s *State) raiseIndex(c *command) Result {
	to := incumbent.Index(c.index)
	if c.epoch {
		to = max(to, NextEpoch(s.first))
	}
	if to > MaxIndex {
		return Result{Err: incumbent.Errorf(incumbent.Invalid, "index %d: limit MaxIndex is %d", to, uint64(MaxIndex))}
	}
	s.index = max(s.index, to)
	return Result{}
}

// emit tells of a change by the command under way, under the newest index that
// it has taken. Whoever follows the changes stops at one that falls behind: so
// this member stops before it has told of one.
func (s *State) emit(ch Change) {
	if s.at < s.told || s.at > s.index {
		panic(fmt.Sprintf("core: change %v has index %d, after %d; newest is %d", ch.What, s.at, s.told, s.index))
	}
	s.told = s.at
	ch.Index, ch.Origin = s.at, s.origin()
	s.changes = append(s.changes, ch)
}

// renew makes a session, if there is one, part of a change that touches it.
func (s *State) renew(ch *Change, id incumbent.SessionID) {
	if id.IsZero() {
		return
	}
	o := s.open[id].session
	ch.SessionBefore, ch.Session = o, o.renewed()
	s.putSession(ch.Session)
}

// nextToken is the index of the command for its first grant and a further one
// for each further grant, so that no two grants share a token. Whatever is
// remembered and told from then on has that index; of a transaction the last one
// that it has taken.
func (s *State) nextToken() incumbent.Token {
	if s.running != nil {
		return s.running.token(s.first)
	}
	if s.granted {
		s.index++
		s.at = s.index
	}
	s.granted = true
	return incumbent.Token(s.at)
}

// word returns a text that lives on, and mostly lives already: doors,
// principals, namespaces and models are few.
func (s *State) word(b []byte) string {
	if len(b) == 0 {
		return ""
	}
	if w, ok := s.words[string(b)]; ok {
		return w
	}
	if len(s.words) >= maxWords {
		clear(s.words)
	}
	w := string(b)
	s.words[w] = w
	return w
}

// origin is that of the command under way: made when it is first asked for, and
// shared with the command before if that had the same.
func (s *State) origin() *Origin {
	c := &s.cmd
	if c.origin != nil {
		return c.origin
	}
	if o := s.lastOrigin; atMillis(o.At) != c.at || o.Door != string(c.door) || o.Address != string(c.address) || o.Principal != string(c.principal) {
		s.lastOrigin = &Origin{At: atTime(c.at), Door: s.word(c.door), Address: s.word(c.address), Principal: s.word(c.principal)}
	}
	c.origin = s.lastOrigin
	return c.origin
}

// fail is the caller's fault, in words that need no values.
func fail(k incumbent.Kind, message string) *incumbent.Error {
	return &incumbent.Error{Kind: k, Message: message}
}

// invalid returns what a check of the root package found.
func invalid(err error) *incumbent.Error {
	var e *incumbent.Error
	if err == nil || errors.As(err, &e) {
		return e
	}
	return fail(incumbent.Invalid, err.Error())
}

// TTLOf reads a ttl without overflow, whatever the number.
func TTLOf(ms int64) (time.Duration, *incumbent.Error) {
	if ms < incumbent.MinTTL.Milliseconds() || ms > incumbent.MaxTTL.Milliseconds() {
		return 0, incumbent.Errorf(incumbent.Invalid, "ttl of %d ms is outside %v to %v", ms, incumbent.MinTTL, incumbent.MaxTTL)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func (c *command) lateness() time.Duration {
	return time.Duration(min(max(c.late, 0), maxLateMillis)) * time.Millisecond
}
