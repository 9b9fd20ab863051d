package juju

import (
	"sync/atomic"

	"github.com/incumbent-dev/incumbent/histogram"
)

// bounds of the durations of calls, in seconds.
var bounds = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300}

// login is how a connection's way to its login ended.
type login uint8

// The outcomes.
const (
	loginOK               login = iota
	loginDenied                 // another password, or an unknown tag
	loginShed                   // too many passwords are being verified
	loginUnavailable            // this member cannot serve for now
	loginMalformed              // not HTTP, not a WebSocket, not a request
	loginMalformedRequest       // a request, but no login
	loginNoTLS                  // the handshake did not succeed
	loginQuota                  // the agent, or its address, has as many connections as it may
	loginGone                   // the client left, or was too slow
	numLogins
)

var loginNames = [numLogins]string{"ok", "denied", "shed", "unavailable", "malformed", "no_login", "no_tls", "quota", "gone"}

// refusal is why a connection was closed before TLS.
type refusal uint8

// The reasons.
const (
	refusedFull refusal = iota // MaxConnections
	refusedOverload
	refusedDraining
	refusedUnready // the member knew no leader, or was catching up
	numRefusals
)

var refusalNames = [numRefusals]string{"full", "overload", "draining", "unready"}

// counts are the door's numbers. All are written from any goroutine.
type counts struct {
	methods     [numMethods]*histogram.Durations
	errors      [numFacades][numCodes]atomic.Uint64
	logins      [numLogins]atomic.Uint64
	refused     [numRefusals]atomic.Uint64
	silent      atomic.Uint64 // connections closed because nothing was heard of them
	retries     atomic.Uint64 // of claims and waits, inside
	connections atomic.Int64  // accepted and not closed
	bulks       atomic.Int64  // claims and pins without an answer
	blocked     atomic.Int64  // waits without an answer
}

func (n *counts) init() {
	for m := range n.methods {
		n.methods[m] = histogram.New(bounds)
	}
}

// tell counts an error that a client is told by a facade.
func (n *counts) tell(by *facade, f *failure) { n.errors[by.number][f.code].Add(1) }

// Count is a number with the word of a closed set that it belongs to.
type Count struct {
	Label string
	N     uint64
}

// ErrorCount is how often clients were told an error.
type ErrorCount struct {
	Facade string // Admin before the login, other where there is no such facade
	Code   string // none where it goes out without one
	N      uint64
}

// MethodStats is how long calls of one method took until they were answered.
type MethodStats struct {
	Facade, Method string
	histogram.Counts
}

// Stats are the door's numbers; labels are from closed sets and all there from
// the start.
type Stats struct {
	Connections int // accepted and not closed
	Agents      int // of them, logged in
	Pending     int // accepted, on their way to the login
	Claims      int // calls that claim or pin, without an answer
	Blocked     int // waits for the end of a holding

	Methods []MethodStats
	Errors  []ErrorCount
	Logins  []Count // by outcome
	Refused []Count // connections closed before TLS, by reason
	Silent  uint64  // connections closed for their silence
	Full    uint64  // of the refused, those over MaxConnections
	Retries uint64  // attempts that were repeated inside, instead of an error
}

// Connections returns how many are accepted and not closed.
func (d *Door) Connections() int { return int(d.counts.connections.Load()) }

// Parked returns how many of them are parked: they have logged in.
func (d *Door) Parked() int { return d.conns.Len() }

// Stats returns the numbers of the moment, all of them anew: where one is asked for
// often, [Door.Connections] and [Door.Parked] cost next to nothing.
func (d *Door) Stats() Stats {
	n := &d.counts
	s := Stats{
		Connections: d.Connections(), Agents: d.Parked(), Pending: d.pending.Len(),
		Claims: int(n.bulks.Load()), Blocked: int(n.blocked.Load()), Silent: n.silent.Load(), Retries: n.retries.Load(),
		Full: n.refused[refusedFull].Load(),
	}
	for m := range numMethods {
		s.Methods = append(s.Methods, MethodStats{methods[m].facade.name, methods[m].name, n.methods[m].Counts()})
	}
	for _, f := range append(facades(), loginFacade, otherFacade) {
		for c := range numCodes {
			s.Errors = append(s.Errors, ErrorCount{f.name, c.String(), n.errors[f.number][c].Load()})
		}
	}
	for l := range numLogins {
		s.Logins = append(s.Logins, Count{loginNames[l], n.logins[l].Load()})
	}
	for r := range numRefusals {
		s.Refused = append(s.Refused, Count{refusalNames[r], n.refused[r].Load()})
	}
	return s
}
