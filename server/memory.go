package server

import (
	"os"
	"runtime/debug"
)

// memoryShare is the part of --memory-bytes that Go's heap and stacks may fill
// before the collector works harder; the rest is the program itself.
const memoryShare = 0.9

// settleMemory makes the process keep to the memory it was given. Admission
// refuses growth above it, and resident memory is up to twice what lives until
// the collector is told of a limit. Whoever sets GOMEMLIMIT knows better.
//
// What recovery has read, whole segments, is given back at once: an idle member
// would otherwise keep it for as long as nothing happens.
func settleMemory(limit int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(float64(limit) * memoryShare))
	}
	debug.FreeOSMemory()
}
