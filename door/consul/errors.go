package consul

import (
	"net/http"

	"github.com/incumbent-dev/incumbent"
)

// Texts that clients look for.
const (
	textNoLeader     = "No cluster leader"
	textOverloaded   = "rate limit exceeded, try again later or against a different server"
	textLeaderBusy   = "rate limit exceeded for operation that can only be performed by the leader, try again later"
	textDenied       = "Permission denied: "
	textNoDatacenter = "No path to datacenter"
	textUnknownUser  = "ACL not found"
)

// errorReply is how a client is told of an error. No leader is a 500: clients try again
// at that alone.
func errorReply(err error) (status int, text string) {
	e, ok := err.(*incumbent.Error) //nolint:errorlint // an error that wraps one is not it
	if !ok {
		e = incumbent.Errorf(incumbent.KindOf(err), "%w", err)
	}
	switch e.Kind {
	case incumbent.NotLeader, incumbent.Unavailable:
		return http.StatusInternalServerError, textNoLeader
	case incumbent.Overloaded:
		return http.StatusTooManyRequests, textOverloaded
	case incumbent.Denied:
		return http.StatusForbidden, textDenied + e.Message
	case incumbent.TooLarge:
		return http.StatusRequestEntityTooLarge, e.Message
	case incumbent.Invalid:
		return http.StatusBadRequest, e.Message
	case incumbent.NotFound, incumbent.Expired, incumbent.Compacted:
		return http.StatusNotFound, e.Message
	case incumbent.Conflict, incumbent.Exists, incumbent.Held, incumbent.NotHolder:
		return http.StatusConflict, e.Message
	case incumbent.Unknown, incumbent.DeadlineExceeded:
		return http.StatusInternalServerError, e.Message
	default: // Corrupt, Internal: the member stops
		return http.StatusInternalServerError, "internal error"
	}
}

// retried reports whether something that ended so has certainly had no effect, and may
// be tried again.
func retried(err error) bool {
	switch incumbent.KindOf(err) {
	case incumbent.NotLeader, incumbent.Unavailable:
		return true
	}
	return false
}
