package lease

import "time"

// Clock is where the shell's time comes from. It stands for a monotonic clock;
// that it may stand still while the machine is suspended only lengthens leases.
type Clock interface {
	// Now is nanoseconds since some moment, never going back.
	Now() int64
	// Until is how long it is until t.
	Until(t time.Time) time.Duration
	// Ticker returns a channel that gets something every d, dropping what the
	// receiver is too slow for, and a function that stops it.
	Ticker(d time.Duration) (c <-chan time.Time, stop func())
	// AfterFunc calls fn after d.
	AfterFunc(d time.Duration, fn func())
}

// SystemClock returns the machine's clock, counting from now.
func SystemClock() Clock { return systemClock{time.Now()} }

type systemClock struct{ began time.Time }

func (c systemClock) Now() int64                      { return int64(time.Since(c.began)) }
func (c systemClock) Until(t time.Time) time.Duration { return time.Until(t) }

func (c systemClock) Ticker(d time.Duration) (<-chan time.Time, func()) {
	t := time.NewTicker(d)
	return t.C, t.Stop
}

func (c systemClock) AfterFunc(d time.Duration, fn func()) { time.AfterFunc(d, fn) }
