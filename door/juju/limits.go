package juju

import (
	"cmp"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Defaults of [Limits].
const (
	DefaultMaxMessageBytes = 64 << 10         // one request
	DefaultMaxConnections  = 100_000          // accepted at once
	DefaultMaxPending      = 512              // accepted and not yet logged in
	DefaultMaxOutstanding  = 256              // unanswered requests of one connection
	DefaultLoginTimeout    = 10 * time.Second // from accept to login
	DefaultSilence         = 3 * time.Minute  // without a frame
	DefaultWakesPerSecond  = 20_000           // blocked callers answered
)

// What is fixed: part of the protocol, or of no interest to an operator.
const (
	MinDuration = 5 * time.Second // of a claim of leadership
	MaxDuration = 5 * time.Minute
	MinSingular = time.Second // of a claim of a controller
	MaxSingular = time.Minute
	MaxParams   = 1_000 // in one bulk call
	MaxLogins   = 5     // attempts on one connection

	maxNesting     = 16 // of JSON
	maxHeaderBytes = 8 << 10
	maxApplication = 200                   // bytes of an application's name
	workers        = 2                     // goroutines that look at states, and as many that answer
	wakeBurst      = 256                   // blocked callers answered at once
	loginPause     = 20 * time.Millisecond // between two looks whether logins are admitted
	loginPatience  = 5 * time.Second       // so long accepting rests for that; then who comes is closed
	firstRetry     = 50 * time.Millisecond // of a claim that found no leader
	maxRetry       = time.Second
	linePause      = 20 * time.Millisecond // between two looks whether who waits for a place finds one
	seatsPerBulk   = 16                    // params of a bulk call that cost about as much as a call
	bytesOfOne     = 1 << 10               // of a request, for each thing it asks for: what it has beyond that counts for its connection's pace
)

// What waits at a door takes, and may take: with what the lease service and the hub keep of it.
const (
	MaxWaitingBytes  = 192 << 20 // of all calls that wait: enough for two of each of DefaultMaxConnections, where there is so much memory
	extendingPart    = 8         // which part of them is left to claims of present holders
	callBytes        = 256       // of one call
	waitingItemBytes = 512       // of each of its params beside, and of each lease that it waits for
)

// Limits bound what one client, and all of them, may ask of the door. Zero
// fields mean the defaults. They can be changed while running with
// [Door.SetLimits].
type Limits struct {
	MaxMessageBytes int           // one request
	MaxConnections  int           // accepted at once; what comes beyond is closed before TLS
	MaxPending      int           // accepted and not yet logged in; what comes beyond waits in the kernel
	MaxOutstanding  int           // unanswered requests of one connection
	LoginTimeout    time.Duration // from accept to login
	Silence         time.Duration // a connection without a frame for so long is closed
	WakesPerSecond  int           // blocked callers that are answered in a second
}

// Validate returns an Invalid error if a field is negative.
func (l Limits) Validate() error {
	if l.MaxMessageBytes < 0 || l.MaxConnections < 0 || l.MaxPending < 0 || l.MaxOutstanding < 0 ||
		l.LoginTimeout < 0 || l.Silence < 0 || l.WakesPerSecond < 0 {
		return incumbent.Errorf(incumbent.Invalid, "limits of the juju door must not be negative")
	}
	return nil
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxMessageBytes: cmp.Or(l.MaxMessageBytes, DefaultMaxMessageBytes),
		MaxConnections:  cmp.Or(l.MaxConnections, DefaultMaxConnections),
		MaxPending:      cmp.Or(l.MaxPending, DefaultMaxPending),
		MaxOutstanding:  cmp.Or(l.MaxOutstanding, DefaultMaxOutstanding),
		LoginTimeout:    cmp.Or(l.LoginTimeout, DefaultLoginTimeout),
		Silence:         cmp.Or(l.Silence, DefaultSilence),
		WakesPerSecond:  cmp.Or(l.WakesPerSecond, DefaultWakesPerSecond),
	}
}
