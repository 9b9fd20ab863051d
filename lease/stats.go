package lease

import "time"

// Stats are counts of the lease loop; those that count events only grow.
type Stats struct {
	Leading   bool
	Deadlines int // of families, in the book
	Attached  int
	Held      int // extensions that wait for a command to be applied
	Due       int // past their deadline and not yet proposed for expiry
	Expiring  int // proposed and not yet applied

	Extensions   uint64 // acknowledged, claims that extend included
	Rounds       uint64 // confirmations, the failed ones included
	Vouched      uint64 // confirmations that needed no round: members vouched for the leader
	Calls        uint64
	Unknown      uint64 // of the commands, those of which the node lost sight
	ClaimsDenied uint64 // answered from a confirmed read
	Refused      uint64 // batches of extensions, calls, attachments and inspections: too many waited for an answer
	Expired      uint64 // leases, those freed with their session included
	Stalls       uint64 // silences that moved the deadlines
	StalledFor   time.Duration

	Forwarded     uint64 // extensions and attachments sent to the leader
	FramesSent    uint64 // to other members
	FramesServed  uint64 // of other members, as the leader
	FramesRefused uint64 // by a member that does not lead, or not yet
	Resent        uint64 // frames whose answer was overdue
	FramesDropped uint64 // received: malformed, or too many waited to be answered
}

// Stats returns the counts as they are.
func (e *Engine) Stats() Stats {
	s := e.stats
	p := &e.expiry
	s.Leading, s.Attached, s.Deadlines = e.leading, len(e.attachments), len(e.book.byDeadline)
	s.Held = e.heldWaiting
	s.Due = len(p.due) + len(p.under) + len(p.ready)
	s.Expiring = p.inFlight
	return s
}
