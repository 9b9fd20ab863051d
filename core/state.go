// Package core is the replicated state of Incumbent: sessions, the leases they
// own, and the results of idempotent commands.
//
// [State.Apply] takes commands in log order and returns what each did and what
// changed. It has no clock, goroutine, I/O, randomness or dependence on map
// order: the same commands give the same bytes on every member. Time decides
// nothing here. What must happen later (an expiry) arrives as a command that
// says what its proposer saw, and is void if that has moved on. No rule asks a
// table of the toolchain: what a text may contain is listed in the root package.
//
// Start reading at claim.go; the transcripts in testdata say the same by example.
// Several things or none are done by a transaction: see txn.go.
//
// # Invariants
//
//   - Every command takes an index, also one that fails or cannot be decoded; a
//     command that grants several leases takes one more for each further grant, a
//     transaction at its beginning for each that may be.
//   - Every change is told under the newest index its command has taken, so that
//     the indexes of changes never fall, and the record of a lease says in
//     Modified under which it was told. A [State] that breaks this stops.
//   - The token of a holding is an index that its grant has taken. So it is greater
//     than every token before it, of this lease and of every other.
//   - A free lease has no queue: whatever frees a lease hands it to the next
//     waiter in the same command, as an offer.
//   - Every owner of a lease and every waiter is an open session.
//   - The renewal of a session is greater than that of every session that had its
//     id before, and no greater than the index.
//   - A lease has a ttl of its own exactly if it is held and no session owns it.
//   - The holder of a lease does not stand in its queue.
//   - What principals and namespaces have is counted as the records say. Quotas
//     ([Terms]) stop what would make it more, never what lets go or extends.
//   - Results are kept with kinds and numbers, never with the texts of errors: the
//     hash covers no wording.
//   - What a command costs is bounded by its own size and the limits, and grows
//     with the number of leases, places and results that it ends, not with the
//     length of the queues they are in: cost_test.go counts it.
//   - A command that decodes is answered, if only with an error: apply panics on
//     broken invariants and on a command that needs a newer program, not on what
//     a caller says.
//
// check.go verifies them, and that all tables agree.
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
	families []family    // by number
	views    []namedView // of them; nil: one has changed since
	records  int         // of families, as far as changes tell: what checking costs
	limits   limits
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

	words      map[string]string // interned texts
	lastOrigin *Origin           // of the newest command that needed one
	batches    uint64
}

// New returns the empty state at index 0, with families in the order of their
// numbers.
func New(families ...Family) *State {
	s := &State{tables: newTables(), families: newFamilies(families), limits: defaultLimits(), words: make(map[string]string), lastOrigin: noOrigin}
	for i := range s.families {
		if c, ok := s.families[i].tables.(Counting); ok {
			c.CountIn(s.usage)
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
func (s *State) View() *View { return &View{s.copyTrees(), s.familyViews(), s.terms, s.usage} }

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
	s.changes = nil
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
	s.forget()
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
	case opClaim:
		return s.claim(c)
	case opAccept:
		return s.accept(c)
	case opRelease:
		return s.release(c)
	case opRevoke:
		return s.revoke(c)
	case opTransfer:
		return s.transfer(c)
	case opExpire:
		return s.expire(c)
	case opPin:
		return s.pin(c)
	case opUnpin:
		return s.unpin(c)
	case opLeaveQueue:
		return s.leaveQueue(c)
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
	if ch.Lease != nil && ch.Lease.Modified != s.at {
		panic(fmt.Sprintf("core: change %v has index %d, its lease %d", ch.What, s.at, ch.Lease.Modified))
	}
	s.told = s.at
	ch.Index, ch.Origin = s.at, s.origin()
	s.changes = append(s.changes, ch)
}

// put stores a changed lease and tells of it: ch.LeaseBefore is the record so
// far (nil: none), ch.Lease its successor.
func (s *State) put(ch Change) {
	ch.Lease.Modified = s.at
	s.replace(ch.LeaseBefore, ch.Lease)
	s.emit(ch)
}

// putAlive is put for what only a living client does. An expiry of its session
// that was proposed before becomes void: the client counts on its ttl from here
// on.
func (s *State) putAlive(what What, o, n *Lease, client incumbent.SessionID) {
	ch := Change{What: what, LeaseBefore: o, Lease: n}
	s.renew(&ch, client)
	s.put(ch)
}

// renew makes a session, if there is one, part of a change that touches it.
func (s *State) renew(ch *Change, id incumbent.SessionID) {
	if id.IsZero() {
		return
	}
	o := s.counts[id].session
	ch.SessionBefore, ch.Session = o, o.renewed()
	s.putSession(ch.Session)
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

func (s *State) name(c *command) incumbent.Name {
	return incumbent.Name{Namespace: s.word(c.namespace), Model: s.word(c.model), Lease: string(c.lease)}
}

// lookup returns the record that a command names. A name that has one is valid.
func (s *State) lookup(c *command) (incumbent.Name, *Lease, *incumbent.Error) {
	if l := s.find(c.namespace, c.model, c.lease); l != nil {
		return l.Name, l, nil
	}
	name := s.name(c)
	if plain(c.namespace, incumbent.MaxNamespaceBytes) && plain(c.model, incumbent.MaxNamespaceBytes) && plain(c.lease, incumbent.MaxNameBytes) {
		return name, nil, nil
	}
	return name, nil, invalid(name.Validate())
}

// plain reports whether a text is one of those that are valid wherever texts
// are: printable ASCII. Nearly all are, and this tells them at a byte a cycle.
func plain(b []byte, limit int) bool {
	for _, c := range b {
		if c <= ' ' || c > '~' {
			return false
		}
	}
	return len(b) > 0 && len(b) <= limit
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

// ttlOf reads a ttl without overflow, whatever the number.
func ttlOf(ms int64) (time.Duration, *incumbent.Error) {
	if ms < incumbent.MinTTL.Milliseconds() || ms > incumbent.MaxTTL.Milliseconds() {
		return 0, incumbent.Errorf(incumbent.Invalid, "ttl of %d ms is outside %v to %v", ms, incumbent.MinTTL, incumbent.MaxTTL)
	}
	return time.Duration(ms) * time.Millisecond, nil
}

func (c *command) lateness() time.Duration {
	return time.Duration(min(max(c.late, 0), maxLateMillis)) * time.Millisecond
}
