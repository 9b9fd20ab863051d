package lease

import "github.com/incumbent-dev/incumbent"

// Limits of the family. They decide what a command does, so that every member must
// have the same: changing one is a new schema version.
const (
	MaxLeases           = 5_000_000 // lease records, free ones included
	MaxQueue            = 4096      // places in the queue of one lease
	MaxLeasesPerSession = 10_000    // leases that one session owns, and places it has in queues, together
	MaxWaitsPerSession  = 10_000    // places that one session has in queues
	MaxHistory          = 16        // changes kept with a lease
	MaxHistoryBytes     = 4096      // bytes of those changes, as countedBytes has them
	MaxFreeLeases       = 100_000   // free leases without pins, kept for their history
	MaxPinned           = 100_000   // leases with pins, held or free: nothing forgets them

	MaxPlacesPerSession   = 64   // places of one session in one queue. This and the next bind nobody privileged
	MaxPlacesPerPrincipal = 1024 // places of one principal in one queue: a quarter
)

const (
	treeDegree     = 16              // half the width of a tree's nodes: wide ones cost more to copy, narrow ones to search
	pastSlack      = 4               // a history that grows out of its bytes gets so many times fewer to spare
	maxSmallChange = 192             // bytes of most changes of a history
	maxUncounted   = 8               // see countedBytes
	maxLateMillis  = 1 << 40         // 34 years
	maxAtMillis    = 253402300799999 // last millisecond of the year 9999
	maxWords       = 4096            // interned texts; only saves memory, never replicated
	maxCounter     = 1<<63 - 1       // renewal in a snapshot: the same number of commands is left
)

// limits are the ones a test needs smaller.
type limits struct {
	leases, queue, perSession, waits, free, pinned int

	ofSession, ofPrincipal int // places in a queue: of a session, of a principal
}

func defaultLimits() limits {
	return limits{
		leases: MaxLeases, queue: MaxQueue, perSession: MaxLeasesPerSession, waits: MaxWaitsPerSession, free: MaxFreeLeases, pinned: MaxPinned,
		ofSession: MaxPlacesPerSession, ofPrincipal: MaxPlacesPerPrincipal,
	}
}

func tooLarge(what, limit string, n int) *incumbent.Error {
	return incumbent.Errorf(incumbent.TooLarge, "%s: limit %s is %d", what, limit, n)
}
