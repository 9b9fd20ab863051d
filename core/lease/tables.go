package lease

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/tidwall/btree"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
)

// shared are the tables that a View sees: copy-on-write trees of immutable
// records, and counts. Copying the struct with copied is O(1).
//
// Every lease record has a row for as long as there is one, and what is found by
// something else is found by way of its row. The order of names is kept apart from
// the records: comparing names is what costs, and only a record that comes or goes
// changes it.
type shared struct {
	held   int
	pinned int // lease records with pins

	names  *btree.BTreeG[*entry]   // every lease record's row, by name
	rows   rows                    // every lease record
	tokens *btree.BTreeG[byToken]  // leases held
	owned  *btree.BTreeG[byOwner]  // leases held through a session
	places *btree.BTreeG[place]    // places in queues, in their order
	waits  *btree.BTreeG[byWaiter] // the same, by who waits
}

// derived are the tables that only apply needs; all of them follow from shared. Those
// that are maps go back to how they were by what book remembers.
type derived struct {
	directory directory
	lastRow   uint64                // rows are not replicated: a restored state has others
	freeRows  *freeRow              // given back, newest first
	free      *btree.BTreeG[byAge]  // leases that may be forgotten, longest unchanged first
	turns     *btree.BTreeG[byTurn] // places in queues, by principal
}

type tables struct {
	shared
	derived
	waiting *book[placeKey, spot]           // the same as places
	shares  *book[share, int]               // how many of them each principal has
	counts  map[incumbent.SessionID]*counts // of sessions that have something
	limits  limits
	marked  *marked           // nil: there is no transaction under way that may have to be taken back
	under   exec              // the command under way
	words   map[string]string // interned texts
	steps   uint64            // rows written, or read one after the other: what a command's cost is bounded by
	reading reader            // of the section that is being restored

	usage   *core.Usage                             // where leases and places are counted; nil: nowhere
	session func(incumbent.SessionID) *core.Session // finds one that is open; nil: none can be found
}

// counts is what one session has.
type counts struct {
	owner  *core.Count // of the session; nil: it is not open
	leases int
	pinned int // of leases: kept from expiring
	waits  int
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

// freeRow is a row that was given back, and those before it. It never changes: a list
// is what it was for whoever has its head.
type freeRow struct {
	row  uint64
	next *freeRow
}

func newTables() *tables {
	o := btree.Options{NoLocks: true, Degree: treeDegree}
	t := &tables{
		shared: shared{
			names:  btree.NewBTreeGOptions(func(a, b *entry) bool { return nameLess(&a.Name, &b.Name) }, o),
			tokens: btree.NewBTreeGOptions(func(a, b byToken) bool { return a.token < b.token }, o),
			owned:  btree.NewBTreeGOptions(lessOwner, o),
			places: newPlaces(o),
			waits:  btree.NewBTreeGOptions(lessWaiter, o),
		},
		derived: derived{
			directory: newDirectory(),
			free:      btree.NewBTreeGOptions(lessAge, o),
			turns:     btree.NewBTreeGOptions(lessTurn, o),
		},
		waiting: newBook[placeKey, spot](),
		shares:  newBook[share, int](),
		counts:  make(map[incumbent.SessionID]*counts),
		limits:  defaultLimits(),
		words:   make(map[string]string),
	}
	t.under.tables = t
	return t
}

func (t *shared) copied() shared {
	c := *t
	c.names = t.names.Copy()
	c.rows = t.rows.copy()
	c.tokens = t.tokens.Copy()
	c.owned = t.owned.Copy()
	c.places = t.places.Copy()
	c.waits = t.waits.Copy()
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

func compareIDs(a, b incumbent.SessionID) int { return bytes.Compare(a[:], b[:]) }

func (t *shared) lease(e *entry) *Lease { return t.rows.get(e.row) }

// named returns the record of a name, nil if there is none.
func (t *shared) named(name incumbent.Name) *Lease {
	e, ok := t.names.Get(&entry{Name: name})
	if !ok {
		return nil
	}
	return t.lease(e)
}

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

// scan calls fn with the records, by name.
func (t *shared) scan(fn func(*Lease) bool) {
	t.names.Scan(func(e *entry) bool { return fn(t.lease(e)) })
}

func (t *shared) leaseByToken(token incumbent.Token) *Lease {
	item, held := t.tokens.Get(byToken{token: token})
	if !held {
		return nil
	}
	return t.rows.get(item.row)
}

// replace puts n where o was, in every table that knows leases. Either may be
// nil. Queues are not its business: see addPlace and dropPlace.
func (t *tables) replace(o, n *Lease) {
	t.steps++
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
		t.freeRows = &freeRow{e.row, t.freeRows}
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

// takeRow gives a new entry a row.
func (t *tables) takeRow(e *entry) {
	if f := t.freeRows; f != nil {
		e.row, t.freeRows = f.row, f.next
		return
	}
	t.lastRow++
	e.row = t.lastRow
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
		t.chargeSpace(e, core.Leases, by)
	}
	t.chargeClaimer(o, -1)
	t.chargeClaimer(n, 1)
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

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}
