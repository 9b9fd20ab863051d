package park

import (
	"fmt"

	"github.com/incumbent-dev/incumbent"
)

// Reason says why a connection ended, in a closed set; [Stats] counts each.
type Reason uint8

// The reasons.
const (
	PeerClosed     Reason = iota // the peer closed
	ReadFailed                   // reset, TLS alert, or another error of reading
	WriteFailed                  // an error of writing
	HandlerFailed                // Readable returned an error
	LocalClosed                  // Close or Finish was called
	SlowReader                   // more than MaxQueuedBytes unsent
	WriteTimedOut                // a byte waited longer than WriteTimeout
	Idle                         // nothing heard for IdleTimeout
	PartialTimeout               // a frame took longer than PartialTimeout
	PartialTooLong               // an incomplete frame over MaxPartial
	MemoryFull                   // over MaxHeldBytes
	Shutdown                     // the set is closing
	NumReasons
)

var reasonNames = [NumReasons]string{
	"peer_closed", "read_failed", "write_failed", "handler_failed", "local_closed", "slow_reader",
	"write_timeout", "idle", "partial_timeout", "partial_too_long", "memory_full", "shutdown",
}

// String returns the reason in snake case, as used in metrics.
func (r Reason) String() string {
	if r < NumReasons {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason_%d", uint8(r))
}

// limitError returns what a connection is told (in a log, seldom on the wire)
// when it ran into one of the set's own limits.
func limitError(r Reason, l *Limits) error {
	switch r {
	case SlowReader:
		return incumbent.Errorf(incumbent.TooLarge, "more than %d bytes wait for a slow reader", l.MaxQueuedBytes).
			WithHint("read faster, or raise max_queued_bytes")
	case WriteTimedOut:
		return incumbent.Errorf(incumbent.DeadlineExceeded, "bytes waited longer than %v for the reader", l.WriteTimeout).
			WithHint("read faster, or raise write_timeout")
	case Idle:
		return incumbent.Errorf(incumbent.DeadlineExceeded, "nothing heard within the idle timeout").
			WithHint("send something more often, or raise idle_timeout")
	case PartialTimeout:
		return incumbent.Errorf(incumbent.DeadlineExceeded, "a frame took longer than %v to arrive", l.PartialTimeout).
			WithHint("raise partial_timeout")
	case PartialTooLong:
		return incumbent.Errorf(incumbent.TooLarge, "an incomplete frame exceeds %d bytes", l.MaxPartial).
			WithHint("raise max_partial")
	case MemoryFull:
		return incumbent.Errorf(incumbent.Overloaded, "connections hold more than %d bytes", l.MaxHeldBytes).
			WithHint("raise max_held_bytes")
	case Shutdown:
		return incumbent.Errorf(incumbent.Unavailable, "shutting down")
	}
	return nil
}

// errClosed is what Send returns when the connection ended without an error.
func errClosed(r Reason) error {
	return incumbent.Errorf(incumbent.Unavailable, "connection has ended: %v", r)
}
