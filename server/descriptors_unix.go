//go:build unix

package server

import (
	"math"
	"syscall"
)

// descriptorLimit is how many file descriptors this process may have. Go raises the soft
// limit to the hard one when it starts.
func descriptorLimit() uint64 {
	var l syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l) != nil {
		return math.MaxUint64
	}
	return uint64(l.Cur) //nolint:unconvert // it is an int64 elsewhere
}
