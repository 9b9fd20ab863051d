package client

import (
	"context"
	"errors"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	"github.com/incumbent-dev/incumbent"
	apiv1 "github.com/incumbent-dev/incumbent/api/incumbent/v1"
)

// hintUTF8 is the hint of a request that cannot be encoded.
const hintUTF8 = "texts are UTF-8"

// AsError turns an error of a call into an *incumbent.Error: from the detail
// the server attached, else from the code of the transport. Other errors, and
// nil, pass through; so does what has been through it already.
func AsError(err error) error {
	call := callIn(err)
	if call == nil {
		return err
	}
	for _, d := range call.Details() {
		msg, verr := d.Value()
		if verr != nil {
			continue
		}
		if detail, ok := msg.(*apiv1.Error); ok {
			return DetailError(detail)
		}
	}
	return transportError(call)
}

// callIn is the error of a call in err. nil: there is none, or it is behind an error of ours,
// as the cause of an outcome that is not known is, and says less.
func callIn(err error) (call *connect.Error) {
	for e := err; e != nil; e = errors.Unwrap(e) {
		if _, ours := e.(*incumbent.Error); ours { //nolint:errorlint // which of both comes first
			return nil
		}
		if call, is := e.(*connect.Error); is { //nolint:errorlint // likewise
			return call
		}
	}
	errors.As(err, &call) // among several that are joined
	return call
}

// DetailError turns the error of one item of an answer into an *incumbent.Error.
func DetailError(d *apiv1.Error) error {
	if d == nil {
		return nil
	}
	kind, known := incumbent.ParseKind(d.Kind)
	if !known {
		kind = incumbent.Unknown // a newer server's kind: say nothing about the outcome
	}
	err := &incumbent.Error{
		Kind: kind, Message: d.Message, Hint: d.Hint, Member: d.Member, Leader: d.Leader,
		RetryAfter: time.Duration(d.RetryAfterMs) * time.Millisecond,
	}
	if d.BaseIndex != 0 {
		err.Err = oldBase(d.BaseIndex)
	}
	return err
}

// oldBase is the cause of an error that says that the base of a key is older than what the
// log remembers of keys: the index from which on it remembers all.
type oldBase uint64

func (oldBase) Error() string { return "the base of the key is too old" }

// newBase is the base with which a request may be sent again that was refused for its base,
// and of which no attempt may have been executed; 0: it was refused for something else.
func newBase(err error) uint64 {
	var base oldBase
	errors.As(err, &base)
	return uint64(base)
}

// notExecuted is the error of a request that was refused for the base of its key, where no
// attempt before that may have been executed.
func notExecuted(err error) error {
	return incumbent.Errorf(incumbent.Unavailable, "it was not executed: %w", err)
}

// transportError stands for an answer that no server of ours has written: a
// broken connection, a proxy, a call that ended on this side. Unless the code
// says that nothing was executed, the outcome is unknown: a gateway that timed
// out, or an answer that was cut off, comes after the request. A request that
// could not be encoded never left.
func transportError(call *connect.Error) error {
	var typed *incumbent.Error
	if errors.As(call, &typed) {
		return typed
	}
	if errors.Is(call, context.Canceled) {
		return context.Canceled
	}
	if call.Code() == connect.CodeInternal && errors.Is(call, proto.Error) {
		return incumbent.Errorf(incumbent.Invalid, "the request cannot be written: %s", call.Message()).WithHint(hintUTF8)
	}
	kind := incumbent.Unknown
	switch call.Code() {
	case connect.CodeDeadlineExceeded:
		kind = incumbent.DeadlineExceeded
	case connect.CodeUnauthenticated, connect.CodePermissionDenied:
		kind = incumbent.Denied
	case connect.CodeUnimplemented:
		return incumbent.Errorf(incumbent.Invalid, "no server of Incumbent: %s", call.Message()).WithHint("check --server: its URL has no path")
	case connect.CodeResourceExhausted:
		kind = incumbent.TooLarge
	}
	out := incumbent.Errorf(kind, "%s", call.Message())
	out.Err = call
	return out
}

// attachedElsewhere is the reason for which a stream loses a session that was attached over
// another one with a higher counter: as this run closes a stream before it begins over the
// next, by another run.
const attachedElsewhere = "attached elsewhere"

// lostFor is why a session ended of which the server said that it is lost.
func lostFor(reason string) error {
	if reason == attachedElsewhere {
		return errTaken()
	}
	return incumbent.Errorf(incumbent.Expired, "the session ended at the server: %s", reason)
}

// takenError says that a session goes on without this run of its client.
type takenError struct{ error }

func (e *takenError) Unwrap() error { return e.error }

func errTaken() error {
	return &takenError{incumbent.Errorf(incumbent.Expired, "a later run of the session's client has taken it")}
}

// Taken reports whether a session has ended here, as the cause of [Session.Context] and
// the errors of its operations say, because a later run of its client has it
// (SessionConfig.ID). It is open at the server, with what it holds. Whoever opens it again
// takes it from that run.
func Taken(err error) bool {
	var e *takenError
	return errors.As(err, &e)
}
