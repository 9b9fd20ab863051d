package lease

import (
	"math"
	"slices"
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	leases "github.com/incumbent-dev/incumbent/core/lease"
)

// Book is the leader's deadline book: one slot for each held lease, each open
// session and each deadline of a family. A lease that a session owns has no
// deadline of its own, save as an offer or while it is being revoked: the session
// has it.
//
// An offer is one from the change that began it, while this leader leads, until its
// first extension: that is stored and acknowledged like any other, and the log is
// told of it later. Whether an offer that a new leader finds was accepted nobody
// knows any more, so it is taken for a holding.
//
// All its deadlines are in book time: monotonic nanoseconds less the silences.
// Letting book time stand still for as long as the loop or the quorum was
// silent moves all deadlines by that gap, in constant time, and none that was
// set afterwards.
type Book struct {
	rho         int64 // drift in parts per million
	grace       int64
	tolerated   int64 // a silence that is no longer moves no deadline
	offerWindow int64
	giveBack    int64 // Config.Return

	began bool
	now   int64 // book time
	last  int64 // monotonic time of the last Advance
	shift int64 // monotonic time - book time

	leases        []leaseSlot
	sessions      []sessionSlot
	deadlines     []deadlineSlot
	freeLeases    []int32
	freeSessions  []int32
	freeDeadlines []int32
	byToken       tokenTable
	byID          map[incumbent.SessionID]int32
	byDeadline    map[deadlineKey]int32
	buckets       buckets
	accepted      []acceptance // in the order of their times
}

// flags of a slot.
type flags uint8

const (
	used     flags = 1 << iota
	pinned         // leases only
	offered        // leases only: and not accepted
	revoking       // leases only
	waited         // leases only: somebody stands in the queue
	dead           // sessions only: gone, but some of its leases are still listed
	inDue          // handed out by Due and not yet given back
	expiring       // proposed for expiry and not yet applied
)

// timer is what all slots have.
type timer struct {
	deadline int64  // has meaning only if timed
	bucket   uint32 // where it will be looked at; 0: nowhere
	flags    flags
}

// leaseSlot holds no pointer, so that a million of them are nothing to the
// garbage collector, and fills one line of the cache.
type leaseSlot struct {
	timer
	token      incumbent.Token
	renewal    uint64
	lastExtend int64  // book time; meaningful if extends > 0
	ttl        uint32 // milliseconds; 0: a session owns it
	owner      int32  // slot of the session, or noSlot
	extends    uint32 // by its token or name, since this leader leads
	touched    uint32 // unapplied commands of this member that may end it
	_          [8]byte
}

type sessionSlot struct {
	timer
	heard   int64 // book time of the last sign of life, or never
	id      incumbent.SessionID
	renewal uint64
	ttl     uint32 // milliseconds; 0: none
	leases  int32  // that it owns
	pins    int32  // of these, pinned
	revoked int32  // of these, being revoked
	extends uint32
	touched uint32
}

const (
	noSlot = -1
	never  = math.MinInt64 / 2 // long before any book time
)

// ref names a slot: four times its number, and its kind. none is 0: the numbers
// start at 1.
type ref int32

const none ref = 0

// kinds of a ref.
const (
	ofLease ref = iota
	ofSession
	ofDeadline
	kinds = 3 // the bits
)

func leaseRef(i int32) ref    { return ref(i << 2) }
func sessionRef(i int32) ref  { return ref(i<<2) | ofSession }
func deadlineRef(i int32) ref { return ref(i<<2) | ofDeadline }

func (r ref) kind() ref     { return r & kinds }
func (r ref) session() bool { return r.kind() == ofSession }
func (r ref) slot() int32   { return int32(r >> 2) }

// NewBook returns an empty book.
func NewBook(cfg Config) *Book {
	cfg = cfg.withDefaults()
	b := &Book{
		rho: int64(cfg.Drift * 1e6), grace: int64(cfg.Grace), tolerated: int64(max(Bucket, cfg.Grace)),
		offerWindow: int64(cfg.OfferWindow), giveBack: int64(cfg.Return),
	}
	b.Follow()
	return b
}

// hold is how long a lease of a ttl is kept after it was extended: the holder's
// clock may be slower than ours.
func (b *Book) hold(ttl int64) int64 { return ttl + ttl/1e6*b.rho + b.grace }

func nanos(ms uint32) int64 { return int64(ms) * int64(time.Millisecond) }

// millis rounds up, as the log does. Every ttl is at most 24 hours.
func millis(d time.Duration) uint32 {
	return uint32((d + time.Millisecond - 1) / time.Millisecond)
}

// Advance tells the book the time. A silence of more than the grace stops the clock for
// as long as it was longer than that: leases are held for the grace beyond what their
// holders count on, and a loop that is merely slow still makes time pass, however often
// it is. It returns by how much deadlines moved.
func (b *Book) Advance(now int64) (moved time.Duration) {
	if !b.began {
		b.began, b.last = true, now
	}
	gap := now - b.last - b.tolerated
	if gap > 0 {
		b.shift += gap
		moved = time.Duration(gap)
	}
	b.last = max(now, b.last)
	b.now = b.last - b.shift
	return moved
}

// Stall moves all deadlines by a silence that the clock of the loop did not notice, that
// of a quorum, save for what is tolerated of it. It returns by how much.
func (b *Book) Stall(silence time.Duration) time.Duration {
	gap := int64(silence) - b.tolerated
	if gap <= 0 {
		return 0
	}
	b.shift += gap
	b.now -= gap
	b.buckets.rewind(b.now)
	return time.Duration(gap)
}

