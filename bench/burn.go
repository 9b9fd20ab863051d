package bench

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// burn keeps every core busy until the returned function is called. Each loop
// gets a processor of the Go runtime beyond those there are, so that it competes
// with the servers for the machine and not with the load for the runtime.
func burn() (stop func()) {
	cores := runtime.NumCPU()
	before := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(before + cores)
	var over atomic.Bool
	var running sync.WaitGroup
	for range cores {
		running.Go(func() {
			for !over.Load() {
			}
		})
	}
	return func() {
		over.Store(true)
		running.Wait()
		runtime.GOMAXPROCS(before)
	}
}
