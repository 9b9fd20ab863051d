package ovsdb

import (
	"cmp"
	"math"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Defaults of [Limits].
const (
	DefaultMaxConnections  = 16_000
	DefaultMaxMessageBytes = 64 << 20        // as much as a command of the log may have
	DefaultMaxPartialBytes = 256 << 20       // of messages that have not come whole, and of those that are not answered, of all connections beyond smallMessage each
	DefaultMaxBacklogBytes = 32 << 20        // updates that wait for one reader
	DefaultMaxUnsentBytes  = 256 << 20       // of answers and updates that wait for readers, of all connections beyond smallBacklog each
	DefaultMessageTimeout  = 2 * time.Minute // from the first byte of a message to its last
	DefaultMaxUnderWay     = 4_096           // requests of one connection that are not answered
	DefaultMaxMonitors     = 1_000           // of one connection
	DefaultMaxLocks        = 1_000           // of one connection
	DefaultProbe           = 5 * time.Second
	DefaultPatience        = 7 * time.Second // what finds no leader, or no place in its lane, waits so long for one
)

// MaxWishBytes is how much the conditions of all monitors cost, of one client's at most four
// times what is free: those of 5,000 clients with 700 each take a quarter of it. They stay for
// as long as their monitors, so that they may have half of the memory.
const MaxWishBytes = 4 << 30

// WishBound is how much that is now.
func (d *Door) WishBound() int64 { return 4 * d.lanes.Bound(MaxWishBytes/4) }

// What is fixed: part of the protocol, or of no interest to an operator.
const (
	workers      = 4  // goroutines that serve connections
	wokenAtOnce  = 8  // transactions that have waited, among all that is to be done
	maxQueued    = 64 // messages of one connection that are there whole and not looked at
	tasksAtATime = 64 // of one connection, before others have their turn
	firstRetry   = 50 * time.Millisecond
	retryEach    = 100 * time.Microsecond // for each that waits: no more than 10,000 of them ask in a second, up to maxRetry
	maxRetry     = 500 * time.Millisecond
	roomRetry    = 2 * time.Second // of a lock that was lost and for whose client there is no room in the line
	smallMessage = 64 << 10        // bytes of messages that are taken on every connection, whatever others send
	smallBacklog = 64 << 10        // bytes that wait for every reader, whatever waits for others
	sendBytes    = 256 << 10       // handed to the connection at once
	lockTTL      = 6 * time.Second // of the session that a connection's locks belong to, if its member dies
	beatEvery    = 2 * time.Second // that such sessions are extended
	tickEvery    = time.Second     // of the door's clock
	maxLockName  = 256             // bytes
	maxMonitorID = 4 << 10         // bytes, as JSON: it is kept, and said with each update
	valueBytes   = 16              // that each value of a message counts as at least, about what one has in clients' messages: what is made of it takes several times as many
	pullAgain    = time.Millisecond
	pullEvents   = 256             // events of a database that are handed on in one turn
	pullBytes    = 4 << 20         // and what they cost
	fullEvery    = time.Minute     // that the log says of clients that may not have another monitor
	tellEvery    = 5 * time.Second // that rows are told of who listens by them

	// Of the _Server database. Clients leave a member that says it is not connected, which it is
	// during each election; and one whose index is below what another one has told them. Each
	// change of a row is told to all of them: the index has steps, which are the same everywhere.
	leaderless = 3 * time.Second // that a member may know no leader and be connected
	indexStep  = 4096            // entries of the log; a power of two

	// largestUnsent is which part of MaxUnsentBytes one answer, or one update, counts as, if
	// it is larger; where memory leaves less than four times as much, half of what it leaves.
	largestUnsent = 8

	maxConditionBytes = 64 << 20 // that the conditions of one connection's monitors cost, about: 200,000 of one value
	conditionBytes    = 256      // what one costs besides its atoms: to keep it, and to find it by its value
	atomBytes         = 40
)

// Limits bound what one client, and all of them, may ask of the door. Zero fields
// mean the defaults. They can be changed while running with [Door.SetLimits].
type Limits struct {
	MaxConnections  int           // accepted at once; what comes beyond is closed
	MaxMessageBytes int           // of a request; who sends more is cut off
	MaxPartialBytes int64         // that all connections have beyond 64 KiB each, of requests that have not come whole and of those that are not answered, 16 for each of their values at least, of one client at most four times what is free; who makes it more with a request of more than 64 KiB is cut off, and who does by smaller ones is read on once others of its own are answered, or a tick finds room
	MaxBacklogBytes int           // updates that wait for one reader, who is cut off then; answers to requests do not count, nor does an update that is larger by itself and before which all was read
	MaxUnsentBytes  int64         // of answers and updates that wait for readers, what waits for several once: that all connections have beyond 64 KiB each, of one client at most four times what is free; who makes it more is cut off. An answer, or an update, counts as an eighth of it at most
	MaxUnderWay     int           // requests of one connection that are not answered; what comes beyond is not read
	MaxMonitors     int           // of one connection; beyond: "resources exhausted"
	MaxLocks        int           // of one connection; beyond: "resources exhausted"
	MessageTimeout  time.Duration // from the first byte of a request to its last
	Probe           time.Duration // a client that was silent for so long is asked for an echo, and closed after as long again; negative: never
	Patience        time.Duration // what finds no leader, or no place in its lane, waits so long for one; for a place all but transactions half as long; locks wait for either without end
}

// Validate returns an Invalid error if a field is negative that may not be.
func (l Limits) Validate() error {
	if l.MaxConnections < 0 || l.MaxMessageBytes < 0 || l.MaxPartialBytes < 0 || l.MaxBacklogBytes < 0 || l.MaxUnsentBytes < 0 || l.MaxUnderWay < 0 ||
		l.MaxMonitors < 0 || l.MaxLocks < 0 || l.MessageTimeout < 0 || l.Patience < 0 {
		return incumbent.Errorf(incumbent.Invalid, "limits of the ovsdb door must not be negative")
	}
	return nil
}

// limitsNow are the limits of the moment: no more than memory allows.
type limitsNow struct {
	Limits
	weight  int   // of a connection's requests that are not answered: the next ones wait
	largest int64 // that one answer, or one update, counts as
}

// limitsNow returns them. What one connection may have goes with what all may: a message fits
// beside what is held back behind, and neither is more than one client's share.
func (d *Door) limitsNow() limitsNow {
	l := limitsNow{Limits: *d.limits.Load()}
	part := func(of, n int) int { return int(min(int64(of), d.lanes.Bound(math.MaxInt64)/int64(n))) }
	l.weight = part(l.MaxMessageBytes, 4)
	l.MaxMessageBytes = part(l.MaxMessageBytes, 2)
	l.MaxBacklogBytes = part(l.MaxBacklogBytes, 4)
	l.largest = l.MaxUnsentBytes / largestUnsent
	l.MaxPartialBytes, l.MaxUnsentBytes = d.lanes.Bound(l.MaxPartialBytes), d.lanes.Bound(l.MaxUnsentBytes)
	l.largest = min(l.largest, l.MaxUnsentBytes/2)
	return l
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxConnections:  cmp.Or(l.MaxConnections, DefaultMaxConnections),
		MaxMessageBytes: cmp.Or(l.MaxMessageBytes, DefaultMaxMessageBytes),
		MaxPartialBytes: cmp.Or(l.MaxPartialBytes, DefaultMaxPartialBytes),
		MaxBacklogBytes: cmp.Or(l.MaxBacklogBytes, DefaultMaxBacklogBytes),
		MaxUnsentBytes:  cmp.Or(l.MaxUnsentBytes, DefaultMaxUnsentBytes),
		MaxUnderWay:     cmp.Or(l.MaxUnderWay, DefaultMaxUnderWay),
		MaxMonitors:     cmp.Or(l.MaxMonitors, DefaultMaxMonitors),
		MaxLocks:        cmp.Or(l.MaxLocks, DefaultMaxLocks),
		MessageTimeout:  cmp.Or(l.MessageTimeout, DefaultMessageTimeout),
		Probe:           cmp.Or(l.Probe, DefaultProbe),
		Patience:        cmp.Or(l.Patience, DefaultPatience),
	}
}
