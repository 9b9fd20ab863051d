package core

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
)

// shared are the tables that a View sees: copy-on-write trees of immutable
// records, and counts. Copying the struct with copyTrees is O(1).
//
// Every lease record has a row for as long as there is one, and what is found by
// something else is found by way of its row. The order of names is kept apart from
// the records: comparing names is what costs, and only a record that comes or goes
// changes it.
type shared struct {
	index     incumbent.Index // of the newest command
	keysFloor incumbent.Index // every key chosen at or after it has its result kept
	held      int
	pinned    int // lease records with pins

	names    *btree.BTreeG[*entry]   // every lease record's row, by name
	rows     rows                    // every lease record
	tokens   *btree.BTreeG[byToken]  // leases held
	owned    *btree.BTreeG[byOwner]  // leases held through a session
	places   *btree.BTreeG[place]    // places in queues, in their order
	waits    *btree.BTreeG[byWaiter] // the same, by who waits
	sessions *btree.BTreeG[*Session] // open sessions, by id
	kept     *btree.BTreeG[*kept]    // results of keyed commands, by index

	members     []*Member             // of the cluster, by id; never changed in place
	goneMembers *btree.BTreeG[uint64] // ids of removed ones
}

// tables adds what only apply needs; all of it follows from shared.
type tables struct {
	shared
	directory directory
	lastRow   uint64               // rows are not replicated: a restored state has others
	freeRows  []uint64             // given back, newest last
	free      *btree.BTreeG[byAge] // leases that may be forgotten, longest unchanged first
	keptByID  map[string]*kept
	waiting   map[placeKey]spot              // the same as places
	turns     *btree.BTreeG[byTurn]          // the same, by principal
	shares    map[share]int                  // how many of them each principal has
	counts    map[incumbent.SessionID]counts // for every open session
	usage     *Usage                         // of principals and namespaces
	journal   *[]func()                      // takes back what is done; nil: nothing will be
	steps     uint64                         // rows written, or read one after the other: what a command's cost is bounded by
}

// counts is what one session has, and where it is: searching the tree costs more.
type counts struct {
	session *Session
	owner   *Count // of the session
	leases  int
	pinned  int // of leases: kept from expiring
	waits   int
}

type byToken struct {
	token incumbent.Token
	row   uint64
}

// byOwner orders the critical leases of a session before its others, so that one
// look says whether there are any.
type byOwner struct {
	session  incumbent.SessionID
	ordinary bool
	row      uint64
}

// byAge orders by last change, then by name: one command may free several.
type byAge struct {
	modified incumbent.Index
	entry    *entry
}

// kept is the result of a command with a key.
type kept struct {
	id     string
	result Result
}

func newTables() tables {
	o := btree.Options{NoLocks: true, Degree: treeDegree}
	return tables{
		shared: shared{
			names:    btree.NewBTreeGOptions(func(a, b *entry) bool { return nameLess(&a.Name, &b.Name) }, o),
			tokens:   btree.NewBTreeGOptions(func(a, b byToken) bool { return a.token < b.token }, o),
			owned:    btree.NewBTreeGOptions(lessOwner, o),
			places:   newPlaces(o),
			waits:    btree.NewBTreeGOptions(lessWaiter, o),
			sessions: btree.NewBTreeGOptions(func(a, b *Session) bool { return compareID(&a.ID, &b.ID) < 0 }, o),
			kept:     btree.NewBTreeGOptions(func(a, b *kept) bool { return a.result.Index < b.result.Index }, o),

			goneMembers: btree.NewBTreeGOptions(func(a, b uint64) bool { return a < b }, o),
		},
		directory: newDirectory(),
		free:      btree.NewBTreeGOptions(lessAge, o),
		keptByID:  make(map[string]*kept),
		waiting:   make(map[placeKey]spot),
		turns:     btree.NewBTreeGOptions(lessTurn, o),
		shares:    make(map[share]int),
		counts:    make(map[incumbent.SessionID]counts),
		usage:     newUsage(),
	}
}

