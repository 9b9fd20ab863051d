package consul

import (
	"cmp"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Defaults of [Limits].
const (
	DefaultMaxConnections = 16_000           // accepted at once
	DefaultMaxStrangers   = 512              // of them, from whom nothing came that says who they are
	DefaultMaxHeadBytes   = 64 << 10         // request line and headers
	DefaultMaxBodyBytes   = 8 << 20          // of a request
	DefaultMaxBodies      = 64 << 20         // bytes of bodies that have not come whole, of all connections, beyond smallBody of each
	DefaultBodyTimeout    = 30 * time.Second // from a head to the end of its body
	DefaultSilence        = 15 * time.Minute // longer than any wait: see maxWait
	DefaultPatience       = 7 * time.Second  // a request waits so long for a leader
)

// What is fixed: part of the protocol, or of no interest to an operator.
const (
	defaultWait = 5 * time.Minute  // of a blocking read that names none
	maxWait     = 10 * time.Minute // and of any other

	workers       = 4                     // goroutines that run endpoints
	changers      = 2                     // and those of changes
	tellers       = 2                     // and that answer reads that have waited
	firstRetry    = 50 * time.Millisecond // of what found no leader
	maxRetry      = 500 * time.Millisecond
	gzipFrom      = 1400      // bytes of a body that is worth it: less goes out in one packet anyhow
	maxUnread     = 256 << 10 // bytes of a body that was refused unread, after which the connection goes on: as much as net/http takes
	smallBody     = 64 << 10  // bytes of a body that are taken from everybody, whatever others send, and not counted
	maxJSONValues = 64 << 10  // values of a body, each of which may take a kilobyte of memory
	sendBytes     = 256 << 10 // of one answer handed to the connection at once
	slowestBytes  = 64 << 10  // a second of an answer that is handed on in pieces, beyond slowestFirst
	slowestFirst  = 30 * time.Second
	maxHeadLines  = 256 // each may take a kilobyte of memory
)

// Limits bound what one client, and all of them, may ask of the door. Zero fields
// mean the defaults. They can be changed while running with [Door.SetLimits].
type Limits struct {
	MaxConnections int           // accepted at once; what comes beyond is closed
	MaxStrangers   int           // of them, from whom nothing came that says who they are; the oldest makes room
	MaxHeadBytes   int           // request line and headers; beyond: 431
	MaxBodyBytes   int64         // of a request; beyond: 413
	MaxBodies      int64         // bytes of bodies that have not come whole, as far as memory allows, of all connections, beyond 64 KiB of each; beyond: 503, and for who has four times as much as is left
	BodyTimeout    time.Duration // from a head to the end of its body
	Silence        time.Duration // a connection from which nothing came for so long is closed
	Patience       time.Duration // a request waits so long for a leader
}

// Validate returns an Invalid error if a field is negative.
func (l Limits) Validate() error {
	if l.MaxConnections < 0 || l.MaxStrangers < 0 || l.MaxHeadBytes < 0 || l.MaxBodyBytes < 0 || l.MaxBodies < 0 ||
		l.BodyTimeout < 0 || l.Silence < 0 || l.Patience < 0 {
		return incumbent.Errorf(incumbent.Invalid, "limits of the consul door must not be negative")
	}
	return nil
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxConnections: cmp.Or(l.MaxConnections, DefaultMaxConnections),
		MaxStrangers:   cmp.Or(l.MaxStrangers, DefaultMaxStrangers),
		MaxHeadBytes:   cmp.Or(l.MaxHeadBytes, DefaultMaxHeadBytes),
		MaxBodyBytes:   cmp.Or(l.MaxBodyBytes, DefaultMaxBodyBytes),
		MaxBodies:      cmp.Or(l.MaxBodies, DefaultMaxBodies),
		BodyTimeout:    cmp.Or(l.BodyTimeout, DefaultBodyTimeout),
		Silence:        cmp.Or(l.Silence, DefaultSilence),
		Patience:       cmp.Or(l.Patience, DefaultPatience),
	}
}
