package native

import (
	"cmp"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// Defaults of [Limits].
const (
	DefaultMaxBodyBytes    = 1 << 20          // one request
	DefaultMaxMessageBytes = 256 << 10        // one WebSocket message
	DefaultCallTimeout     = 30 * time.Second // a call that names no deadline
	DefaultWriteTimeout    = 30 * time.Second // one write of a streaming call, one read of a body
	DefaultProgressEvery   = 10 * time.Second // between progress marks of a silent watch
)

// What is fixed: part of the protocol, or of no interest to an operator.
const (
	MaxOperations        = 1_000   // in one Batch, and extensions in one Extend
	MaxPage              = 10_000  // leases or sessions in one answer
	DefaultPage          = 1_000   // where the request names no limit
	MaxTokens            = 10_000  // in one extend_tokens
	MaxFrames            = 1_024   // in one message of a stream
	MaxThen              = 256     // that wait for the session of one start
	MaxSessionsPerStream = 1_000   // attached to one stream
	MaxWatchesPerStream  = 100     // open on one stream
	MaxWaitsPerStream    = 1_000   // unanswered wait_released on one stream
	MaxOpsPerStream      = 2_000   // unanswered operations and reads on one stream
	MaxExtendsPerStream  = 16_000  // unanswered extend_tokens and beats on one stream, where each session of a beat counts, too
	MaxEventsKept        = 100_000 // that one Events call may ask for
	DefaultEvents        = 100     // where it names no number

	MaxWatchBacklog = 256 << 10 // bytes a stream may have to send before its watches pause

	MaxWait         = 10 * time.Minute       // of wait_released
	DefaultWait     = time.Minute            // where the request names none
	ScanSlice       = 4096                   // leases looked at between two looks at the deadline
	maxFields       = 64                     // that one watch names, and tables beside them
	maxWatchedRows  = 64                     // that one watch names
	pullEvents      = 256                    // events taken from the hub, or shown of a state, at a time
	pullBytes       = 64 << 10               // of those: what they take together, or one of them
	maxStreamEvent  = 1 << 20                // of a change that a stream carries: its connection queues 4 MiB
	pageBytes       = 1 << 20                // an answer with a list ends with what makes it larger
	tickEvery       = 250 * time.Millisecond // between two looks at watches that are silent
	pumps           = 2                      // goroutines that write events to streams
	responders      = 2                      // goroutines that encode answers of the hot path
	workers         = 2                      // goroutines that answer operations, and as many for what is rare
	inlineSteps     = 32                     // of a transaction that a worker itself looks at
	deniedRetry     = 10 * time.Second       // until a lease is asked for again that was denied beside others, if no beat is due before
	maxOutcomes     = 512                    // operations answered at a time
	maxLetterBytes  = 32 << 10               // of answers to one stream that are sent at once
	maxLetters      = 32                     // buffers for answers that a goroutine keeps, up to keepBufferBytes each
	bodySlack       = 1 << 10                // around a message: the five bytes of gRPC, compression that does not pay
	maxInflated     = 4                      // times the limit that a compressed request may be large
	keyBodyBytes    = 1536 << 10             // a request about keys: two values in JSON
	txnBodyBytes    = 4 << 20                // a transaction: its command travels in parts
	maxKeysBytes    = 1 << 20                // of entries in one answer, save for one that is larger
	maxValues       = 64 << 10               // of a request in JSON, fields of one in protobuf: each may take a kilobyte of memory
	maxTxnValues    = 384 << 10              // of a transaction, which may have 30,000 steps
	maxDetailValue  = 4 << 10                // larger values are left out of errors
	keepBufferBytes = 64 << 10               // larger encode buffers are not pooled
)

// Limits bound what one client may ask of the door. Zero fields mean the
// defaults. They can be changed while running with [Door.SetLimits].
type Limits struct {
	MaxBodyBytes    int           // one request of a unary call
	MaxMessageBytes int           // one message on a stream
	CallTimeout     time.Duration // of a call without a deadline of its own
	WriteTimeout    time.Duration // a streaming call's reader may stall for so long
}

// Validate returns an Invalid error if a field is negative.
func (l Limits) Validate() error {
	if l.MaxBodyBytes < 0 || l.MaxMessageBytes < 0 || l.CallTimeout < 0 || l.WriteTimeout < 0 {
		return incumbent.Errorf(incumbent.Invalid, "limits of the native door must not be negative")
	}
	return nil
}

func (l Limits) withDefaults() Limits {
	return Limits{
		MaxBodyBytes:    cmp.Or(l.MaxBodyBytes, DefaultMaxBodyBytes),
		MaxMessageBytes: cmp.Or(l.MaxMessageBytes, DefaultMaxMessageBytes),
		CallTimeout:     cmp.Or(l.CallTimeout, DefaultCallTimeout),
		WriteTimeout:    cmp.Or(l.WriteTimeout, DefaultWriteTimeout),
	}
}