func (t *shared) copyTrees() shared {
	c := *t
	c.names = t.names.Copy()
	c.rows = t.rows.copy()
	c.tokens = t.tokens.Copy()
	c.owned = t.owned.Copy()
	c.places = t.places.Copy()
	c.waits = t.waits.Copy()
	c.sessions = t.sessions.Copy()
	c.kept = t.kept.Copy()
	c.goneMembers = t.goneMembers.Copy()
	return c
}

// nameLess compares texts for being equal first: namespaces and models mostly
// are, and interned, which costs one comparison of pointers.
func nameLess(a, b *incumbent.Name) bool {
	if a.Namespace != b.Namespace {
		return a.Namespace < b.Namespace
	}
	if a.Model != b.Model {
		return a.Model < b.Model
	}
	return a.Lease < b.Lease
}

func lessAge(a, b byAge) bool {
	if a.modified != b.modified {
		return a.modified < b.modified
	}
	return nameLess(&a.entry.Name, &b.entry.Name)
}

func lessOwner(a, b byOwner) bool {
	if c := compareID(&a.session, &b.session); c != 0 {
		return c < 0
	}
	if a.ordinary != b.ordinary {
		return b.ordinary
	}
	return a.row < b.row
}

func compareID(a, b *incumbent.SessionID) int {
	if c := cmp.Compare(binary.BigEndian.Uint64(a[:8]), binary.BigEndian.Uint64(b[:8])); c != 0 {
		return c
	}
	return cmp.Compare(binary.BigEndian.Uint64(a[8:]), binary.BigEndian.Uint64(b[8:]))
}

func compareIDs(a, b incumbent.SessionID) int { return compareID(&a, &b) }

func (t *shared) lease(e *entry) *Lease { return t.rows.get(e.row) }

// leasesOf lists the leases that a session owns, by name.
func (t *shared) leasesOf(id incumbent.SessionID) []*Lease {
	var list []*Lease
	t.owned.Ascend(byOwner{session: id}, func(o byOwner) bool {
		if o.session != id {
			return false
		}
		list = append(list, t.rows.get(o.row))
		return true
	})
	slices.SortFunc(list, func(a, b *Lease) int { return a.Name.Compare(b.Name) })
	return list
}

// scan calls fn with the records that come at or behind a name, by name.
func (t *shared) scan(from incumbent.Name, fn func(*Lease) bool) {
	t.names.Ascend(&entry{Name: from}, func(e *entry) bool { return fn(t.lease(e)) })
}

func (t *shared) leaseByToken(token incumbent.Token) *Lease {
	item, held := t.tokens.Get(byToken{token: token})
	if !held {
		return nil
	}
	return t.rows.get(item.row)
}

func (t *shared) session(id incumbent.SessionID) *Session {
	s, _ := t.sessions.Get(&Session{ID: id})
	return s
}

func (l *Lease) forgettable() bool { return l != nil && l.Token == 0 && len(l.Pins) == 0 }

// replace puts n where o was, in every table that knows leases. Either may be
// nil. Queues are not its business: see addPlace and dropPlace.
func (t *tables) replace(o, n *Lease) {
	t.steps++
	if t.journal != nil {
		*t.journal = append(*t.journal, func() { t.replace(n, o) })
	}
	var e *entry
	switch {
	case o == nil:
		e = n.entry
		t.takeRow(e)
		t.enter(e)
		t.names.Load(e) // mostly behind all others while a snapshot is read: no search
	case n == nil:
		e = o.entry
		t.strike(e)
		t.names.Delete(e)
		t.freeRows = append(t.freeRows, e.row)
	default:
		e = o.entry
	}
	t.rows.set(e.row, n)
	if o.forgettable() {
		t.free.Delete(byAge{o.Modified, e})
	}
	if n.forgettable() {
		t.free.Set(byAge{n.Modified, e})
	}
	t.replaceHolding(e, o, n)
	t.replaceOwner(e, o, n)
	t.pinned += one(n != nil && len(n.Pins) > 0) - one(o != nil && len(o.Pins) > 0)
}

