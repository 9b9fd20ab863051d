package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/incumbent-dev/incumbent"
)

// Exit codes, the same for every verb.
const (
	exitOK          = 0
	exitOther       = 1
	exitUsage       = 2 // usage or configuration
	exitHeld        = 3 // held by another, or not found
	exitTimeout     = 4 // timed out waiting
	exitUnavailable = 5 // no leader, unavailable or overloaded: try again
	exitConflict    = 6 // changed meanwhile
	exitDenied      = 7 // not authorised
	exitThreshold   = 99
)

// exitByKind is the one table from an error's kind to the exit code.
var exitByKind = map[incumbent.Kind]int{
	incumbent.OK:               exitOK,
	incumbent.Invalid:          exitUsage,
	incumbent.NotFound:         exitHeld,
	incumbent.Exists:           exitConflict,
	incumbent.Held:             exitHeld,
	incumbent.NotHolder:        exitHeld,
	incumbent.Expired:          exitConflict,
	incumbent.Conflict:         exitConflict,
	incumbent.Denied:           exitDenied,
	incumbent.TooLarge:         exitUsage,
	incumbent.Overloaded:       exitUnavailable,
	incumbent.DeadlineExceeded: exitTimeout,
	incumbent.NotLeader:        exitUnavailable,
	incumbent.Unavailable:      exitUnavailable,
	incumbent.Unknown:          exitOther,
	incumbent.Compacted:        exitConflict,
	incumbent.Corrupt:          exitOther,
	incumbent.Internal:         exitOther,
}

// usageError is a mistake on the command line or in the configuration.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

// statusError carries an exit code that no kind stands for, such as a child's.
type statusError struct {
	code int
	text string
}

func (e statusError) Error() string { return e.text }

func exitCode(err error) int {
	var usage usageError
	var status statusError
	var typed *incumbent.Error
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &status):
		return status.code
	case errors.As(err, &usage):
		return exitUsage
	case errors.As(err, &typed):
		return exitByKind[typed.Kind]
	case errors.Is(err, context.DeadlineExceeded):
		return exitTimeout
	case strings.HasPrefix(err.Error(), "unknown command"), strings.Contains(err.Error(), " arg(s)"):
		return exitUsage // cobra has no type for these
	}
	return exitOther
}

// interrupted reports whether Ctrl-C or SIGTERM ended a command, and that is all: if a change
// was under way, nobody knows whether it took effect, and the error says so.
func interrupted(err error) bool {
	return errors.Is(err, context.Canceled) && incumbent.KindOf(err) != incumbent.Unknown
}

// errorText is what a person reads: what is wrong, whether and when to come
// back, who answered, and what helps.
func errorText(err error) string {
	var typed *incumbent.Error
	if interrupted(err) {
		return "interrupted"
	}
	if !errors.As(err, &typed) {
		return incumbent.EscapeLines(err.Error())
	}
	var b strings.Builder
	// A cause without a message of its own is named by whoever wrapped it. What the
	// server says may be what another client made it say: no line of it is ours.
	b.WriteString(incumbent.Escape(err.Error()))
	switch {
	case typed.RetryAfter > 0:
		fmt.Fprintf(&b, "\n  retry: after %v", typed.RetryAfter)
	case typed.Kind.Transient():
		b.WriteString("\n  retry: yes")
	case typed.Kind == incumbent.Unknown:
		b.WriteString("\n  retry: look first, it may have happened")
	}
	if typed.Member != "" {
		fmt.Fprintf(&b, "\n  answered by: %s", incumbent.Escape(typed.Member))
		if typed.Leader == typed.Member {
			b.WriteString(" (leader)")
		}
	}
	if typed.Leader != "" && typed.Leader != typed.Member {
		fmt.Fprintf(&b, "\n  leader: %s", incumbent.Escape(typed.Leader))
	}
	if typed.Hint != "" {
		fmt.Fprintf(&b, "\n  hint: %s", incumbent.Escape(typed.Hint))
	}
	return b.String()
}
