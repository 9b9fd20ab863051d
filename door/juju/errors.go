package juju

import (
	"github.com/incumbent-dev/incumbent"
)

// code is what a client decides by when it is refused.
type code uint8

// The codes that go out. noCode is an error of which the client knows the text
// only.
const (
	noCode code = iota
	leadershipDenied
	leaseDenied
	tryAgain
	notImplemented
	unauthorized
	deadlineExceeded
	badRequest
	numCodes
)

var codeNames = [numCodes]string{
	"", "leadership claim denied", "lease claim denied", "try again", "not implemented",
	"unauthorized access", "deadline exceeded", "bad request",
}

// String returns the code as it goes out; for metrics "none" where there is none.
func (c code) String() string {
	if c == noCode {
		return "none"
	}
	return codeNames[c]
}

// failure is an error as a client sees it.
type failure struct {
	code    code
	message string
}

// Failures that are the same every time.
var (
	errClaimDenied = &failure{leadershipDenied, "leadership claim denied"}
	errLeaseDenied = &failure{leaseDenied, "lease claim denied"}
	errDuration    = &failure{noCode, "invalid duration"}
	errPermission  = &failure{unauthorized, "permission denied"}
	errLogin       = &failure{unauthorized, "invalid entity name or password"}
	errNotLoggedIn = &failure{notImplemented, "not logged in"}     // the original has only Admin then
	errTwice       = &failure{notImplemented, "already logged in"} // and no Admin any more
	errTryAgain    = &failure{tryAgain, "try again"}
	errTooMany     = &failure{tryAgain, "too many requests are unanswered"}
	errManyParams  = &failure{badRequest, "too many params"}
	errTimedOut    = &failure{noCode, "lease operation timed out"}
)

func errParams(what string) *failure { return &failure{badRequest, what} }

// failureOf is what a client is told of an error. held is what it is told when
// another holds the lease. Claims and blocks never answer what is transient (see
// retried), save where memory is short: see giveWay.
func failureOf(err *incumbent.Error, held *failure) *failure {
	switch err.Kind {
	case incumbent.Held, incumbent.NotHolder:
		return held
	case incumbent.Denied:
		return errPermission
	case incumbent.Overloaded, incumbent.NotLeader, incumbent.Unavailable, incumbent.Conflict, incumbent.Compacted:
		return errTryAgain
	case incumbent.DeadlineExceeded:
		return &failure{deadlineExceeded, "deadline exceeded"}
	case incumbent.Unknown:
		return errTimedOut
	case incumbent.Invalid, incumbent.NotFound, incumbent.Exists, incumbent.Expired, incumbent.TooLarge:
		return &failure{noCode, err.Message}
	default: // Corrupt, Internal: the member stops
		return &failure{noCode, "internal error"}
	}
}

// retried reports whether a claim or a wait that ended so is tried again instead
// of answered: the client takes every answer but a denial for the end of its
// holder. An unknown outcome is among them: a claim of the same holder is the
// same claim.
func retried(k incumbent.Kind) bool {
	return k.Transient() || k == incumbent.Unknown || k == incumbent.DeadlineExceeded ||
		k == incumbent.Compacted || k == incumbent.Conflict
}