// takeRow gives an entry a row. What is undone is undone backwards: so an entry that
// comes back gets the row that it had.
func (t *tables) takeRow(e *entry) {
	row := t.lastRow + 1
	if n := len(t.freeRows); n > 0 {
		row = t.freeRows[n-1]
		t.freeRows = t.freeRows[:n-1]
	} else {
		t.lastRow = row
	}
	if e.row != 0 && e.row != row {
		panic(fmt.Sprintf("core: lease %v comes back to row %d, it had %d", e.Name, row, e.row))
	}
	e.row = row
}

func (t *tables) replaceHolding(e *entry, o, n *Lease) {
	was, is := incumbent.Token(0), incumbent.Token(0)
	if o != nil {
		was = o.Token
	}
	if n != nil {
		is = n.Token
	}
	if was != 0 && was != is {
		t.tokens.Delete(byToken{token: was})
	}
	if is != 0 && was != is {
		t.tokens.Load(byToken{is, e.row}) // mostly the greatest
	}
	if was == is {
		return
	}
	if by := one(is != 0) - one(was != 0); by != 0 {
		t.held += by
		t.usage.namespaces.get(e.Name.Namespace).add(Leases, int64(by))
	}
	t.chargeClaimer(o, -1)
	t.chargeClaimer(n, 1)
}

// chargeClaimer counts a holding that no session owns for who claimed it.
func (t *tables) chargeClaimer(l *Lease, by int64) {
	if !l.Free() && l.Session.IsZero() {
		t.usage.principals.get(l.Origin.Principal).add(Leases, by)
	}
}

func (t *tables) replaceOwner(e *entry, o, n *Lease) {
	was, is := ownerOf(e, o), ownerOf(e, n)
	switch {
	case was.session != is.session:
		t.countLease(was.session, o, -1)
		t.countLease(is.session, n, 1)
	case is.session.IsZero():
		return
	default:
		if by := one(n.keptByPin()) - one(o.keptByPin()); by != 0 {
			t.count(is.session, 0, by, 0)
		}
	}
	if was == is {
		return
	}
	if !was.session.IsZero() {
		t.owned.Delete(was)
	}
	if !is.session.IsZero() {
		t.owned.Set(is)
	}
}

// ownerOf is a lease's place in the table of owners; nil and a lease without a
// session have none.
func ownerOf(e *entry, l *Lease) byOwner {
	if l == nil || l.Session.IsZero() {
		return byOwner{}
	}
	return byOwner{l.Session, !l.Critical, e.row}
}

// countLease counts a lease that a session, if there is one, owns or no longer owns.
func (t *tables) countLease(id incumbent.SessionID, l *Lease, by int) {
	if !id.IsZero() {
		t.count(id, by, by*one(l.keptByPin()), 0)
	}
}

func (t *tables) count(id incumbent.SessionID, leases, pinned, waits int) {
	c := t.counts[id]
	if c.owner != nil { // else its session is still to come
		c.owner.add(Leases, int64(leases+waits))
		c.owner.add(Places, int64(waits))
	}
	c.leases += leases
	c.pinned += pinned
	c.waits += waits
	t.counts[id] = c
}

// putSession stores a session, a new one or the successor of one.
func (t *tables) putSession(n *Session) {
	c := t.counts[n.ID]
	if o := c.session; o != nil && t.journal != nil {
		*t.journal = append(*t.journal, func() { t.putSession(o) })
	}
	if c.session == nil {
		c.owner = t.usage.principals.get(n.Owner())
		c.owner.add(Sessions, 1)
	}
	c.session = n
	t.counts[n.ID] = c
	t.sessions.Set(n)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
