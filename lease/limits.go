package lease

import (
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Bucket is how exactly deadlines are looked at: an expiry is proposed at most
// this and one tick after its deadline.
const Bucket = 100 * time.Millisecond

// Defaults of [Config].
const (
	DefaultDrift       = 0.01                   // clocks differ in rate by no more than this
	DefaultGrace       = 500 * time.Millisecond // for clients that count without a margin
	DefaultOfferWindow = 2 * time.Second        // to accept an offer in
	MaxOfferWindow     = 2 * time.Second        // a longer one would stop a queue
	MaxGrace           = time.Minute
	MaxReturn          = 10 * time.Minute
	MaxRoundGap        = 5 * time.Millisecond
)

// ownDoor is the door in the origin of what the leader decides by itself.
const ownDoor = "leader"

// Limits of the lease loop.
const (
	MaxExpiriesInFlight = 8192      // proposed and not yet applied: half of the node's inbox, so that others find room
	MaxExpiryBytes      = 256 << 10 // of expiries handed to the node at once
	MaxUndecided        = 16 << 10  // calls answered Unknown that may still be applied; all that need the log are refused beyond
	MaxForwarding       = 512 << 10 // extensions of this member waiting for the leader, or for one to be known
	MaxBatchItems       = 10_000    // extensions in one batch
	MaxBulkOps          = 10_000    // operations of one Do
	MaxRevokingTokens   = 16        // leases told of with the extension of a session
	maxAcceptances      = 1024      // of offers, that the log is told of in one turn
	maxPassedOver       = 256       // places in queues that are looked at for one command: some 15 µs
)

// Limits of what waits for an answer: in the inbox of the loop, for a
// confirmation, for a command to be applied, or for the leader. What would be
// beyond them is refused with a time to come back.
const (
	MaxQueuedCalls      = 64 << 10  // calls; claims are refused beyond
	MaxQueuedReleases   = 96 << 10  // calls; releases are refused beyond, and claims
	MaxQueuedBatches    = 128 << 10 // batches; extensions are refused beyond, and all calls
	MaxQueuedExtensions = 1 << 20   // extensions in batches and in frames, and one batch more; as above
	MaxQueuedAttaches   = 64 << 10  // attachments
	MaxQueuedLooks      = 128 << 10 // leases and sessions in inspections, and one inspection more
)

// Limits between members.
const (
	MaxFrameBytes      = 64 << 10 // a frame
	MaxFrameLooks      = 1000     // inspected ones in a frame
	MaxFlights         = 4        // frames under way to the leader; what comes meanwhile gathers for the next
	MaxDeadlineIDBytes = 4096     // name of a family's deadline that is extended
	MaxQueuedFrames    = 1024     // received frames that wait to be answered; they are dropped beyond, and sent again
	MaxEarlyFrames     = 256      // received frames waiting for this member to lead
)

// patientPart is the part of a session's ttl that its extension waits for company at most.
const patientPart = 64

// Times of the engine.
const (
	acceptanceLoggedAfter = time.Second     // an offer's acceptance is: a holding that is over by then costs the log nothing
	forwardFor            = 2 * time.Second // an extension waits so long for the leader, whoever it is
	resendAfter           = 300 * time.Millisecond
	resendRestAfter       = time.Second // the leader has it and has answered a part
	resendUnsent          = Bucket / 2  // it was not taken

	// pressureEvery is how often the leader is asked for its pressure alone: twice in
	// the time for which members refuse by what it says.
	pressureEvery = 50 * time.Millisecond

	retryRoundAfter  = Bucket / 2       // a failed round is tried again for expiries alone
	presentWithout   = 20 * time.Second // a session without ttl counts as present so long after it was heard
	trimEvery        = 30 * time.Second // how exactly results of idempotent commands are forgotten
	overloadRetry    = time.Second      // base of the retry hint
	unavailableRetry = 100 * time.Millisecond
)

// Config is how the lease loop behaves. Its zero value means the defaults.
type Config struct {
	// Drift is how much the rates of two clocks may differ: 0.01 is 1 %.
	// Negative: none. 0: [DefaultDrift].
	Drift float64
	// Grace is added to every deadline. Negative: none. 0: [DefaultGrace]. A silence of
	// the loop or of the quorum that is longer, and than [Bucket], moves all deadlines.
	Grace time.Duration
	// OfferWindow is how long an offer stands. 0: [DefaultOfferWindow].
	OfferWindow time.Duration
	// Return is how long all clients need to come back after a change of
	// leader; until then nothing expires. 0: no longer than a lease's ttl.
	Return time.Duration
	// RoundGap is how long extensions wait for company when a round of confirmation
	// has just ended, or a frame to the leader has just left. 0: not at all, which is
	// best while the leader is alone.
	RoundGap time.Duration
	// Pressure is up to which rank of lanes this member refuses work, told to others
	// with what it answers them as their leader; Press takes what the leader told. Both
	// are called by the lease loop and do not wait. nil: nothing is told, or taken.
	Pressure func() uint8
	Press    func(uint8)
	// Busy reports whether work is under way on this member, which therefore wants to
	// know the leader's pressure although nothing is applied. Called by the lease loop at
	// most twenty times a second. nil: what is applied alone counts.
	Busy func() bool
}

// Validate returns an Invalid error if a setting is out of its bounds.
func (c Config) Validate() error {
	switch {
	case c.Drift > 0.1 || c.Drift != c.Drift:
		return incumbent.Errorf(incumbent.Invalid, "drift %v is above 0.1", c.Drift)
	case c.Grace > MaxGrace:
		return incumbent.Errorf(incumbent.Invalid, "grace %v is above %v", c.Grace, MaxGrace)
	case c.OfferWindow < 0 || c.OfferWindow > MaxOfferWindow:
		return incumbent.Errorf(incumbent.Invalid, "offer window %v is outside 0 to %v", c.OfferWindow, MaxOfferWindow)
	case c.Return < 0 || c.Return > MaxReturn:
		return incumbent.Errorf(incumbent.Invalid, "return time %v is outside 0 to %v", c.Return, MaxReturn)
	case c.RoundGap < 0 || c.RoundGap > MaxRoundGap:
		return incumbent.Errorf(incumbent.Invalid, "round gap %v is outside 0 to %v", c.RoundGap, MaxRoundGap)
	}
	return nil
}

func (c Config) withDefaults() Config {
	if c.Drift == 0 {
		c.Drift = DefaultDrift
	}
	if c.Grace == 0 {
		c.Grace = DefaultGrace
	}
	if c.OfferWindow == 0 {
		c.OfferWindow = DefaultOfferWindow
	}
	c.Drift, c.Grace = max(c.Drift, 0), max(c.Grace, 0)
	return c
}
