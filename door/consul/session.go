package consul

import (
	"time"

	"github.com/incumbent-dev/incumbent"
	"github.com/incumbent-dev/incumbent/core"
	"github.com/incumbent-dev/incumbent/core/kv"
)

// defaultLockDelay is that of a session that says nothing of it.
const defaultLockDelay = 15 * time.Second

// lockOf is what the end of a session means to a key that it locks, and for how long
// nobody can lock the key then.
func (d *Door) lockOf(_ *core.View, _ incumbent.SessionID) (kv.OnEnd, time.Duration) {
	return kv.Keep, defaultLockDelay
}
