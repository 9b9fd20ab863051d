package client

import (
	"time"

	"golang.org/x/sys/unix"
)

// boottime reads a monotonic clock that goes on while the machine is suspended.
// Go's own monotonic clock stands still then, and a holder that woke up would
// believe in a lease that others were long granted.
func boottime() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("client: no CLOCK_BOOTTIME: " + err.Error()) // there since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}
