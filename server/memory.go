package server

import (
	"math"
	"os"
	"runtime/debug"
	runtimemetrics "runtime/metrics"
)

// memoryShare is the part of --memory-bytes that Go's heap and stacks may fill
// before the collector works harder; the rest is the program itself.
const memoryShare = 0.9

// How much garbage there may be before the collector runs: as much as lives, in a
// small heap. In a large one that would be half of the resident memory.
const (
	freeGarbage  = 64 << 20 // bytes up to which that is so
	garbageShare = 8        // of what lives beyond that, one part in so many
	plainPercent = 100      // the collector's setting for a small heap
)

// settleMemory makes the process keep to the memory it was given. Admission
// refuses growth above it, and resident memory is up to twice what lives until
// the collector is told of a limit. Whoever sets GOMEMLIMIT knows better.
//
// What recovery has read, whole segments, is given back at once: an idle member
// would otherwise keep it for as long as nothing happens. Nobody waits for that: it
// goes through all that lives.
func settleMemory(limit int64) {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(int64(float64(limit) * memoryShare))
	}
	go debug.FreeOSMemory()
}

// collector keeps Go's garbage collector at the percentage that the heap's size asks
// for. It belongs to one goroutine.
type collector struct {
	percent int
	sample  [1]runtimemetrics.Sample
}

func newCollector() *collector {
	return &collector{percent: plainPercent, sample: [1]runtimemetrics.Sample{{Name: "/gc/heap/live:bytes"}}}
}

// settle looks at what lives since the last collection. Setting the percentage stops
// the program for a moment, so small differences change nothing. Whoever sets
// GOGC knows better.
func (c *collector) settle() {
	if os.Getenv("GOGC") != "" {
		return
	}
	runtimemetrics.Read(c.sample[:])
	want := gcPercent(c.sample[0].Value.Uint64())
	if math.Abs(float64(want-c.percent)) > float64(c.percent)/garbageShare {
		c.percent = want
		debug.SetGCPercent(want)
	}
}

// end leaves the collector as it was found.
func (c *collector) end() {
	if c.percent != plainPercent {
		debug.SetGCPercent(plainPercent)
	}
}

// gcPercent is how much garbage there may be beside so many bytes that live.
func gcPercent(live uint64) int {
	if live <= freeGarbage {
		return plainPercent
	}
	return int(plainPercent * (freeGarbage + (live-freeGarbage)/garbageShare) / live)
}