// Shift is how long book time has stood still.
func (b *Book) Shift() time.Duration { return time.Duration(b.shift) }

// Follow forgets everything: this member does not lead.
func (b *Book) Follow() {
	b.leases, b.sessions, b.deadlines = make([]leaseSlot, 1), make([]sessionSlot, 1), make([]deadlineSlot, 1)
	b.freeLeases, b.freeSessions, b.freeDeadlines = nil, nil, nil
	b.byToken = newTokenTable(0)
	b.byID = make(map[incumbent.SessionID]int32)
	b.byDeadline = make(map[deadlineKey]int32)
	b.accepted = nil
	b.buckets.reset(b.now)
}

// Lead starts every deadline anew: a new leader cannot know what its
// predecessor acknowledged, nor how long clients need to find it.
func (b *Book) Lead(v *core.View) {
	b.Follow()
	b.leases = slices.Grow(b.leases, leases.Of(v).HeldCount())
	b.sessions = slices.Grow(b.sessions, v.SessionCount())
	b.byToken = newTokenTable(leases.Of(v).HeldCount())
	b.byID = make(map[incumbent.SessionID]int32, v.SessionCount())
	v.Sessions(incumbent.SessionID{}, func(s *core.Session) bool {
		i := b.putSession(s)
		b.raiseTo(sessionRef(i), b.now+b.giveBack)
		return true
	})
	leases.Of(v).All(func(l *leases.Lease) bool {
		if !l.Free() {
			i := b.putLease(l)
			b.raiseTo(leaseRef(i), b.now+b.giveBack)
			if l.Offered {
				b.accept(i)
			}
		}
		return true
	})
	v.Deadlines(func(d *core.Deadline) bool {
		i := b.putDeadline(d)
		if d.Extended { // else nobody has to come back for it
			b.raiseTo(deadlineRef(i), b.now+b.giveBack)
		}
		return true
	})
}

// raiseTo makes a deadline at least d.
func (b *Book) raiseTo(r ref, d int64) {
	t := b.timer(r)
	t.deadline = max(t.deadline, d)
}

// timed reports whether a slot has a deadline that can pass.
func (b *Book) timed(r ref) bool {
	switch r.kind() {
	case ofSession:
		s := &b.sessions[r.slot()]
		return s.flags&(used|dead) == used && s.ttl != 0 && s.pins == 0
	case ofDeadline:
		return b.deadlines[r.slot()].flags&used != 0
	}
	l := &b.leases[r.slot()]
	// A pin does not keep an offer: a waiter that has died would hold the lease for
	// as long as it is pinned.
	return l.flags&offered != 0 || l.flags&(used|pinned) == used && (l.owner == noSlot || l.flags&revoking != 0)
}

func (b *Book) timer(r ref) *timer {
	switch r.kind() {
	case ofSession:
		return &b.sessions[r.slot()].timer
	case ofDeadline:
		return &b.deadlines[r.slot()].timer
	}
	return &b.leases[r.slot()].timer
}

// arm sees to it that a slot is looked at when its deadline has passed, at the
// latest. It does nothing to one that will be, or that is on its way out.
func (b *Book) arm(r ref) {
	t := b.timer(r)
	if !b.timed(r) || t.flags&(inDue|expiring) != 0 {
		return
	}
	n := b.buckets.soon(b.buckets.number(t.deadline), r)
	if t.bucket == 0 || t.bucket > n {
		t.bucket = n
		b.buckets.put(n, r)
	}
}

// extend stores an extension of what a ref names. Longer than logged is cut to
// that: the log must know first. What is being revoked is not extended, what is
// offered is accepted; of a lease that a session owns, the session is extended.
func (b *Book) extend(r ref, ttl time.Duration) {
	switch r.kind() {
	case ofSession:
		b.extendSession(r.slot(), ttl)
		return
	case ofDeadline:
		b.extendDeadline(r.slot())
		return
	}
	l := &b.leases[r.slot()]
	if l.flags&revoking != 0 {
		return
	}
	if l.flags&offered != 0 {
		b.accept(r.slot())
	}
	l.extends++
	l.lastExtend = b.now
	if l.owner != noSlot {
		b.extendSession(l.owner, ttl)
		return
	}
	d := nanos(l.ttl)
	if ttl > 0 && int64(ttl) < d {
		d = int64(ttl)
	}
	l.deadline = max(l.deadline, b.now+b.hold(d))
}

func (b *Book) extendSession(i int32, ttl time.Duration) {
	s := &b.sessions[i]
	s.extends++
	s.heard = b.now
	d := nanos(s.ttl)
	if ttl > 0 && int64(ttl) < d {
		d = int64(ttl)
	}
	s.deadline = max(s.deadline, b.now+b.hold(d))
}

// claimed stores that the client of a session claims something: once that is
// acknowledged the session holds as if it had been extended, so no expiry may
// be proposed behind it.
func (b *Book) claimed(session incumbent.SessionID) {
	if i, ok := b.byID[session]; ok {
		s := &b.sessions[i]
		s.heard = b.now
		s.deadline = max(s.deadline, b.now+b.hold(nanos(s.ttl)))
	}
}

// takeSlot returns the number of a slot that nothing uses: one given back, or a new
// one behind all others.
func takeSlot[S any](free *[]int32, slots *[]S) int32 {
	if n := len(*free); n > 0 {
		i := (*free)[n-1]
		*free = (*free)[:n-1]
		return i
	}
	var zero S
	*slots = append(*slots, zero)
	return int32(len(*slots) - 1)
}
