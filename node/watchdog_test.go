package node

import (
	"os"
	"runtime/pprof"
	"sync"
	"testing"
	"time"
)

// No test of this package may wait for ever: each that starts a node has so long,
// by the clock it runs on. In a bubble of synctest a node that works never lets the
// bubble find a deadlock: its ticks go on, as fast as the processor can, and a test
// that waits for an answer in vain would only end with the time of the whole run.
const (
	longestTest    = 5 * time.Minute
	longestVirtual = time.Hour
)

// rounds bounds a loop that does what is left to do until nothing is: members that
// send one another round in circles would never let it end. There time stands still,
// so no watchdog would bark.
type rounds int

const mostRounds = 100_000 // the longest loops of tests that pass have some hundred

func (r *rounds) next() {
	if *r++; *r > mostRounds {
		panic("there is always something left to do")
	}
}

// watched has the tests that have a watchdog.
var watched sync.Map

// unwatched is for runs that are meant to last.
var unwatched bool

// watch lets the process die, with all goroutines on standard error, if the test
// is not over in time. The first call of a test counts.
func watch(t testing.TB) {
	t.Helper()
	if _, again := watched.LoadOrStore(t, nil); again || unwatched {
		return
	}
	limit := longestTest
	if time.Now().Year() == 2000 { // where the clocks of bubbles begin
		limit = longestVirtual
	}
	name := t.Name()
	dog := time.AfterFunc(limit, func() {
		_ = pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		panic(name + " waits for ever")
	})
	t.Cleanup(func() {
		dog.Stop()
		watched.Delete(t)
	})
}
