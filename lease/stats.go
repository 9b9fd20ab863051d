package lease

import "time"

// Stats are counts of the lease loop; those that count events only grow.
type Stats struct {
	Leading   bool
	Term      uint64
	Leases    int // held, in the book
	Sessions  int // open, in the book
	Deadlines int // of families, in the book
	Attached  int
	Held      int // extensions that wait for a command to be applied
	Parked    int // extensions that wait for the leader, or for one to be known
	Due       int // past their deadline and not yet proposed for expiry
	Expiring  int // proposed and not yet applied

	Batches         uint64
	BatchMax        int
	Extensions      uint64 // acknowledged, claims that extend included
	Rounds          uint64 // confirmations, the failed ones included
	RoundsFailed    uint64
	Vouched         uint64 // confirmations that needed no round: members vouched for the leader
	Calls           uint64
	Commands        uint64 // of the calls, those that went through the log
	Unknown         uint64 // of the commands, those of which the node lost sight
	ClaimsDenied    uint64 // answered from a confirmed read
	ClaimsExtended  uint64 // of the extensions, those that were claims
	Dropped         uint64 // unserved: their deadline had passed
	Refused         uint64 // batches of extensions, calls, attachments and inspections: too many waited for an answer
	Expired         uint64 // leases, those freed with their session included
	SessionsExpired uint64
	Declined        uint64 // offers
	ExpiriesRefused uint64 // by the node; tried again
	Stalls          uint64 // silences that moved the deadlines
	StalledFor      time.Duration
	Late            Lateness

	Forwarded     uint64 // extensions and attachments sent to the leader
	FramesSent    uint64 // to other members
	FramesServed  uint64 // of other members, as the leader
	FramesRefused uint64 // by a member that does not lead, or not yet
	Resent        uint64 // frames whose answer was overdue
	FramesDropped uint64 // received: malformed, or too many waited to be answered
	FramesUntaken uint64 // no connection, or its queue was full
}

// Stats returns the counts as they are.
func (e *Engine) Stats() Stats {
	s := e.stats
	p := &e.expiry
	s.Leading, s.Term = e.leading, e.term
	s.Leases, s.Sessions, s.Attached = e.book.byToken.len(), len(e.book.byID), len(e.attachments)
	s.Deadlines = len(e.book.byDeadline)
	s.Held, s.Parked = e.heldWaiting, len(e.courier.queue)
	s.Due = len(p.due) + len(p.under) + len(p.ready)
	s.Expiring = p.inFlight
	s.Late = e.book.late.lateness()
	return s
}
