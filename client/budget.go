package client

import (
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/incumbent-dev/incumbent"
)

// How much is repeated of what members refused for now, or were silent about: of a
// hundred requests ten, and beyond that repeatReserve at once and one in each
// repeatEvery. Members that are overloaded get a tenth more work from those they refuse,
// not a multiple of it; and a few requests, sent seldom, are repeated as often as their
// pauses let them be.
const (
	repeatShare   = 0.1
	repeatReserve = 10
	repeatEvery   = time.Second
)

// budget bounds what is repeated: a bucket of tokens, full at first. The zero value is
// ready.
//
// What keeps leases is not counted: beats, extensions, and connecting again go on until
// the deadline of what they keep, with pauses. Nor is what is asked again because the
// stream broke over which it was sent: there is one such attempt for each stream.
type budget struct {
	mu    sync.Mutex    // protects the rest, for a few additions
	spent float64       // 0 to repeatReserve
	at    time.Duration // on the client's clock, when spent was right
}

// first notes requests that are sent for the first time.
func (b *budget) first(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-repeatShare*float64(n))
}

// repeat reports whether a request may be sent again, and counts it then.
func (b *budget) repeat(now time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = max(0, b.spent-float64(now-b.at)/float64(repeatEvery))
	b.at = now
	if b.spent+1 > repeatReserve {
		return false
	}
	b.spent++
	return true
}

// jitter spreads a pause over (0, pause]. If the server asked for a time it is that one
// at least, and up to half as long again: many are given the same.
func jitter(pause time.Duration, err error) time.Duration {
	d := time.Duration(rand.Int64N(int64(pause)) + 1)
	var typed *incumbent.Error
	if errors.As(err, &typed) && typed.RetryAfter > 0 {
		return max(d, above(typed.RetryAfter))
	}
	return d
}

// above spreads a time over itself and half as long again.
func above(d time.Duration) time.Duration { return d + rand.N(d/2+1) }
