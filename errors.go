package incumbent

import (
	"errors"
	"fmt"
	"time"
)

// Kind says what went wrong, in a closed, append-only set. Each door and the
// command line's exit codes have one table from Kind to their own form.
type Kind uint8

// The kinds. The numbers are part of snapshots and of the wire: append only.
const (
	OK               Kind = iota
	Invalid               // the request itself is malformed or out of bounds
	NotFound              // what it names does not exist
	Exists                // what it would create exists
	Held                  // another holds the lease
	NotHolder             // the caller does not hold the lease, or no longer
	Expired               // the session has ended
	Conflict              // changed meanwhile
	Denied                // the caller may not do this
	TooLarge              // over a limit that has a name
	Overloaded            // refused early; come back after RetryAfter
	DeadlineExceeded      // the request's deadline passed before it was executed
	NotLeader             // another member leads
	Unavailable           // no leader, shutting down, or not caught up
	Unknown               // the outcome is not known: it may or may not have happened
	Compacted             // the history asked for is gone; start over
	Corrupt               // stored bytes are damaged; fatal
	Internal              // a broken invariant; fatal
	numKinds
)

var kindNames = [numKinds]string{
	"ok", "invalid", "not_found", "exists", "held", "not_holder", "expired", "conflict", "denied",
	"too_large", "overloaded", "deadline_exceeded", "not_leader", "unavailable", "unknown",
	"compacted", "corrupt", "internal",
}

// String returns the kind's name in snake case, as used in JSON and metrics.
func (k Kind) String() string {
	if k < numKinds {
		return kindNames[k]
	}
	return fmt.Sprintf("kind_%d", uint8(k))
}

// Kinds returns all kinds of error, for tables that must cover them all.
func Kinds() []Kind {
	ks := make([]Kind, 0, numKinds-1)
	for k := Invalid; k < numKinds; k++ {
		ks = append(ks, k)
	}
	return ks
}

// ParseKind is the inverse of [Kind.String]; unknown names give Internal, false.
func ParseKind(s string) (Kind, bool) {
	for k, n := range kindNames {
		if n == s {
			return Kind(k), true
		}
	}
	return Internal, false
}

// Transient reports whether the same request may succeed later unchanged.
// Unknown is not transient: repeating it is safe only with an idempotency key.
func (k Kind) Transient() bool {
	return k == Overloaded || k == NotLeader || k == Unavailable
}

// Fatal reports whether a node that meets this error must stop.
func (k Kind) Fatal() bool { return k == Corrupt || k == Internal }

// Error is the one error type of the module. Its zero fields are left out of
// what a client sees.
type Error struct {
	Kind       Kind
	Message    string        // what is wrong, lower case, no full stop
	Hint       string        // the setting or command that helps
	RetryAfter time.Duration // when to come back, already spread out
	Member     string        // which member answered
	Leader     string        // who leads, if known
	Err        error         // cause
}

// Errorf returns an error of kind k. A %w verb sets the cause.
func Errorf(k Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Message: err.Error(), Err: errors.Unwrap(err)}
}

// WithHint returns a copy of the error that names what helps.
func (e *Error) WithHint(hint string) *Error {
	c := *e
	c.Hint = hint
	return &c
}

// Error returns the kind and the message.
func (e *Error) Error() string {
	if e.Message == "" {
		return e.Kind.String()
	}
	return e.Kind.String() + ": " + e.Message
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Is reports whether the target is an *Error of the same kind without a message.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Kind == e.Kind
}

// KindOf returns the kind of err: OK for nil, Internal for an error that is
// not of this module.
func KindOf(err error) Kind {
	if err == nil {
		return OK
	}
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}
