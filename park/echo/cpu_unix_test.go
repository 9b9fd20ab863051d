//go:build unix

package echo

import (
	"syscall"
	"time"
)

// processCPU returns the processor time of this process, which other loads
// on the machine distort less than they distort rates.
func processCPU() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
