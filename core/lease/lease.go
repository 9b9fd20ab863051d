// Package lease is the family of leases: who holds each, until when and under which
// token, who waits for it in its queue, what pins it, and what became of it before.
// It is imported as leases: the package lease in the root folder is the leader's clock,
// which decides when a lease's deadline has passed.
//
// Start reading at claim.go; the transcripts in testdata say the same by example.
//
// # Invariants
//
//   - The record of a lease says in Modified under which index its last change was told.
//     Tables that break this stop.
//   - The token of a holding is an index that its grant has taken. So it is greater
//     than every token before it, of this lease and of every other.
//   - A free lease has no queue: whatever frees a lease hands it to the next
//     waiter in the same command, as an offer.
//   - Every owner of a lease and every waiter is an open session.
//   - A lease has a ttl of its own exactly if it is held and no session owns it.
//   - The holder of a lease does not stand in its queue.
//   - What a command costs is bounded by its own size and the limits, and grows
//     with the number of leases and places that it ends, not with the
//     length of the queues they are in: cost_test.go counts it.
//
// check.go verifies them, and that all tables agree.
//
// # Concurrency
//
// As in package core: tables belong to one goroutine, a [View] to nobody.
package lease

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/wire"
)

// Number is that of the family: the first, so that what the end of a session means to
// leases is told first.
const Number wire.Number = 39

// Family is the family.
type Family struct{}

var (
	_ core.Fielded     = Family{}
	_ core.Remembering = Family{}
)

// Number implements [core.Family].
func (Family) Number() wire.Number { return Number }

// Schema implements [core.Family].
func (Family) Schema() uint32 { return 9 }

// Name implements [core.Family].
func (Family) Name() string { return "leases" }

// New implements [core.Family].
func (Family) New() core.Tables { return newTables() }

// Lease is one lease. A *Lease reached through a View never changes.
//
// There are millions of them, most of them granted once: what all share, what few
// have, and what follows from the rest is not in the record. It fills 112 bytes,
// which is a size that the allocator has.
type Lease struct {
	*entry                        // its Name
	*seldom                       // its Pins and PreviousHolder; see also Lease.History
	Holder    string              // "" when free
	Session   incumbent.SessionID // zero: held without one
	Token     incumbent.Token     // of this holding; 0 when free
	LastToken incumbent.Token     // greatest ever granted
	TTL       time.Duration       // logged ttl; 0 when a session owns it
	Renewal   uint64              // raised by every command that touches the holding
	Modified  incumbent.Index     // under which its last change was told
	Origin    *core.Origin        // of the grant; empty when free
	granted   incumbent.Index     // of the grant, while that is the newest of its history: 0 if it is not
	Waiting   int32               // places in its queue: see View.Queue
	Offered   bool                // handed over; whether it was accepted the leader knows, and says so with Accepted
	Critical  bool                // its extensions are refused last
	Revoking  bool                // extensions are refused; free at the deadline
	changes   uint8               // how many its past has: to count them there reads all of it
}

// entry is what the records of one lease have in common. It lives as long as there
// is one.
type entry struct {
	Name incumbent.Name
	row  uint64 // where the record is; 0: nowhere yet
}

// seldom is what few leases have. It never changes: records share it.
type seldom struct {
	Pins           []string // sorted; while any is there it does not expire
	PreviousHolder string   // whoever held it last before; an offer that was Declined does not count
	past           []byte   // see history.go
}

// nothingSeldom is that of what has none of it.
var nothingSeldom = new(seldom)

// noOrigin is that of a lease that nobody holds.
var noOrigin = new(core.Origin)

// Since is when the present holding was granted, as its proposer's wall clock had it.
func (l *Lease) Since() time.Time { return l.Origin.At }

// Free reports whether nobody holds the lease.
func (l *Lease) Free() bool { return l == nil || l.Token == 0 }

// next returns a record to be changed into the successor of l. It shares the
// bytes of l: see remember.
func (l *Lease) next() *Lease {
	if l == nil {
		return &Lease{seldom: nothingSeldom, Origin: noOrigin}
	}
	n := *l
	return &n
}

// heldBy reports whether the command's holder and session are the lease's.
// Without session on both sides the holder's name decides.
func (l *Lease) heldBy(c *command) bool {
	return l.Holder == string(c.holder) && l.Session == c.session
}

func (l *Lease) forgettable() bool { return l != nil && l.Token == 0 && len(l.Pins) == 0 }
