package node

import (
	"context"
	"time"
)

// Clock is where the shell's time comes from. Wall time is not used: only
// differences of what one Now returned.
type Clock interface {
	Now() time.Time
	// Ticker returns a channel that gets the time every d, dropping what the
	// receiver is too slow for, and a function that stops it.
	Ticker(d time.Duration) (c <-chan time.Time, stop func())
	// Sleep waits for d, or less if ctx ends.
	Sleep(ctx context.Context, d time.Duration)
}

// systemClock is the machine's clock.
type systemClock struct{}

func (systemClock) Now() time.Time { return time.Now() }

func (systemClock) Ticker(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTicker(d)
	return t.C, t.Stop
}

func (systemClock) Sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
