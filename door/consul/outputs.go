package consul

import (
	"sync"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core/catalog"
	"github.com/incumbent-dev/incumbent/health"
)

// maxOutputs is of how many checks it is known when their outputs were written.
const maxOutputs = 100_000

// outputs are when this member has last written the output of a check with a ttl. One that
// changes while its status does not is written no more often than that of a check which
// members run: else a note with the time in it were an entry of the log each time, and woke
// all who watch the service.
type outputs struct {
	mu    sync.Mutex
	until map[string]int64 // check, folded → when its output may be written again; of Door.monotonic
}

// notWritten takes back that an output was written.
func (o *outputs) notWritten(id string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.until, incumbent.Fold(id))
}

// settled reports whether an update with the status that a check has is to leave its output
// as it is. If not, it is taken to be written now; jitter is of [0, 1).
func (o *outputs) settled(c *catalog.Check, output string, now int64, jitter float64) bool {
	if c.Output == "" || c.Output == output {
		return false // it is the first, or writes nothing
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	key := incumbent.Fold(c.ID)
	if now < o.until[key] {
		return true
	}
	if len(o.until) >= maxOutputs {
		for k, until := range o.until {
			if now >= until {
				delete(o.until, k)
			}
		}
		if len(o.until) >= maxOutputs {
			clear(o.until) // they are written sooner
		}
	}
	if o.until == nil {
		o.until = map[string]int64{}
	}
	// Those that are written together are not to be written together again.
	o.until[key] = now + int64(health.DefaultOutputEvery/2) + int64(jitter*float64(health.DefaultOutputEvery/2))
	return false
}
